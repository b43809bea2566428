"""Real loaders with planted faults, measured by the command as a user runs it: ratios, never absolute times."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.lab_children import children
from tests.pty_programs import Terminal, wait_until

pytestmark = pytest.mark.jobs

GPUTOP = [sys.executable, "-m", "gputop"]
PLANTED = """
import os, signal, sys, time
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

class Planted(Dataset):
    def __init__(self, seconds, broken=lambda index, worker: None):
        self.seconds, self.broken = seconds, broken
    def __len__(self):
        return 2000
    def __getitem__(self, index):
        worker = get_worker_info()
        self.broken(index, worker)
        crowded = 2.6 if worker and worker.num_workers > 2 else 1.0  # 4 workers do less than 2
        time.sleep(self.seconds * crowded)
        return torch.full((4,), index)

def loader(seconds, step_seconds):
    print("the user's own words")
    assert sys.argv[1:] == [seconds, step_seconds]
    return DataLoader(Planted(float(seconds)), batch_size=4), lambda batch: time.sleep(float(step_seconds))

class Trainer:
    dataset = Planted(0.001)
    def step(self, batch):
        assert len(batch) == 16
        time.sleep(0.005)

def one_slow_sample():
    return DataLoader(Planted(0.002, lambda index, worker: time.sleep(0.4 * (index == 37))), batch_size=8)

def raises():
    return DataLoader(Planted(0, lambda index, worker: worker and {}["no such label"]), batch_size=4)

def hangs():
    return DataLoader(Planted(0.001, lambda index, worker: worker and time.sleep(1000)), batch_size=4)

def killed():
    return Planted(0.001, lambda index, worker: worker and os.kill(os.getpid(), signal.SIGKILL))

def breaks():
    raise RuntimeError("no data set here")

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, inputs):
        time.sleep(0.1)
        return self.layer(inputs.float())

def for_the_lab():
    return Net(), DataLoader(Planted(0.01), batch_size=4), lambda outputs: outputs.mean()

class Whole:
    model, dataset = Net(), Planted(0.001)
    def loss(self, model, batch):
        return model(batch).mean()

def one_batch():
    return Net(), torch.ones(4), None
"""


@pytest.fixture
def planted(tmp_path: Path) -> str:
    (tmp_path / "planted.py").write_text(PLANTED)
    return str(tmp_path / "planted.py")


def loader(*args: str, state: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*GPUTOP, "loader", "--no-nvml", *args],
        capture_output=True, text=True, timeout=300, check=False, stdin=subprocess.DEVNULL,
        env={**os.environ, "XDG_STATE_HOME": str(state)},
    )  # fmt: skip


def test_a_slow_getitem_scales_with_workers_up_to_the_knee_and_a_step_waits(planted: str, tmp_path: Path) -> None:
    done = loader(
        f"{planted}:loader", "--workers", "0,2,4", "--batches", "20", "--json", "--", "0.02", "0.08", state=tmp_path
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert "the user's own words" in done.stderr
    none, two, four = result["workers"]
    assert two["batches_per_s"] > 1.5 * none["batches_per_s"]
    assert four["batches_per_s"] < two["batches_per_s"]
    assert result["recommended"] == 2
    assert result["step_s"] == pytest.approx(none["mean_s"], rel=0.5)  # 80 ms each, as planted
    assert "num_workers=2" in result["line"]
    assert none["first_s"] < two["first_s"] + four["first_s"]
    assert [one["setting"] for one in result["options"][:3]] == [
        "no change",
        "prefetch_factor=4",
        "persistent_workers=True",
    ]
    assert all(one["again_s"] for one in (result["options"][0], result["options"][2]))
    (kept,) = (tmp_path / "gputop" / "lab").iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert json.loads(loader("--last", "--json", state=tmp_path).stdout) == result
    said = loader("--last", state=tmp_path).stdout
    assert "num_workers=2; training then waits for data" in said
    assert result["line"] in said


@pytest.mark.parametrize("function", ["for_the_lab", "Whole"])
def test_the_function_that_the_lab_sends_here_is_measured_with_the_step_of_its_model(
    planted: str, tmp_path: Path, function: str
) -> None:
    done = loader(f"{planted}:{function}", "--workers", "0", "--batches", "5", "--json", state=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["made"]["step"]
    assert result["step_s"] > 0.1  # as planted in the model
    assert result["workers"][0]["mean_s"] > 0.01


SNIPPET = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
from torch.utils.data import DataLoader
from planted import Planted

def benchmark_dataloader(loader, num_batches=50):
    times, batches = [], iter(loader)
    for i in range(num_batches + 1):
        start = time.perf_counter()
        next(batches)
        times.append(time.perf_counter() - start)
    times = times[1:]  # the first one starts the workers
    return {"avg": sum(times) / len(times), "fastest": min(times), "per_s": len(times) / sum(times)}

print(json.dumps({n: benchmark_dataloader(DataLoader(Planted(0.01), batch_size=4, num_workers=n)) for n in (0, 2)}))
"""


def test_the_guides_benchmark_says_the_same(planted: str, tmp_path: Path) -> None:
    """Mission row 38: the average and the rate of 50 batches, by number of workers."""
    done = subprocess.run(
        [sys.executable, "-c", SNIPPET, str(tmp_path)], capture_output=True, text=True, check=True, timeout=300
    )
    printed = json.loads(done.stdout)
    asked = loader(f"{planted}:loader", "--workers", "0,2", "--json", "--", "0.01", "0.001", state=tmp_path)
    for row in json.loads(asked.stdout)["workers"]:
        guide = printed[str(row["num_workers"])]
        assert row["batches"] == 50
        assert row["mean_s"] == pytest.approx(guide["avg"], rel=0.35)
        assert row["batches_per_s"] == pytest.approx(guide["per_s"], rel=0.35)


def test_a_slow_sample_is_named(planted: str, tmp_path: Path) -> None:
    done = loader(f"{planted}:one_slow_sample", "--workers", "0", "--batches", "12", "--json", state=tmp_path)
    assert done.returncode == 0, done.stderr
    slow = sorted(json.loads(done.stdout)["slow_samples"], key=lambda one: -one["s"])
    assert slow[0]["index"] == 37
    assert slow[0]["s"] > 20 * slow[0]["median_s"]


@pytest.mark.parametrize(
    ("function", "args", "says"),
    [
        ("breaks", (), "gputop: FILE:breaks: RuntimeError: no data set here (FILE:42 in breaks)\n"),
        ("loader", (), "gputop: FILE:loader: loader(seconds, step_seconds) does not take the 0 arguments after --\n"),
        ("nothing", (), "has no function nothing: it has loader, one_slow_sample, raises"),
        ("one_batch", (), "one_batch returned a model with Tensor, not with a DataLoader or a Dataset of torch"),
    ],
)
def test_a_factory_that_fails_is_one_line(
    planted: str, tmp_path: Path, function: str, args: tuple[str, ...], says: str
) -> None:
    done = loader(f"{planted}:{function}", *args, state=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert says in done.stderr.replace(planted, "FILE")
    assert not (tmp_path / "gputop").exists()


@pytest.mark.parametrize("command", ["lab", "loader", "maxbatch", "memory"])
def test_what_is_no_python_says_nothing_of_its_own(planted: str, tmp_path: Path, command: str) -> None:
    done = subprocess.run(
        [*GPUTOP, command, "--no-nvml", f"{planted}:for_the_lab", "--python", "/bin/ls"],
        capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
    )  # fmt: skip
    why = "is not a Python interpreter (exit code 2 for a one-line script): name the interpreter of the training"
    assert (done.returncode, done.stdout, done.stderr) == (64, "", f"gputop: --python /bin/ls {why}\n")


@pytest.mark.parametrize(
    ("function", "args", "says"),
    [
        ("raises", (), "gputop: num_workers=2: KeyError: 'no such label' (FILE:33 in <lambda>)\n"),
        ("killed", (), "gputop: num_workers=2: a DataLoader worker was killed"),
        ("hangs", ("--timeout", "20s"), "gputop: num_workers=2: hung: no answer for 20 s"),
    ],
)
def test_what_was_measured_before_a_failure_is_printed_and_kept(
    planted: str, tmp_path: Path, function: str, args: tuple[str, ...], says: str
) -> None:
    done = loader(f"{planted}:{function}", "--workers", "0,2", "--batches", "10", *args, state=tmp_path)
    assert done.returncode == 1
    assert says in done.stderr.replace(planted, "FILE")
    assert "Traceback" not in done.stderr
    assert "\n  0 " in done.stdout
    assert "not complete: num_workers=2" in done.stdout
    assert loader("--last", state=tmp_path).stdout == done.stdout
    assert children(planted) == []


def test_an_object_with_a_dataset_and_a_step_will_do(planted: str, tmp_path: Path) -> None:
    args = ("--workers", "0", "--batches", "5", "--batch-size", "16", "--readonly")
    done = loader(f"{planted}:Trainer", *args, state=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "training waits for data" in " ".join(done.stdout.split())
    assert "DataLoader(dataset, batch_size=16, shuffle=True, num_workers=0)" in done.stdout
    assert not (tmp_path / "gputop").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_ending_signal_ends_the_children_and_prints_what_there_is(
    planted: str, tmp_path: Path, number: signal.Signals
) -> None:
    argv = [*GPUTOP, "loader", "--no-nvml", f"{planted}:hangs", "--workers", "0,2", "--batches", "10"]
    with Terminal(argv, env={"XDG_STATE_HOME": str(tmp_path)}) as terminal:
        wait_until(lambda: b"num_workers=2: 0 of 10 batches" in terminal.output, 60, "it waits for a worker")
        if number == signal.SIGINT:
            terminal.send("ctrl+c")
        else:
            terminal.process.send_signal(number)
        assert terminal.process.wait(30) == 128 + number
        wait_until(lambda: b"num_workers=2: interrupted" in terminal.output, 10, "it says so")
        assert b"BATCHES/s" in terminal.output
    assert children(planted) == []


def test_a_module_is_found_where_the_user_is_and_torch_is_named_where_it_is_missing(
    planted: str, tmp_path: Path
) -> None:
    (tmp_path / "python").write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # without site-packages
    (tmp_path / "python").chmod(0o755)
    done = loader("planted:loader", "--python", str(tmp_path / "python"), state=tmp_path)
    assert done.returncode == 1
    assert "torch is missing in" in done.stderr
    assert done.stderr.count("\n") == 1

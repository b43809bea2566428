"""What an experiment takes over from a training that runs: from /proc, and from the agent in it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputop.lab import results
from tests.process_watch import ROOT
from tests.real_processes import row
from tests.traced_jobs import Job, job, scratch

GPUTOP = [sys.executable, "-m", "gputop"]
TRAINING = """
import sys, time
import torch
from torch.utils.data import DataLoader

def test_data(folder, size=3): ...
async def data_later(): ...

def make_data(samples=40):
    if __name__ != "__main__":
        print("sees", __import__("os").environ.get("OMP_NUM_THREADS"))
    return [torch.zeros(4) for _ in range(samples)]

class Net(torch.nn.Linear):
    pass

if __name__ == "__main__":
    model = Net(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(make_data(4000), batch_size=5, num_workers=0)
    for number, batch in enumerate(loader):
        model(batch).sum().backward()
        optimizer.step()
        if number == 5:
            print("ready", flush=True)
        time.sleep(0.02)
"""

pytestmark = pytest.mark.jobs


@pytest.fixture(scope="module")
def training() -> Iterator[Job]:
    """One by the Python of a virtual environment, which is a link."""
    with pytest.MonkeyPatch.context() as patch, scratch() as folder:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("SECRET_TOKEN", "hunter2")
        Path(folder, "train.py").write_text(TRAINING)
        with job(folder, "--lr", "1", program="train.py") as running:
            yield running


def ask(running: Job, *args: str) -> subprocess.CompletedProcess[str]:
    own = {"GPUTOP_RUNTIME_DIR": f"{running.folder}/run", "XDG_STATE_HOME": running.folder, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*GPUTOP, args[0], "--no-nvml", "--from", str(running.pid), *args[1:]],
        capture_output=True, text=True, timeout=120, check=False, cwd="/", env={**os.environ, **own},
    )  # fmt: skip


def test_without_a_function_those_that_may_be_it_are_named(training: Job) -> None:
    done = ask(training, "loader")
    assert done.returncode == 64
    assert done.stdout == f"gputop loader --from {training.pid} train.py:make_data\n"
    assert f"from {training.pid}: Python {sys.executable}, folder {training.folder}, script train.py\n" in done.stderr
    assert f"from {training.pid}: variables OMP_NUM_THREADS\n" in done.stderr
    assert f"from {training.pid}: DataLoader(num_workers=0, batch_size=5), model Net\n" in done.stderr
    assert done.stderr.endswith("the function to measure is not visible in the process: a candidate is above\n")
    assert "hunter2" not in done.stderr


@pytest.mark.parametrize("command", ["lab", "maxbatch", "memory"])
def test_where_there_is_none_one_is_sketched_with_what_is_known(training: Job, command: str) -> None:
    script = Path(training.folder, "train.py")
    script.write_text(TRAINING.replace("make_data", "samples"))
    done = ask(training, command)
    script.write_text(TRAINING)
    assert done.returncode == 64
    assert "# in train.py\ndef make():\n    model = Net(...)" in done.stdout
    assert "batch_size=5, shuffle=True, num_workers=0" in done.stdout
    then = f"gputop {command} --from {training.pid} train.py:make"
    assert done.stderr.endswith(f"write one as sketched above, then run {then}\n")


def test_its_python_folder_variables_and_batch_size_are_taken(training: Job) -> None:
    done = ask(training, "loader", "train.py:make_data", "--batches", "5", "--workers", "0")
    assert done.returncode == 0, done.stderr
    assert "train.py:make_data: batches of 5," in done.stdout
    assert "sees 1\n" in done.stderr
    with pytest.MonkeyPatch.context() as patch:  # beside the finding about it
        patch.setenv("XDG_STATE_HOME", training.folder)
        kept = results.of(row(training.pid).identity, f"gputop loader --from {training.pid}", time.time())
        assert kept is not None
        assert kept.text.startswith("keep num_workers=0: DataLoader(dataset, batch_size=5,")


def test_without_an_agent_what_it_knows_is_said_to_be_unknown(training: Job) -> None:
    with job(training.folder, "--lr", "1", program="train.py", injected=False) as plain:
        done = ask(plain, "loader")
    unknown = "its DataLoader and its model are unknown: it has no agent; start the job with `gputop run`"
    assert f"from {plain.pid}: {unknown}" in done.stderr


def test_a_demo_and_nobody_have_nothing_to_take(training: Job) -> None:
    for spec, words in ((("--source", "demo:llama"), "demo"), ((), "no process with PID")):
        pid = str(1 << 21) if not spec else "1"
        done = subprocess.run(
            [*GPUTOP, "loader", *spec, "--from", pid], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode != 0
        assert words in done.stderr
        assert done.stderr.count("\n") == 1

"""Real training steps with planted faults, by the commands as a user runs them: ratios, never absolute times."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gputop import lab as package
from tests.lab_children import children
from tests.pty_programs import Terminal, wait_until

pytestmark = pytest.mark.jobs

ALONE = {"OMP_NUM_THREADS": "1"}  # threads that wait for each other are slowed by whatever runs beside them
GPUTOP = [sys.executable, "-m", "gputop"]
PLANTED = """
import sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __init__(self, seconds):
        self.seconds = seconds
    def __len__(self):
        return 400
    def __getitem__(self, index):
        time.sleep(self.seconds)
        return torch.full((16,), float(index)), index % 4

class Net(nn.Module):
    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds
        self.inner = nn.Linear(16, 4)
    def forward(self, inputs):
        time.sleep(self.seconds)
        return self.inner(inputs)

def planted(load, step):
    print("the user's own words")
    return Net(float(step)), DataLoader(Data(float(load)), batch_size=4), nn.CrossEntropyLoss()

def own_step():
    model = Net(0.02)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    def step(batch):
        loss = nn.functional.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return DataLoader(Data(0), batch_size=4), step

def breaks():
    raise RuntimeError("no data set here")

def wrong():
    return Net(0)

class Hangs(Net):
    def forward(self, inputs):
        if torch.is_autocast_enabled() or torch.is_autocast_cpu_enabled():
            time.sleep(1000)
        return super().forward(inputs)

def hangs():
    return Hangs(0.001), (torch.ones(4, 16), torch.zeros(4, dtype=torch.long))

class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
    def forward(self, inputs):
        return inputs * self.weight  # and one more of its size for the gradient

def wide():
    return Wide()

class Mortal(Wide):
    def forward(self, inputs):
        if len(inputs) > 100:
            import os, signal
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(inputs)

def mortal():
    return Mortal()

def overflows():
    return Net(0), [(torch.ones(4, 16), torch.ones(4, 4))] * 3, lambda made, wanted: 1e30 * (made - wanted).sum()
"""


@pytest.fixture
def planted(tmp_path: Path) -> str:
    (tmp_path / "planted.py").write_text(PLANTED)
    return str(tmp_path / "planted.py")


def gputop(command: str, *args: str, state: Path, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command; without a C++ compiler, which would take half a minute for each run."""
    argv = [*GPUTOP, command, "--no-nvml", *args]
    if before:
        argv = ["bash", "-c", f'{before}; exec "$@"', "bash", *argv]
    return subprocess.run(
        argv, capture_output=True, text=True, timeout=600, check=False, stdin=subprocess.DEVNULL,
        env={**os.environ, **ALONE, "XDG_STATE_HOME": str(state), "CXX": "/nonexistent"},
    )  # fmt: skip


def measured(*args: str, command: str = "lab", state: Path, before: str = "") -> dict[str, Any]:
    done = gputop(command, "--json", *args, state=state, before=before)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


SHORT = ("--repeats", "1", "--steps", "10", "--warmup", "2")


def test_a_cpu_measures_fp16_with_its_scaler_and_says_why_it_has_no_tf32(planted: str, tmp_path: Path) -> None:
    """Set there, TF32 is taken by torch and changes nothing: its row would be a second one of fp32."""
    result = measured(f"{planted}:overflows", *SHORT, "--fp16", "--tf32", state=tmp_path)
    assert list(result["runs"]) == ["fp32", "bf16", "fp16"]
    assert result["failed"]["tf32"] == "TF32 is a mode of the Tensor Cores of a GPU, and the model is on the CPU"
    assert "tf32" not in result["ceilings"]["flops"]
    assert result["runs"]["fp16"][0]["skipped"] == 8  # of 8 steps: each of its gradients is infinite
    assert result["runs"]["fp32"][0]["skipped"] is None
    assert result["verdict"]["precision_helps"] is None
    said = gputop("lab", "--last", state=tmp_path).stdout
    assert "It cannot show what bf16 or fp16 gain from a GPU's Tensor Cores" in " ".join(said.split())


def test_a_slow_loader_waits_and_a_slow_model_does_not(planted: str, tmp_path: Path) -> None:
    loads = measured(f"{planted}:planted", *SHORT, "--", "0.04", "0.02", state=tmp_path)
    says = loads["verdict"]
    assert 0.6 < says["waits"] < 0.98  # 4 samples of 40 ms, a step of 20 ms: 8 of 9
    assert says["waits_for_data"] is True
    (row,) = loads["runs"]["fp32"]
    assert row["samples_per_s"] == pytest.approx(4 * row["steps_per_s"])
    assert row["waited_s"] > 0.5 * row["step_s"] * row["steps"]
    assert row["flops"] == 3 * 2 * 4 * 16 * 4 - 2 * 4 * 16 * 4  # forward and weights; its inputs need no gradient
    assert "no C++ compiler" in loads["failed"]["bf16+compile"]
    (kept,) = (tmp_path / "gputop" / "lab").iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    said = gputop("lab", "--last", state=tmp_path)
    assert "dataloader-bound, tune the loader before precision" in said.stdout
    assert f"gputop loader {planted}:planted" in said.stdout
    assert "bf16 + compile was not measured" in said.stdout
    computes = measured(f"{planted}:planted", *SHORT, "--", "0.0", "0.15", state=tmp_path)
    assert computes["verdict"]["waits"] < 0.2
    assert computes["verdict"]["waits_for_data"] is not True


SNIPPET = """
import importlib.util, json, sys, time
import torch
spec = importlib.util.spec_from_file_location("planted", sys.argv[1])
planted = importlib.util.module_from_spec(spec)
sys.modules["planted"] = planted
spec.loader.exec_module(planted)

def run(steps=30, warmup=5):
    torch.manual_seed(0)
    model, loader, loss_fn = planted.planted(0.005, 0.06)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    seen, start = 0, None
    for i, (x, y) in enumerate(loader):
        if i == warmup:
            start, seen = time.perf_counter(), 0
        if i == steps:
            break
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seen += x.size(0)
    return seen / (time.perf_counter() - start)

print(json.dumps(run()))
"""


def test_the_guides_snippet_says_the_same_samples_per_second(planted: str, tmp_path: Path) -> None:
    """Mission row 58: the loop of the three-run lab, as it is printed there."""
    (tmp_path / "snippet.py").write_text(SNIPPET)
    command = [sys.executable, str(tmp_path / "snippet.py"), planted]
    args = ("--repeats", "1", "--steps", "30", "--", "0.005", "0.06")
    printed, ours = 0.0, 0.0
    for _ in range(8):  # what else this machine does makes either slower, never faster: the best of both is compared
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
        printed = max(printed, float(done.stdout.splitlines()[-1]))
        (row,) = measured(f"{planted}:planted", *args, state=tmp_path)["runs"]["fp32"]
        ours = max(ours, row["samples_per_s"])
        if ours == pytest.approx(printed, rel=0.35):
            break
    assert ours == pytest.approx(printed, rel=0.35)


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_compile_is_measured_where_a_compiler_is_and_the_users_step_calls_it(planted: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [*GPUTOP, "lab", "--no-nvml", f"{planted}:own_step", *SHORT, "--json"],
        capture_output=True, text=True, timeout=600, check=False, env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["made"]["own_step"] is True
    (compiled,) = result["runs"]["bf16+compile"]
    assert compiled["compile_s"] > 5 * compiled["alone_s"]


@pytest.mark.parametrize(
    ("function", "args", "says"),
    [
        ("breaks", (), "gputop: FILE:breaks: RuntimeError: no data set here (FILE:40 in breaks)\n"),
        ("wrong", (), "gputop: FILE:wrong: wrong returned a model without data: return model, loader\n"),
        ("Data", ("--", "1"), "gputop: FILE:Data: Data returned Data: return model, loader or model, batch, loss_fn\n"),
        ("wrong", ("--warmup", "60"), "gputop: --warmup 60 must be less than --steps 55\n"),
    ],
)
def test_what_is_wrong_is_one_line(
    planted: str, tmp_path: Path, function: str, args: tuple[str, ...], says: str
) -> None:
    done = gputop("lab", f"{planted}:{function}", *args, state=tmp_path)
    assert (done.returncode != 0, done.stdout) == (True, "")
    assert says in done.stderr.replace(planted, "FILE")
    assert not (tmp_path / "gputop").exists()


def test_torch_is_named_where_it_is_missing(planted: str, tmp_path: Path) -> None:
    (tmp_path / "python").write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # without site-packages
    (tmp_path / "python").chmod(0o755)
    for command in ("lab", "maxbatch"):
        done = gputop(command, f"{planted}:wrong", "--python", str(tmp_path / "python"), state=tmp_path)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert "torch is missing in" in done.stderr


def test_a_step_that_hangs_is_one_line_and_the_others_are_kept(planted: str, tmp_path: Path) -> None:
    result = measured(f"{planted}:hangs", *SHORT, "--timeout", "20s", state=tmp_path)
    assert list(result["runs"]) == ["fp32"]
    assert result["failed"]["bf16"] == "hung: no answer for 20 s; terminated with its workers; --timeout waits longer"
    assert result["failed"]["bf16+compile"] == "bf16 fails"
    assert children(planted) == []


def test_ctrl_c_ends_the_children_and_prints_what_there_is(planted: str, tmp_path: Path) -> None:
    argv = [*GPUTOP, "lab", "--no-nvml", f"{planted}:hangs", *SHORT]
    with Terminal(argv, env={"XDG_STATE_HOME": str(tmp_path)}) as terminal:
        wait_until(lambda: b"bf16, run 1 of 1" in terminal.output, 120, "fp32 is measured")
        terminal.send("ctrl+c")
        assert terminal.process.wait(30) == 128 + signal.SIGINT
        wait_until(lambda: b"bf16, run 1 of 1: interrupted" in terminal.output, 10, "it says so")
        assert b"SAMPLES/s" in terminal.output
    assert children(planted) == []


def test_a_batch_that_runs_out_of_address_space_is_too_large(planted: str, tmp_path: Path) -> None:
    """4 MB a sample, and three such tensors at the peak or more: the input, the result, and its gradient."""
    args = (f"{planted}:wide", "--shape", "1000000", "--start", "64")
    result = measured(*args, command="maxbatch", state=tmp_path, before="ulimit -v 3000000")
    larger = min(one["batch"] for one in result["tries"] if not one["fits"])
    assert result["largest"] < larger <= result["largest"] * (1 + 1 / 16)
    assert all("out of memory" in one["why"] for one in result["tries"] if not one["fits"])
    assert result["largest"] * 4e6 * 2 < 3e9  # two tensors of a batch fit, at least
    assert 0.5 * result["largest"] < result["recommended"] < result["largest"]
    peaks = {one["batch"]: one["peak_bytes"] for one in result["tries"] if one["fits"]}
    each = (max(peaks.values()) - min(peaks.values())) / (max(peaks) - min(peaks))
    assert 4e6 < each < 8 * 4e6
    inference = measured(*args, "--inference", command="maxbatch", state=tmp_path, before="ulimit -v 3000000")
    assert inference["largest"] > 1.2 * result["largest"]
    said = gputop("maxbatch", "--last", state=tmp_path).stdout
    assert f"0.4 × {inference['largest']}" in " ".join(said.split())


def test_a_batch_for_which_the_process_is_killed_is_too_large(planted: str, tmp_path: Path) -> None:
    result = measured(f"{planted}:mortal", "--shape", "10", command="maxbatch", state=tmp_path)
    assert 96 <= result["largest"] <= 100
    assert any("SIGKILL" in one.get("why", "") for one in result["tries"])


CONTRACT = r"""
import json, sys
sys.path.insert(0, sys.argv[1])
import child_model
from child_request import Wrong
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(10, 16), torch.arange(10) % 4)
loader = DataLoader(data, batch_size=4)
pair, words = (torch.randn(4, 16), torch.arange(4) % 4), {"inputs": torch.randn(4, 16), "labels": torch.arange(4) % 4}

class Own(nn.Linear):
    def forward(self, inputs, labels):
        made = super().forward(inputs)
        return {"loss": nn.functional.cross_entropy(made, labels), "logits": made}

class Held:
    def __init__(self, **names):
        vars(self).update(names)

net = lambda: nn.Linear(16, 4)
step_net = net()
cases = {
    "model, loader": (net(), loader),
    "model, dataset": (net(), data),
    "model, batch, loss": (net(), pair, nn.CrossEntropyLoss()),
    "model, batches": (net(), [pair, pair]),
    "model, inputs": [net(), torch.randn(4, 16)],
    "model, floats": (net(), (torch.randn(4, 16), torch.randn(4, 4))),
    "model, dict": (Own(16, 4), words),
    "with optimizer": (net(), loader, nn.CrossEntropyLoss(), torch.optim.SGD(net().parameters(), lr=0.1)),
    "loader, step": (loader, lambda batch: step_net(batch[0]).sum().backward()),
    "object": Held(model=net(), batch=pair, loss=lambda model, batch: model(batch[0]).sum()),
    "object with step": Held(model=net(), loader=loader, step=lambda batch: None),
    "nothing": 3,
    "model alone": net(),
    "generator": (net(), (pair for _ in range(3))),
    "no loss": (net(), loader, 0.5),
    "no optimizer": (net(), loader, nn.CrossEntropyLoss(), "adam"),
    "an empty loader": (net(), DataLoader(TensorDataset(torch.zeros(0, 16)))),
}
found = {}
for name, made in cases.items():
    try:
        training = child_model.training(torch, made, {"function": "make"})
        batch = next(training.batches())
        for size in (child_model.size_of(batch), 6, 1):
            training.run(training.placed(child_model.resized(batch, size)))
        found[name] = [training.loss_name, training.optimizer_name, training.model is not None]
    except Wrong as wrong:
        found[name] = str(wrong)
print(json.dumps(found))
"""


def test_what_a_function_may_return() -> None:
    script = [sys.executable, "-c", CONTRACT, str(Path(package.__file__).parent)]
    done = subprocess.run(script, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    adamw = "AdamW, chosen by gputop"
    own = ["the function's own", adamw, True]
    assert json.loads(done.stdout) == {
        "model, loader": ["cross_entropy, chosen by gputop", adamw, True],
        "model, dataset": ["cross_entropy, chosen by gputop", adamw, True],
        "model, batch, loss": own,
        "model, batches": ["cross_entropy, chosen by gputop", adamw, True],
        "model, inputs": ["mean of squares, chosen by gputop", adamw, True],
        "model, floats": ["mse_loss, chosen by gputop", adamw, True],
        "model, dict": ["the model's own", adamw, True],
        "with optimizer": ["the function's own", "SGD", True],
        "loader, step": ["the function's own", "the step's own", True],  # seen in its globals
        "object": own,
        "object with step": ["the function's own", "the step's own", True],
        "nothing": "make returned int: return model, loader or model, batch, loss_fn",
        "model alone": "make returned a model without data: return model, loader",
        "generator": "the data that make returned can be read once only: return a DataLoader",
        "no loss": "the loss that make returned is float, not a function",
        "no optimizer": "the optimizer that make returned is str, not a torch.optim optimizer",
        "an empty loader": "the DataLoader yields no batch",
    }

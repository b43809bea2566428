"""The guide's two snippets about memory, by what it says of them, and beside each our command on the same model.

Without CUDA three things differ. `model.cuda()` and `device="cuda"` are left out. What is caught is the RuntimeError
of the CPU's allocator, whose class is the base of CUDA's. And the allocator's numbers are planted below torch.
A try of the search is a function, so that one that fails holds nothing: else the next ones fail for its inputs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gputop import agent
from gputop.lab.batch_size import page

pytestmark = pytest.mark.jobs

MIB = 1 << 20
MODEL = """
import torch
from torch import nn

class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
    def forward(self, inputs):
        return inputs * self.weight

def wide():
    return Wide()

def heavy():
    torch.set_num_threads(1)
    model = nn.Linear(4096, 4096)
    return model, (torch.ones(4, 4096), torch.zeros(4, 4096)), nn.MSELoss(), torch.optim.AdamW(model.parameters())
"""
REPORT = """
import sys, json
import torch

def memory_report():
    allocated = torch.cuda.memory_allocated() / 1024**2
    reserved = torch.cuda.memory_reserved() / 1024**2
    max_allocated = torch.cuda.max_memory_allocated() / 1024**2
    print(f"Allocated: {allocated:.1f} MB")
    print(f"Reserved: {reserved:.1f} MB")
    print(f"Max allocated: {max_allocated:.1f} MB")
"""
PLANTED = """
numbers = {
    "allocated_bytes": {"all": {"current": 1536 << 20, "peak": 3072 << 20}},
    "reserved_bytes": {"all": {"current": 4096 << 20, "peak": 5120 << 20}},
}
cuda = torch.cuda
cuda.memory_stats_as_nested_dict = cuda.memory.memory_stats_as_nested_dict = lambda device=None: numbers
cuda.is_initialized, cuda.device_count, cuda.get_allocator_backend = lambda: True, lambda: 1, lambda: "native"
memory_report()
sys.path.insert(0, sys.argv[1])
import memory
print(json.dumps(memory.devices(torch)))
"""
STEPS = 12
TRAINED = """
import gc
from model import heavy

model, (inputs, targets), loss_fn, optimizer = heavy()
for _ in range(int(sys.argv[1])):
    loss = loss_fn(model(inputs), targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
del loss
storages = [one.untyped_storage() for one in gc.get_objects() if torch.is_tensor(one)]
live = {storage.data_ptr(): storage.nbytes() for storage in storages}
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps({"allocated": sum(live.values()), "peak": int(peak.split()[1]) * 1024}))
"""
BATCH = """
import json
import torch
from model import wide

def fits(model, batch_size, input_shape):
    try:
        with torch.no_grad():
            model(torch.randn(batch_size, *input_shape))
        return True
    except RuntimeError:
        return False

def find_max_batch_size(model, input_shape, start=8):
    batch_size = start
    while fits(model, batch_size, input_shape):
        batch_size *= 2
    low, high = batch_size // 2, batch_size
    while low < high - 1:
        mid = (low + high) // 2
        if fits(model, mid, input_shape):
            low = mid
        else:
            high = mid
    return low

max_bs = find_max_batch_size(wide(), (1_000_000,), start=8)
print(json.dumps([max_bs, int(max_bs * 0.4)]))
"""
ALONE = {"OMP_NUM_THREADS": "1"}
LIMIT = "ulimit -v 3000000"  # KiB of address space: memory that both may have


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path


def printed(snippet: str, *args: str, folder: Path, before: str = ":") -> list[str]:
    """The lines that a snippet prints."""
    argv = ["bash", "-c", f'{before}; exec "$@"', "bash", sys.executable, "-c", snippet, *args]
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=300, check=False, cwd=folder, env={**os.environ, **ALONE}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def ours(*args: str, folder: Path, before: str = ":") -> dict[str, Any]:
    """The result of one of our commands."""
    command = [sys.executable, "-m", "gputop", args[0], "--no-nvml", "--json", *args[1:]]
    done = subprocess.run(
        ["bash", "-c", f'{before}; exec "$@"', "bash", *command],
        capture_output=True, text=True, timeout=600, check=False, stdin=subprocess.DEVNULL,
        env={**os.environ, **ALONE, "XDG_STATE_HOME": str(folder / "state")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_report_of_cuda_memory_is_what_the_agent_reads(model: Path) -> None:
    """Mission row 41: allocated, reserved, and the most that was allocated."""
    *said, read = printed(REPORT + PLANTED, str(Path(agent.__file__).parent), folder=model)
    (device,) = json.loads(read)
    assert said == [
        f"Allocated: {device['allocated'] / MIB:.1f} MB",
        f"Reserved: {device['reserved'] / MIB:.1f} MB",
        f"Max allocated: {device['peak_allocated'] / MIB:.1f} MB",
    ]
    assert device["allocated"] == 1536 * MIB


def test_the_report_on_a_cpu_is_zero_and_ours_has_its_tensors_and_its_peak(model: Path) -> None:
    """What is allocated are the live tensors: parameters and two moments of AdamW, 64 MiB each."""
    *said, read = printed(f"{REPORT}memory_report()\n{TRAINED}", str(STEPS), folder=model)
    assert said == ["Allocated: 0.0 MB", "Reserved: 0.0 MB", "Max allocated: 0.0 MB"]  # no CUDA
    guide = json.loads(read)
    last = ours("memory", f"{model}/model.py:heavy", "--steps", str(STEPS), folder=model)["samples"][-1]
    assert (last["step"], last["devices"]) == (STEPS, [])
    assert sum(one["bytes"] for one in last["tensors"]) == pytest.approx(guide["allocated"], rel=0.02)
    assert guide["allocated"] > 3 * 64 * MIB
    assert last["host"]["peak"] == pytest.approx(guide["peak"], rel=0.1)


def test_the_largest_batch_of_the_guide_is_the_largest_for_inference(model: Path) -> None:
    """Mission row 42: doubled, then bisected, without gradients; 0.4 of it, which we print and do not recommend."""
    largest, factor = json.loads(printed(BATCH, folder=model, before=LIMIT)[-1])
    args = ("maxbatch", f"{model}/model.py:wide", "--shape", "1000000", "--start", "8")
    result = ours(*args, "--inference", folder=model, before=LIMIT)
    assert result["largest"] == pytest.approx(largest, rel=0.1)
    (said,) = [step for step in page_steps(result) if "rule of thumb" in step]
    assert int(0.4 * result["largest"]) == pytest.approx(factor, rel=0.1)
    assert f"0.4 × {result['largest']} = {int(0.4 * result['largest'])}" in said
    trains = ours(*args, folder=model, before=LIMIT)  # with gradients, which the guide leaves out
    assert trains["recommended"] < trains["largest"] < result["largest"]


def page_steps(result: dict[str, Any]) -> list[str]:
    return [str(step) for point in page(result).points for step in point.steps]

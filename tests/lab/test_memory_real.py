"""Training steps of functions with planted leaks, measured by the command as a user runs it, on a CPU."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gputop.cli.memory import _sites

pytestmark = pytest.mark.jobs

KEPT = 2 << 20  # bytes of what a loss was computed from
PLANTED = """
import sys
import torch
from torch import nn

kept = []

def make(how):
    weight = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=1e-6)

    def step(batch):
        print("the user's own words")
        inputs = torch.randn(1 << 18)
        loss = (inputs * weight).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if how == "leaks":
            kept.append((inputs * weight).pow(2).mean())
        elif how == "scalars":
            kept.append(loss)
        elif how == "numbers":
            kept.append(loss.item())
        elif how == "short":
            kept.append(1)
            if len(kept) == 40:
                raise MemoryError

    return torch.utils.data.DataLoader([torch.zeros(4) for _ in range(8)], batch_size=2), step

def model():
    return nn.Linear(8, 4), (torch.randn(16, 8), torch.zeros(16, dtype=torch.long))
"""


@pytest.fixture
def planted(tmp_path: Path) -> str:
    (tmp_path / "planted.py").write_text(PLANTED)
    return str(tmp_path / "planted.py")


def memory(*args: str, state: Path) -> subprocess.CompletedProcess[str]:
    # each tensor by itself: what is freed leaves no holes
    own = {"XDG_STATE_HOME": str(state), "MALLOC_MMAP_THRESHOLD_": "65536"}
    return subprocess.run(
        [sys.executable, "-m", "gputop", "memory", "--no-nvml", *args],
        capture_output=True, text=True, timeout=300, check=False, stdin=subprocess.DEVNULL, env={**os.environ, **own},
    )  # fmt: skip


def test_a_kept_loss_is_found_with_its_bytes_a_step_and_kept_for_later(planted: str, tmp_path: Path) -> None:
    done = memory(f"{planted}:make", "--json", "--", "leaks", state=tmp_path)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    (host,) = result["rows"]
    assert host["grows"] is True
    assert host["each"] == pytest.approx(KEPT, rel=0.1)
    assert host["noise"] < KEPT / 10
    piled = {(*one["shape"], one["graph"]): one["more"] for one in result["tensors"] if one["grows"]}
    assert piled == {(True,): 50, (1 << 18, True): 50, (1 << 18, False): 50}
    assert (result["steps"], result["devices"], len(result["samples"])) == (50, [], 60)
    again = memory("--last", state=tmp_path).stdout
    assert "Host memory of the process grows by 2.0M per step." in again
    assert "Losses with their graphs accumulate: 50 more in 50 steps." in again
    assert "losses.append(loss.item())" in again
    assert "No device memory is shown: torch sees no CUDA device here." in again


@pytest.mark.parametrize(("how", "piles"), [("scalars", True), ("numbers", False)])
def test_scalars_are_told_from_numbers(planted: str, tmp_path: Path, how: str, piles: bool) -> None:
    said = memory(f"{planted}:make", "--", how, state=tmp_path).stdout
    assert ("Losses with their graphs accumulate: 50 more in 50 steps." in said) is piles
    assert "Host memory of the process grows" not in said
    assert "Memory does not grow from step to step." in said


def test_a_model_with_a_batch_is_trained(planted: str, tmp_path: Path) -> None:
    done = memory(f"{planted}:model", "--steps", "30", state=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Memory does not grow from step to step." in done.stdout
    assert "float32 4×8 parameter" in done.stdout


def test_out_of_memory_is_one_line_and_what_was_sampled_is_told(planted: str, tmp_path: Path) -> None:
    done = memory(f"{planted}:make", "--", "short", state=tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("gputop: memory: out of memory")
    assert "Findings so far" in done.stdout
    assert "memory over" in done.stdout


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "PID or FACTORY is missing: gputop memory PID, or gputop memory train.py:make"),
        (("{file}:make", "--for", "5s"), "--for applies to a PID; use --steps with a function"),
        (("{file}:make", "--tensors"), "--tensors applies to a PID; use --steps with a function"),
        (("{file}:nothing",), "has no function nothing: it has make, model"),
    ],
)
def test_what_cannot_be_done_is_one_line(planted: str, tmp_path: Path, args: tuple[str, ...], words: str) -> None:
    done = memory(*(each.format(file=planted) for each in args), state=tmp_path)
    assert done.returncode != 0
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_lines_are_read_from_the_snapshot_of_pytorch(tmp_path: Path) -> None:
    def block(line: int) -> dict[str, Any]:
        frames = [{"filename": "/home/ana/train.py", "line": line, "name": "step"}]
        return {"state": "active_allocated", "size": 1 << 20, "requested_size": 1 << 20, "frames": frames, "address": 1}

    def event(number: int) -> dict[str, Any]:
        return {"action": "alloc", "addr": number, "size": 1 << 20, "frames": block(12)["frames"], "stream": 0}

    segments = [{"device": 0, "total_size": 4 << 20, "blocks": [block(12), block(12), block(7)]}]
    file = tmp_path / "snapshot.pickle"
    file.write_bytes(pickle.dumps({"segments": segments, "device_traces": [[event(number) for number in range(50)]]}))
    found = _sites(file, 50)
    assert found == [
        {"where": "train.py:12 step", "bytes": 2 << 20, "blocks": 2, "gpu": 0, "kept": False},
        {"where": "train.py:7 step", "bytes": 1 << 20, "blocks": 1, "gpu": 0, "kept": False},
        {"where": "train.py:12 step", "bytes": 50 << 20, "blocks": 50, "gpu": 0, "kept": True},
    ]
    assert _sites(tmp_path / "none", 50) is None
    file.write_bytes(b"\x80\x04cos\nsystem\n.")
    assert _sites(file, 50) is None

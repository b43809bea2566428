"""Casts between float types (T23): told from copies by the types of the operator, or by which operator it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gputop.trace.read import read
from gputop.trace.verdict import TraceVerdict, TraceView, all_verdicts
from tests.traces import ADD, GEMM, REST, Made, recipe

MS = 1000.0


def found(path: Path) -> TraceVerdict | None:
    """What is said of casts in a trace."""
    return {one.rule: one for one in all_verdicts(TraceView(read(path)))}.get("T23 casts")


def casting(to: str, what: str) -> Made:
    """A third of each step in the kernel of aten::copy_ between these types."""
    made = Made()
    for number in range(4):
        at = number * 100 * MS
        made.step(number, at, 100 * MS)
        dims = [[2048, 2048], [2048, 2048], []]
        op = made.host("aten::copy_", at + 1, 20, **{"Input Dims": dims, "Input type": [to, what, "Scalar"]})
        made.kernel(ADD, at, 33 * MS, launch=max(0, at - 20 * MS), **{"External id": op})
        made.kernel(GEMM, at + 33 * MS, 66 * MS, launch=max(0, at - 20 * MS))
    return made


@pytest.mark.parametrize(
    ("made", "casts"),
    [
        (casting("c10::BFloat16", "float"), True),
        (casting("float", "float"), False),
        (recipe(("cast", 60, "aten::to"), *REST), True),
        (recipe(("bias", 60, "aten::copy_"), *REST), False),  # as aten::addmm begins
    ],
    ids=["cast", "copy", "cast on a CPU", "copy on a CPU"],
)
def test_a_copy_is_a_cast_only_between_types(made: Made, casts: bool, tmp_path: Path) -> None:
    made.write(tmp_path / "a.json")
    assert (found(tmp_path / "a.json") is not None) == casts


CASTING_PROGRAM = """
import sys, torch
from torch.profiler import ProfilerActivity, profile

model = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(8)))
batch = torch.rand(2, 512)  # so few rows that casting the weights takes longer than to use them
with profile(activities=[ProfilerActivity.CPU]) as profiler:
    for _ in range(5):
        with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
            model(batch).float().mean()
profiler.export_chrome_trace(sys.argv[1])
"""


def test_casts_of_a_real_autocast_without_its_cache_are_found(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", CASTING_PROGRAM, tmp_path / "cast.json"], check=True, capture_output=True)
    told = found(tmp_path / "cast.json")
    assert told is not None
    assert "autocast" in told.steps[0]

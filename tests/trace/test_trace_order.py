"""The order of events in a file changes nothing of what is said: the same page for any order."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gputop.report import text
from gputop.trace import signatures  # noqa: F401
from gputop.trace.read import read
from gputop.trace.report import page
from gputop.trace.verdict import TraceView
from tests.cli.test_explain import LOOP
from tests.traces import ADD, FP32, GEMM, NCCL, PAGEABLE, Made, busy, of_tensorflow, starved

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def nested() -> Made:
    """Operators within operators, some of them as long as what is around them, on two threads; Python functions too."""
    made = Made()
    for step in range(4):
        at = step * 1000.0
        made.step(step, at, 1000)
        made.note("forward", at, 1000)
        made.note(LOADER, at, 300)
        for tid in (100, 101):
            made.host("autograd::engine::evaluate_function: AddmmBackward0", at + 400, 200, tid=tid)
            made.host("AddmmBackward0", at + 400, 200, tid=tid)
            made.host("aten::mm", at + 400, 100, tid=tid)
            made.host("aten::resolve_conj", at + 400, 0, tid=tid)
            made.host("aten::add_", at + 500, 100, tid=tid)
        for name in ("train.py(10): step", "torch/nn/modules/module.py(5): _call", "torch/nn/linear.py(7): forward"):
            made.host(name, at + 310, 80, "python_function")
        made.host("aten::zeros", at + 650, 10)
        made.host("aten::zero_", at + 650, 10)
        made.host("aten::to", at + 661, 30)
        made.kernel(PAGEABLE, at + 670, 60, bytes=4096)
        for place, name in enumerate((GEMM, ADD, FP32, NCCL)):
            made.kernel(name, at + 740, 50, launch=at + 700 + place, stream=7 + place)
        made.note("Optimizer.step#SGD.step", at + 900, 50)
        made.memory(at + 500, 10**9 + step, 2 * 10**9)
    return made


def ranks() -> Made:
    made = busy(distributedInfo={"rank": 0, "world_size": 2})
    for device in (0, 1):
        for number in range(8):
            made.kernel(NCCL, number * 50_000 + 30_000, 9_000, stream=9, device=device)
    return made


def with_more(before: float) -> Made:
    made = nested()
    made.host("aten::compile", -before, before)
    made.host("aten::mm", -before, before)
    return made


def in_halves() -> Made:
    made = nested()
    made.events = [
        half
        for event in made.events
        for half in (
            (event,)
            if event["cat"] != "kernel"
            else ({**event, "ph": "B"}, {**event, "ph": "E", "ts": event["ts"] + event["dur"], "args": {}})
        )
    ]
    return made


MADE: dict[str, Callable[[], Made]] = {
    "nested": nested,
    "busy": busy,
    "starved": starved,
    "one step": lambda: starved(steps=1, kernels=7),
    "ranks": ranks,
    "long before": lambda: with_more(90_000),
    "two events": in_halves,
}


def told(path: Path, events: list[dict[str, Any]], **head: Any) -> str:
    path.write_text(json.dumps({**head, "traceEvents": events}))
    return text(page(TraceView(read(str(path)))))


def orders(events: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The events in other orders: any, the last first, by their end as old Kineto has them, thread by thread."""
    shuffled = [random.Random(seed).sample(events, len(events)) for seed in range(4)]

    def end(event: dict[str, Any]) -> float:
        return float(event.get("ts", 0)) + float(event.get("dur", 0))

    by_thread = sorted(events, key=lambda event: str(event.get("tid")))
    return [*shuffled, events[::-1], sorted(events, key=end), by_thread]


@pytest.mark.parametrize("name", MADE)
def test_the_order_of_events_changes_no_word(tmp_path: Path, name: str) -> None:
    made = MADE[name]()
    first = told(tmp_path / "x.json", made.events, **made.head)
    for number, events in enumerate(orders(made.events)):
        assert told(tmp_path / "x.json", events, **made.head) == first, number


def test_the_order_of_a_trace_of_tensorflow(tmp_path: Path) -> None:
    """The names of its processes and threads may come after their events, and before each other."""
    events = [event for event in json.loads(of_tensorflow(4, 6_000))["traceEvents"] if event]
    first = told(tmp_path / "x.json", events)
    assert "GPU busy" in first
    for number, other in enumerate(orders(events)):
        assert told(tmp_path / "x.json", other) == first, number


@pytest.mark.waits
def test_the_order_of_real_traces(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(LOOP)
    command = [sys.executable, str(tmp_path / "loop.py"), str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    for workers in (0, 2):
        found = json.loads(gzip.decompress((tmp_path / f"{workers}.json.gz").read_bytes()))
        events = found.pop("traceEvents")
        first = told(tmp_path / "x.json", events, **found)
        for number, other in enumerate(orders(events)):
            assert told(tmp_path / "x.json", other, **found) == first, (workers, number)


def test_a_child_before_its_parent(tmp_path: Path) -> None:
    """Two that begin together: the longer one is around the other, wherever it stands in the file."""
    made = Made()
    for number in range(5):
        made.host("aten::addmm", number * 100, 30)
        made.host("aten::linear", number * 100, 50)
    trace = read(made.write(tmp_path / "x.json"))
    own = dict(zip(trace.host.names.texts, trace.host.self_us, strict=True))
    assert own == {"aten::addmm": pytest.approx(150), "aten::linear": pytest.approx(100)}


def test_a_few_spans_by_their_end(tmp_path: Path) -> None:
    """Old Kineto; a thread of three spans is sorted, too."""
    made = Made()
    made.host("aten::addmm", 20, 30)
    made.host("aten::linear", 10, 50)
    made.step(1, 0, 100)
    trace = read(made.write(tmp_path / "x.json"))
    own = dict(zip(trace.host.names.texts, trace.host.self_us, strict=True))
    assert own == {"aten::addmm": 30, "aten::linear": 20, "ProfilerStep#1": 50}


def test_more_spans_than_can_be_sorted_are_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputop.trace.host.MOST_KEPT", 10)
    made = nested()
    made.events.reverse()
    trace = read(made.write(tmp_path / "x.json"))
    assert (trace.whole, trace.problems[0][:30]) == (False, "too many CPU spans: only the f")

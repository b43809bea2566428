"""A trace of a program that starts: nothing is concluded from what is done once, and it is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gputop.trace import signatures  # noqa: F401
from gputop.trace.read import read
from gputop.trace.report import page
from gputop.trace.summary import as_json
from gputop.trace.verdict import TraceView
from tests.traces import ADD, FP32, GEMM, PAGEABLE, Made

MS = 1000.0
STARTS = "The trace covers program startup only: memory allocation, code loading, compilation."


def beginning(at: float = 0.0, *, signs: tuple[str, ...] = ("cudaMalloc", "cuModuleLoadData", "cudaFree")) -> Made:
    """One second: a context, weights, the first launch of a kernel, which loads its code; algorithms are tried."""
    made = Made()
    for number, name in enumerate(signs):
        made.call(name, at + (200 + 300 * number) * MS, 60 * MS)
    made.kernel(PAGEABLE, at + 310 * MS, 20 * MS, bytes=10**9)
    made.kernel(GEMM, at + 660 * MS, 30 * MS)
    launch = made.events[-2]
    launch["ts"], launch["dur"] = at + 360 * MS, 299 * MS
    for number, algorithm in enumerate((ADD, FP32, GEMM)):
        made.kernel(algorithm, at + (880 + number * 40) * MS, 20 * MS)
        made.call("cudaEventSynchronize", at + (880 + number * 40) * MS, 21 * MS)
    return made


def viewed(made: Made, path: Path) -> TraceView:
    return TraceView(read(made.write(path / "x.json")))


def nothing_said(view: TraceView) -> bool:
    return not view.verdicts and not any("No known bottleneck" in word for word in page(view).words)


@pytest.mark.parametrize("number", [None, 0, 1])
def test_nothing_is_concluded_from_the_start_of_a_program(tmp_path: Path, number: int | None) -> None:
    made = beginning()
    if number is not None:
        made.step(number, 0, 1000 * MS)
    view = viewed(made, tmp_path)
    assert nothing_said(view)
    assert any(word.startswith(STARTS) for word in page(view).words)
    assert any(note.startswith(STARTS) for note in as_json(view)["notes"])
    assert json.dumps(as_json(view)["findings"]) == "[]"


def test_code_that_cupti_says_is_loaded_is_a_start(tmp_path: Path) -> None:
    made = beginning(signs=())
    for name, at in (("Runtime Triggered Module Loading", 340), ("Lazy Function Loading", 800)):
        event = {"ph": "X", "cat": "overhead", "name": name, "pid": -1, "tid": 0, "ts": at * MS, "dur": 10 * MS}
        made.events.append({**event, "args": {}})
    assert nothing_said(viewed(made, tmp_path))


def test_a_step_that_others_came_before_is_no_start(tmp_path: Path) -> None:
    made = beginning()
    made.step(7, 0, 1000 * MS)
    assert "T24 idle" in [verdict.rule for verdict in viewed(made, tmp_path).verdicts]


def test_idle_time_without_anything_done_once_is_no_start(tmp_path: Path) -> None:
    made = Made()
    made.step(1, 0, 1000 * MS)
    for place in range(3):  # the same kernel, and launches that take as long
        made.kernel(GEMM, (place * 330 + 311) * MS, 50)
        made.events[-2]["ts"], made.events[-2]["dur"] = (place * 330 + 10) * MS, 300 * MS
    made.host("aten::mm", 0, 990 * MS)
    view = viewed(made, tmp_path)
    assert [verdict.rule for verdict in view.verdicts] == ["T24 idle"]
    # the first of three launches may have loaded code: what is said of the rest is of the rest
    told = "GPU idle 69 % of the time, CPU mostly in `aten::mm` (679 ms)"
    assert view.verdicts[0].headline == told


def then(made: Made, steps: int, *, marked: bool, busy_ms: float = 99) -> Made:
    """Healthy steps of 100 ms after the first second."""
    if marked:
        made.step(0, 0, 1000 * MS)
    for number in range(steps):
        at = (1000 + number * 100) * MS
        if marked:
            made.step(number + 1, at, 100 * MS)
        made.kernel(GEMM, at + 10, busy_ms * MS, launch=at - 20 * MS)
    return made


@pytest.mark.parametrize("steps", [1, 2, 6])
def test_a_first_step_that_sets_things_up_is_left_out(tmp_path: Path, steps: int) -> None:
    view = viewed(then(beginning(), steps, marked=True), tmp_path)
    assert [step.number for step in view.found.window.steps] == list(range(1, steps + 1))
    assert view.found.share(view.found.busy) == pytest.approx(0.99)
    assert [verdict.rule for verdict in view.verdicts] == ["T00 healthy"]
    left = "The first step is excluded as program startup: memory allocation, code loading, compilation."
    assert left in page(view).words


@pytest.mark.parametrize(("busy_ms", "rules"), [(99, []), (60, ["T24 idle"])])
def test_without_marked_steps_the_start_is_no_fault_of_the_rest(
    tmp_path: Path, busy_ms: float, rules: list[str]
) -> None:
    """20 steps after it; idle time of the steps themselves is told all the same."""
    view = viewed(then(beginning(), 20, marked=False, busy_ms=busy_ms), tmp_path)
    idle = view.found.share(view.found.gaps) - view.found.share(view.startup.spans)
    assert [verdict.rule for verdict in view.verdicts] == rules
    if rules:
        assert view.verdicts[0].lost_share == pytest.approx(idle)
    else:
        assert nothing_said(view)
        assert any("GPU idle during program startup" in word for word in page(view).words)


def test_memory_that_every_step_asks_for_is_no_start(tmp_path: Path) -> None:
    """The first of four steps is longer, but the others ask for as much."""
    made = Made()
    for number, (at, took) in enumerate(((0, 300), (300, 100), (400, 100), (500, 100))):
        made.step(number, at * MS, took * MS)
        for place in range(5):
            made.call("cudaMalloc", (at + place * 10 + 20) * MS, 5 * MS)
            made.kernel(GEMM, (at + place * 10 + 26) * MS, 2 * MS)
    view = viewed(made, tmp_path)
    assert [step.number for step in view.found.window.steps] == [0, 1, 2, 3]
    assert "T16 allocator-churn" in [verdict.rule for verdict in view.verdicts]


def compiled(*steps_ms: float, compiles: int = 1, gpu: bool = False) -> Made:
    """Steps of which the first ones spend all but 50 ms in torch.compile."""
    made, at = Made(), 0.0
    for number, took in enumerate(steps_ms):
        made.step(number, at, took * MS)
        if number < compiles:
            made.host("compile_file (dynamo_timed)", at + 10, (took - 50) * MS)
        made.host("aten::mm", at + (took - 40) * MS, 30 * MS)
        if gpu:
            made.kernel(GEMM, at + (took - 40) * MS + 5, 35 * MS)
        at += took * MS
    return made


@pytest.mark.parametrize("gpu", [False, True])
def test_a_step_in_which_all_is_compiled_is_left_out(tmp_path: Path, gpu: bool) -> None:
    view = viewed(compiled(5000, 50, 50, 50, gpu=gpu), tmp_path)
    assert [step.number for step in view.found.window.steps] == [1, 2, 3]
    assert any(word.startswith("The first step is excluded") for word in page(view).words)
    again = viewed(compiled(500, 400, 450, 420, compiles=4, gpu=gpu), tmp_path)
    assert [step.number for step in again.found.window.steps] == [0, 1, 2, 3]
    assert not again.startup.alone


@pytest.mark.parametrize("gpu", [False, True])
def test_nothing_is_concluded_from_a_step_in_which_all_is_compiled(tmp_path: Path, gpu: bool) -> None:
    view = viewed(compiled(5000, gpu=gpu), tmp_path)
    assert nothing_said(view)
    assert any(word.startswith(STARTS) for word in page(view).words)


def test_nothing_is_concluded_from_marks_alone(tmp_path: Path) -> None:
    """What a schedule that begins anew leaves in the file of the recording before."""
    made = Made()
    made.step(4, 0, 54)
    words = page(viewed(made, tmp_path)).words
    assert words == ("Only step marks were recorded in this window: no verdicts are given.",)


def under_a_profiler(*steps_ms: float, buffers_ms: tuple[float, ...], step: int = 0) -> Made:
    """Steps that are well but for one, in which CUPTI makes a buffer for each of two threads."""
    made, at = Made(), 0.0
    for number, took in enumerate(steps_ms):
        made.step(number + 3, at, took * MS)
        made.note("Optimizer.zero_grad#SGD.zero_grad", at + 10, 10)
        made.note("Optimizer.step#SGD.step", at + took * MS - 20, 10)
        if number == step:
            for thread, long in enumerate(buffers_ms):
                made.host("Activity Buffer Request", at + (thread * 2 + 1) * MS, long * MS, "overhead", tid=thread)
        made.kernel(GEMM, at + (took - 9.9) * MS, 9.8 * MS, launch=at - 1100 if number else None)
        at += took * MS
    return made


LONG = "The first step takes 40 ms, the others 10 ms (median); it is included."


def test_a_step_in_which_the_profiler_starts_is_left_out(tmp_path: Path) -> None:
    view = viewed(under_a_profiler(40, 10, 10, buffers_ms=(13, 15)), tmp_path)
    assert [step.number for step in view.found.window.steps] == [4, 5]
    assert view.found.share(view.found.busy) == pytest.approx(0.98)
    assert [verdict.rule for verdict in view.verdicts] == ["T00 healthy"]
    assert "The first step, 40 ms, is excluded: it contains the profiler's startup." in page(view).words
    assert [row.number for row in view.rows] == [4, 5]


@pytest.mark.parametrize(
    ("steps", "buffers", "step", "said"),
    [
        ((40, 10, 10), (), 0, True),  # nothing says that it is the profiler
        ((40, 10, 10), (5, 6), 0, True),  # it is not most of what the step takes more
        ((40, 10), (13, 15), 0, False),  # nothing says what is usual
        ((10, 40, 10), (13, 15), 1, False),  # no profiler starts there
        ((24, 10, 10), (13,), 0, False),
    ],
)
def test_a_long_first_step_counts_where_nothing_says_that_it_is_the_profiler(
    steps: tuple[float, ...], buffers: tuple[float, ...], step: int, said: bool, tmp_path: Path
) -> None:
    view = viewed(under_a_profiler(*steps, buffers_ms=buffers, step=step), tmp_path)
    assert [step.number for step in view.found.window.steps] == list(range(3, 3 + len(steps)))
    assert "T24 idle" in [verdict.rule for verdict in view.verdicts]
    assert (LONG in page(view).words) is said

"""A GPU is not idle where the profiler lost its kernels, nor before the first kernel that the file can hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gputop.trace import signatures  # noqa: F401
from gputop.trace.read import read
from gputop.trace.verdict import TraceView
from tests.trace.test_trace_partial import NOTHING, of_gpu, said
from tests.traces import GEMM, Made, busy

MS = 1000.0


def without(made: Made, drop: Callable[[int], bool]) -> Made:
    """Without the kernels at some places; their launches stay."""
    gone = [event for number, event in enumerate(of_gpu(made)) if drop(number)]
    made.events = [event for event in made.events if not any(event is each for each in gone)]
    return made


def launched(queue_us: float = 15, each_us: float = 950, every_us: float = 1000, steps: int = 3) -> Made:
    """A hundred kernels a step, each begun so long after its launch."""
    made = Made()
    for step in range(steps):
        made.step(step + 1, step * 100 * MS, 100 * MS)
        for number in range(100):
            at = step * 100 * MS + number * every_us
            made.kernel(GEMM, at + queue_us, each_us, launch=at)
    return made


@pytest.mark.parametrize(
    ("drop", "lost"),
    [
        (lambda number: number % 5 != 0, 240),  # here and there
        (lambda number: number < 100, 100),  # the profiler of the GPU began late
        (lambda number: number >= 225, 75),  # its buffers were full
        (lambda number: number % 20 == 3, 15),
    ],
)
def test_kernels_that_were_lost_are_no_idle_time(drop: Callable[[int], bool], lost: int, tmp_path: Path) -> None:
    code, told = said(Path(without(launched(), drop).write(tmp_path / "x.json")))
    assert code == 1
    assert f"Findings {lost} of " in told
    assert "launches have no kernel in the trace." in told
    assert not any(absent in told for absent in NOTHING)


def test_copies_without_a_kernel_among_them(tmp_path: Path) -> None:
    made = launched()
    for number in range(30):
        made.kernel("Memcpy HtoD (Pinned -> Device)", number * 10 * MS + 500, 20)
    code, told = said(Path(without(made, lambda number: number < 300).write(tmp_path / "x.json")))
    assert (code, "300 of 330 launches have no kernel" in told) == (1, True)


def judged_whole(made: Made, path: Path) -> bool:
    code, told = said(Path(made.write(path / "x.json")))
    return code == 0 and "have no kernel" not in told and "GPU busy" in told


@pytest.mark.parametrize("drop", [lambda number: number in (3, 200), lambda number: number == 299])
def test_a_few_launches_without_a_kernel_say_nothing(drop: Callable[[int], bool], tmp_path: Path) -> None:
    assert judged_whole(without(launched(), drop), tmp_path)


def test_what_was_queued_at_the_end_is_not_lost(tmp_path: Path) -> None:
    """The trace ends while the GPU is 60 ms behind."""
    assert judged_whole(without(launched(60 * MS), lambda number: number >= 239), tmp_path)


def test_what_is_recorded_into_a_graph_has_no_kernel(tmp_path: Path) -> None:
    made = busy()
    made.call("cudaStreamBeginCapture", 1000, 5)
    for number in range(500):
        made.call("cudaLaunchKernel", 1010 + number * 10, 5, 90_000 + number)
    made.call("cudaStreamEndCapture", 6100, 5)
    assert judged_whole(made, tmp_path)


@pytest.mark.parametrize("name", ["cudaLaunchHostFunc", "hipMemcpyAsync", "cudaGraphAddMemcpyNode"])
def test_calls_that_never_have_a_kernel(name: str, tmp_path: Path) -> None:
    made = busy()
    for number in range(500):
        made.call(name, number * 100, 5, 90_000 + number)
    assert judged_whole(made, tmp_path)


def test_memsets_of_no_bytes_leave_none(tmp_path: Path) -> None:
    """As cuDNN calls them on a V100, beside others that are there: one of twenty launches, and no time of the GPU."""
    made = launched()
    for number in range(25):
        made.call("cudaMemsetAsync", number * 10 * MS + 500, 2, 90_000 + number)
    known = {"device": 0, "stream": 7, "correlation": 90_000}
    made.events.append({**of_gpu(made)[0], "cat": "gpu_memset", "name": "Memset (Device)", "dur": 1, "args": known})
    assert judged_whole(made, tmp_path)


def test_the_call_of_the_driver_within_one_of_the_runtime(tmp_path: Path) -> None:
    made = launched()
    for number, event in enumerate([one for one in made.events if one["name"] == "cudaLaunchKernel"]):
        made.call("cuLaunchKernel", event["ts"] + 0.5, 1, 90_000 + number)
    made.kernel(GEMM, 299_980, 5)  # one of a name by itself
    made.events[-2]["name"] = "cuLaunchKernel"
    assert judged_whole(made, tmp_path)


def test_kernels_without_ids_of_their_launches_are_not_missing(tmp_path: Path) -> None:
    made = busy()
    for event in of_gpu(made):
        del event["args"]["correlation"]
    assert judged_whole(made, tmp_path)


def seen(made: Made, path: Path) -> TraceView:
    return TraceView(read(made.write(path / "x.json")))


@pytest.mark.parametrize(("queue_ms", "steps"), [(60, 2), (20, 2), (150, 1), (1.5, 3)])
def test_the_gpu_was_not_idle_before_the_first_kernel_of_a_trace(queue_ms: float, steps: int, tmp_path: Path) -> None:
    """It is behind the CPU: until its first kernel it ran what was launched before the recording."""
    view = seen(launched(queue_ms * MS, each_us=990), tmp_path)
    assert len(view.found.window.steps) == steps
    assert view.found.share(view.found.busy) > 0.97
    assert not [one for one in view.verdicts if one.rule.startswith(("T22", "T24"))]
    assert any(one.healthy for one in view.verdicts)


def test_one_step_whose_beginning_was_not_seen(tmp_path: Path) -> None:
    view = seen(launched(40 * MS, each_us=990, steps=1), tmp_path)
    assert view.found.window.start == pytest.approx(40 * MS, abs=1)
    assert view.found.share(view.found.busy) > 0.97


@pytest.mark.parametrize("queue_us", [15, 900])
def test_a_first_kernel_that_was_launched_late_follows_idle_time(queue_us: float, tmp_path: Path) -> None:
    """The CPU does something else for 50 ms of the first step, and the GPU has nothing to do."""
    made = Made()
    for step in range(3):
        made.step(step + 1, step * 100 * MS, 100 * MS)
        for number in range(50):
            at = step * 100 * MS + 50 * MS + number * MS
            made.kernel(GEMM, at + queue_us / 10, 990, launch=at - queue_us)
    view = seen(made, tmp_path)
    assert len(view.found.window.steps) == 3
    assert view.found.share(view.found.gaps) == pytest.approx(0.5, abs=0.02)


def test_kernels_that_wait_in_every_step_are_idle_time(tmp_path: Path) -> None:
    """Launched at once and begun 60 ms later, three times: the GPU stands still between them."""
    made = Made()
    for step in range(3):
        made.step(step + 1, step * 100 * MS, 100 * MS)
        for number in range(10):
            made.kernel(GEMM, step * 100 * MS + 60 * MS + number * 4 * MS, 3900, launch=step * 100 * MS + number)
    view = seen(made, tmp_path)
    assert view.found.share(view.found.gaps) > 0.5


@pytest.mark.parametrize(("last_ms", "steps"), [(60, 3), (100, 4)])
def test_a_shorter_last_step_that_launched_nothing_yet_is_cut(last_ms: float, steps: int, tmp_path: Path) -> None:
    made = busy(steps=3)
    made.step(4, 300 * MS, last_ms * MS)
    made.host("aten::copy_", 300 * MS + 100, (last_ms - 1) * MS)
    assert len(seen(made, tmp_path).found.window.steps) == steps

"""What begins before the steps of a trace or ends after them counts for what lies within; cut steps not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputop.trace import signatures  # noqa: F401
from gputop.trace.names import ActivityKind
from gputop.trace.read import read
from gputop.trace.report import page
from gputop.trace.summary import as_json
from gputop.trace.verdict import TraceView, memory_peak
from tests.traces import FP32, GEMM, PAGEABLE, Made

MS = 1000.0
DATA = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
STEP_SGD = "Optimizer.step#SGD.step"


def viewed(made: Made, path: Path) -> TraceView:
    made.events.sort(key=lambda event: event["ts"])
    return TraceView(read(made.write(path / "x.json")))


def numbers(view: TraceView) -> list[int]:
    return [step.number for step in view.found.window.steps]


def over_both_ends() -> Made:
    """Two steps of 100 ms from 100 ms on; a kernel, a copy and a region of 60 ms lie half before, and half after."""
    made = Made()
    for number in (1, 2):
        made.step(number, number * 100 * MS, 100 * MS)
        made.kernel(FP32, number * 100 * MS + 40 * MS, 20 * MS)
    for start in (70 * MS, 270 * MS):
        op = made.host("aten::mm", start - 10, 5, **{"Input Dims": [[8, 8], [8, 8]], "Input type": ["float"] * 2})
        made.kernel(GEMM, start, 60 * MS, **{"External id": op})
        made.kernel(PAGEABLE, start, 60 * MS, stream=9, bytes=4_000_000)
        made.note("normalize", start - 5, 60 * MS + 5)
    return made


def test_every_table_counts_what_lies_within_the_steps(tmp_path: Path) -> None:
    """By hand: of two spans of 60 ms each, 30 ms lie within the window of 100 to 300 ms."""
    view = viewed(over_both_ends(), tmp_path)
    assert numbers(view) == [1, 2]
    kernels = {each.name: each.took_us / MS for each in view.found.kernels}
    assert kernels == {GEMM: 60, PAGEABLE: 60, FP32: 40}
    (region,) = view.regions
    assert (region.name, region.count) == ("normalize", 2)
    assert region.host_us / MS == pytest.approx(60, abs=0.01)
    assert region.gpu_us / MS == pytest.approx(120, abs=0.01)  # the kernel and the copy launched in it
    gpu = {each.name: each.gpu_us / MS for each in view.phases}
    assert gpu == pytest.approx({"normalize": 60, "forward and other": 40, "host-to-device copies": 60})
    assert [(each.name, each.gpu_us / MS) for each in view.shaped] == [("aten::mm", 60)]
    assert (
        sum(each.took_us for each in view.found.kernels if each.kind == ActivityKind.COMPUTE)
        == view.found.compute.total
    )
    assert view.found.filled == pytest.approx(0.5)  # 4 blocks for each SM while kernels run: 100 of 200 ms


def test_bytes_copied_outside_of_the_steps_are_not_theirs(tmp_path: Path) -> None:
    """Half of 4 MB before, half of 4 MB after, in two steps: 2 MB a step; and 900 MB before any of them."""
    made = over_both_ends()
    made.kernel(PAGEABLE, 10 * MS, 20 * MS, stream=9, bytes=900_000_000)
    found = {verdict.rule[:3]: verdict for verdict in viewed(made, tmp_path).verdicts}
    assert found["T05"].numbers[0].value == pytest.approx(2.0)


def test_the_memory_peak_is_of_the_steps(tmp_path: Path) -> None:
    """A cut first step holds 70 GB for a moment; the whole ones at most 3 GB, of 5 GB reserved."""
    made = Made()
    for number, start, took in ((1, 0.0, 20 * MS), *((n, (n - 2) * 100 * MS + 20 * MS, 100 * MS) for n in range(2, 6))):
        made.step(number, start, took)
        made.kernel(GEMM, start + 10, took - 20)
        made.memory(start + 1 * MS, (70 if number == 1 else 3) * 10**9, (75 if number == 1 else 5) * 10**9)
        made.memory(start + 2 * MS, 10**9, 5 * 10**9)
    view = viewed(made, tmp_path)
    assert numbers(view) == [2, 3, 4, 5]
    assert memory_peak(view) == (3 * 10**9, 5 * 10**9)
    memory = as_json(view)["memory"]
    assert (memory["peak_bytes"], memory["peak_reserved_bytes"]) == (3 * 10**9, 5 * 10**9)
    assert max(allocated for _, allocated, _ in memory["curve"]) == 3 * 10**9
    assert "T21" not in {verdict.rule[:3] for verdict in view.verdicts}


def test_a_peak_is_exact_where_memory_is_thinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputop.trace.memory.MOST", 16)
    made = Made()
    for number in range(4):
        made.step(number, number * 100 * MS, 100 * MS)
        made.kernel(GEMM, number * 100 * MS, 99 * MS)
        for place in range(50):
            at = number * 100 * MS + place * 2 * MS
            made.memory(at, 10**9 + (number == 2 and place == 17) * 7 * 10**9, 9 * 10**9)
    assert memory_peak(viewed(made, tmp_path)) == (8 * 10**9, 9 * 10**9)


def loop(*steps: tuple[float, str], before_ms: float = 0.0) -> Made:
    """Steps of so many ms, made of d(ata), f(orward), b(ackward), o(ptimizer) as said, or of nothing that is named."""
    made, at = Made(), 0.0
    if before_ms:
        made.host("aten::rand", -before_ms * MS, before_ms * MS)
    names = {"d": DATA, "f": "forward", "b": "backward pass", "o": STEP_SGD}
    for number, (took, parts) in enumerate(steps):
        made.step(number, at, took * MS)
        for place, part in enumerate(parts):
            made.note(names[part], at + (place + 0.1) * took * MS / len(parts), 0.8 * took * MS / len(parts))
        made.kernel(GEMM, at + 10, took * MS - 20, launch=at + 5)
        at += took * MS
    return made


@pytest.mark.parametrize(
    ("steps", "kept"),
    [
        ([(100, "dfbo")] * 3, [0, 1, 2]),
        ([(20, ""), (100, ""), (100, "")], [1, 2]),  # three, and the first cut
        ([(60, "fbo"), (100, "dfbo"), (100, "dfbo")], [1, 2]),  # not that short, but without its data
        ([(60, "fbo"), (100, "dfbo")], [1]),
        ([(30, "dfbo"), (100, "dfbo"), (100, "dfbo")], [0, 1, 2]),  # short, but all of it
        ([(100, "dfbo"), (100, "dfbo"), (90, "dfb")], [0, 1]),  # without its optimizer
        ([(100, "dfbo"), (2, "")], [0]),  # what follows the last call of profiler.step()
        ([(60, "bo"), (100, "dfbo"), (50, "d")], [1]),
        ([(100, "dfb"), (100, "dfbo"), (100, "dfb"), (100, "dfbo"), (100, "dfb")], [0, 1, 2, 3, 4]),  # accumulation
        ([(100, "dfb"), (100, "dfbo"), (100, "dfb")], [0, 1, 2]),
        ([(60, "bo"), (60, "df")], [0, 1]),  # both cut: nothing whole is left, and nothing is left out
    ],
)
def test_a_step_is_cut_by_evidence(steps: list[tuple[float, str]], kept: list[int], tmp_path: Path) -> None:
    view = viewed(loop(*steps), tmp_path)
    assert numbers(view) == kept
    assert [row.number for row in view.rows] == kept
    assert view.found.kernel_count == len(kept)


def test_a_short_step_in_the_midst_of_what_was_recorded_is_whole(tmp_path: Path) -> None:
    assert numbers(viewed(loop((20, ""), (100, ""), (100, ""), before_ms=300), tmp_path)) == [0, 1, 2]


def test_a_step_that_launches_less_than_the_others_was_cut(tmp_path: Path) -> None:
    """No phases are named; the first step has 70 of the 100 kernels that each other one has."""
    made, at = Made(), 0.0
    for number, count in enumerate((70, 100, 101, 100)):
        made.step(number, at, count * MS)
        for place in range(count):
            made.kernel(GEMM, at + place * MS + 5, 900, launch=at + place * MS + 2)
        at += count * MS
    assert numbers(viewed(made, tmp_path)) == [1, 2, 3]


@pytest.mark.parametrize("name", ["load_batch", DATA])
def test_without_steps_what_is_named_before_the_first_kernel_counts(name: str, tmp_path: Path) -> None:
    """300 ms of loading, 100 ms of kernels, 100 ms of a checkpoint: the GPU is busy a fifth of 500 ms."""
    made = Made()
    made.note(name, 0, 300 * MS)
    made.note("forward", 300 * MS, 100 * MS)
    made.kernel(GEMM, 300 * MS, 100 * MS, launch=300 * MS)
    made.note("save_checkpoint", 400 * MS, 100 * MS)
    view = viewed(made, tmp_path)
    assert (view.found.window.start / MS, view.found.window.end / MS) == (0, 500)
    assert view.found.share(view.found.busy) == pytest.approx(0.2)
    regions = [(one.name, one.host_us / MS) for one in view.regions]
    assert regions[-2:] == [("forward", 100), ("save_checkpoint", 100)]
    if name == DATA:
        assert {phase.name: (phase.host_us or 0) / MS for phase in view.phases}["waiting for data"] == 300
        assert view.verdicts[0].rule.startswith("T03")
    else:
        assert regions[0] == ("load_batch", 300)
        assert any("`load_batch` (300 ms)" in point.text for point in page(view).points)


def test_without_steps_and_names_the_window_is_the_gpus(tmp_path: Path) -> None:
    made = Made()
    made.host("aten::rand", 0, 300 * MS)
    made.kernel(GEMM, 300 * MS, 100 * MS, launch=300 * MS)
    view = viewed(made, tmp_path)
    assert (view.found.window.start / MS, view.found.window.end / MS) == (300, 400)


def test_a_kernel_belongs_to_the_phase_that_launched_it_before_the_steps(tmp_path: Path) -> None:
    """The optimizer of a step that was cut launches 40 ms that run in the first whole one."""
    made = loop((60, "bo"), (100, "dfbo"), (100, "dfbo"))
    made.kernel(FP32, 60 * MS, 40 * MS, launch=45 * MS, stream=8)
    view = viewed(made, tmp_path)
    assert numbers(view) == [1, 2]
    gpu = {each.name: each.gpu_us / MS for each in view.phases}
    assert gpu["optimizer"] == pytest.approx(40)

"""What is said of idle time: on the page of every rank, beside other faults, and never beside a word of praise."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputop.trace import report
from gputop.trace.read import read
from gputop.trace.summary import as_json
from gputop.trace.verdict import TraceView, VerdictNumber
from tests.trace.test_trace_signatures import MS, communicating, exchanging, said, waiting
from tests.traces import FP32, GEMM, NCCL, PAGEABLE, PINNED, Made, busy, starved


def job(*made: Made, folder: Path) -> list[TraceView]:
    """The ranks of one job, of which each knows the others."""
    views = []
    for rank, one in enumerate(made):
        one.head["distributedInfo"] = {"rank": rank, "world_size": len(made)}
        views.append(TraceView(read(one.write(folder / f"{rank}.json"))))
    for view in views:
        view.ranks = views
    return views


def idling(*, precise: bool = True) -> Made:
    """The GPU works for 30 of 100 ms a step, while the CPU is in nothing that has a name."""
    made = Made()
    for number in range(4):
        made.step(number, number * 100 * MS, 100 * MS)
        made.kernel(GEMM if precise else FP32, number * 100 * MS + 70 * MS, 30 * MS)
    return made


@pytest.mark.parametrize("precise", [True, False])
def test_every_rank_says_that_its_gpu_idles(precise: bool, tmp_path: Path) -> None:
    """What all ranks show is told once with its steps; the page of each says it all the same, beside other faults."""
    views = job(*(idling(precise=precise) for _ in range(3)), folder=tmp_path)
    for view in views:
        words = report.page(view).words
        assert not any("No known bottleneck" in word for word in words)
        assert any("In all 3 ranks, this one included: GPU idle 70 % of the time" in word for word in words)
    assert "T24 idle" in [point.source for point in report.ranks(views).points]


def test_a_fault_that_does_not_explain_idle_time_does_not_hide_it(tmp_path: Path) -> None:
    found = said(idling(precise=False), tmp_path)
    assert found["T04"].severity == "warn"
    assert found["T24"].severity == "crit"
    assert "T24" not in said(waiting(70, "SingleProcess"), tmp_path)  # T03 says why


def test_time_in_collectives_does_not_explain_idle_time(tmp_path: Path) -> None:
    """35 ms of collectives that nothing hides, 35 ms of kernels, and 30 ms of nothing at all."""
    made = Made()
    for number in range(4):
        at = number * 100 * MS
        made.step(number, at, 100 * MS)
        made.kernel(GEMM, at + 30 * MS, 35 * MS)
        made.kernel(NCCL, at + 65 * MS, 35 * MS, stream=20)
    found = said(made, tmp_path)
    assert found["T08"].severity == "warn"
    assert found["T24"].headline.startswith("GPU idle 30 % of the time")


def test_a_cpu_that_waits_for_data_and_communicates_is_told_both(tmp_path: Path) -> None:
    made = waiting(40, "SingleProcess", gpu=False)
    for number in range(4):
        made.note("gloo:all_reduce", number * 100 * MS + 50 * MS, 45 * MS)
    assert {"T03", "T25"} <= set(said(made, tmp_path))


def test_the_first_rank_says_that_it_idles_beside_a_straggler(tmp_path: Path) -> None:
    """Rank 2 is late; rank 0, which tells that of the job, idles for another reason."""
    made = []
    for rank in range(4):
        one = communicating(30 if rank != 2 else 2)
        first = next(event for event in one.events if event["name"] == GEMM)["args"]["correlation"]
        one.events = [event for event in one.events if event["args"].get("correlation") != first]
        made.append(one)
    views = job(*made, folder=tmp_path)
    assert any(verdict.all_ranks for verdict in views[0].verdicts)
    for view in views:
        idle = view.found.share(view.found.gaps)
        page = report.page(view)
        if idle > 0.2:
            assert not any("No known bottleneck" in word for word in page.words)


def test_ranks_on_cpus_say_how_long_they_are_in_collectives(tmp_path: Path) -> None:
    views = job(exchanging(80), exchanging(20), folder=tmp_path)
    page = report.ranks(views)
    (table,) = page.tables
    assert [row[2:4] for row in table.rows] == [("·", "80.0 %"), ("·", "20.0 %")]
    (late,) = [point for point in page.points if point.source == "T20 straggler"]
    assert late.text.startswith("straggler, other ranks wait for rank 1")
    assert not any("GPU" in step for step in late.steps)


@pytest.mark.parametrize("well", [0, 1, 2])
def test_no_rank_is_well_beside_one_that_is_not(well: int, tmp_path: Path) -> None:
    made = [busy() if rank == well else idling() for rank in range(3)]
    views = job(*made, folder=tmp_path)
    for view in views:
        assert not any(point.severity == "fine" for point in report.page(view).points)
        assert not any(found["healthy"] for found in as_json(view)["findings"])
    assert not any(point.severity == "fine" for point in report.ranks(views).points)
    alone = job(busy(), busy(), folder=tmp_path)
    assert all(any(point.severity == "fine" for point in report.page(view).points) for view in alone)


def test_one_phrase_has_one_quantity(tmp_path: Path) -> None:
    """Kernels of 8 us, one launched every 100 us: by hand the GPU idles 92 % of the time for want of a launch."""
    view = TraceView(read(starved().write(tmp_path / "x.json")))
    numbers = {number.text: number.value for number in said(starved(), tmp_path)["T02"].numbers}
    assert numbers["GPU idle, next kernel not launched"] == pytest.approx(92, abs=0.1)
    # the pauses between kernels of one stream, 499 of 92 us in 50 ms: not that before the first, nor after the last
    assert numbers["busiest compute stream, next kernel not launched"] == pytest.approx(91.8, abs=0.05)
    page = report.page(view)
    (table,) = [table for table in page.tables if table.title.startswith("GPU time")]
    assert dict(row[:2] for row in table.rows)["idle, next kernel not launched"] == "92.0 %"
    assert "92 % of the time idle, next kernel not launched." in page.words


def test_a_diff_says_what_is_as_bad_as_before(tmp_path: Path) -> None:
    view = TraceView(read(idling().write(tmp_path / "x.json")))
    assert "Unchanged: T24 idle." in report.compared(view, view).words


def idling_in(name: str) -> Made:
    """The CPU is in something of this name for 70 of 100 ms, while the GPU idles."""
    made = idling()
    for number in range(4):
        made.note(name, number * 100 * MS + MS, 68 * MS)
    return made


@pytest.mark.parametrize(
    ("name", "loader"),
    [
        *((name, True) for name in ("data_loading", "augment", "decode_images", "collate")),
        *((name, False) for name in ("forward", "backward", "optimizer", "save_checkpoint", "validation", "log")),
        *((name, False) for name in ("load_checkpoint", "data_transfer", "model.transformer")),
    ],
)
def test_a_loader_worker_is_advised_for_work_on_data_only(name: str, loader: bool, tmp_path: Path) -> None:
    found = said(idling_in(name), tmp_path)["T24"]
    assert f"`{name}`" in found.headline
    assert found.steps[0].startswith(f"Speed up `{name}`")
    assert ("DataLoader workers" in found.steps[0]) == loader


def test_kernels_that_were_launched_and_wait_are_no_matter_of_the_cpu(tmp_path: Path) -> None:
    made = Made()
    for number in range(4):
        at = number * 100 * MS
        made.step(number, at, 100 * MS)
        made.note("forward", at, 99 * MS)
        made.kernel(GEMM, at + 5, 30 * MS, launch=at)
        made.kernel(GEMM, at + 99 * MS, 990, launch=at + 20)
    found = said(made, tmp_path)["T24"]
    assert "next kernel launched but not started" in found.headline
    assert [step.startswith("Check what the next kernel depends on") for step in found.steps] == [True]


def waiting_often(wait_us: float, *, name: str = "cudaStreamSynchronize", kernel_us: float = 2000) -> Made:
    """Eight kernels in each 100 ms; the CPU stops at the end of each, then works until the next launch."""
    made = Made()
    for number in range(4):
        made.step(number, number * 100 * MS, 100 * MS)
        for place in range(8):
            at = number * 100 * MS + place * 12.5 * MS
            made.kernel(GEMM, at, kernel_us, launch=max(at - 3, 0.0))
            made.call(name, at + kernel_us - wait_us, wait_us)
    return made


@pytest.mark.parametrize("name", ["cudaStreamSynchronize", "cudaFree"])
@pytest.mark.parametrize(("wait_us", "won"), [(300, 0.024), (1900, 0.152)])
def test_a_stop_wins_no_more_than_it_took(name: str, wait_us: float, won: float, tmp_path: Path) -> None:
    """84 % of the time the GPU idles: without the stops the CPU would come earlier by their time only."""
    found = said(waiting_often(wait_us, name=name), tmp_path)
    of = found["T06" if name.endswith("Synchronize") else "T16"]
    if name == "cudaFree":  # not in the first two steps, when the cache fills; without one the GPU is done first
        won /= 2
    assert of.lost_share == pytest.approx(won, rel=0.02)
    assert found["T24"].lost_share == pytest.approx(0.84, abs=0.001)  # which the stops do not explain


def test_a_stop_wins_no_more_than_the_gpu_idles(tmp_path: Path) -> None:
    found = said(waiting_often(9 * MS, kernel_us=9.5 * MS), tmp_path)
    assert found["T06"].lost_share == pytest.approx(0.24, abs=0.001)
    assert "T24" not in found


def test_a_stop_does_not_explain_what_was_launched_before_it(tmp_path: Path) -> None:
    """The CPU waits for the last of nine kernels, between which the GPU waits for something else."""
    made = Made()
    for number in range(4):
        at = number * 100 * MS
        made.step(number, at, 100 * MS)
        for place in range(9):
            made.kernel(GEMM, at + place * 11.6 * MS + 60, 6 * MS, launch=at + place)
        made.call("cudaDeviceSynchronize", at + 50, 98.9 * MS)
    found = said(made, tmp_path)
    assert "T06" not in found
    assert "next kernel launched but not started" in found["T24"].headline


def test_one_long_gap_wins_no_more_than_it_is_long(tmp_path: Path) -> None:
    made = idling()
    made.step(4, 400 * MS, 700 * MS)
    found = said(made, tmp_path)
    assert found["T22"].lost_share == pytest.approx(700 / 1100, abs=0.001)


def moving(*copies: tuple[str, float], size: int = 10**9, steps: bool = True) -> Made:
    """A GPU that copies for so many of each 100 ms, a GB each time, and computes nothing."""
    made = Made()
    for number in range(4):
        at = number * 100 * MS
        if steps:
            made.step(number, at, 100 * MS)
        for name, took in copies:
            made.kernel(name, at + 5, took * MS, bytes=size)
            at += took * MS
    return made


@pytest.mark.parametrize(
    ("copies", "what"),
    [
        ([(PINNED, 50)], "4 GB host to device (pinned) 50 % of the time"),
        ([(PAGEABLE, 98)], "4 GB host to device (pageable) 98 % of the time"),
        ([("Memcpy DtoH (Device -> Pageable)", 98)], "4 GB device to host (pageable) 98 % of the time"),
        ([("Memcpy DtoD (Device -> Device)", 99)], "4 GB within the GPU 99 % of the time"),
        ([("Memcpy PtoP (Device -> Device)", 40)], "4 GB GPU to GPU 40 % of the time"),
        ([("Memset (Device)", 96)], "4 GB memset 96 % of the time"),
        (
            [(PINNED, 20), ("Memcpy DtoH (Device -> Pinned)", 70)],
            "4 GB device to host (pinned) 70 % of the time; 4 GB host to device (pinned) 20 % of the time",
        ),
    ],
)
def test_a_gpu_that_only_moves_memory_is_said_to(copies: list[tuple[str, float]], what: str, tmp_path: Path) -> None:
    found = said(moving(*copies), tmp_path)
    assert found["T26"].headline == f"no kernel ran, memory copies only, {what}"
    assert found["T26"].severity == "warn"
    assert "T07" not in found  # nothing is computed that copies could be hidden behind
    idle = 1 - sum(took for _, took in copies) / 100
    assert ("T24" in found) == (idle > 0.2)
    words = report.page(TraceView(read(str(tmp_path / "made.json")))).words
    assert not any("No known bottleneck" in word for word in words)


def test_what_a_copy_moves_is_said_where_it_is_known(tmp_path: Path) -> None:
    found = said(moving((PINNED, 50), size=0), tmp_path)
    assert found["T26"].headline.endswith("no kernel ran, memory copies only, host to device (pinned) 50 % of the time")
    assert "T26" in said(moving((PINNED, 50), steps=False), tmp_path)
    computes = moving((PINNED, 50))
    computes.kernel(GEMM, 60 * MS, 1)
    assert "T26" not in said(computes, tmp_path)


def test_numbers_have_no_exponent() -> None:
    assert (
        report.fact(VerdictNumber(text="median", value=50_000.4, unit="us", limit=1000))
        == "median 50000 µs (threshold 1000 µs)"
    )
    assert report.fact(VerdictNumber(text="part", value=0.1234)) == "part 0.123"


def launching_after(name: str, ms: float = 90) -> Made:
    """Hundreds of small kernels in a tenth of each step, after something of this name in which nothing is launched."""
    made = Made()
    for number in range(4):
        start = number * 100 * MS
        made.step(number, start, 100 * MS)
        made.note(name, start + MS, (ms - 2) * MS)
        for place in range(400):
            at = start + ms * MS + place * 24 + 5
            made.kernel(GEMM if place % 2 else FP32, at, 8, launch=at - 4)
    return made


def test_a_long_gap_is_not_one_between_launches(tmp_path: Path) -> None:
    found = said(launching_after("save_checkpoint"), tmp_path)
    assert "T02" not in found
    assert "`save_checkpoint`" in found["T24"].headline


def test_a_long_gap_without_a_cause_leaves_it_to_who_names_one(tmp_path: Path) -> None:
    made = Made()
    for number in range(3):
        made.step(number, number * 1000 * MS, 1000 * MS)
        made.note("image_transforms.normalize", number * 1000 * MS + MS, 690 * MS)
        made.kernel(GEMM, number * 1000 * MS + 700 * MS, 300 * MS)
    found = said(made, tmp_path)
    assert "`image_transforms.normalize`" in found["T24"].headline
    assert "T22" in found


def test_a_cause_of_one_rank_is_not_that_of_all(tmp_path: Path) -> None:
    views = job(idling_in("data_transfer"), idling_in("save_checkpoint"), folder=tmp_path)
    assert not any(point.text.startswith("all ") for point in report.ranks(views).points)
    pages = [" ".join(point.text for point in report.page(view).points) for view in views]
    assert "`data_transfer`" in pages[0]
    assert "`save_checkpoint`" in pages[1]


@pytest.mark.parametrize("cat", ["user_annotation", "python_function", "cpu_op"])
def test_what_another_thread_does_meanwhile_is_no_cause(cat: str, tmp_path: Path) -> None:
    """A thread that writes logs, beside one that launches and is in nothing with a name."""
    name = "telemetry.py(12): flush" if cat == "python_function" else "flush_telemetry"
    made = idling()
    for number in range(4):
        made.host(name, number * 100 * MS + 1, 69 * MS, cat, tid=777)
    found = said(made, tmp_path)
    assert found["T24"].headline == "GPU idle 70 % of the time"
    for number in range(4):  # a few launches of its own do not change that
        made.kernel(PINNED, number * 100 * MS + 75 * MS, MS, stream=9)
        made.events[-2]["tid"] = 777
        made.kernel(GEMM, number * 100 * MS + 70 * MS, 30 * MS)
    assert "telemetry" not in said(made, tmp_path)["T24"].headline


def test_the_thread_that_launches_is_that_of_a_backward_pass_too(tmp_path: Path) -> None:
    made = idling()
    for number in range(4):
        made.host("all_gather_weights", number * 100 * MS + 1, 69 * MS, "user_annotation", tid=777)
        made.kernel(GEMM, number * 100 * MS + 71 * MS, 10 * MS)
        made.events[-2]["tid"] = 777
    assert "CPU mostly in `all_gather_weights` (69 ms per step)" in said(made, tmp_path)["T24"].headline


LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


@pytest.mark.parametrize(
    ("data_ms", "said_of_it"),
    [
        (695, ", training loop waiting for its DataLoader"),
        (420, ", training loop waiting for its DataLoader in 60 % of that time"),
        (300, ""),
    ],
)
def test_what_explains_a_part_of_idle_time_is_not_said_of_all(data_ms: float, said_of_it: str, tmp_path: Path) -> None:
    made = Made()
    for number in range(3):
        at = number * 1000 * MS
        made.step(number, at, 1000 * MS)
        made.note(LOADER, at + 1, data_ms * MS)
        made.kernel(GEMM, at + 700 * MS, 300 * MS)
    assert said(made, tmp_path)["T22"].headline == f"long idle gap, 0.70 s{said_of_it}"


def queued(idle_ms: float) -> Made:
    """Steps of 100 ms: for so long a kernel waits that was launched, for 30 ms nothing was launched."""
    made = Made()
    for number in range(4):
        at = number * 100 * MS
        made.step(number, at, 100 * MS)
        made.kernel(GEMM, at + idle_ms * MS, (70 - idle_ms) * MS, launch=at + 10)
    return made


def test_kernels_that_wait_for_a_part_of_the_idle_time_are_said_of_that(tmp_path: Path) -> None:
    headline = said(queued(45), tmp_path)["T24"].headline
    assert headline == "GPU idle 75 % of the time, next kernel launched but not started in 60 % of that time"
    views = job(queued(45), queued(40), folder=tmp_path)
    assert "all 2 ranks (70 % to 75 %): GPU idle 75 %" in report.ranks(views).points[0].text

"""One window for everything that is told of a trace: its whole steps; several GPUs, each; a folder of ranks."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from gputop.trace import signatures  # noqa: F401
from gputop.trace.diff import diff as compared
from gputop.trace.operators import operators
from gputop.trace.read import read
from gputop.trace.report import page
from gputop.trace.summary import as_json
from gputop.trace.verdict import TraceView
from tests.traces import FP32, GEMM, NCCL, Made, busy

MS = 1000.0


def explain(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gputop", "explain", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def stepped(first_ms: float = 100, last_ms: float = 100, before_ms: float = 0) -> Made:
    """Six steps of 100 ms with 40 ms in aten::mm each, the first and the last as long as it is said, more before."""
    made, at = Made(), 0.0
    if before_ms:
        made.host("aten::compile", -before_ms * MS, before_ms * MS)
    for number, took in enumerate((first_ms, 100, 100, 100, 100, last_ms), 1):
        made.step(number, at, took * MS)
        made.host("aten::mm", at + 1, took * 0.4 * MS)
        made.kernel(GEMM, at + 10, took * MS - 20, launch=at + 1)
        at += took * MS
    made.events.sort(key=lambda event: event["ts"])
    return made


def own(view: TraceView, name: str) -> float:
    return next((row.self_us / MS for row in operators(view.trace, 20) if row.name == name), 0.0)


@pytest.mark.parametrize(
    ("made", "steps", "mm_ms"),
    [
        (stepped(), [1, 2, 3, 4, 5, 6], 240),
        (stepped(last_ms=20), [1, 2, 3, 4, 5], 200),
        (stepped(first_ms=20), [2, 3, 4, 5, 6], 200),
        (stepped(first_ms=30, last_ms=20), [2, 3, 4, 5], 160),
        (stepped(before_ms=500), [1, 2, 3, 4, 5, 6], 240),
        (stepped(before_ms=2), [1, 2, 3, 4, 5, 6], 240),
        (stepped(last_ms=4), [1, 2, 3, 4, 5], 200),
        (stepped(first_ms=4), [2, 3, 4, 5, 6], 200),
    ],
)
def test_all_tables_are_of_the_whole_steps(tmp_path: Path, made: Made, steps: list[int], mm_ms: float) -> None:
    view = TraceView(read(made.write(tmp_path / "x.json")))
    assert [step.number for step in view.found.window.steps] == steps
    assert [row.number for row in view.rows] == steps
    assert own(view, "aten::mm") == pytest.approx(mm_ms)
    assert own(view, "aten::compile") == 0
    assert view.found.kernel_count == len(steps)
    (table,) = [table for table in page(view).tables if table.title.startswith("Operators by self CPU time")]
    assert {row[3] for row in table.rows if row[0] == "aten::mm"} == {str(len(steps))}


@pytest.mark.parametrize(("before_ms", "listed"), [(0.5, True), (30, False)])
def test_where_no_step_is_marked_all_tables_are_of_the_time_of_the_gpu(
    tmp_path: Path, before_ms: float, listed: bool
) -> None:
    """What the CPU does long before the first kernel is no part of that; the launch of that kernel is told."""
    made = stepped(before_ms=before_ms)
    made.events = [event for event in made.events if not event["name"].startswith("ProfilerStep")]
    view = TraceView(read(made.write(tmp_path / "x.json")))
    assert own(view, "aten::compile") == pytest.approx(before_ms if listed else 0)
    assert own(view, "aten::mm") == pytest.approx(240, abs=0.01)


def test_all_steps_are_one_row_of_the_operators(tmp_path: Path) -> None:
    """Six of 100 ms, 40 ms of each in aten::mm: what is in no operator does not fill the table with steps."""
    told = page(TraceView(read(stepped().write(tmp_path / "x.json"))))
    (table,) = [table for table in told.tables if table.title.startswith("Operators by self CPU time")]
    assert table.rows == (
        ("step time outside operators", "360 ms", "600 ms", "6"),
        ("aten::mm", "240 ms", "240 ms", "6"),
    )


def test_a_gpu_that_did_nothing_in_the_steps_is_listed(tmp_path: Path) -> None:
    """It was used before them, so that it is one of the GPUs of this process."""
    made = Made()
    made.kernel(GEMM, -50 * MS, MS, device=1)
    for number in range(4):
        made.step(number, number * 100 * MS, 100 * MS)
        made.kernel(GEMM, number * 100 * MS + 10, 99 * MS, launch=number * 100 * MS - 2 * MS)
    view = TraceView(read(made.write(tmp_path / "x.json")))
    assert "2 GPUs, details of GPU 0" in page(view).about
    (table,) = [table for table in page(view).tables if table.title == "Each GPU"]
    assert [row[:2] for row in table.rows] == [("GPU 0", "99.0 %"), ("GPU 1", "0.0 %")]
    said = {point.text: point.severity for point in page(view).points}
    assert said == {"GPU 1: no work in this window, only before or after it": "warn"}
    assert as_json(view)["gpus"] == len(as_json(view)["each_gpu"]) == 2


def launched_ahead(*, cpu_ms: float = 6, queued_ms: float = 0) -> Made:
    """Four steps of so long on the CPU, of 100 ms on the GPU, 40 of them NCCL's; the GPU works on others before."""
    made, at = Made(), 1 * MS + queued_ms * MS
    if queued_ms:
        made.kernel(GEMM, 0, queued_ms * MS, launch=-5)
    for number in range(1, 5):
        begin = (number - 1) * cpu_ms * MS
        made.step(number, begin, cpu_ms * MS)
        made.kernel(GEMM, at, 60 * MS, launch=begin + 100)
        made.kernel(NCCL, at + 60 * MS, 40 * MS, launch=begin + 200)
        at += 100 * MS
    return made


def test_the_gpu_works_on_the_steps_of_a_cpu_that_is_ahead_until_they_are_over(tmp_path: Path) -> None:
    """The marks of the steps end 376 ms before the GPU: what it does in their 24 ms is a quarter of one step."""
    view = TraceView(read(launched_ahead().write(tmp_path / "ahead.json")))
    found = view.found
    assert found.window.span_us == pytest.approx(401 * MS)
    assert found.exposed == pytest.approx(0.4, abs=0.01)
    assert [verdict.rule.split()[0] for verdict in view.verdicts if verdict.severity != "info"] == ["T08"]
    assert any(words.startswith("The CPU runs ahead: it launches these steps in 24 ms") for words in page(view).words)
    change = compared(view, view)
    assert change.step.before == pytest.approx(401 * MS / 4)


def test_a_queue_that_was_full_before_the_steps_is_no_longer_after_them(tmp_path: Path) -> None:
    """What the GPU works off after them is as much as it worked off of earlier ones within them."""
    for cpu_ms in (100, 6):
        made = launched_ahead(cpu_ms=cpu_ms, queued_ms=350)
        found = TraceView(read(made.write(tmp_path / "steady.json"))).found
        assert found.window.after_us == 0
        assert found.window.span_us == pytest.approx(4 * cpu_ms * MS)


def test_each_gpu_of_a_process_is_told_of(tmp_path: Path) -> None:
    """One works with tensor cores all the time, the other without them for less than half of it."""
    made = busy()
    for number in range(4):
        made.kernel(FP32, number * 100 * MS, 40 * MS, device=1)
    path = made.write(tmp_path / "x.json")
    told = page(TraceView(read(path)))
    assert "2 GPUs, details of GPU 0" in told.about
    (table,) = [table for table in told.tables if table.title == "Each GPU"]
    assert [row[:2] for row in table.rows] == [("GPU 0", "100.0 %"), ("GPU 1", "40.0 %")]
    assert any(point.text.startswith("GPU 1: matrix products in fp32") for point in told.points)
    each = json.loads(explain("--json", path).stdout)["files"][0]["each_gpu"]
    assert [(one["index"], round(one["busy"], 2)) for one in each] == [(0, 1.0), (1, 0.4)]


@pytest.mark.parametrize("names", [("device",), ("device", "stream", "correlation")])
def test_a_gpu_written_as_text_is_that_gpu(tmp_path: Path, names: tuple[str, ...]) -> None:
    made = busy()
    for number in range(4):
        made.kernel(FP32, number * 100 * MS, 40 * MS, device=1)
    right = page(TraceView(read(made.write(tmp_path / "x.json")))).tables
    kernels = [event for event in made.events if event["cat"] == "kernel"]
    for event in kernels:
        event["args"].update({name: str(event["args"][name]) for name in names})
    view = TraceView(read(made.write(tmp_path / "x.json")))
    assert page(view).tables == right
    what = "with GPU, stream or launch written as text, read as a number"
    assert view.trace.problems == [f"{len(kernels)} events {what}"]


def test_a_folder_of_ranks_is_read_like_a_list_of_its_files(tmp_path: Path) -> None:
    for rank in range(3):
        made = busy(distributedInfo={"rank": rank, "world_size": 3, "backend": "nccl"})
        made.write(tmp_path / f"rank{rank}.pt.trace.json{'.gz' if rank else ''}")
    (tmp_path / "notes.txt").write_text("not a trace")
    (tmp_path / "sub").mkdir()
    files = [str(path) for path in sorted(tmp_path.glob("rank*"))]
    folder, listed = explain(str(tmp_path)), explain(*files)
    assert (folder.returncode, folder.stderr) == (0, "")
    assert folder.stdout == listed.stdout
    assert folder.stdout.startswith("3 ranks\n")


def test_a_folder_without_traces_is_refused_in_one_line(tmp_path: Path) -> None:
    done = explain(str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "no trace in this folder" in done.stderr


def test_nothing_is_well_of_one_gpu_beside_what_is_not_of_another(tmp_path: Path) -> None:
    """One is busy all the time, the other idles for nearly all of it; whatever comes first in the file."""
    made = busy()
    for number in range(4):
        made.kernel(GEMM, number * 100 * MS + 10, 100, device=1)
    for events in (made.events, made.events[::-1]):
        made.events = list(events)
        told = page(TraceView(read(made.write(tmp_path / "x.json"))))
        assert "details of GPU 0" in told.about
        assert [point.severity for point in told.points if point.text.startswith("GPU 1: GPU idle")] == ["crit"]
        assert not any(point.severity == "fine" for point in told.points)


def two_ranks(folder: Path, *, world_size: int | None = None) -> None:
    for rank, wait_us in enumerate((30_000, 2_000)):
        about = {"rank": rank} | ({"world_size": world_size} if world_size else {})
        made = busy(distributedInfo=about)
        for number in range(4):
            made.kernel("ncclDevKernel_AllReduce", number * 100_000 + 60_000, wait_us, stream=9)
        made.write(folder / f"rank{rank}.json")


FOREIGN = '{"traceEvents": [{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]}'
SPEEDSCOPE = {
    "$schema": "https://www.speedscope.app/file-format-schema.json",
    "shared": {"frames": [{"name": "main", "file": "t.py", "line": 1}]},
    "profiles": [{"type": "sampled", "name": "x", "unit": "none", "samples": [[0]], "weights": [5]}],
}


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("config.json", '{"lr": 0.1}', "no traceEvents in it"),
        ("a.json", "[1, 2, 3]", "its format is unknown"),
        ("list.json", "hello", "its format is unknown"),
        ("chrome.json", FOREIGN, "not a torch.profiler trace"),
        ("log.json", '{"loss": 1.5}\n{"loss": NaN}\n', "it is not a trace"),
        ("profile.json", json.dumps(SPEEDSCOPE), "it is not a trace"),
    ],
)
def test_what_is_no_trace_in_a_folder_is_left_out_by_name(tmp_path: Path, name: str, text: str, why: str) -> None:
    two_ranks(tmp_path)
    alone = explain(str(tmp_path))
    assert (alone.returncode, alone.stdout.count("straggler, ")) == (0, 1)
    (tmp_path / name).write_text(text)
    done = explain(str(tmp_path))
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("2 ranks\n")
    said = " ".join(done.stdout.split())
    assert f"Findings {name} is skipped: {why}" in said
    assert "straggler, other ranks wait for rank 1" in said
    told = json.loads(explain("--json", str(tmp_path)).stdout)
    assert [each["file"] for each in told["files"]] == ["rank0.json", "rank1.json"]
    assert [each["file"] for each in told["left_out"]] == [name]


def test_of_several_files_those_are_read_that_can_be(tmp_path: Path) -> None:
    two_ranks(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    done = explain(*map(str, sorted(tmp_path.iterdir())))
    assert (done.returncode, done.stdout[:7]) == (1, "2 ranks")
    assert "config.json is skipped: no traceEvents in it." in done.stdout
    assert explain(str(tmp_path / "rank0.json"), str(tmp_path / "rank0.json")).returncode == 0
    assert explain("--diff", str(tmp_path / "rank0.json"), str(tmp_path / "config.json")).stdout == ""


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("rank2.json", b"", "it is empty"),
        ("rank2.json.gz", b"\x1f\x8b\x08garbage", "the compressed file is damaged"),
        ("rank2.json.gz", gzip.compress(b"{" * 9000, mtime=0)[:9], "the compressed file is truncated"),
    ],
)
def test_no_rank_is_late_where_one_is_missing(tmp_path: Path, name: str, data: bytes, why: str) -> None:
    """That file may be of the rank that is late."""
    two_ranks(tmp_path)
    (tmp_path / name).write_bytes(data)
    done = explain(str(tmp_path))
    assert done.returncode == 1
    said = " ".join(done.stdout.split())
    assert f"{name} is skipped: {why}" in said
    assert "straggler" not in said
    two_ranks(tmp_path, world_size=2)
    assert "straggler, other ranks wait for rank 1" in " ".join(explain(str(tmp_path)).stdout.split())


def test_a_folder_without_any_trace_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "other.json").write_text("hello")
    done = explain(str(tmp_path))
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_byte_order_mark_is_no_part_of_a_trace(tmp_path: Path, encoding: str, packed: bool) -> None:
    plain = stepped().text()
    data = plain.encode(encoding)
    (tmp_path / "x.json").write_bytes(gzip.compress(data) if packed else data)
    if encoding == "utf-32" and not packed:
        assert data.startswith(b"\xff\xfe\0\0")
    done = explain(str(tmp_path / "x.json"))
    (tmp_path / "x.json").write_text(plain)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == explain(str(tmp_path / "x.json")).stdout

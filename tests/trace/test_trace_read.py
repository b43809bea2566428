"""Reading traces: old and new formats, packed, torn and hostile ones; what is whole is read, in little memory."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gputop.safe.files import Refused
from gputop.trace import signatures  # noqa: F401
from gputop.trace.breakdown import breakdown
from gputop.trace.read import Trace, read
from gputop.trace.report import page
from gputop.trace.verdict import TraceView
from tests.hostile import STRINGS
from tests.traces import ADD, GEMM, Made, busy, starved

KEPT = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


def counted(trace: Trace) -> tuple[int, int, int]:
    return trace.events, len(trace.activity), len(trace.calls.start)


@pytest.mark.parametrize("name", ["made.json", "made.json.gz"])
@pytest.mark.parametrize("old", [False, True])
def test_a_trace_reads_the_same_in_every_format(name: str, old: bool, tmp_path: Path) -> None:
    made = starved()
    trace = read(made.write(tmp_path / name, old=old))
    assert counted(trace) == (len(made.events) + old, 500, 500)
    assert trace.notes == []
    assert trace.odd == 0
    assert (trace.devices[0].name, trace.devices[0].capability) == ("Made GPU", (8, 0))
    found = breakdown(trace)
    assert found.share(found.busy) == pytest.approx(0.08, abs=0.001)
    assert found.launching.delay_p50_us == pytest.approx(2)
    assert found.per_step == 250


def test_events_written_without_white_space_or_as_a_bare_list(tmp_path: Path) -> None:
    made = starved()
    for text in (json.dumps({"traceEvents": made.events}, separators=(",", ":")), json.dumps(made.events)):
        (tmp_path / "x.json").write_text(text)
        trace = read(str(tmp_path / "x.json"))
        assert counted(trace) == (len(made.events), 500, 500)
        assert trace.notes == []


def test_what_stands_in_the_head_may_come_after_the_events(tmp_path: Path) -> None:
    head = {"distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8, "pg_config": [list(range(1000))] * 99}}
    (tmp_path / "x.json").write_text(json.dumps({"traceEvents": busy().events, **head}))
    trace = read(str(tmp_path / "x.json"))
    assert (trace.backend, trace.rank, trace.ranks, trace.notes) == ("nccl", 3, 8, [])


@pytest.mark.parametrize("name", ["made.json", "made.json.gz"])
def test_f06_a_cut_file_is_read_up_to_there(name: str, tmp_path: Path) -> None:
    """Cut anywhere after the head, what comes back is a beginning of the whole, with a note."""
    whole = starved()
    path = tmp_path / name
    data = Path(whole.write(path)).read_bytes()
    before = 0
    for part in (0.2, 0.5, 0.9, 0.999):
        path.write_bytes(data[: int(len(data) * part)])
        trace = read(str(path))
        assert before <= trace.events <= len(whole.events)
        assert any("truncated" in note for note in trace.problems)
        assert not trace.whole
        page(TraceView(trace))
        before = trace.events
    assert before > 0.9 * len(whole.events)


def test_f06_damage_in_the_middle_costs_what_it_hits(tmp_path: Path) -> None:
    made = starved()
    text = made.text()
    place = text.index("{", len(text) // 2)
    (tmp_path / "x.json").write_text(text[:place] + '"\x00{"' + text[place + 60 :])
    trace = read(str(tmp_path / "x.json"))
    assert len(made.events) - 3 <= trace.events < len(made.events)
    assert trace.problems == ["1 damaged place was skipped"]
    assert not trace.whole


def test_f06_what_is_damaged_everywhere_is_given_up(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"traceEvents": [' + '{"ph"' * 500_000)
    notes = read(str(tmp_path / "x.json")).problems
    assert notes[:2] == ["too damaged: the rest is not read", "1000 damaged places were skipped"]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is empty"),
        (b"   ", "empty file"),
        (b"hello", "not JSON"),
        (b"{}", "no traceEvents"),
        (b'{"schemaVersion": 1', "no traceEvents"),
        (b'{"a": [' + b"[" * 100_000, "no traceEvents"),
        (gzip.compress(b"not a trace", mtime=0), "not JSON"),
        (b"\x1f\x8b\x08garbage", "empty file"),
        (b"\x7fELF" + bytes(1000), "not JSON"),
    ],
)
def test_f06_what_is_no_trace_is_refused_in_one_line(data: bytes, why: str, tmp_path: Path) -> None:
    path = tmp_path / "x\x1b[2J.json"
    path.write_bytes(data)
    with pytest.raises(Refused, match=why) as refused:
        read(str(path))
    assert str(refused.value).isprintable()


def test_what_is_no_file_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, why in (("pipe", "not a regular file"), (".", "not a regular file"), ("none", "No such file")):
        with pytest.raises(Refused, match=why):
            read(str(tmp_path / name))


def test_f06_a_packed_bomb_ends_early(tmp_path: Path) -> None:
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + b" " * (64 << 20)))
    trace = read(str(path))
    assert any("200 times" in note for note in trace.problems)


def test_f06_more_names_than_fit_are_one(tmp_path: Path) -> None:
    made = Made()
    for number in range(10_000):
        made.host(f"{number}{'n' * 1500}", number, 1)
    trace = read(made.write(tmp_path / "x.json"))
    assert 8_000 < len(trace.host.names.texts) < 8_300
    assert trace.host.names.texts[-1] == "(other names)"
    assert sum(trace.host.count) == 10_000


HUGE = [10**400, 1e308, float("nan"), float("inf"), -1, "1", None, [], {}, True, 2**63]


@pytest.mark.parametrize("value", HUGE, ids=lambda value: str(value)[:9])
@pytest.mark.parametrize("key", ["ts", "dur", "pid", "tid", "name", "cat", "ph"])
def test_f06_made_up_values_never_break_it(key: str, value: object, tmp_path: Path) -> None:
    made = busy(steps=2, kernels=3)
    for event in made.events[::2]:
        event[key] = value
    (tmp_path / "x.json").write_text(made.text())
    page(TraceView(read(str(tmp_path / "x.json"))))


@pytest.mark.parametrize("value", HUGE, ids=lambda value: str(value)[:9])
def test_f06_made_up_arguments_never_break_it(value: object, tmp_path: Path) -> None:
    made = busy(steps=2, kernels=3)
    made.memory(5, 1, 1)
    made.host("aten::mm", 5, 1, **{"Input Dims": [[1]], "Input type": value})
    for event in made.events:
        event["args"] = dict.fromkeys(event["args"], value)
    made.head |= {"deviceProperties": [value, {"id": value}, {"id": 0, "name": value}], "distributedInfo": value}
    (tmp_path / "x.json").write_text(made.text())
    page(TraceView(read(str(tmp_path / "x.json"))))
    made.events[0]["args"] = value
    (tmp_path / "x.json").write_text(made.text())
    page(TraceView(read(str(tmp_path / "x.json"))))


def test_hostile_names_are_clean_everywhere(tmp_path: Path) -> None:
    made = busy(steps=2, kernels=3)
    for place, name in enumerate(STRINGS):
        made.kernel(name, place, 1)
        made.host(name, place, 1, **{"Input Dims": [[name]], "Input type": [name]})
        made.host(name, place, 1, "python_function")
    made.head["deviceProperties"] = [{"id": 0, "name": "".join(STRINGS)}]
    trace = read(made.write(tmp_path / "x.json"))
    assert len(trace.activity) >= len(STRINGS)
    told = repr(page(TraceView(trace)))
    assert told.isprintable()
    assert all(text.isprintable() for text in trace.activity.names.texts + trace.host.names.texts)


@KEPT
@given(st.data())
def test_f06_any_bytes_are_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    """A whole trace with anything done to it."""
    raw = bytearray(starved(1, kernels=12).text().encode())
    for _ in range(data.draw(st.integers(0, 4))):
        place = data.draw(st.integers(0, len(raw) - 1))
        raw[place : place + data.draw(st.integers(0, 40))] = data.draw(st.binary(max_size=12))
    packed = data.draw(st.booleans())
    written = bytearray(gzip.compress(raw) if packed else raw)
    if data.draw(st.booleans()):
        written[data.draw(st.integers(0, len(written) - 1))] ^= data.draw(st.integers(1, 255))
    path = tmp_path / "x.json"
    path.write_bytes(written[: data.draw(st.integers(1, len(written)))])
    try:
        trace = read(str(path))
    except Refused:
        return
    assert len(trace.activity) <= 13
    page(TraceView(trace))


def test_f06_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """Twelve times the events of the CPU cost no more than some bytes each."""
    sizes = []
    for times in (1, 12):
        path = tmp_path / f"{times}.json"
        with path.open("w") as file:
            file.write('{"traceEvents": [')
            event = '{"ph": "X", "cat": "python_function", "name": "%s", "pid": 1, "tid": 1, "ts": %d, "dur": 1},\n'
            for number in range(times * 10_000):
                file.write(event % (f"train.py(10): {'step' * 20}", number * 2))
            file.write('{"ph": "X", "cat": "cpu_op", "name": "end", "pid": 1, "tid": 1, "ts": 1e9, "dur": 1}]}')
        code = (
            "import sys, resource\nfrom gputop.trace.read import read\n"
            "trace = read(sys.argv[1])\nassert trace.notes == [], trace.notes\n"
            "print(trace.events, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
        )
        done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
        events, kilobytes = map(int, done.stdout.split())
        assert events == times * 10_000 + 1
        sizes.append(kilobytes)
    assert sizes[1] - sizes[0] < 6_000


def test_all_steps_are_one_call_path(tmp_path: Path) -> None:
    made = Made()
    for number in range(500):
        made.step(number, number * 100, 90)
        made.host("aten::linear", number * 100 + 10, 60)
    nesting = read(made.write(tmp_path / "steps.json")).host.nesting
    assert len(nesting) == len(["the thread", "a step", "aten::linear"])
    assert list(nesting.totals()) == [500 * 90, 500 * 90, 500 * 60]


def test_progress_is_told_and_can_end_the_reading(tmp_path: Path) -> None:
    made = Made()
    for number in range(3000):
        made.kernel(ADD if number % 2 else GEMM, number * 10, 5)
    path = made.write(tmp_path / "x.json")
    told: list[float] = []
    read(path, told.append)
    assert told == sorted(told)
    assert len(told) > 2
    assert told[-1] == 1.0

    def stop(done: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read(path, stop)


def test_a_last_step_that_was_cut_is_left_out(tmp_path: Path) -> None:
    made = busy(steps=3)
    made.step(4, 300_000, 20_000)
    assert [step.number for step in breakdown(read(made.write(tmp_path / "x.json"))).window.steps] == [1, 2, 3]
    made.note("Optimizer.step#SGD.step", 319_000, 500)  # no, it was only fast
    assert [step.number for step in breakdown(read(made.write(tmp_path / "x.json"))).window.steps] == [1, 2, 3, 4]


def test_without_named_steps_the_optimizer_says_where_they_end(tmp_path: Path) -> None:
    made = Made()
    for number in range(4):
        made.note("Optimizer.step#SGD.step", number * 1000 + 900, 100)
        made.kernel(GEMM, number * 1000 + 10, 500)
    seen = breakdown(read(made.write(tmp_path / "x.json"))).window
    assert (len(seen.steps), seen.named, seen.span_us) == (3, "Optimizer.step", 3000)
    made.events = [event for event in made.events if event["cat"] != "user_annotation"]
    seen = breakdown(read(made.write(tmp_path / "x.json"))).window
    assert (len(seen.steps), seen.span_us) == (0, 3500)


def test_the_pauses_of_a_gpu_are_told_apart_by_their_cause(tmp_path: Path) -> None:
    """100 us each: one kernel was launched late, one waited for another stream; one came right after, and then none."""
    made = Made()
    made.step(1, 0, 1000)
    made.kernel(GEMM, 0, 100, launch=0)
    made.kernel(GEMM, 200, 100, launch=180)  # the call ends 18 us before: a launch takes so long
    made.kernel(GEMM, 400, 100, launch=150)
    made.kernel(GEMM, 503, 397, launch=160)
    idle = breakdown(read(made.write(tmp_path / "x.json"))).idle
    assert (idle.host_us, idle.other_us, idle.kernel_us, idle.unknown_us) == pytest.approx((200, 100, 3, 0))


def test_a_gpu_waits_for_a_launch_until_the_call_has_ended(tmp_path: Path) -> None:
    """The first launch of a kernel loads its code: the call takes 300 ms, and nothing else runs meanwhile."""
    made = Made()
    made.step(1, 0, 1_000_000)
    for number, start in enumerate((0, 330_000, 660_000)):
        made.call("cudaLaunchKernel", start + 10_000, 300_000, 900 + number)
        made.events.append(
            {"ph": "X", "cat": "kernel", "name": GEMM, "pid": 0, "tid": 7, "ts": start + 310_100, "dur": 50,
             "args": {"device": 0, "stream": 7, "correlation": 900 + number}}
        )  # fmt: skip
    idle = breakdown(read(made.write(tmp_path / "x.json"))).idle
    assert idle.host_us == pytest.approx(1_000_000 - 3 * 150, abs=1)
    assert idle.other_us == pytest.approx(300, abs=1)  # what is more than a launch takes
    words = page(TraceView(read(made.write(tmp_path / "x.json")))).words
    assert not any("something else on the GPU" in text for text in words)


def test_a_pause_whose_launch_is_not_in_the_trace_is_of_an_unknown_cause(tmp_path: Path) -> None:
    made = Made()
    made.step(1, 0, 1000)
    made.kernel(GEMM, 0, 100, launch=0)
    made.kernel(GEMM, 900, 100)
    made.events = [
        event for event in made.events if event["args"].get("correlation") != made._id or event["cat"] == "kernel"
    ]
    idle = breakdown(read(made.write(tmp_path / "x.json"))).idle
    assert (idle.host_us, idle.other_us, idle.unknown_us) == pytest.approx((0, 0, 800))


@pytest.mark.parametrize("first", ["early", "late"])
def test_the_order_of_events_changes_no_verdict(tmp_path: Path, first: str) -> None:
    """Times are counted from the first event in the file, which may be a late one."""
    made = starved(steps=1, kernels=300, each_us=10, every_us=3300)
    made.host("aten::add", 990_000, 10, tid=77)
    whole = TraceView(read(made.write(tmp_path / "early.json")))
    made.events.insert(0, made.events.pop())
    late = TraceView(read(made.write(tmp_path / "late.json")))
    assert [one.rule for one in late.verdicts] == [one.rule for one in whole.verdicts]
    assert "T02 launch-bound" in [one.rule for one in late.verdicts]
    for name in ("host_us", "kernel_us", "other_us", "unknown_us", "stream_host_us"):
        assert getattr(late.found.idle, name) == pytest.approx(getattr(whole.found.idle, name)), name


def test_the_queue_is_as_deep_as_what_is_launched_and_not_begun(tmp_path: Path) -> None:
    made = Made()
    made.step(1, 0, 10_000)
    for place in range(100):
        made.kernel(GEMM, 1000 + place * 50, 49, launch=place * 2.0)
    queue = breakdown(read(made.write(tmp_path / "x.json"))).launching
    assert queue.depth_max == 99
    assert queue.depth_p50 == pytest.approx(50, abs=1)
    assert queue.delay_p50_us == pytest.approx(1000 + 50 * 48 - 2, abs=60)

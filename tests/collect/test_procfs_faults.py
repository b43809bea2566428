"""What goes wrong while /proc is read: names, ends, reused pids, refusals, clocks."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from gputop.collect.proc.reader import ProcessReader
from gputop.collect.rates import Counters
from gputop.model import Missing, Process, metrics
from gputop.safe.text import decode
from gputop.source import Interest
from tests import hostile
from tests.fakeproc import BOOT_S, FakeProc, find


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path)


@pytest.mark.parametrize("comm", hostile.COMMS, ids=repr)
def test_p01_a_name_that_looks_like_fields(proc: FakeProc, comm: bytes) -> None:
    proc.add(42, "NAME", user=7, parent=1)
    path = proc.proc / "42/stat"
    path.write_bytes(path.read_bytes().replace(b"NAME", comm))
    process = proc.process(42)
    assert (process.name, process.state, process.parent_pid, process.cpu_time_s) == (decode(comm), "S", 1, 0.07)
    assert process.name.isprintable()


def test_p04_zombie_stopped_blocked_and_kernel_thread(proc: FakeProc) -> None:
    for pid, state in ((42, "Z"), (43, "T"), (44, "D")):
        proc.add(pid, state=state)
        proc.more(pid)
    proc.add(45, "kworker/0:1", parent=2)
    path = proc.proc / "45/stat"
    path.write_text(path.read_text().replace(" 4194304 ", " 2129984 "))
    proc.more(45)
    for _ in range(3):
        table = proc.look(42, 43, 44, 45)
    assert [find(table, pid).state for pid in (42, 43, 44, 45)] == ["Z", "T", "D", "S"]
    assert [find(table, pid).read_bytes_per_s for pid in (42, 43, 44, 45)] == [None, 0.0, 0.0, None]
    assert [find(table, pid).blocked_percent for pid in (43, 44)] == [0.0, 100.0]


def test_p04_a_zombie_leader_with_live_threads_still_works(proc: FakeProc) -> None:
    proc.add(42, state="Z", threads=3, user=0)
    proc.more(42)
    proc.look(42)
    proc.add(42, state="Z", threads=3, user=50)
    process = proc.process(42, 42)
    assert (process.state, process.cpu_percent, process.read_bytes_per_s) == ("Z", 50.0, 0.0)


def test_blocked_percent_is_of_the_last_ten_seconds(proc: FakeProc) -> None:
    proc.add(42, state="D")
    for _ in range(3):
        proc.look(42)
    proc.add(42, state="S")
    shares = [proc.process(42, 42).blocked_percent for _ in range(12)]
    assert shares[:2] == [75.0, 60.0]
    assert shares[-1] == 0.0


class Meddler(FakeProc):
    """Does something to /proc at the nth look at the clock, that is between two reads."""

    left, meddle = 0, staticmethod(lambda: None)

    def clock(self) -> float:
        if self.left:
            self.left -= 1
            if not self.left:
                self.meddle()
        return self.now_s


@pytest.mark.parametrize("moment", range(1, 9))
def test_p05_vanish_between_any_two_reads(tmp_path: Path, moment: int) -> None:
    proc = Meddler(tmp_path)
    proc.add(41)
    proc.more(41)
    proc.add(42)
    proc.more(42)
    proc.thread(42, 42, "python", run=1)
    proc.look(41, 42)
    proc.left, proc.meddle = moment, lambda: proc.remove(42)  # type: ignore[method-assign]
    table = proc.look(41, 42)
    assert proc.left == 0, "the moment never came"
    assert find(table, 41).cpu_percent == 0.0
    assert {process.pid for process in proc.look(41, 42).processes} == {1, 41}


def test_p06_a_reused_pid_is_another_process(proc: FakeProc) -> None:
    proc.add(42, "python", user=5000, started=500_000)
    proc.more(42, io=(10**9,) * 6)
    for _ in range(3):
        before = proc.process(42, 42)
    proc.add(42, "bash", user=5100, started=600_000)
    proc.more(42, io=(2 * 10**9,) * 6)
    os.chown(proc.proc / "42", 1000, 1000)
    after = proc.process(42, 42)
    assert before.identity != after.identity
    assert (after.name, after.uid, after.cpu_percent, after.read_bytes_per_s) == ("bash", 1000, None, None)
    assert after.blocked_percent is None


def test_p06_reuse_by_an_untracked_process_is_seen_at_its_turn(proc: FakeProc) -> None:
    proc.add(42, "bash", started=500_000)
    for _ in range(3):
        proc.look()
    proc.add(42, "bash", started=600_000)
    assert any(proc.process(42).started_ticks == 600_000 for _ in range(6))


@pytest.mark.parametrize("garbage", [b"", b"\n", b"garbage", b"42 (x", b"42 (x) S", b"\xff" * 4096])
def test_p09_no_stat_record(proc: FakeProc, garbage: bytes) -> None:
    proc.write("42/stat", garbage)
    for _ in range(2):
        table = proc.look(42)
        assert [process.pid for process in table.processes] == [1]
    assert table.count == 2
    proc.add(42)
    assert [process.pid for process in proc.look(42, after_s=40.0).processes] == [1, 42]


def test_p09_a_file_that_cannot_be_read_is_lost_not_zero(proc: FakeProc) -> None:
    proc.add(42)
    proc.more(42)
    proc.look(42)
    (proc.proc / "42/io").unlink()
    (proc.proc / "42/io").mkdir()  # reading it fails with an errno that no process gives: EISDIR
    process = proc.process(42, 42)
    assert process.read_bytes_per_s is None
    assert Missing(metric="read_bytes_per_s", reason="lost") in process.missing
    assert process.cpu_percent == 0.0


def test_p09_io_that_is_no_table(proc: FakeProc) -> None:
    proc.add(42)
    proc.more(42)
    proc.write("42/io", "rchar: many\n")
    proc.write("42/schedstat", "1\n")
    process = proc.process(42, 42)
    assert {one.reason for one in process.missing} == {"unsupported"}


def test_p23_without_proc_the_last_table_stays_and_says_so(proc: FakeProc) -> None:
    proc.add(42)
    before = proc.look()
    os.rename(proc.proc, proc.proc.with_name("gone"))
    after = proc.look()
    assert after.processes == before.processes
    assert after.taken_s == before.taken_s
    assert [note.key for note in after.notes] == ["processes-lost"]


def works(proc: FakeProc, seconds: float) -> None:
    """A process that used one core and read 1 MB/s for so long."""
    ticks = round(seconds * 100)
    proc.add(42, user=ticks, faults=ticks)
    proc.more(42, io=(ticks * 10**4,) * 6, run=ticks * 10**7 + 1, wait=ticks * 10**7)


def rates(process: Process) -> list[float | None]:
    return [getattr(process, metric.name) for metric in metrics(Process) if metric.name.endswith(("_per_s", "percent"))]


def test_p15_p14_a_jump_of_the_clock_is_one_gap(proc: FakeProc) -> None:
    for second in range(4):
        works(proc, second)
        before = proc.process(42, 42)
    works(proc, 5)
    asleep = proc.process(42, 42, after_s=3600.0)
    works(proc, 6)
    after = proc.process(42, 42)
    assert (before.cpu_percent, asleep.cpu_percent, after.cpu_percent) == (100.0, None, 100.0)
    assert (before.read_bytes_per_s, asleep.read_bytes_per_s, after.read_bytes_per_s) == (1e6, None, 1e6)


def test_p15_looks_that_are_always_rare_are_no_gap(proc: FakeProc) -> None:
    for minute in range(3):
        works(proc, 60 * minute)
        process = proc.process(42, 42, after_s=60.0)
    assert process.cpu_percent == 100.0


def test_p16_counters_that_go_backwards_are_a_gap(proc: FakeProc) -> None:
    for second in (8, 9, 3, 4):
        works(proc, second)
        process = proc.process(42, 42)
        found = [value for value in rates(process) if value is not None]
        assert all(value >= 0 for value in found)
        if second == 3:
            assert (process.cpu_percent, process.read_bytes_per_s, process.main_thread_percent) == (None, None, None)
    assert (process.cpu_percent, process.read_bytes_per_s) == (100.0, 1e6)


@pytest.mark.parametrize("step_s", [0.0, 1e-6, 1e-3])
def test_p17_no_time_between_two_looks(proc: FakeProc, step_s: float) -> None:
    for second in range(3):
        works(proc, second)
        before = proc.look(42)
    works(proc, 2.01)
    assert proc.look(42, after_s=step_s) is before
    works(proc, 3)
    process = proc.process(42, 42, after_s=1 - step_s)
    assert process.cpu_percent == pytest.approx(100.0)


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        ([(0.0, 5), (1.0, 9)], 4.0),
        ([(0.0, 5), (2.0, 5)], 0.0),
        ([(0.0, 5)], None),
        ([(0.0, 5), (0.0, 6)], None),
        ([(0.0, 5), (1e-6, 6)], None),
        ([(0.0, 5), (1e-6, 6), (1.0, 7)], 2.0),
        ([(0.0, 5), (-3.0, 9)], None),
        ([(0.0, 5), (1.0, 4)], None),
        ([(0.0, 5), (1.0, 4), (2.0, 6)], 2.0),
        ([(0.0, None), (1.0, 4)], None),
        ([(0.0, 4), (1.0, None)], None),
        ([(0.0, 4), (31.0, 9)], None),
        ([(0.0, 4), (31.0, 9), (93.0, 71)], 1.0),
        ([(0.0, 2**64 - 1), (1.0, 3)], None),
    ],
)
def test_p16_p17_a_rate_is_of_two_looks_that_make_a_pair(looks: list, expected: float | None) -> None:
    counters = Counters()
    for now_s, count in looks:
        (rate,) = counters.rates(now_s, (count,))
        assert rate is None or math.isfinite(rate)
    assert rate == expected


def test_an_unstarted_names_lane_costs_nothing(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    reader = ProcessReader(str(proc.proc), proc.clock, proc.names, sys=str(proc.sys), boot=lambda: BOOT_S)
    assert reader.read((), Interest()).processes[0].user == "0"

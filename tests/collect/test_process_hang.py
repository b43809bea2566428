"""A file of a process or of its control group that never answers: it costs what it tells, everything else goes on."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputop.collect.lane import MOST
from gputop.collect.proc.gpu_processes import ProcessTable
from gputop.collect.proc.lane import STALE_S, STUCK_S, ProcessLane
from gputop.model import Process, metrics
from gputop.source import Interest
from tests.collect.test_cgroups import V2_MOUNTS
from tests.fakeproc import FakeProc, find, until
from tests.kernel_trees import write_tree

RANKS = (42, 43, 44)


class Lane:
    """The lane on a /proc in a folder. Its clock stands still but for the test; a hang is seen at once."""

    def __init__(self, folder: Path) -> None:
        self.others = set(threading.enumerate())
        self.proc = FakeProc(folder)
        for pid in RANKS:
            self.proc.add(pid)
            self.proc.more(pid)
        self.lane = ProcessLane(
            self.proc.reader, lambda: self.proc.reader.read(RANKS, Interest()), clock=self.proc.clock
        )
        self.lane.start()
        self.pipes: list[Path] = []

    def threads(self) -> int:
        """How many it has."""
        return sum(thread.name == "processes" for thread in set(threading.enumerate()) - self.others)

    def tick(self, after_s: float = 1.0) -> ProcessTable:
        """Let time pass and look; a thread that waits for a pipe is let get there, as it would in no time."""
        self.proc.now_s += after_s
        self.lane.nudge()
        until(lambda: self.lane.settled(time.monotonic() + 0.01) or self._waits())
        return self.lane.latest()

    def _waits(self) -> bool:
        at = self.proc.reader.gate.at
        return at is not None and Path(at) in self.pipes

    def block(self, name: str) -> Path:
        path = self.proc.proc / name
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(path)
        self.pipes.append(path)
        return path

    def free(self, path: Path, text: str) -> None:
        """Let who waits for it read this, and others a file from now on."""
        with open(path, "w") as pipe:
            path.unlink()
            path.write_text(text)
            pipe.write(text)
        self.pipes.remove(path)


@pytest.fixture
def lane(tmp_path: Path) -> Iterator[Lane]:
    lane = Lane(tmp_path)
    lane.tick()
    lane.tick()
    yield lane
    lane.lane.stop()
    for path in list(lane.pipes):
        with open(os.open(path, os.O_RDWR), "wb"):  # whoever waits finds an end
            pass


def missing(process: Process) -> dict[str, str]:
    return {one.metric: one.reason for one in process.missing if one.reason == "stale"}


def test_p37_a_file_of_a_process_costs_its_own_values(lane: Lane) -> None:
    path = lane.block("42/io")
    lane.tick()
    for _ in range(2):
        table = lane.tick()
    hung, other = find(table, 42), find(table, 43)
    assert missing(hung).keys() == {
        "read_bytes_per_s", "write_bytes_per_s", "read_chars_per_s", "write_chars_per_s", "read_calls_per_s",
        "write_calls_per_s", "mean_read_bytes",
    }  # fmt: skip
    assert (hung.read_bytes_per_s, hung.main_thread_percent, hung.cpu_percent) == (None, 0, 0)
    assert (other.read_bytes_per_s, missing(other)) == (0, {})
    assert table.taken_s == lane.proc.now_s, "the next look is already whole"
    assert [place for place, _ in lane.lane.hangs()] == [str(path)]
    lane.free(path, (lane.proc.proc / "43/io").read_text())
    until(lambda: not lane.lane.hangs())
    lane.tick()
    assert find(lane.tick(), 42).read_bytes_per_s == 0


def test_p37_a_stat_record_costs_its_process(lane: Lane) -> None:
    lane.block("42/stat")
    for _ in range(4):
        table = lane.tick()
    hung = find(table, 42)
    assert {"cpu_percent", "rss_bytes", "threads"} <= missing(hung).keys()
    assert (hung.name, hung.cpu_percent, hung.rss_bytes) == ("python", None, None)
    assert find(table, 43).cpu_percent == 0


def test_p37_ranks_that_hang_together_cost_one_kind_of_file(lane: Lane) -> None:
    for pid in RANKS:
        lane.block(f"{pid}/io")
    for _ in range(8):
        table = lane.tick()
    assert [find(table, pid).read_bytes_per_s for pid in RANKS] == [None] * 3
    assert [find(table, pid).cpu_percent for pid in RANKS] == [0] * 3
    assert table.taken_s == lane.proc.now_s
    assert lane.threads() <= 3, "two that wait, and one that works"


def test_p37_a_control_group_that_hangs_is_unknown_not_unlimited(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    lane.proc.write("self/mountinfo", V2_MOUNTS)
    group = "sys/fs/cgroup/job"
    write_tree(tmp_path, {f"{group}/cpu.max": "200000 100000\n", f"{group}/memory.max": "1073741824\n"})
    for pid in RANKS:
        lane.proc.write(f"{pid}/cgroup", "0::/job\n")
    lane.proc.names.start()
    until(lambda: bool(lane.tick(0.5).cgroups))
    until(lambda: find(lane.tick(0.5), 42).allowed_cpus == 2)
    path = lane.block("../" + f"{group}/cpu.max")
    lane.pipes[-1] = Path(os.path.normpath(path))
    for _ in range(40):
        table = lane.tick()
    assert [find(table, pid).allowed_cpus for pid in RANKS] == [None] * 3
    assert missing(find(table, 42)).keys() == {"allowed_cpus", "throttled_percent"}
    assert table.cgroups == ()
    assert find(table, 42).cpu_percent == 0
    assert lane.threads() <= 3
    lane.free(lane.pipes[-1], "200000 100000\n")
    until(lambda: find(lane.tick(5.0), 42).allowed_cpus == 2)
    lane.proc.names.stop()
    lane.lane.stop()


def test_p37_where_more_hang_than_threads_may_all_is_unknown_and_nothing_piles_up(lane: Lane) -> None:
    for name in ("io", "schedstat", "statm", "status", "wchan"):
        for pid in RANKS[:2]:
            lane.block(f"{pid}/{name}")
    lane.block("loadavg")
    for _ in range(30):
        table = lane.tick()
    assert lane.threads() <= MOST + 1
    assert {process.pid for process in table.processes} == {1, *RANKS}


def test_p37_a_lane_that_no_thread_can_take_over_is_unknown_after_a_while(lane: Lane) -> None:
    gate = lane.proc.reader.gate
    gate.hung |= {f"/nowhere/{number}": (0, 0.0) for number in range(MOST)}
    lane.block("loadavg")
    before = lane.lane.latest()
    assert find(lane.tick(STUCK_S), 42).cpu_percent == 0
    assert find(lane.tick(1.0), 42).cpu_percent == 0, "it is only late"
    table = lane.tick(STALE_S)
    assert table.taken_s == before.taken_s
    assert [find(table, pid).cpu_percent for pid in (1, *RANKS)] == [None] * 4
    assert missing(find(table, 42)).keys() == {metric.name for metric in metrics(Process)}
    assert lane.lane.latest() is table
    assert lane.threads() == 1

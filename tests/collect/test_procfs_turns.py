"""Whose turn it is to be looked at: sleepers, those that work, those that somebody sees."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.fakeproc import FakeProc, find, opened


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path)


def test_a_sleeper_is_read_every_five_seconds_and_stays_the_same_object(proc: FakeProc) -> None:
    proc.add(42, comm="bash")
    first = proc.process(42)
    for _ in range(10):
        settled = proc.process(42)
    assert (first.cpu_percent, settled.cpu_percent) == (None, 0.0)
    assert settled.read_bytes_per_s is None
    assert proc.process(42) is settled
    proc.add(42, comm="bash", user=3)
    assert [proc.process(42).cpu_time_s for _ in range(5)].count(0.03) in range(1, 6)
    proc.add(42, comm="bash", user=4)
    assert proc.process(42, every=True).cpu_time_s == 0.04


def test_the_age_of_a_sleeper_is_never_far_behind(proc: FakeProc) -> None:
    proc.add(42, comm="bash", started=(10_000 + 60) * 100)
    for _ in range(200):
        process = proc.process(42)
        age_s = proc.now_s + 10_000 - 10_060
        assert age_s - 36 <= (process.age_s or 0) <= age_s


def test_sleepers_take_turns(proc: FakeProc) -> None:
    pids = [proc.add(pid, comm="bash") for pid in range(1000, 1100)]
    for _ in range(8):
        proc.look()
    for pid in pids:
        proc.add(pid, comm="bash", user=1)
    seen = [0]
    for _ in range(6):
        table = proc.look()
        seen.append(sum(process.cpu_time_s == 0.01 for process in table.processes))
    fresh = [after - before for before, after in itertools.pairwise(seen)]
    assert sum(fresh) == 100
    assert max(fresh) <= 40


def sleepers(proc: FakeProc, idle_cores: float, seconds: int) -> list[int]:
    """How many stat files of a hundred sleepers are read at each tick, while so many of eight CPUs are idle."""
    counts = []
    for _ in range(seconds):
        proc.write("uptime", f"{10_000 + proc.now_s + 1} {idle_cores * (proc.now_s + 1)}\n")
        counts.append(opened(proc.proc, proc.look) - 3)
    return counts


def test_sound_sleepers_are_looked_at_rarely_while_nobody_unseen_works(proc: FakeProc) -> None:
    for pid in range(1000, 1100):
        proc.add(pid, comm="bash")
    light = sleepers(proc, 7.9, 30)
    assert 90 <= sum(light[10:15]) <= 130
    sleepers(proc, 7.9, 30)
    calm = sleepers(proc, 7.9, 15)
    assert sum(calm) <= 130, "each once in fifteen seconds"
    busy = sleepers(proc, 7.0, 15)
    assert 280 <= sum(busy) <= 380, "each once in five: one core is used by nobody we follow"
    assert max(busy) <= 40, "in turns"


def test_who_works_is_followed_and_left_again(proc: FakeProc) -> None:
    proc.add(42, comm="make", user=0)
    proc.more(42)
    for ticks in range(0, 90, 10):
        proc.add(42, comm="make", user=ticks)
        process = proc.process(42)
    assert process.read_bytes_per_s == 0.0
    for _ in range(12):
        process = proc.process(42)
    assert process.read_bytes_per_s is None
    assert process.missing == ()


def test_what_is_in_sight_is_read_every_few_seconds_and_forgotten_out_of_sight(proc: FakeProc) -> None:
    proc.add(42, comm="bash")
    proc.more(42)
    assert proc.process(42).open_files is None
    process = proc.process(42, sight=42)
    assert (process.open_files, process.waiting_in, process.missing) == (3, "do_poll", ())
    proc.write("42/fd/3", "")
    seen = [proc.process(42, sight=42).open_files for _ in range(6)]
    assert seen == sorted(seen, key=lambda count: count or 0)
    assert set(seen) == {3, 4}
    assert proc.process(42).open_files is None
    watched = [proc.process(42, 42, open_=42).open_files, proc.process(42, 42).open_files]
    assert watched == [4, None], "also of one that is followed on"


def test_a_loader_that_hardly_works_is_looked_at_every_other_second_unless_somebody_sees_it(proc: FakeProc) -> None:
    proc.add(12, "python")
    proc.more(12)
    proc.more(13)
    spent, seen = 0, list[float | None]()

    def looks(a_second: int, **interest: Any) -> int:
        """At how many of eight looks its CPU time was another one than before."""
        nonlocal spent
        for _ in range(9):
            spent += a_second
            proc.add(13, "pt_data_worker", parent=12, user=spent)
            seen.append(find(proc.look(12, **interest), 13).cpu_time_s)
        return sum(before != now for before, now in itertools.pairwise(seen[-9:]))

    assert looks(1) == 5  # the first in a row: nobody knows yet what it does
    assert looks(1) == 4
    assert looks(1, sight=13) == 8
    assert looks(1, every=True) == 8
    assert looks(1) == 4
    assert looks(10) >= 7  # from the second on at which it was seen to work
    assert looks(1) == 8  # and for ten more

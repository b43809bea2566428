"""Kin of a GPU process without end: some are followed closely, the rest by cheap reads, and the job's row says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputop import labels
from gputop.collect.proc.scan_schedule import BUDGET, FEWEST, MOST, TrackingBudget
from gputop.model import Job
from tests.fakeproc import FakeProc, find, opened

MANY = 2 * MOST
TRAINER, FIRST = 42, 1000


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    proc = FakeProc(tmp_path)
    proc.add(TRAINER)
    for pid in (1, TRAINER):
        proc.more(pid)
    return proc


def children(proc: FakeProc, count: int, comm: str = "python", first: int = FIRST) -> range:
    pids = range(first, first + count)
    for pid in pids:
        proc.add(pid, comm, parent=TRAINER)
        proc.more(pid)
    return pids


def followed(proc: FakeProc) -> set[int]:
    """Those whose other files were read at this look."""
    return {one.pid for one in proc.look(TRAINER).processes if one.shared_bytes is not None}


def test_kin_of_a_gpu_process_is_followed_up_to_a_number(proc: FakeProc) -> None:
    pids = children(proc, MANY)
    assert len(followed(proc)) == MOST
    assert TRAINER in followed(proc)
    proc.now_s += 60.0
    table = proc.look(TRAINER)
    assert sum(one.sampled for one in table.processes) == MANY + 2 - MOST  # it and pid 1 are among the followed
    assert len([one for one in table.processes if one.pid in pids]) == MANY
    assert not find(table, TRAINER).sampled
    assert not find(table, 1).sampled


def test_what_is_read_a_second_has_a_bound_whatever_their_number(proc: FakeProc) -> None:
    def a_second() -> int:
        for _ in range(20):
            proc.look(TRAINER)
        return opened(proc.proc, lambda: [proc.look(TRAINER) for _ in range(30)]) // 30

    children(proc, MOST)
    some = a_second()
    children(proc, MOST, first=FIRST + MOST)
    # each more costs its stat record every five seconds
    assert a_second() - some <= MOST / 5 + 20


def test_loaders_come_first_and_who_is_followed_stays(proc: FakeProc) -> None:
    children(proc, MANY)
    before = followed(proc)
    loaders = children(proc, 100, "pt_data_worker", FIRST + MANY)
    after = followed(proc)
    assert after >= set(loaders)
    assert len(before & after) == MOST - 100
    assert followed(proc) == after


def test_once_there_are_few_again_all_are_followed(proc: FakeProc) -> None:
    pids = children(proc, MANY)
    proc.look(TRAINER)
    for pid in pids[100:]:
        proc.remove(pid)
    for _ in range(8):
        table = proc.look(TRAINER)
    assert not any(one.sampled for one in table.processes)
    assert followed(proc) >= set(pids[:100])


def test_where_they_cost_too_much_fewer_are_followed() -> None:
    crowd = TrackingBudget()
    crowd.spent(0.05, 500, 10.0)
    crowd.spent(0.05, 500, 11.0)
    assert crowd.most == MOST
    crowd.spent(0.4, 500, 12.0)
    assert crowd.most == int(500 * BUDGET / 0.4)
    crowd.spent(100.0, 100, 13.0)
    assert crowd.most == FEWEST
    for second in range(20):
        crowd.spent(0.001, FEWEST, 14.0 + second)
    assert crowd.most == MOST


def test_the_row_says_how_many_and_that_they_are_sampled() -> None:
    job = Job(key="1.1", name="train", user="alice", launcher="python")
    assert labels.job(job, (), 7_000, 8_001, sampled=8_000) == "8001 processes · 8,000 children, sampled"

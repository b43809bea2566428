"""Threads of trainers: how many want to run, how long they wait, what they are called, and how few reads that takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputop.collect.proc.threads import READS_A_TICK, ThreadSampler
from gputop.model import Identity
from tests.fakeproc import FakeProc, opened

SECOND = 10**9


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path)


def test_threads_that_wait_count_as_busy(proc: FakeProc) -> None:
    proc.add(42, threads=4)
    for second in range(4):
        proc.more(42, run=second * SECOND // 2 + 1, wait=0)
        proc.thread(42, 42, "python", run=second * SECOND // 2 + 1)
        proc.thread(42, 43, "pt_autograd_0", run=second * SECOND // 50 + 1, wait=second * SECOND // 10)  # starved
        proc.thread(42, 44, "pt_nccl_watchdg", run=second * SECOND // 100 + 1)
        proc.thread(42, 45, "cuda-EvtHandlr", run=1)
        process = proc.process(42, 42)
    assert process.busy_threads == 2
    assert process.backward_percent == pytest.approx(2.0)
    assert process.run_wait_percent == pytest.approx(100 * 0.1 / (0.5 + 0.02 + 0.1 + 0.01))
    assert (process.main_thread_percent, process.main_run_wait_percent) == (pytest.approx(50.0), 0.0)
    assert dict(process.thread_names) == {"python": 1, "pt_autograd_0": 1, "pt_nccl_watchdg": 1, "cuda-EvtHandlr": 1}


def test_switches_of_busy_threads_are_added_to_those_of_the_main_one(proc: FakeProc) -> None:
    for second in range(6):
        proc.add(42, threads=3, voluntary=10 * second, involuntary=0)
        proc.more(42)
        proc.thread(42, 42, "python", run=1)
        proc.thread(42, 43, "busy", run=second * SECOND + 1, voluntary=1000 * second)
        proc.thread(42, 44, "idle", run=1, voluntary=7777 * second)
        process = proc.process(42, 42, open_=42)
    assert process.voluntary_switches_per_s == pytest.approx(1010)
    assert process.involuntary_switches_per_s == pytest.approx(500)


def test_names_are_counted_most_first_and_cleaned(proc: FakeProc) -> None:
    proc.add(42, threads=5)
    proc.more(42)
    for tid, name in ((42, "main"), (43, "omp"), (44, "omp"), (45, "omp"), (46, "\x1b[2J")):
        proc.thread(42, tid, name, run=1)
    proc.look(42)
    assert proc.process(42, 42).thread_names == (("omp", 3), ("main", 1), ("␛[2J", 1))


def test_a_single_thread_needs_no_listing(proc: FakeProc) -> None:
    proc.add(41)
    for second in range(3):
        proc.add(42, parent=41, user=second * 100)
        for pid in (41, 42):
            proc.more(pid, run=second * SECOND + 1, wait=second * SECOND)
        process = proc.process(42, 41)  # a child of a trainer, itself none
    assert (process.busy_threads, process.run_wait_percent) == (1, 50.0)


def test_parked_threads_are_read_rarely_and_still_count(proc: FakeProc) -> None:
    threads = ThreadSampler(str(proc.proc), proc.clock)
    (identity,) = crowd(proc, range(100, 101), 40, 0)
    reads = []
    for second in range(1, 30):
        for tid in (100_000, 100_001):
            proc.write(f"100/task/{tid}/schedstat", f"{second * SECOND + 1} 0 9\n")
        proc.now_s += 1
        reads.append(opened(proc.proc, lambda: threads.sample({identity: None}, {})))
        found = threads.values(identity, {}, 40)
    assert max(reads[:2]) >= 80, "names too at first"
    assert max(reads[12:]) < 40 / 4 + 8
    assert sum(reads[12:]) < 17 / 3 * 18 + 20, "a pass every three seconds"
    assert (found["busy_threads"], found["thread_names"]) == (2, (("busy", 40),))
    for second in range(30, 48):
        crowd(proc, range(100, 101), 40, second)
        proc.now_s += 1
        threads.sample({identity: None}, {})
    assert threads.values(identity, {}, 40)["busy_threads"] == 40, "who wakes up is noticed"


def test_a_thread_in_state_d_counts_as_a_blocked_look(proc: FakeProc) -> None:
    proc.add(42, threads=2)
    for second in range(8):
        proc.more(42)
        proc.thread(42, 42, "python", run=1)
        proc.thread(42, 43, "reader", run=second * SECOND + 1)
        status = proc.proc / "42/task/43/status"
        status.write_text(status.read_text().replace("State:\tR", "State:\tD" if second > 3 else "State:\tR"))
        process = proc.process(42, 42)
    assert process.blocked_percent == 50.0


def crowd(proc: FakeProc, pids: range, threads: int, second: int) -> list[Identity]:
    """Processes with threads that are always busy, at this second."""
    for pid in pids:
        for tid in range(pid * 1000, pid * 1000 + threads):
            if second == 0:
                proc.thread(pid, tid, "busy", run=1)
            proc.write(f"{pid}/task/{tid}/schedstat", f"{second * SECOND + 1} 0 9\n")
    return [Identity(pid, 1) for pid in pids]


def test_p20_a_tick_reads_no_more_than_its_budget(proc: FakeProc) -> None:
    threads = ThreadSampler(str(proc.proc), proc.clock)
    identities = crowd(proc, range(100, 103), 110, 0)
    known = []
    for second in range(1, 9):
        proc.now_s += 1
        crowd(proc, range(100, 103), 110, second)
        assert opened(proc.proc, lambda: threads.sample(dict.fromkeys(identities), {})) <= READS_A_TICK + 3
        known.append([threads.values(identity, {}, 110).get("busy_threads") for identity in identities])
    assert known[-1] == [110] * 3
    assert all(sum(row[place] is not None for row in known) >= 2 for place in range(3)), "each has its turn"


def test_the_open_process_is_sampled_whole_at_each_tick(proc: FakeProc) -> None:
    threads = ThreadSampler(str(proc.proc), proc.clock)
    identities = crowd(proc, range(100, 102), 300, 0)
    for second in range(1, 3):
        proc.now_s += 1
        crowd(proc, range(100, 102), 300, second)
        threads.sample(dict.fromkeys(identities), {identities[1]: 300})
    assert threads.values(identities[1], {}, 300)["busy_threads"] == 300


def test_threads_come_and_go(proc: FakeProc) -> None:
    threads = ThreadSampler(str(proc.proc), proc.clock)
    (identity,) = crowd(proc, range(100, 101), 10, 0)
    crowd(proc, range(100, 101), 12, 0)
    for second, count in enumerate((10, 10, 4, 4), start=1):
        for folder in (proc.proc / "100/task").iterdir():
            if int(folder.name) >= 100_000 + count:
                for file in folder.iterdir():
                    file.unlink()
                folder.rmdir()
        crowd(proc, range(100, 101), count, second)
        proc.now_s += 3
        threads.sample({identity: count}, {})
        found = threads.values(identity, {}, count)
    assert found["busy_threads"] == 4
    crowd(proc, range(100, 101), 12, 0)
    for second in (5, 6, 7):
        crowd(proc, range(100, 101), 12, second)
        proc.now_s += 3
        threads.sample({identity: 12}, {})
    assert threads.values(identity, {}, 12)["busy_threads"] == 12
    threads.sample({}, {})
    assert threads.values(identity, {}, 12)["busy_threads"] is None


def test_a_thread_that_takes_the_place_of_another_is_found_though_their_number_is_the_same(proc: FakeProc) -> None:
    threads = ThreadSampler(str(proc.proc), proc.clock)
    (identity,) = crowd(proc, range(100, 101), 3, 0)
    for second in range(1, 8):
        if second == 3:
            old = proc.proc / "100/task/100002"
            for file in old.iterdir():
                file.unlink()
            old.rmdir()
            proc.thread(100, 100_007, "new", run=1)
        crowd(proc, range(100, 101), 2 if second >= 3 else 3, second)
        if second >= 3:
            proc.write("100/task/100007/schedstat", f"{second * SECOND + 1} 0 9\n")
        proc.now_s += 3
        threads.sample({identity: 3}, {})
    found = threads.values(identity, {}, 3)
    assert (found["busy_threads"], found["thread_names"]) == (3, (("busy", 2), ("new", 1)))

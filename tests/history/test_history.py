"""Tables with gaps: what goes in comes out, at the right time."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gputop.history import FINE_SLOTS, History, HistoryWindow
from gputop.history.past import SHARES
from gputop.history.table import HistoryTable
from gputop.model import Frame, Gpu, GpuShare, Host, Identity, Process


def frame(t: float, busy: float | None = None, *, age_s: float = 0.0, pids: tuple[int, ...] = ()) -> Frame:
    return Frame(
        wall_s=t,
        mono_s=t,
        hostname="h",
        host=Host(cpu_percent=t % 100),
        gpus=(Gpu(uuid="G", index="0", name="g", busy_percent=busy, age_s=age_s),),
        processes=tuple(Process(pid=pid, started_ticks=1, job="j", cpu_percent=float(pid)) for pid in pids),
    )


def test_values_come_back_in_order() -> None:
    history = History()
    for t in range(10):
        history.add(frame(t, busy=t * 10))
    assert history.values("G", "busy_percent", 5) == [50, 60, 70, 80, 90]
    assert history.values("host", "cpu_percent", 2) == [8, 9]


def test_a_gap_stays_a_gap() -> None:
    history = History()
    history.add(frame(1, busy=10))
    history.add(frame(9, busy=20))  # eight seconds late: nobody knows what was between
    assert history.values("G", "busy_percent", 9) == [10, *[None] * 7, 20]


def test_a_slow_interval_has_no_holes() -> None:
    history = History()
    for t in (0, 5, 10):
        history.add(frame(t, busy=t), interval_s=5)
    assert history.values("G", "busy_percent", 6) == [5, 10, 10, 10, 10, 10]


def test_what_a_process_has_of_its_gpus_is_kept_of_those_that_use_one() -> None:
    history = History()

    def at(t: float, *shares: GpuShare, age_s: float = 0.0) -> Frame:
        user = Process(pid=7, started_ticks=1, gpus=shares)
        shown = frame(t, busy=97, age_s=age_s, pids=(5, 6))
        return replace(shown, processes=(*shown.processes, user))

    mine = GpuShare(uuid="G", busy_percent=4, vram_bytes=3 << 30)
    history.add(at(1, mine))
    history.add(at(2, mine, GpuShare(uuid="H", busy_percent=6, vram_bytes=1 << 30)))
    history.add(at(3, mine, GpuShare(uuid="H")))
    history.add(at(4, replace(mine, busy_percent=None)))
    history.add(at(5, mine, age_s=30))
    history.add(at(6))
    history.add(at(7, mine))
    assert history.values(Identity(7, 1), "busy_percent", 7) == [4, 5, 4, None, None, None, 4]
    held = [3 << 30, 4 << 30, 3 << 30, 3 << 30, None, None, 3 << 30]
    assert history.values(Identity(7, 1), "vram_bytes", 7) == held
    assert history.values(Identity(5, 1), "vram_bytes", 7) == [None] * 7
    assert history.values(Identity(5, 1), "cpu_percent", 7) == [5] * 7
    assert set(history._tables[SHARES].fine._stays) == {Identity(7, 1)}, "others take no room in it"


def test_unknown_is_a_gap_and_so_is_a_stale_gpu() -> None:
    history = History()
    history.add(frame(1, busy=10))
    history.add(frame(2, busy=None))
    history.add(frame(3, busy=10, age_s=30))
    history.add(frame(4, busy=40))
    assert history.values("G", "busy_percent", 4) == [10, None, None, 40]


@pytest.mark.parametrize("key", ["nobody", "G"])
def test_nothing_known_is_all_gaps(key: str) -> None:
    history = History()
    history.add(frame(1))
    assert history.values(key, "no_such_metric", 3) == [None] * 3


def test_coarse_values_after_a_quarter_of_an_hour() -> None:
    history = History()
    for t in range(2000):
        history.add(frame(t, busy=50 if t < 1000 else 100))
    values = history.values("G", "busy_percent", 1800, step_s=15)
    assert len(values) == 120
    assert values[20] == 50
    assert values[-2] == 100


def test_steps_are_means() -> None:
    history = History()
    for t in range(10):
        history.add(frame(t, busy=t))
    assert history.values("G", "busy_percent", 10, step_s=5) == [2, 7]


def test_a_dead_process_is_forgotten_and_a_gpu_is_not() -> None:
    history = History()
    history.add(frame(1, busy=7, pids=(5,)))
    history.add(frame(2, busy=7))
    assert history.values(Identity(5, 1), "cpu_percent", 3) == [None, 5, None]
    for t in range(3, 200):
        history.add(frame(t, busy=7 if t < 100 else None))
    assert set(history.values(Identity(5, 1), "cpu_percent", 300)) == {None}
    assert history.values("G", "busy_percent", 300).count(7) == 99


def test_whoever_is_born_and_dies_leaves_nothing_behind() -> None:
    table = HistoryTable(1, limit=FINE_SLOTS, keep=60)
    for slot in range(1, 2001):
        keys = [f"{slot} {n}" for n in range(50)] if slot < 1500 else ["a"]
        table.put(slot, keys, [(1.0,)] * len(keys))
    assert len(table._stays) == 1
    assert len(table._state.rows[-1]) == 1
    assert table.column("a", 0, 2000, 500) == [1.0] * 500


def test_who_comes_and_goes_keeps_its_numbers() -> None:
    history = History()
    for t, pids in enumerate([(1, 2), (1, 2), (3, 1), (3,), (1, 3)]):
        history.add(frame(t, pids=pids))
    seen = {pid: history.values(Identity(pid, 1), "cpu_percent", 6) for pid in (1, 2, 3)}
    assert seen == {
        1: [None, 1, 1, 1, None, 1],
        2: [None, 2, 2, None, None, None],
        3: [None, None, None, 3, 3, 3],
    }


def test_of_two_of_the_same_name_the_first_is_kept() -> None:
    table = HistoryTable(1, limit=10, keep=10)
    table.put(1, ["a", "a", "b"], [(1,), (2,), (3,)])
    assert (table.column("a", 0, 1, 1), table.column("b", 0, 1, 1)) == ([1], [3])


def test_a_table_keeps_its_limit_and_forgets_the_oldest() -> None:
    table = HistoryTable(2, limit=FINE_SLOTS, keep=FINE_SLOTS)
    for slot in range(1, 2001):
        table.put(slot, ["a"], [(slot, -slot)])
    assert table.column("a", 0, 2000, FINE_SLOTS) == list(range(2000 - FINE_SLOTS + 1, 2001))
    assert math.isnan(table.column("a", 1, 2000, FINE_SLOTS + 64)[0])


def test_a_table_ignores_a_clock_that_goes_back() -> None:
    table = HistoryTable(1, limit=10, keep=10)
    table.put(100, ["a"], [(1,)])
    table.put(99, ["a"], [(2,)])
    assert table.column("a", 0, 100, 1) == [1]
    assert math.isnan(table.column("a", 0, 100, 2)[0])


_steps = st.lists(
    st.tuples(st.integers(1, 70), st.integers(1, 4), st.sets(st.sampled_from("abcd")), st.integers(0, 9)), max_size=60
)


@given(_steps, st.integers(1, 60), st.integers(-5, 5))
@example([(2, 1, set(), 9), (1, 2, {"a"}, 0)], 1, -1)  # taken back to before it began
def test_a_table_is_a_dictionary_of_slots_and_subjects(steps, count: int, beyond: int) -> None:
    """Whatever comes, goes, is held, left out or taken back: the same as a dictionary of all that was written."""
    table, told, slot, newest, latest = HistoryTable(2, limit=50, keep=50), {}, 100, None, 0
    first = 0  # since it began, or began anew
    for number, (later, hold, keys, back) in enumerate(steps):
        slot += later
        order = sorted(keys, reverse=number % 2 == 1)
        table.put(slot, order, [(number, ord(key)) for key in order], hold)
        begin = slot - hold + 1 if newest is None else max(newest + 1, slot - hold + 1)
        first = begin if newest is None or begin - newest > 50 else first
        told |= {(key, held): (number, ord(key)) for key in keys for held in range(begin, slot + 1)}
        newest, latest = slot, max(latest, slot)
        if back == 9:
            slot -= later // 2
            newest = slot if slot >= first else None  # before that nobody knows anything
            table.rewind(slot)
            told = {(key, at): values for (key, at), values in told.items() if at <= slot}
    last = slot + beyond
    for key in "abcd":
        for index in (0, 1):
            expected = [told.get((key, at), (math.nan,) * 2)[index] for at in range(last - count + 1, last + 1)]
            found = table.column(key, index, last, count)
            kept = [at > latest - 50 for at in range(last - count + 1, last + 1)]
            assert [str(value) for value, one in zip(found, kept, strict=True) if one] == [
                str(float(value)) for value, one in zip(expected, kept, strict=True) if one
            ]


@pytest.mark.parametrize(
    ("values", "mean", "p95", "above", "covered"),
    [
        ([], None, None, None, 0),
        ([None, None], None, None, None, 0),
        ([1, 2, 3, 4], 2.5, 4, 0.5, 1),
        ([1, None, 3, None], 2, 3, 0.5, 0.5),
    ],
)
def test_windows(values, mean, p95, above, covered) -> None:
    window = HistoryWindow(values)
    assert (window.mean(), window.percentile(0.95), window.share_above(2), window.covered) == (
        mean,
        p95,
        above,
        covered,
    )


def test_going_back_forgets_what_came_after_and_keeps_what_was_before() -> None:
    history = History()
    for t in range(100):
        history.add(frame(t, busy=t))
    history.rewind(50)
    assert history.values("G", "busy_percent", 3) == [48, 49, 50]
    history.add(frame(51, busy=7))
    assert history.values("G", "busy_percent", 3) == [49, 50, 7]
    coarse = history.values("G", "busy_percent", 75 * 15, 15)
    assert coarse[-1] is None or coarse[-1] <= 50


def test_going_back_before_everything_known_begins_anew() -> None:
    history = History()
    for t in range(1000, 1010):
        history.add(frame(t, busy=t))
    history.rewind(3)
    history.add(frame(4, busy=1))
    assert history.values("G", "busy_percent", 3) == [None, None, 1]

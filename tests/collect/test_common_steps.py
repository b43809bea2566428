"""How often a rank is the last one to have its data, of the steps that all ranks made: of planted ones, and real."""

from __future__ import annotations

import math
from itertools import islice
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from gputop import step_report
from gputop.collect.live import Live
from gputop.collect.step_meters import Numbered, OneStep, late_counts, single_steps
from gputop.model import Process
from tests.process_watch import ROOT
from tests.traced_jobs import job, scratch

STEPS = 60


def rank(
    late: int = 0, *, first: int = 1, others: range = range(0), steps: int = STEPS, shifted_s: float = 0.0
) -> Numbered:
    """Steps of 100 ms, 2 of them for data; of those whose number `late` divides 40. `others` hold an evaluation."""
    return {
        number: OneStep(
            1000 + 0.1 * number + shifted_s, 0.1, 0.04 if late and number % late == 0 else 0.002, number in others
        )
        for number in range(first, first + steps)
    }


def often(*ranks: Numbered) -> list[tuple[int, int]]:
    return [(one["late_step_count"], one["common_step_count"]) for one in late_counts(ranks)]


@pytest.mark.parametrize(("late", "times"), [(1, 50), (5, 10), (0, 0)])
def test_a_rank_is_late_as_often_as_it_was_planted(late: int, times: int) -> None:
    assert often(rank(), rank(late), rank()) == [(0, 50), (times, 50), (0, 50)]


def test_two_that_are_late_in_the_same_step_are_none_alone() -> None:
    assert often(rank(2), rank(3)) == [(16, 50), (8, 50)]  # of 11 to 60: without those that 6 divides


def test_only_steps_that_all_have_made_count_and_none_with_an_evaluation() -> None:
    assert often(rank(1, first=31), rank(first=1)) == [(30, 30), (0, 30)]
    assert often(rank(1), rank(others=range(20, 31))) == [(49, 49), (0, 49)]


@pytest.mark.parametrize(
    ("ranks", "why"),
    [
        ([rank(1), rank(first=55)], "too few steps known from all ranks"),
        ([rank(1), rank(first=500)], "too few steps known from all ranks"),
        # their meters began with different steps: those of one number are not the same
        ([rank(1), rank(shifted_s=0.1)], "ranks do not end their steps together"),
    ],
)
def test_where_steps_cannot_be_matched_it_says_why(ranks: list[Numbered], why: str) -> None:
    assert late_counts(ranks) == [{"steps_apart": why}] * 2


ROW: list[Any] = [90.0, 0.1, 0.02, None, 4.0, 1.0, 0.0]


def test_steps_that_are_told_singly_have_the_numbers_up_to_their_count() -> None:
    found = single_steps({"count": 40, "steps": [ROW, [91.0, 0.2, 0.0, 0.0, 0.0, 0.0, 1.0]]})
    assert found == {39: OneStep(90.0, 0.1, 0.02, False), 40: OneStep(91.0, 0.2, 0.0, True)}
    assert len(single_steps({"count": 10**6, "steps": [ROW] * 5000})) == 120
    for said in (None, -1, 0, True, 1.0, 10**400):
        assert single_steps({"count": said, "steps": [ROW]}) == {}
    for steps in (None, {}, "x", [ROW[:6]], [ROW, None], *([[value, *ROW[1:]]] for value in (None, math.nan, "x", -1))):
        assert single_steps({"count": 40, "steps": steps}) == {}


@pytest.mark.parametrize(
    ("known", "says"),
    [
        (
            {"late_step_count": 41, "common_step_count": 50},
            "waits 120 ms for data in each step (late in 41 of 50 steps)",
        ),
        (
            {"late_step_count": 8, "common_step_count": 50},
            "waits 120 ms per step on average for data (late in 8 of 50 st",
        ),
        ({"steps_apart": "no"}, "ranks take 310 ms per step; how often it is late is unknown: no"),
        ({}, "rank 1 waits 120 ms for data in each step, the other 5.0 ms: both ranks take 310 ms per step"),
    ],
)
def test_how_often_stands_in_the_sentence(known: dict[str, Any], says: str) -> None:
    waits = ({"data_wait_percent": 1.6}, {"data_wait_percent": 38.7, **known})
    ranks = [Process(pid=9 + n, started_ticks=1, step_s=0.31, rank=n, **one) for n, one in enumerate(waits)]
    late = step_report.late_rank(ranks)
    assert late is not None
    assert says in step_report.late_text(late, 1, 2)


@pytest.mark.jobs
@pytest.mark.parametrize(("every", "least", "most"), [(1, 0.8, 1.0), (5, 0.1, 0.35), (0, 0.0, 0.15)])
def test_two_real_ranks_are_compared_step_by_step(
    every: int, least: float, most: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scratch() as folder:
        monkeypatch.setenv("GPUTOP_RUNTIME_DIR", f"{folder}/run")
        program = str(ROOT / "tests/workloads/late.py")
        with job(folder, str(every), str(tmp_path / "store"), program=program):
            stop, ranks = Event(), {}
            for frame in islice(Live(interval_s=0.5, nvml=False).frames(stop), 240):
                ranks = {one.rank: one for one in frame.processes if (one.common_step_count or 0) >= 40}
                if len(ranks) == 2:
                    stop.set()
                    break  # the next frame may lack what a busy machine did not answer in time
    assert len(ranks) == 2
    punctual, late = ((one.late_step_count or 0) / (one.common_step_count or 1) for _, one in sorted(ranks.items()))
    assert least <= late <= most
    assert punctual <= 0.15

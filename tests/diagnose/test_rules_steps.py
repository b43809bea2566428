"""A GPU that waits is told whatever its steps are long: each cause through the box filter of the driver's samples.

Gaps that are shorter than a sample of 1/6 s hide in it, those of about its length beat with it, long ones show.
"""

from __future__ import annotations

import pytest

from gputop import thresholds
from gputop.demo.server import Scenario
from tests.rule_cases import Seen
from tests.scenario_variants import alarms, coarse, leading, looks, said, turned

CAUSES = ("starved-cpu-idle", "starved-cpu-saturated", "loader-in-main", "io-bound", "starved-cause-unknown")
PERIODS_S = (0.1, 0.17, 0.22, 0.25, 0.3, 0.4, 0.5, 0.8, 1.3, 2.0)
DUTIES = (0.45, 0.6, 0.75)
JITTERS = (0.02, 0.1)
HARDLY = 0.86  # a duty that no rule minds: findings leave at less
OTHERS = (
    "openblas-on-intel", "cpu-quota", "cpu-slow", "neighbour", "threads-process", "io-small-files", "network-fs-bound",
    "head-of-line", "sync-log-stall", "memory-pressure", "seen-inside",
)  # fmt: skip
START_S, SETTLED_S, END_S = 90.0, 220.0, 246.0  # the last to speak does so 45 s + 30 s after the onset at 120 s


def play(scenario: Scenario, period_s: float, *, rough: bool = False) -> Seen:
    """Each look. The simulated driver tells of one second: of longer steps, frames 2 s apart would see too little."""
    each_s = 1 if rough or period_s > 1 else 2
    return tuple(looks(scenario, END_S, START_S, each_s=each_s, seen=coarse if rough else None))


def held_to(wanted: set[str], seen: Seen, about: object) -> None:
    """That and nothing else is said for the whole tail, and no alarm is raised at any time where none is due."""
    late = [(t, verdict) for t, verdict in seen if t >= SETTLED_S or not wanted]
    assert all(alarms(verdict) == wanted for _, verdict in late), f"{about}: {said(late, alarms)}"


@pytest.mark.parametrize("rule", CAUSES)
@pytest.mark.parametrize("period_s", PERIODS_S)
def test_a_cause_is_named_in_steps_of_any_length(rule: str, period_s: float) -> None:
    for number, duty in enumerate(DUTIES):
        jitter = JITTERS[(PERIODS_S.index(period_s) + number) % 2]
        held_to({rule}, play(turned(rule, period_s=period_s, duty=duty, jitter=jitter), period_s), (duty, jitter))


@pytest.mark.parametrize("rule", CAUSES)
@pytest.mark.parametrize("period_s", PERIODS_S[2::2])
def test_and_where_the_driver_has_no_buffer_of_samples(rule: str, period_s: float) -> None:
    duty = DUTIES[PERIODS_S.index(period_s) // 2 % 3]
    held_to({rule}, play(turned(rule, period_s=period_s, duty=duty, jitter=0.1), period_s, rough=True), duty)


@pytest.mark.parametrize("rule", CAUSES)
@pytest.mark.parametrize("period_s", PERIODS_S)
def test_nothing_is_named_where_next_to_nothing_is_lost(rule: str, period_s: float) -> None:
    assert thresholds.shipped()["starved"]["duty_exit"] < HARDLY
    jitter = JITTERS[PERIODS_S.index(period_s) % 2]
    held_to(set(), play(turned(rule, period_s=period_s, duty=HARDLY, jitter=jitter), period_s), jitter)


@pytest.mark.parametrize("rule", OTHERS)
@pytest.mark.parametrize("period_s", PERIODS_S[1:-1:2])
def test_other_causes_lead_in_steps_of_any_length(rule: str, period_s: float) -> None:
    """They lead, or are what the one that leads comes from."""
    seen = play(turned(rule, period_s=period_s, duty=0.65), period_s)
    late = [(t, verdict) for t, verdict in seen if t >= SETTLED_S]
    assert all(rule in leading(verdict) for _, verdict in late), said(late, leading)


@pytest.mark.parametrize("period_s", PERIODS_S)
def test_one_thread_that_is_not_seen_to_read_loads_only_where_its_gaps_show(period_s: float) -> None:
    """Else it may as well launch small kernels: both look the same."""
    silent = turned("loader-in-main", period_s=period_s, duty=0.6, jitter=0.1, main_chars=0.0)
    held_to({"loader-in-main" if period_s > 0.5 else "starved-cause-unknown"}, play(silent, period_s), period_s)

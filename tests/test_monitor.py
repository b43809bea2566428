"""The spine: what the rules say travels with the frames, of the past too, and time that goes back is forgotten."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from threading import Event
from typing import Any

from gputop.model import Detail, Frame, Identity, Missing
from gputop.monitor import Monitor, Update
from gputop.source import EVERYTHING, UNRECORDED, DetailWish, Interest
from tests.rule_cases import LIMITS, Machine

COMES = 14 + 22  # looks before: at the 15th half of the window is known, and it has to hold for 24 s
HOT = Machine(gpu={"throttled_heat_percent": 9.0})


class Played:
    """Frames of a machine at these seconds."""

    label = "played"
    interval_s = 1.0

    def __init__(self, seconds: Iterable[float], before: Iterable[float] = (), machine: Machine = HOT) -> None:
        self.interest, self._machine = Interest(), machine
        self._seconds, self._before = list(seconds), list(before)

    def past(self) -> Iterable[Frame]:
        return (self._machine.frame(float(t)) for t in self._before)

    def frames(self, stop: Event) -> Iterator[Frame]:
        return (self._machine.frame(float(t)) for t in self._seconds)

    def inspect(self, identity: Identity, wish: DetailWish = EVERYTHING) -> Detail | Missing:
        return UNRECORDED


def hot(update: Update) -> bool:
    return "thermal" in [finding.rule for finding in update.findings]


def test_findings_travel_with_frames() -> None:
    updates = list(Monitor(Played(range(60))).updates())
    assert [hot(update) for update in updates] == [False] * COMES + [True] * (60 - COMES)


def test_the_past_is_judged_before_the_first_frame() -> None:
    (first,) = Monitor(Played([120], before=range(120))).updates()
    assert hot(first)
    assert [one.pid for one in first.classes] == [100]
    assert first.findings[0].since_s > 90


def test_a_long_past_is_for_the_charts_alone() -> None:
    source: Any = Played([1800])
    source.long_past = lambda: (HOT.frame(float(t)) for t in range(0, 1800, 15))
    monitor = Monitor(source)
    (first,) = monitor.updates()
    assert not hot(first)
    assert first.last_job is None
    values = monitor.history.values("G", "busy_percent", 1800, 15)
    assert values.count(None) <= 2, "the last step is not over"
    assert {round(value) for value in values if value is not None} == {97}


def test_time_that_goes_back_is_forgotten() -> None:
    updates = list(Monitor(Played([*range(60), *range(10, 60)])).updates())
    assert [hot(update) for update in updates[60:]] == [False] * COMES + [True] * (50 - COMES)


def test_rules_are_asked_once_a_second_however_fast_frames_come() -> None:
    updates = list(Monitor(Played([tick / 4 for tick in range(160)])).updates())
    came = next(number for number, update in enumerate(updates) if hot(update))
    assert COMES - 1 <= came / 4 <= COMES + 1
    same = [updates[number].findings is updates[number - 1].findings for number in range(1, 160) if number % 4]
    assert all(same)


def test_a_slow_pace_and_a_long_pause_are_understood() -> None:
    slow = list(Monitor(Played(range(0, 120, 5))).updates())
    assert next(number for number, update in enumerate(slow) if hot(update)) in (7, 8)
    paused = list(Monitor(Played([0, 1, 2, 400, 401])).updates())
    assert not any(hot(update) for update in paused)


def test_a_site_s_numbers_are_used() -> None:
    limits = {**LIMITS, "thermal": {**LIMITS["thermal"], "soft_percent": 10.0}}
    assert not any(hot(update) for update in Monitor(Played(range(60)), limits).updates())


def test_what_is_recorded_is_as_it_was_read_while_sinks_get_findings() -> None:
    machine = Machine(gpu={"throttled_heat_percent": 9.0, "power_watts": 1e9})
    source = Played(range(60), machine=machine)
    monitor, seen = Monitor(source, raw=True), list[Update]()
    monitor.sinks = (seen.append,)
    recorded = list(monitor.updates())
    assert recorded == [Update(frame=frame) for frame in source.frames(Event())]
    assert [hot(update) for update in seen] == [False] * COMES + [True] * (60 - COMES)
    assert {update.frame.gpus[0].power_watts for update in seen} == {None}
    unjudged = Monitor(source, raw=True, unjudged=math.inf)
    unjudged.sinks = (seen.append,)
    assert list(unjudged.updates()) == recorded
    assert seen[-1].frame.gpus[0].power_watts is None

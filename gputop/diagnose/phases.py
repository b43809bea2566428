"""One trainer over time: how much its GPUs work for it, and which phase it is in."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gputop.diagnose.gpu_tracker import LEAST_S
from gputop.diagnose.gpu_turns import Turns
from gputop.diagnose.pauses import Pauses

_PHASE_S, _PHASE_LOOKS = 10.0, 3  # of different work that make a phase: at least so many seconds and frames
_PHASE_POINTS, _PHASE_LEAST_S, _PHASE_MOST_S = 30.0, 30.0, 300.0
_FED_PERCENT = 85.0  # busy: such a GPU does not wait, as in starved.duty_exit
_WAITS_PERCENT = 78.0  # a GPU below this waits again; in between its state does not change
_FED_S, _FED_MEAN_S = 8.0, 5.0  # how long it must hold, as a mean over so many seconds; a slow rhythm needs more
_WAITED_S, _LATELY_S = 12.0, 40.0  # of recent waiting that has ended: less says nothing about its work
_FED_TIMES, _RHYTHM_S = 1.5, 120.0  # of the longest work period between two waits in the last seconds
_SWINGS, _SWINGS_S, _SWINGS_KEPT = 2, 160.0, 32  # of one direction in so many seconds: the next one is no phase
_SURE = 3.0  # standard errors of a mean over these samples: work with gaps of seconds varies that much anyway
_WORK_PERCENT = 1.0  # busy: below is no work
_TOUCHED_PERCENT = 0.1  # busy: below is none at all; an H200 with an idle context shows 0.006 %
_LEFT_S, _LEFT_LOOKS = 30.0, 10  # of work on other GPUs only, over at least this many samples: one GPU is unused


class PhaseChange(NamedTuple):
    """The start of a new phase: when, and GPU busy in percent before and after."""

    at_s: float
    before: float | None = None
    after: float | None = None

    @property
    def stops_waiting(self) -> bool:
        """Whether its GPUs no longer wait after it."""
        return self.after is not None and self.after >= _FED_PERCENT

    @property
    def is_less(self) -> bool:
        """Whether its GPUs are less busy after it."""
        return None not in (self.before, self.after) and self.after < self.before  # type: ignore[operator]


@dataclass(slots=True)
class TrainerPhases:
    """One trainer over time."""

    context_s: float | None = None  # mono time at which its context began, as far as known
    worked: bool = False  # its GPU has been busy
    touched: bool | None = None  # its GPUs did any work since the last evaluation; None if unknown
    work_s: float = 0.0  # in which it worked on any of its GPUs
    worked_s: dict[str, float] = field(default_factory=dict)  # value of `work_s` at its last work on each
    works_on: frozenset[str] = frozenset()  # uuids of the GPUs it does not leave unused; empty before its first work
    phase_s: float = 0.0  # mono time at which its phase began, as far as known
    first_s: float = 0.0  # mono time at which it was first seen
    watched_s: float = 0.0  # the same, since the last gap between frames
    compiled_s: float = -math.inf  # mono time of the last compiler seen
    recent: deque[tuple[float, float, float]] = field(default_factory=deque)  # (time, busy, seconds it stands for)
    mean: float | None = None  # busy, of this phase before `recent`
    square: float = 0.0  # mean squared deviation from it
    seconds: float = 0.0  # that this mean covers
    pauses: Pauses = field(default_factory=Pauses)  # intervals without GPU work
    turns: Turns | None = None  # its GPUs, or those of its job, if they work in turns
    turned_s: float = -math.inf  # mono time of the last check for turns
    fed_s: float | None = None  # mono time since which its GPUs do not wait; None while they do
    fed: deque[tuple[float, float]] = field(default_factory=deque)  # such intervals: (from, until)
    extreme: float = 0.0  # busy, the highest or lowest since the last turn of its work
    # time of each turn, and whether it was to less work
    swings: deque[tuple[float, bool]] = field(default_factory=lambda: deque(maxlen=_SWINGS_KEPT))

    def record_work(self, values: Mapping[str, float | None], seconds: float) -> bool:
        """Record how busy its GPUs are; return whether it leaves one of them unused from now on."""
        busy = [uuid for uuid, value in values.items() if (value or 0.0) >= _WORK_PERCENT]
        self.work_s += min(seconds, _LEFT_S / _LEFT_LOOKS) if busy else 0.0  # while all wait, none counts as unused
        self.worked_s.update(dict.fromkeys(busy, self.work_s))
        before, least_s = self.works_on.intersection(values), self.work_s - _LEFT_S
        self.works_on = frozenset(uuid for uuid in values if self.worked_s.get(uuid, -math.inf) >= least_s)
        return bool(before - self.works_on)

    def learn(self, percent: float, seconds: float) -> None:
        """Add `seconds` of this utilization to the mean of the phase."""
        seconds = min(max(seconds, LEAST_S), _PHASE_MOST_S)
        self.seconds = min(self.seconds + seconds, _PHASE_MOST_S)
        mean = percent if self.mean is None else self.mean
        self.mean = mean + (percent - mean) * seconds / self.seconds
        self.square += ((percent - self.mean) ** 2 - self.square) * seconds / self.seconds

    def record_waits(self, now_s: float) -> None:
        """Track the turns of its work to more and to less, and whether its GPUs wait, by the mean over some seconds."""
        newest = [percent for when, percent, _ in self.recent if when > now_s - _FED_MEAN_S] or [self.recent[-1][1]]
        mean, down = _mean(newest), bool(self.swings) and self.swings[-1][1]
        self.extreme = min(self.extreme, mean) if down else max(self.extreme, mean)
        if abs(mean - self.extreme) >= _PHASE_POINTS:
            self.swings.append((now_s, not down))
            self.extreme = mean
        if mean >= _FED_PERCENT:
            self.fed_s = now_s - _FED_MEAN_S / 2 if self.fed_s is None else self.fed_s
        elif self.fed_s is not None and mean < _WAITS_PERCENT:
            self.fed.append((self.fed_s, now_s - _FED_MEAN_S / 2))
            self.fed_s = None
        while self.fed and self.fed[0][0] < now_s - _RHYTHM_S:
            self.fed.popleft()

    def recovered(self, now_s: float) -> bool:
        """Whether its GPUs have stopped waiting, for longer than between two recurring waits."""
        if self.fed_s is None or self._waited_s(self.fed_s) < _WAITED_S:
            return False
        # a moving mean is high for less time than the work lasts
        usual_s = max((until_s - from_s + _FED_MEAN_S for from_s, until_s in self.fed), default=0.0)
        return now_s - self.fed_s >= max(_FED_S, _FED_TIMES * usual_s)

    def _waited_s(self, until_s: float) -> float:
        """Seconds its GPUs waited in this phase and recently."""
        first_s = max(self.phase_s, self.watched_s, until_s - _LATELY_S)
        return until_s - first_s - sum(max(0.0, end_s - max(first_s, from_s)) for from_s, end_s in self.fed)

    def alternates(self, turn: PhaseChange, now_s: float) -> bool:
        """Whether such changes recur every minute or so: they are its rhythm, and start no phase."""
        until_s = now_s - _PHASE_S - _FED_MEAN_S / 2  # anything later is this change itself
        earlier = [when for when, down in self.swings if down == turn.is_less and now_s - _SWINGS_S < when < until_s]
        return len(earlier) >= _SWINGS

    def begin(self, at_s: float) -> None:
        """Begin a new phase."""
        self.phase_s, self.seconds, self.mean, self.square = at_s, 0.0, None, 0.0
        self.recent.clear()

    def update(self, now_s: float, busy: float, stands_for_s: float, gap: bool) -> PhaseChange | None:
        """Record how busy its GPUs are, in percent; return the change if a phase began, as after any gap."""
        self.worked = self.worked or busy > 0
        self.watched_s = now_s if gap else self.watched_s
        recent = self.recent
        while recent and (gap or (len(recent) >= _PHASE_LOOKS and recent[0][0] <= now_s - _PHASE_S)):
            self.learn(*recent.popleft()[1:])
        recent.append((now_s, busy, stands_for_s))
        self.record_waits(now_s)
        return self._change(now_s)

    def _change(self, now_s: float) -> PhaseChange | None:
        """Whether its work has changed: its GPUs no longer wait, or do much more or less."""
        if self.mean is None or self.seconds < _PHASE_S or now_s - self.phase_s < _PHASE_LEAST_S:
            return None
        first_s, _, stands_for_s = self.recent[0]
        if len(self.recent) < _PHASE_LOOKS or first_s - stands_for_s > now_s - _PHASE_S + LEAST_S:
            return None
        third = [percent for _, percent, _ in self.recent][-(len(self.recent) // 3) :]
        turn = PhaseChange(_edge(self.recent, self.mean, _mean(third)), self.mean, _mean(third))
        if self.fed_s is not None and self.recovered(now_s):
            return turn._replace(at_s=self.fed_s)
        return turn if self._shifted(self.mean) and not self.alternates(turn, now_s) else None

    def _shifted(self, before: float) -> bool:
        """Whether GPU busy has moved by 30 points for ten seconds, beyond chance."""
        # several frames per second may repeat one value of the driver
        chance = _SURE * math.sqrt(self.square / min(len(self.recent), _PHASE_S))
        values = [percent - before for _, percent, _ in self.recent]
        newest = _mean(values)
        return abs(newest) > max(_PHASE_POINTS, chance) and not _pause(values, newest)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _edge(recent: Sequence[tuple[float, float, float]], before: float, now: float) -> float:
    """When values became like those of now."""
    best, added, at_s = 0.0, 0.0, recent[-1][0]
    for when, percent, stands_for_s in reversed(recent):
        added += (percent - (before + now) / 2) * math.copysign(1.0, now - before)
        if added > best:
            best, at_s = added, when - stands_for_s
    return at_s


def _pause(values: Sequence[float], newest: float) -> bool:
    """Whether the first or last third is as before: a finished pause, or a change that has not lasted yet."""
    third = len(values) // 3
    ends = (_mean(values[:third]), _mean(values[-third:]))
    return min(end * math.copysign(1.0, newest) for end in ends) < _PHASE_POINTS


def any_work(values: Collection[float | None]) -> bool | None:
    """Whether there was any work, however little: a fast GPU that waits has kernels of milliseconds now and then."""
    return None if None in values else any(value >= _TOUCHED_PERCENT for value in values if value is not None)

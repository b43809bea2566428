"""One trainer over time: how its GPUs work for it, and in which phase it is by that."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gputop.diagnose.gpu_tracker import LEAST_S
from gputop.diagnose.gpu_turns import Turns
from gputop.diagnose.pauses import Pauses

_PHASE_S, _PHASE_LOOKS = 10.0, 3  # of other work than before make a phase: so many seconds, so many frames at least
_PHASE_POINTS, _PHASE_LEAST_S, _PHASE_MOST_S = 30.0, 30.0, 300.0
_FED_PERCENT = 85.0  # busy: a GPU that is, waits for nothing, as starved.duty_exit says
_WAITS_PERCENT = 78.0  # a GPU that is less busy waits again: between the two it is as it was
_FED_S, _FED_MEAN_S = 8.0, 5.0  # for which it is so, by the mean of so many seconds; its rhythm may ask for more
_WAITED_S, _LATELY_S = 12.0, 40.0  # of waiting lately, that is over then: less says nothing of what it does
_FED_TIMES, _RHYTHM_S = 1.5, 120.0  # of the longest such time between two others in the last seconds
_SWINGS, _SWINGS_S, _SWINGS_KEPT = 2, 160.0, 32  # of one direction in so many seconds: the next is no phase
_SURE = 3.0  # standard errors of a mean over these looks: work with gaps of seconds varies that much by itself
_WORK_PERCENT = 1.0  # busy: less is no work
_TOUCHED_PERCENT = 0.1  # busy: less is none at all; with a context and no work an H200 has an engine active for 0.006 %
_LEFT_S, _LEFT_LOOKS = 30.0, 10  # of work on other GPUs alone, in so many looks at least: one is left unused


class PhaseChange(NamedTuple):
    """How a trainer began another phase: when, and how busy its GPUs were and are, percent."""

    at_s: float
    before: float | None = None
    now: float | None = None

    @property
    def fed(self) -> bool:
        """Whether its GPUs wait for nothing from then on."""
        return self.now is not None and self.now >= _FED_PERCENT

    @property
    def down(self) -> bool:
        """Whether its GPUs are less busy from then on."""
        return None not in (self.before, self.now) and self.now < self.before  # type: ignore[operator]


@dataclass(slots=True)
class TrainerPhases:
    """One trainer over time."""

    context_s: float | None = None  # mono time at which its context began, as far as is known
    worked: bool = False  # its GPU has been busy
    touched: bool | None = None  # its GPUs did some work since the last look, however little; None: nobody tells
    work_s: float = 0.0  # in which it worked on any of its GPUs
    worked_s: dict[str, float] = field(default_factory=dict)  # how much of that there was at its last work on each
    works_on: frozenset[str] = frozenset()  # those that it does not leave unused, by uuid; none before its first work
    phase_s: float = 0.0  # mono time at which its phase began, as far as is known
    first_s: float = 0.0  # mono time at which it was seen first
    watched_s: float = 0.0  # the same, since the last gap in which nobody looked
    compiled_s: float = -math.inf  # when a compiler worked for it
    recent: deque[tuple[float, float, float]] = field(default_factory=deque)  # (when, busy, seconds it stands for)
    mean: float | None = None  # busy, of this phase before them
    square: float = 0.0  # mean square of the distance from it
    seconds: float = 0.0  # that this mean is of
    pauses: Pauses = field(default_factory=Pauses)  # in which its GPUs had no work
    turns: Turns | None = None  # its GPUs, or those of its job, where they work in turns
    turned_s: float = -math.inf  # when that was looked at last
    fed_s: float | None = None  # mono time since when its GPUs wait for nothing; None while they do
    fed: deque[tuple[float, float]] = field(default_factory=deque)  # such times: from when until when
    extreme: float = 0.0  # busy, the most or the least since its work turned last to more or to less
    # when it did, and whether to less
    swings: deque[tuple[float, bool]] = field(default_factory=lambda: deque(maxlen=_SWINGS_KEPT))

    def work(self, values: Mapping[str, float | None], seconds: float) -> bool:
        """Take in how busy its GPUs are; whether it leaves one from now on. Who opens all of them may work on one."""
        busy = [uuid for uuid, value in values.items() if (value or 0.0) >= _WORK_PERCENT]
        self.work_s += min(seconds, _LEFT_S / _LEFT_LOOKS) if busy else 0.0  # while all wait none is left
        self.worked_s.update(dict.fromkeys(busy, self.work_s))
        before, least_s = self.works_on.intersection(values), self.work_s - _LEFT_S
        self.works_on = frozenset(uuid for uuid in values if self.worked_s.get(uuid, -math.inf) >= least_s)
        return bool(before - self.works_on)

    def learn(self, percent: float, seconds: float) -> None:
        """Take what was seen for some seconds into the mean of the phase."""
        seconds = min(max(seconds, LEAST_S), _PHASE_MOST_S)
        self.seconds = min(self.seconds + seconds, _PHASE_MOST_S)
        mean = percent if self.mean is None else self.mean
        self.mean = mean + (percent - mean) * seconds / self.seconds
        self.square += ((percent - self.mean) ** 2 - self.square) * seconds / self.seconds

    def feed(self, now_s: float) -> None:
        """Take in how its work turns to more and to less, and whether its GPUs wait, by the mean of some seconds."""
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
        """Whether its GPUs have stopped waiting: for longer than they do between two waits, if those come back."""
        if self.fed_s is None or self._waited_s(self.fed_s) < _WAITED_S:
            return False
        # a mean of seconds is as high for that much less than the work lasts
        usual_s = max((until_s - from_s + _FED_MEAN_S for from_s, until_s in self.fed), default=0.0)
        return now_s - self.fed_s >= max(_FED_S, _FED_TIMES * usual_s)

    def _waited_s(self, until_s: float) -> float:
        """For how long its GPUs waited, in this phase and lately."""
        first_s = max(self.phase_s, self.watched_s, until_s - _LATELY_S)
        return until_s - first_s - sum(max(0.0, end_s - max(first_s, from_s)) for from_s, end_s in self.fed)

    def alternates(self, turn: PhaseChange, now_s: float) -> bool:
        """Whether such changes of its work come back every minute or so: they are its rhythm, and begin no phase."""
        until_s = now_s - _PHASE_S - _FED_MEAN_S / 2  # what is later is this change itself
        earlier = [when for when, down in self.swings if down == turn.down and now_s - _SWINGS_S < when < until_s]
        return len(earlier) >= _SWINGS

    def begin(self, at_s: float) -> None:
        """Begin another phase."""
        self.phase_s, self.seconds, self.mean, self.square = at_s, 0.0, None, 0.0
        self.recent.clear()

    def look(self, now_s: float, busy: float, stands_for_s: float, gap: bool) -> PhaseChange | None:
        """Take in how busy its GPUs are, percent; how it began another phase. After a gap it is new."""
        self.worked = self.worked or busy > 0
        self.watched_s = now_s if gap else self.watched_s
        recent = self.recent
        while recent and (gap or (len(recent) >= _PHASE_LOOKS and recent[0][0] <= now_s - _PHASE_S)):
            self.learn(*recent.popleft()[1:])
        recent.append((now_s, busy, stands_for_s))
        self.feed(now_s)
        return self._turned(now_s)

    def _turned(self, now_s: float) -> PhaseChange | None:
        """Whether it does something else, as its GPUs tell: they wait no more, or do so much more or less."""
        if self.mean is None or self.seconds < _PHASE_S or now_s - self.phase_s < _PHASE_LEAST_S:
            return None
        first_s, _, stands_for_s = self.recent[0]
        if len(self.recent) < _PHASE_LOOKS or first_s - stands_for_s > now_s - _PHASE_S + LEAST_S:
            return None
        third = [percent for _, percent, _ in self.recent][-(len(self.recent) // 3) :]
        turn = PhaseChange(_edge(self.recent, self.mean, _mean(third)), self.mean, _mean(third))
        if self.fed_s is not None and self.recovered(now_s):
            return turn._replace(at_s=self.fed_s)
        return turn if self._moved(self.mean) and not self.alternates(turn, now_s) else None

    def _moved(self, before: float) -> bool:
        """Whether its GPUs are 30 points more or less busy than before, for ten seconds, and that not by chance."""
        # who looks more often than every second sees what the driver says of a second several times
        chance = _SURE * math.sqrt(self.square / min(len(self.recent), _PHASE_S))
        values = [percent - before for _, percent, _ in self.recent]
        newest = _mean(values)
        return abs(newest) > max(_PHASE_POINTS, chance) and not _pause(values, newest)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _edge(recent: Sequence[tuple[float, float, float]], before: float, now: float) -> float:
    """Since when values are like those of now, and not as they were before."""
    best, added, at_s = 0.0, 0.0, recent[-1][0]
    for when, percent, stands_for_s in reversed(recent):
        added += (percent - (before + now) / 2) * math.copysign(1.0, now - before)
        if added > best:
            best, at_s = added, when - stands_for_s
    return at_s


def _pause(values: Sequence[float], newest: float) -> bool:
    """Whether the first or the last third is as before: a pause that is over, or a change that must first last."""
    third = len(values) // 3
    ends = (_mean(values[:third]), _mean(values[-third:]))
    return min(end * math.copysign(1.0, newest) for end in ends) < _PHASE_POINTS


def any_work(values: Collection[float | None]) -> bool | None:
    """Whether there was some work, however little: a fast GPU that waits has kernels of milliseconds now and then."""
    return None if None in values else any(value >= _TOUCHED_PERCENT for value in values if value is not None)

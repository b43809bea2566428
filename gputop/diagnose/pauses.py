"""The pauses of a trainer's GPUs: when, for how long, how deep, what it cost, and what its job did meanwhile.

Followed at every frame by the driver's own samples, about six a second, where there are any: a pause of two seconds
counts as well as one of a minute. Rules say why it paused (`cause`): a checkpoint, workers that start.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Literal, NamedTuple

from gputop.model import Gpu

IDLE_PERCENT = 10.0  # GPU busy: less is no work
LEAST_S = 0.3  # a shorter pause is a gap between steps; two samples
_BLIP_S, _BLIP_SHARE = 1.0, 0.25  # work in between that ends no pause: so long, so much of the pause before it,
_BLIP_OF_RUN = 0.5  # and so much of what it works at a time otherwise
_RUN_WEIGHT = 0.25  # of the newest of such times
_UNSEEN_S = 5.0  # of a pause, in which nothing is known
_KEPT = 256
_WORK_S = 60.0  # of the time between pauses, for what is usual there
_LEAST_WORK_S = 5.0  # of work, before which a pause is a start
_UNSURE_S = 0.02  # by which the time of a sample may be told differently in two frames
_APART_S = 1.0  # between the begin of a pause and new workers, that tells what was before them from what they cost
_LONGEST_S = 2.5  # that one sample stands for

Cause = Literal["save", "workers", "evaluation"]


class Piece(NamedTuple):
    """How busy the GPUs of a trainer were for a moment, percent; None is unknown."""

    start_s: float
    end_s: float
    percent: float | None


@dataclass(slots=True)
class Pause:
    """One time without work. Times are those of the monotonic clock."""

    start_s: float
    end_s: float
    idle_s: float = 0.0  # seconds of GPU time lost, by how busy the GPUs are between pauses; parts of a sample too
    busy_s: float = 0.0  # seconds of GPU time used in it
    ended: bool = False
    written: float = 0.0  # bytes its job wrote because of it: more than it writes all the time
    written_s: float | None = None  # up to when
    between: float | None = None  # bytes a second that its job wrote before it
    settled: bool = False  # whether that is final
    born_s: float | None = None  # when new workers of a loader came in it, or right before
    cause: Cause | None = None

    @property
    def length_s(self) -> float:
        """For how long, from its first moment to its last."""
        return self.end_s - self.start_s

    @property
    def saving_s(self) -> float:
        """GPU time lost in it before new workers came: a save before the next epoch begins is over by then."""
        if self.born_s is None or self.born_s - self.start_s < _APART_S:
            return self.idle_s
        return self.idle_s * min(1.0, (self.born_s - self.start_s) / max(self.length_s, _APART_S))

    @property
    def starting_s(self) -> float:
        """GPU time lost in it because of new workers: all of it, unless a checkpoint was written before they came."""
        if self.born_s is None:
            return 0.0
        return self.idle_s - self.saving_s if self.cause == "save" else self.idle_s

    @property
    def percent(self) -> float:
        """How busy the GPUs were in it."""
        return 100 * self.busy_s / self.length_s if self.length_s else 0.0


@dataclass(slots=True)
class Pauses:
    """All of a trainer that are remembered, the newest last; that one may go on.

    Other levels find other things: GPUs below `share` of what is usual are in a phase with less work.
    """

    idle_percent: float = IDLE_PERCENT
    share: float = 0.0
    least_s: float = LEAST_S
    begun: bool = False  # whether it has worked: what comes before is a start
    known: deque[Pause] = field(default_factory=deque)
    first_s: float | None = None  # since when it is followed
    seen_s: float | None = None  # up to when
    usual: float = 100.0  # percent busy while it works
    _worked_s: float = 0.0
    _run_s: float = 0.0  # of the work since the last pause, or gap between steps
    _usual_run_s: float = math.inf
    _open: bool = False  # whether the newest goes on
    _blip: list[Piece] = field(default_factory=list)  # work since its last moment
    _idle: list[Piece] = field(default_factory=list)  # the newest's pieces, while it is short
    _edge: Piece | None = None  # the piece before: a pause may have begun in it
    _work: deque[Piece] = field(default_factory=deque)  # what was between pauses lately

    def take(self, piece: Piece) -> None:
        """Take in the piece that follows the last one."""
        self.first_s = piece.start_s if self.first_s is None else self.first_s
        self.seen_s = piece.end_s
        if piece.percent is None:
            if self._open and piece.end_s - self.known[-1].end_s > _UNSEEN_S:
                self._close()
            self._edge = None
        elif piece.percent < max(self.idle_percent, self.share * self.usual):
            self._pause(piece, piece.percent)
        else:
            self._works(piece, piece.percent)

    @property
    def now(self) -> Pause | None:
        """The one that goes on."""
        return self.known[-1] if self._open and self.known[-1].length_s >= self.least_s else None

    def since(self, from_s: float) -> list[Pause]:
        """Those that ended after a time, or go on."""
        newest = takewhile(lambda one: one.end_s > from_s, reversed(self.known))
        return [one for one in newest if one.ended or one.length_s >= self.least_s][::-1]

    def lately(self, seconds: float) -> list[Pause]:
        """Those of the last seconds."""
        return self.since((self.seen_s or 0.0) - seconds)

    def watched_s(self, seconds: float) -> float:
        """For how much of the last seconds it was followed."""
        return 0.0 if self.first_s is None or self.seen_s is None else min(seconds, self.seen_s - self.first_s)

    def lost(self, pauses: Sequence[Pause], seconds: float) -> float:
        """The share of GPU time that these took of the last seconds, or of all that was seen, if less."""
        watched_s = self.watched_s(seconds)
        return min(1.0, sum(one.idle_s for one in pauses) / watched_s) if watched_s else 0.0

    def between(self, seconds: float = _WORK_S) -> tuple[float, float, float]:
        """How busy it was between its pauses lately: the mean and the standard deviation of samples, percent, and of
        how many seconds they are."""
        since_s = (self.seen_s or 0.0) - seconds
        found = [(one.end_s - one.start_s, one.percent or 0.0) for one in self._work if one.end_s > since_s]
        known_s = sum(length_s for length_s, _ in found)
        if not known_s:
            return 0.0, 0.0, 0.0
        mean = sum(length_s * percent for length_s, percent in found) / known_s
        square = sum(length_s * (percent - mean) ** 2 for length_s, percent in found) / known_s
        return mean, math.sqrt(square), known_s

    def _pause(self, piece: Piece, percent: float) -> None:
        if not self.begun:
            return
        if not self._open:
            self._open, edge = True, self._edge
            edge_s = (edge.end_s - edge.start_s) * self._part(edge.percent or 0.0) if edge else 0.0
            self.known.append(Pause(piece.start_s, piece.start_s, idle_s=edge_s))
        last = self.known[-1]
        for blip in self._blip:  # it was short
            last.busy_s += (blip.end_s - blip.start_s) * (blip.percent or 0.0) / 100
        unseen_s = 0.0 if self._blip else max(0.0, piece.start_s - last.end_s)
        length_s = piece.end_s - piece.start_s
        last.end_s = piece.end_s
        last.idle_s += unseen_s + length_s * self._part(percent)
        last.busy_s += length_s * percent / 100
        self._blip.clear()
        if last.length_s < self.least_s:
            self._idle.append(piece)

    def _works(self, piece: Piece, percent: float) -> None:
        length_s = piece.end_s - piece.start_s
        self._worked_s += length_s
        self.begun = self.begun or self._worked_s >= _LEAST_WORK_S
        if not self._open:
            self._run_s += length_s
            if self._edge is not None:
                self._learn(self._edge)
            self._edge = piece
            return
        last = self.known[-1]
        if not self._blip:
            last.idle_s += length_s * self._part(percent)  # of a piece in which it ended
        self._blip.append(piece)
        most_s = min(_BLIP_S, _BLIP_SHARE * last.length_s, _BLIP_OF_RUN * self._usual_run_s)
        if piece.end_s - self._blip[0].start_s > most_s:
            self._close()

    def _close(self) -> None:
        """The newest is over, or was none."""
        last, between = self.known[-1], self._blip
        if last.length_s < self.least_s - _UNSURE_S:
            self.known.pop()
            between = [*([self._edge] if self._edge else ()), *self._idle, *self._blip]
        else:
            last.ended, between = True, self._blip[1:]
            if len(self.known) > _KEPT:  # the shortest of the older ones goes: gaps between steps push out no save
                older = list(self.known)[: _KEPT // 2]
                self.known.remove(min(older, key=lambda one: one.idle_s))
        for piece in between:
            self._learn(piece)
        usual_s = self._run_s if self._usual_run_s == math.inf else self._usual_run_s
        self._usual_run_s = usual_s + _RUN_WEIGHT * (self._run_s - usual_s)
        self._run_s = sum(piece.end_s - piece.start_s for piece in self._blip)
        self._open, self._edge = False, None
        self._blip, self._idle = [], []

    def _learn(self, piece: Piece) -> None:
        """Take in what is usual between pauses."""
        length_s, percent = piece.end_s - piece.start_s, piece.percent or 0.0
        self._work.append(piece)
        while self._work[0].end_s <= piece.end_s - 2 * _WORK_S:
            self._work.popleft()
        if percent >= self.idle_percent:
            known_s = min(_WORK_S, max(length_s, self._worked_s))
            self.usual += (percent - self.usual) * min(1.0, length_s / known_s)

    def _part(self, percent: float) -> float:
        """Of a moment so busy, the part that is lost."""
        return max(0.0, 1 - percent / self.usual) if self.usual else 0.0


def pieces(gpus: Sequence[Gpu], percent: float | None, newest_s: float | None, now_s: float, s: float) -> list[Piece]:
    """How busy these were since `newest_s`, by the driver's samples where all have them, else by `percent` for `s`.

    Several are taken together: the mean of what each was at the times of the first one's samples.
    """
    if any(gpu.age_s > 0 for gpu in gpus):
        percent, gpus = None, ()
    if percent is None or not gpus or not all(gpu.busy_samples for gpu in gpus):
        start_s = now_s - s if newest_s is None else max(now_s - s, newest_s)
        return [Piece(start_s, now_s, percent)] if now_s - start_s > _UNSURE_S else []
    return list(_sampled([gpu.busy_samples for gpu in gpus], newest_s, now_s))


def _sampled(samples: Sequence[Sequence[tuple[float, float]]], newest_s: float | None, now_s: float) -> Iterator[Piece]:
    since_s = -math.inf if newest_s is None else newest_s + _UNSURE_S
    first, *others = samples
    apart_s = (first[0][0] - first[-1][0]) / (len(first) - 1) if len(first) > 1 else 1.0
    times = [[now_s - ago_s for ago_s, _ in one] for one in others]
    start_s = newest_s
    fresh = list(takewhile(lambda sample: now_s - sample[0] > since_s, reversed(first)))
    for ago_s, value in reversed(fresh):
        end_s = now_s - ago_s
        if start_s is None or end_s - start_s > _LONGEST_S:
            start_s = end_s - apart_s
        for one, when in zip(others, times, strict=True):
            value += one[min(bisect_left(when, end_s - apart_s / 2), len(one) - 1)][1]
        yield Piece(start_s, end_s, value / len(samples))
        start_s = end_s

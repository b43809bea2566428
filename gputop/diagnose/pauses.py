"""Pauses of a trainer's GPUs: when, how long, how deep, the GPU time lost, and what the job did at that time.

Tracked at every frame with the driver's own samples, about six per second if available: pauses of two seconds count as
well as those of a minute. Rules set the `cause`: a checkpoint, or starting workers.
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

IDLE_PERCENT = 10.0  # GPU busy: below is no work
LEAST_S = 0.3  # a shorter pause is a gap between steps; two samples
_BLIP_S, _BLIP_SHARE = 1.0, 0.25  # work that ends no pause: at most so long, at most this share of the pause before it,
_BLIP_OF_RUN = 0.5  # and at most this share of the usual work between pauses
_RUN_WEIGHT = 0.25  # of the newest of these work periods
_UNSEEN_S = 5.0  # seconds of unknown utilization within a pause
_KEPT = 256
_WORK_S = 60.0  # of work between pauses, for its usual level
_LEAST_WORK_S = 5.0  # seconds of work; a pause before that is startup
_UNSURE_S = 0.02  # tolerance for the time of one sample in two frames
_APART_S = 1.0  # between the start of a pause and new workers: separates earlier causes from worker startup
_LONGEST_S = 2.5  # that one sample stands for

Cause = Literal["save", "workers", "evaluation"]


class BusySpan(NamedTuple):
    """GPU busy of a trainer over a short interval, in percent; None if unknown."""

    start_s: float
    end_s: float
    percent: float | None


@dataclass(slots=True)
class Pause:
    """One interval without work. Times are of the monotonic clock."""

    start_s: float
    end_s: float
    idle_s: float = 0.0  # seconds of GPU time lost, relative to the usual level; fractions of a sample count
    busy_s: float = 0.0  # seconds of GPU time used during it
    ended: bool = False
    written: float = 0.0  # bytes the job wrote because of it: beyond its usual rate
    written_s: float | None = None  # up to this time
    between: float | None = None  # bytes/s that the job wrote before it
    settled: bool = False  # whether `written` is final
    born_s: float | None = None  # when new loader workers appeared in it, or just before
    cause: Cause | None = None

    @property
    def length_s(self) -> float:
        """Seconds from its start to its end."""
        return self.end_s - self.start_s

    @property
    def saving_s(self) -> float:
        """GPU seconds lost before new workers started: a save before the next epoch begins is finished by then."""
        if self.born_s is None or self.born_s - self.start_s < _APART_S:
            return self.idle_s
        return self.idle_s * min(1.0, (self.born_s - self.start_s) / max(self.length_s, _APART_S))

    @property
    def starting_s(self) -> float:
        """GPU seconds lost to new workers: the whole pause, unless a checkpoint was written before they started."""
        if self.born_s is None:
            return 0.0
        return self.idle_s - self.saving_s if self.cause == "save" else self.idle_s

    @property
    def percent(self) -> float:
        """GPU busy during it, in percent."""
        return 100 * self.busy_s / self.length_s if self.length_s else 0.0


@dataclass(slots=True)
class Pauses:
    """All remembered pauses of a trainer, newest last; the newest may be ongoing.

    With other levels it finds phases of less work: GPUs below `share` of the usual level.
    """

    idle_percent: float = IDLE_PERCENT
    share: float = 0.0
    least_s: float = LEAST_S
    begun: bool = False  # whether it has worked: anything before that is startup
    known: deque[Pause] = field(default_factory=deque)
    first_s: float | None = None  # tracked since
    seen_s: float | None = None  # tracked up to
    usual: float = 100.0  # percent busy while it works
    _worked_s: float = 0.0
    _run_s: float = 0.0  # of the work since the last pause or gap between steps
    _usual_run_s: float = math.inf
    _open: bool = False  # whether the newest is ongoing
    _blip: list[BusySpan] = field(default_factory=list)  # work since its last idle interval
    _idle: list[BusySpan] = field(default_factory=list)  # intervals of the newest pause while it is short
    _edge: BusySpan | None = None  # the interval before: a pause may have begun in it
    _work: deque[BusySpan] = field(default_factory=deque)  # recent work between pauses

    def add(self, piece: BusySpan) -> None:
        """Take in the interval after the last one."""
        self.first_s = piece.start_s if self.first_s is None else self.first_s
        self.seen_s = piece.end_s
        if piece.percent is None:
            if self._open and piece.end_s - self.known[-1].end_s > _UNSEEN_S:
                self._close()
            self._edge = None
        elif piece.percent < max(self.idle_percent, self.share * self.usual):
            self._add_idle(piece, piece.percent)
        else:
            self._add_work(piece, piece.percent)

    @property
    def current(self) -> Pause | None:
        """The ongoing pause, if any."""
        return self.known[-1] if self._open and self.known[-1].length_s >= self.least_s else None

    def since(self, from_s: float) -> list[Pause]:
        """Pauses that ended after a time, or are ongoing."""
        newest = takewhile(lambda one: one.end_s > from_s, reversed(self.known))
        return [one for one in newest if one.ended or one.length_s >= self.least_s][::-1]

    def recent(self, seconds: float) -> list[Pause]:
        """Pauses of the last seconds."""
        return self.since((self.seen_s or 0.0) - seconds)

    def watched_s(self, seconds: float) -> float:
        """Seconds tracked within the last `seconds`."""
        return 0.0 if self.first_s is None or self.seen_s is None else min(seconds, self.seen_s - self.first_s)

    def lost(self, pauses: Sequence[Pause], seconds: float) -> float:
        """Share of GPU time lost to these pauses over the last seconds, or over the tracked time if that is shorter."""
        watched_s = self.watched_s(seconds)
        return min(1.0, sum(one.idle_s for one in pauses) / watched_s) if watched_s else 0.0

    def between(self, seconds: float = _WORK_S) -> tuple[float, float, float]:
        """Recent work between pauses: mean and standard deviation of percent busy, and the seconds they cover."""
        since_s = (self.seen_s or 0.0) - seconds
        found = [(one.end_s - one.start_s, one.percent or 0.0) for one in self._work if one.end_s > since_s]
        known_s = sum(length_s for length_s, _ in found)
        if not known_s:
            return 0.0, 0.0, 0.0
        mean = sum(length_s * percent for length_s, percent in found) / known_s
        square = sum(length_s * (percent - mean) ** 2 for length_s, percent in found) / known_s
        return mean, math.sqrt(square), known_s

    def _add_idle(self, piece: BusySpan, percent: float) -> None:
        if not self.begun:
            return
        if not self._open:
            self._open, edge = True, self._edge
            edge_s = (edge.end_s - edge.start_s) * self._lost_share(edge.percent or 0.0) if edge else 0.0
            self.known.append(Pause(piece.start_s, piece.start_s, idle_s=edge_s))
        last = self.known[-1]
        for blip in self._blip:  # it was short
            last.busy_s += (blip.end_s - blip.start_s) * (blip.percent or 0.0) / 100
        unseen_s = 0.0 if self._blip else max(0.0, piece.start_s - last.end_s)
        length_s = piece.end_s - piece.start_s
        last.end_s = piece.end_s
        last.idle_s += unseen_s + length_s * self._lost_share(percent)
        last.busy_s += length_s * percent / 100
        self._blip.clear()
        if last.length_s < self.least_s:
            self._idle.append(piece)

    def _add_work(self, piece: BusySpan, percent: float) -> None:
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
            last.idle_s += length_s * self._lost_share(percent)  # of an interval in which it ended
        self._blip.append(piece)
        most_s = min(_BLIP_S, _BLIP_SHARE * last.length_s, _BLIP_OF_RUN * self._usual_run_s)
        if piece.end_s - self._blip[0].start_s > most_s:
            self._close()

    def _close(self) -> None:
        """Close the newest pause, or drop it if it was too short."""
        last, between = self.known[-1], self._blip
        if last.length_s < self.least_s - _UNSURE_S:
            self.known.pop()
            between = [*([self._edge] if self._edge else ()), *self._idle, *self._blip]
        else:
            last.ended, between = True, self._blip[1:]
            if len(self.known) > _KEPT:  # drop the shortest old one: gaps between steps must not displace checkpoints
                older = list(self.known)[: _KEPT // 2]
                self.known.remove(min(older, key=lambda one: one.idle_s))
        for piece in between:
            self._learn(piece)
        usual_s = self._run_s if self._usual_run_s == math.inf else self._usual_run_s
        self._usual_run_s = usual_s + _RUN_WEIGHT * (self._run_s - usual_s)
        self._run_s = sum(piece.end_s - piece.start_s for piece in self._blip)
        self._open, self._edge = False, None
        self._blip, self._idle = [], []

    def _learn(self, piece: BusySpan) -> None:
        """Update the usual level between pauses."""
        length_s, percent = piece.end_s - piece.start_s, piece.percent or 0.0
        self._work.append(piece)
        while self._work[0].end_s <= piece.end_s - 2 * _WORK_S:
            self._work.popleft()
        if percent >= self.idle_percent:
            known_s = min(_WORK_S, max(length_s, self._worked_s))
            self.usual += (percent - self.usual) * min(1.0, length_s / known_s)

    def _lost_share(self, percent: float) -> float:
        """The lost share (0-1) of an interval with this utilization."""
        return max(0.0, 1 - percent / self.usual) if self.usual else 0.0


def busy_spans(
    gpus: Sequence[Gpu], percent: float | None, newest_s: float | None, now_s: float, s: float
) -> list[BusySpan]:
    """Utilization of these GPUs since `newest_s`, by driver samples if all have them, else `percent` over `s` seconds.

    Several GPUs are averaged at the sample times of the first one.
    """
    if any(gpu.age_s > 0 for gpu in gpus):
        percent, gpus = None, ()
    if percent is None or not gpus or not all(gpu.busy_samples for gpu in gpus):
        start_s = now_s - s if newest_s is None else max(now_s - s, newest_s)
        return [BusySpan(start_s, now_s, percent)] if now_s - start_s > _UNSURE_S else []
    return list(_sampled([gpu.busy_samples for gpu in gpus], newest_s, now_s))


def _sampled(
    samples: Sequence[Sequence[tuple[float, float]]], newest_s: float | None, now_s: float
) -> Iterator[BusySpan]:
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
        yield BusySpan(start_s, end_s, value / len(samples))
        start_s = end_s

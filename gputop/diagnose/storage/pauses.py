"""When the GPUs of a trainer had nothing to do, and what its job wrote meanwhile: followed second by second."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

_BLIP_S = 1.0  # work in between that ends no pause
_UNSEEN_S = 5.0  # of a pause, in which nobody looked
_KEPT = 256
_FORGET = 1 / 900  # of what is known of the time with work, a second


@dataclass(slots=True)
class Pause:
    """One time without work."""

    start_s: float
    end_s: float
    idle_s: float  # in which the GPUs did nothing; parts of seconds too
    written: float  # bytes, from a little before until a little after


@dataclass(slots=True)
class Pauses:
    """All of a trainer that are remembered, the newest last. `lag_s`: how far from a pause a write may be."""

    idle_percent: float
    lag_s: float
    seen_s: float | None = None  # up to when it was followed
    known: deque[Pause] = field(default_factory=lambda: deque(maxlen=_KEPT))
    work_s: float = 0.0  # seconds with work, of the newest quarter of an hour or so
    work_written: float = 0.0  # bytes written in them
    _recent: deque[float] = field(default_factory=deque)  # bytes written in the last seconds
    _idle: bool = False
    _part_s: float = 0.0  # idle part of the last second

    def follow(self, first_s: float, busy: Iterable[float | None], written: Iterable[float | None]) -> None:
        """Take in seconds that follow one another from `first_s` on; None is unknown."""
        for place, (percent, more) in enumerate(zip(busy, written, strict=True)):
            self._second(first_s + place, percent, more or 0.0)

    def burst(self, one: Pause) -> float:
        """How many times as fast as in the time with work it wrote in this pause."""
        usual = self.work_written / self.work_s if self.work_s else 0.0
        return one.written / one.idle_s / usual if usual and one.idle_s else math.inf

    def _second(self, now_s: float, percent: float | None, more: float) -> None:
        self.seen_s = now_s
        last = self.known[-1] if self.known else None
        if percent is None and self._idle and last is not None and now_s - last.end_s <= _UNSEEN_S:
            return  # nobody looked: it may go on
        idle = percent is not None and percent < self.idle_percent
        part_s = 0.0 if percent is None else 1 - percent / 100
        if idle and last is not None and (self._idle or now_s - last.end_s <= _BLIP_S + 1):
            last.idle_s += part_s + (now_s - last.end_s - 1 if self._idle else 0.0)
            last.end_s = now_s
            last.written += more
        elif idle:
            before = sum(self._recent)
            self.known.append(Pause(now_s, now_s, part_s + self._part_s, before + more))
        elif last is not None and now_s - last.end_s <= self.lag_s:
            last.written += more
            last.idle_s += part_s if self._idle else 0.0
        elif percent is not None:
            self.work_s += 1 - _FORGET * self.work_s
            self.work_written += more - _FORGET * self.work_written
        self._idle, self._part_s = idle, part_s
        self._recent.append(more)
        while len(self._recent) > self.lag_s:
            self._recent.popleft()

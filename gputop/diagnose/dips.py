"""Times in which the GPUs of a trainer do less than usual, followed second by second: the phases of an evaluation."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import takewhile

_MEAN_S = 5  # of so many seconds: steps are shorter, and so are most pauses
_DEEP, _BACK = 20.0, 10.0  # points below the usual, from which it is a dip, and up to which it lasts
_KNOWN_S = 30.0  # seconds that the usual must be known of
_USUAL_S = 300.0  # of which it is the mean
_LONGEST_S = 1800.0  # what lasts longer is the usual by now
_UNKNOWN = 3  # seconds in a row that nobody looked at: more is a gap, in which anything may have been
_KEPT = 32


@dataclass(slots=True)
class Dip:
    """One time of less work. Percent busy; the GPU's usual is that of the time before it."""

    start_s: float
    usual: float
    end_s: float | None = None
    values: list[float] = field(default_factory=list)  # of its seconds

    @property
    def length_s(self) -> float:
        """How long it was; 0 while it lasts."""
        return 0.0 if self.end_s is None else self.end_s - self.start_s

    @property
    def busy(self) -> float:
        """How busy the GPUs were in it, percent."""
        return sum(self.values) / len(self.values) if self.values else 0.0


@dataclass(slots=True)
class Dips:
    """All of a trainer that are remembered, the newest last."""

    least_s: float  # shorter ones are pauses
    followed_s: float | None = None  # up to when
    known: deque[Dip] = field(default_factory=lambda: deque(maxlen=_KEPT))
    open: Dip | None = None  # what it is in
    turned_s: float = 0.0  # when the last one began, or ended
    usual: float | None = None
    usual_s: float = 0.0
    _last: deque[float] = field(default_factory=lambda: deque(maxlen=_MEAN_S))
    _unknown: int = 0  # seconds in a row

    def follow(self, first_s: float, busy: Iterable[float | None]) -> Dip | None:
        """Take in seconds that follow one another; the dip that ended in them. None is unknown."""
        ended = None
        for place, percent in enumerate(busy):
            self.followed_s = first_s + place
            if percent is not None:
                self._unknown = 0
            else:
                self._unknown += 1
                if self._unknown > _UNKNOWN:
                    self._last.clear()
                    self.open = None  # nobody knows when it ended
                if not self._last:
                    continue
                percent = self._last[-1]
            ended = self._second(first_s + place, percent) or ended
        return ended

    def _second(self, now_s: float, percent: float) -> Dip | None:
        leaves = self._last[0] if len(self._last) == _MEAN_S else None
        self._last.append(percent)
        if self.open is not None and now_s - self.open.start_s > _LONGEST_S:
            self.open, self.usual, self.usual_s = None, None, 0.0
            self.known.clear()
        if len(self._last) < _MEAN_S:
            return None
        mean = sum(self._last) / len(self._last)
        if self.open is None:
            if self.usual is None or self.usual_s < _KNOWN_S or mean > self.usual - _DEEP:
                self._learn(leaves)
                return None
            low = next(place for place, value in enumerate(self._last) if value < self.usual - _BACK)
            self.turned_s = now_s - len(self._last) + 1 + low
            self.open = Dip(self.turned_s, self.usual, values=[*self._last][low:])
            return None
        one = self.open
        one.values.append(percent)
        if mean < one.usual - _BACK:
            return None
        back = len([*takewhile(lambda value: value >= one.usual - _BACK, reversed(self._last))])
        del one.values[len(one.values) - back :]
        self.open, one.end_s = None, now_s - back + 1
        self.turned_s = one.end_s
        if one.length_s < self.least_s:
            return None
        self.known.append(one)
        return one

    def _learn(self, percent: float | None) -> None:
        """Take in what is no dip for sure."""
        if percent is None:
            return
        self.usual_s = min(self.usual_s + 1, _USUAL_S)
        usual = percent if self.usual is None else self.usual
        self.usual = usual + (percent - usual) / self.usual_s

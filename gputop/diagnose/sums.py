"""Running sums of a subject's metrics: the mean over any of the last two minutes, without looking at each second."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple

KEPT_S = 120.0
_TRIM = 64  # rows too old are dropped so many at a time


class _Sum(NamedTuple):
    """Of everything since the beginning."""

    totals: array[float]  # values times seconds
    gaps: array[float]  # seconds in which each was unknown
    whole_s: float


class Means:
    """The means of a subject's metrics over one window, each worked out when it is asked for."""

    __slots__ = ("_end", "_gaps", "_gaps_before", "_least_s", "_places", "_start", "_whole_s")

    def __init__(self, places: Mapping[str, int], start: _Sum, end: _Sum, least_s: float) -> None:
        self._places, self._least_s = places, max(least_s, 1e-6) - 1e-6
        self._start, self._gaps_before, before_s = start
        self._end, self._gaps, whole_s = end
        self._whole_s = whole_s - before_s

    def get(self, metric: str) -> float | None:
        """The mean of a metric; None where too little of it, or nothing, is known."""
        place = self._places.get(metric)
        if place is None:
            return None
        known_s = self._whole_s - (self._gaps[place] - self._gaps_before[place])
        return (self._end[place] - self._start[place]) / known_s if known_s > self._least_s else None


class Sums:
    """One subject. `names` are its metrics, in the order of the values that are added."""

    __slots__ = ("_places", "_sums", "_times")

    def __init__(self, names: Sequence[str], now_s: float) -> None:
        nothing = array("d", bytes(8 * len(names)))
        self._places = {name: place for place, name in enumerate(names)}
        self._times = [now_s]
        self._sums = [_Sum(nothing, nothing, 0.0)]

    def add(self, now_s: float, stands_for_s: float, values: Sequence[float | None]) -> None:
        """Take in values, None where unknown, and the seconds they stand for."""
        totals, gaps, whole_s = self._sums[-1]
        pairs = zip(totals, values, strict=True)
        totals = array("d", [total if value is None else total + value * stands_for_s for total, value in pairs])
        if None in values:
            unknown = zip(gaps, values, strict=True)
            gaps = array("d", [gap + stands_for_s if value is None else gap for gap, value in unknown])
        self._sums.append(_Sum(totals, gaps, whole_s + stands_for_s))
        self._times.append(now_s)
        if len(self._times) > _TRIM and self._times[_TRIM] <= now_s - KEPT_S:
            old = bisect_right(self._times, now_s - KEPT_S) - 1
            del self._times[:old], self._sums[:old]

    def means(self, seconds: float, least_s: float) -> Means:
        """Means over the last `seconds`; None where less than `least_s` of them, or nothing, is known."""
        first = max(0, bisect_right(self._times, self._times[-1] - seconds + 1e-6) - 1)
        return Means(self._places, self._sums[first], self._sums[-1], least_s)


NOTHING = Sums((), 0.0).means(0.0, 0.0)

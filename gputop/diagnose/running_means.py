"""Running sums of everything tracked at each frame: the mean over any part of the last two minutes in constant time."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

KEPT_S = 120.0
_TRIM = 16  # expired rows are dropped in batches of this size
Followed = tuple[Hashable, Mapping[str, int], Sequence[float | None]]  # key, ordered names, values


class _Row(NamedTuple):
    """Cumulative sums over all subjects side by side."""

    totals: array[float]  # sum of value × seconds
    known: array[float]  # seconds in which each value was known


class _Place(NamedTuple):
    """Columns of one subject, and the time since which it has them: earlier values may be of another subject."""

    first: int
    names: Mapping[str, int]
    since_s: float


class Means:
    """Means of a subject's metrics over one window, computed on access."""

    __slots__ = ("_end", "_first", "_least_s", "_names", "_start")

    def __init__(self, place: _Place, start: _Row, end: _Row, least_s: float) -> None:
        self._first, self._names = place.first, place.names
        self._start, self._end, self._least_s = start, end, max(least_s, 1e-6) - 1e-6

    def get(self, metric: str) -> float | None:
        """The mean of a metric; None if too little is known."""
        index = self._names.get(metric)
        if index is None:
            return None
        at = self._first + index
        known_s = self._end.known[at] - self._start.known[at]
        return (self._end.totals[at] - self._start.totals[at]) / known_s if known_s > self._least_s else None


_UNTRACKED = Means(_Place(0, {}, 0.0), _Row(array("d"), array("d")), _Row(array("d"), array("d")), 0.0)


class RunningSums:
    """Sums of every tracked subject by key. A subject missing from a frame is unknown for that time."""

    __slots__ = ("_free", "_places", "_rows", "_times")

    def __init__(self) -> None:
        self._places: dict[Hashable, _Place] = {}
        self._free: dict[int, list[int]] = {}  # free columns by width
        self._times: list[float] = []
        self._rows: list[_Row] = []

    def __contains__(self, key: Hashable) -> bool:
        return key in self._places

    def add(self, now_s: float, stands_for_s: float, of: Iterable[Followed]) -> None:
        """Add a frame and the seconds it stands for."""
        if not self._times:
            self._times, self._rows = [now_s - stands_for_s], [_Row(array("d"), array("d"))]
        values: list[float | None] = [None] * len(self._rows[-1].totals)
        for key, names, row in of:
            place = self._places.get(key) or self._place(key, names, values)
            values[place.first : place.first + len(row)] = row
        totals, known = self._rows[-1]
        pairs = zip(totals, values, strict=True)
        totals = array("d", [total if value is None else total + value * stands_for_s for total, value in pairs])
        pairs = zip(known, values, strict=True)
        known = array("d", [known_s if value is None else known_s + stands_for_s for known_s, value in pairs])
        self._rows.append(_Row(totals, known))
        self._times.append(now_s)
        if len(self._times) > _TRIM and self._times[_TRIM] <= now_s - KEPT_S:
            old = bisect_right(self._times, now_s - KEPT_S) - 1
            del self._times[:old], self._rows[:old]

    def _place(self, key: Hashable, names: Mapping[str, int], values: list[float | None]) -> _Place:
        """Columns for a new subject: reused ones, or new ones at the end of the last row."""
        width, free = len(names), self._free.get(len(names))
        if free:
            first = free.pop()
        else:
            first = len(values)
            values += [None] * width
            for sums in self._rows[-1]:
                sums.extend([0.0] * width)
        place = self._places[key] = _Place(first, names, self._times[-1])
        return place

    def drop(self, key: Hashable) -> None:
        """Remove a subject for good."""
        place = self._places.pop(key, None)
        if place is not None:
            self._free.setdefault(len(place.names), []).append(place.first)

    def means(self, key: Hashable, seconds: float, least_s: float) -> Means:
        """Means over the last `seconds`; None if less than `least_s` of them is known."""
        place = self._places.get(key)
        if place is None:
            return _UNTRACKED
        since_s = max(self._times[-1] - seconds, place.since_s)
        first = max(0, bisect_right(self._times, since_s + 1e-6) - 1)
        return Means(place, self._rows[first], self._rows[-1], least_s)

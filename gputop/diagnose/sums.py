"""Running sums of a subject's metrics: the mean over any of the last two minutes, without looking at each second."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence

KEPT_S = 120.0
_TRIM = 64  # rows too old are dropped so many at a time


class Sums:
    """One subject. `names` are its metrics, in the order of the rows that are added."""

    __slots__ = ("_known", "_names", "_times", "_totals")

    def __init__(self, names: Sequence[str], now_s: float) -> None:
        nothing = array("d", bytes(8 * len(names)))
        self._names = tuple(names)
        self._times = [now_s]
        self._totals = [nothing]  # value times seconds, since the beginning
        self._known = [nothing]  # seconds in which it was known

    def add(self, now_s: float, stands_for_s: float, row: Sequence[float]) -> None:
        """Take in a row of values, NaN where unknown, and the seconds it stands for."""
        totals, known = self._totals[-1], self._known[-1]
        pairs = zip(totals, row, strict=True)
        self._totals.append(
            array("d", [total + value * stands_for_s if value == value else total for total, value in pairs])
        )
        pairs = zip(known, row, strict=True)
        self._known.append(
            array("d", [seconds + stands_for_s if value == value else seconds for seconds, value in pairs])
        )
        self._times.append(now_s)
        old = bisect_right(self._times, now_s - KEPT_S) - 1
        if old >= _TRIM:
            del self._times[:old], self._totals[:old], self._known[:old]

    def means(self, seconds: float, least_s: float) -> Mapping[str, float | None]:
        """Means over the last `seconds`; None where less than `least_s` of them, or nothing, is known."""
        first = max(0, bisect_right(self._times, self._times[-1] - seconds + 1e-6) - 1)
        least = max(least_s, 1e-6) - 1e-6
        parts = zip(self._totals[-1], self._totals[first], self._known[-1], self._known[first], strict=True)
        means = [(end - start) / (now - then) if now - then > least else None for end, start, now, then in parts]
        return dict(zip(self._names, means, strict=True))

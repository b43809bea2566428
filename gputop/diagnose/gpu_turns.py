"""GPUs that work in turns, as the stages of one model do: their combined activity is the sum, not the mean."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise
from operator import mul
from statistics import median

from gputop.diagnose.estimators import Period, Shape, period, shape
from gputop.frozen_dataclass import frozen_dataclass

Series = Sequence[tuple[float, float]]  # (time, percent busy)

_LEAST, _LEAST_S = 12, 15.0  # samples, over this many seconds
_MOST, _MOST_LEAVES = 1.3, 1.6  # sum of busy shares: stages with micro-batches overlap a little
_OVERLAP, _OVERLAP_LEAVES = 0.5, 0.8  # of the overlap that chance would give
_OTHERS = 0.15  # busy share of all but the busiest: below, a GPU is only used now and then
_WHOLE = (0.92, 1.08)  # sum over GPUs in a sample that counts as one GPU's full time
_OVER, _OVER_LEAVES = 0.03, 0.10  # share of samples above that: two work at once
_MET = 3.0  # samples in which two would overlap by chance, at least
_PEAK = 0.5  # share of samples in which one GPU works alone: turns are long enough to be visible
_OFTEN = 0.4  # share of samples with one GPU's full time, if turns are too short to be visible
_ALIKE = 1.6  # the busiest relative to the least busy, likewise


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """Several GPUs of which mostly one works at a time. Shares are 0-1 of the time."""

    uuids: tuple[str, ...]
    shares: tuple[float, ...]  # busy share of each
    seen: bool  # visible in the samples; otherwise turns are shorter, and only the sum shows them
    shape: Shape | None  # of their sum
    period: Period | None
    spacing_s: float

    @property
    def total(self) -> float:
        """Share of time in which any of them worked, if they do not overlap."""
        return sum(self.shares)


def turns(samples: Mapping[str, Series], *, before: bool, alone: bool, may_be_short: bool) -> Turns | None:
    """Whether these GPUs work in turns.

    `before`: they did so before; `alone`: one process drives them; `may_be_short`: a split model is likely for other
    reasons. GPUs that work at the same time overlap more often than by chance; GPUs in turns never do. Synchronized
    ranks can look as if in turns if their samples are taken at different moments.
    """
    known = {uuid: series for uuid, series in samples.items() if len(series) >= _LEAST}
    if len(known) < 2 or len(known) < len(samples):
        return None
    rows = _rows(list(known.values()))
    if len(rows) < _LEAST or rows[-1][0] - rows[0][0] < _LEAST_S:
        return None
    columns = list(zip(*(values for _, values in rows), strict=True))
    shares = tuple(sum(column) / len(rows) / 100 for column in columns)
    sums = [sum(values) / 100 for _, values in rows]
    total = sum(shares)
    if total - max(shares) < _OTHERS or total > (_MOST_LEAVES if before else _MOST):
        return None
    if _chance(shares) / 2 * len(rows) < _MET:
        return None  # they would hardly ever have overlapped
    over = sum(value > _WHOLE[1] for value in sums) / len(sums) <= (_OVER_LEAVES if before else _OVER)
    apart = _overlap(columns, shares, sums) <= (_OVERLAP_LEAVES if before else _OVERLAP)
    seen = apart or (alone and over and all(sorted(column)[int(0.97 * len(rows))] >= 100 * _PEAK for column in columns))
    if not seen and not (may_be_short and over and _fits_short_turns(shares, sums)):
        return None
    spacing_s = median(later - earlier for (earlier, _), (later, _) in pairwise(rows))
    busy = [min(100.0, 100 * value) for value in sums]
    spread = shape(busy)
    rhythm = period(busy, spacing_s) if spread and spread.sigma > 2 else None
    return Turns(uuids=tuple(known), shares=shares, seen=seen, shape=spread, period=rhythm, spacing_s=spacing_s)


def _fits_short_turns(shares: Sequence[float], sums: Sequence[float]) -> bool:
    """Whether turns shorter than a sample are plausible: similar shares, a sum that is often one GPU's full time."""
    whole = sum(_WHOLE[0] <= value <= _WHOLE[1] for value in sums) / len(sums)
    return whole >= _OFTEN and max(shares) <= _ALIKE * min(shares)


def _overlap(columns: Sequence[Sequence[float]], shares: Sequence[float], sums: Sequence[float]) -> float:
    """Overlap of two GPUs relative to the overlap expected by chance."""
    count = len(sums)
    square: float = sum(map(mul, sums, sums)) / count
    own: float = sum(sum(map(mul, column, column)) for column in columns) / count / 1e4
    return max(0.0, square - own) / max(1e-6, _chance(shares))


def _chance(shares: Sequence[float]) -> float:
    """Twice the share of time that two would overlap if they were independent."""
    squares: float = sum(map(mul, shares, shares))
    return float(sum(shares)) ** 2 - squares


def _rows(series: Sequence[Series]) -> list[tuple[float, tuple[float, ...]]]:
    """All series at the times of the first one, each by its nearest sample."""
    since_s = max(one[0][0] for one in series)
    until_s = min(one[-1][0] for one in series)
    first, *others = series
    apart_s = (first[-1][0] - first[0][0]) / (len(first) - 1)
    times = [[at_s for at_s, _ in one] for one in others]

    found = []
    for at_s, value in first:
        if since_s - apart_s / 2 <= at_s <= until_s + apart_s / 2:
            places = (bisect_left(when, at_s - apart_s / 2) for when in times)
            nearest = (one[min(place, len(one) - 1)][1] for one, place in zip(others, places, strict=True))
            found.append((at_s, (value, *nearest)))
    return found

"""Estimators over measured series: shape, spacing, step period, leak, slope, change point. Arithmetic only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from operator import mul
from statistics import median
from typing import NamedTuple

from gputop.frozen_dataclass import frozen_dataclass

LEAST_CORRELATION = 0.35
LEAST_SAMPLES = 10  # samples needed for a shape
_PARTS, _LEAST_PART = 5, 4  # parts of a rising series, and values in each
_LEAST_STEP = 0.5  # of the typical increment between parts: less is not steady growth
_NO_SLOWER, _STILL = 0.8, 0.3  # of the rise: least share of the last step and of the last part; else it has ended
_EMPTY, _FULL = 5.0, 95.0  # percent busy: samples with no work at all, or with nothing but work


@frozen_dataclass(frozen=True, slots=True)
class Shape:
    """Distribution of busy samples. `empty` and `full` are shares (0-1), the rest is in percent."""

    mean: float
    sigma: float
    low: float  # 5th percentile
    high: float  # 95th
    empty: float  # share of samples below 5
    full: float  # share of samples of 95 and above


class Period(NamedTuple):
    """A rhythm: its length and how well the series repeats after it (0-1)."""

    seconds: float
    correlation: float


class Leak(NamedTuple):
    """Steady growth in bytes: the rate, the increase per third of the window, and the least increase that counts."""

    per_s: float
    thirds: tuple[float, float, float]
    least: float


class Rise(NamedTuple):
    """Steady growth that does not slow down: its rate, and the increase seen over `seconds`."""

    per_s: float
    total: float
    seconds: float


def shape(values: Sequence[float]) -> Shape | None:
    """The distribution of busy samples; None for fewer than `LEAST_SAMPLES`."""
    count = len(values)
    if count < LEAST_SAMPLES:
        return None
    ordered, mean = sorted(values), sum(values) / count
    sigma = math.sqrt(max(0.0, sum(map(mul, values, values)) / count - mean * mean))
    low, high = ordered[int(0.05 * (count - 1))], ordered[math.ceil(0.95 * (count - 1))]
    empty = sum(value < _EMPTY for value in ordered) / count
    return Shape(mean, sigma, low, high, empty, sum(value >= _FULL for value in ordered) / count)


def spacing(times: Sequence[float]) -> float | None:
    """Seconds between samples: the median difference."""
    gaps = [abs(after - before) for before, after in pairwise(times)]
    return median(gaps) if gaps else None


def period(values: Sequence[float], step_s: float) -> Period | None:
    """The rhythm of an evenly spaced series, by autocorrelation.

    The first peak of at least 0.35 after the first zero crossing. Only lengths between 2.5 samples and a quarter of the
    series count: the sampling window hides shorter ones, and longer ones repeat too rarely.
    """
    count = len(values)
    highest = count // 4
    flat = _detrended(values)
    power = sum(map(mul, flat, flat))
    if highest < 4 or power < count:  # less than a percentage point: noise
        return None
    before, here, crossed = 1.0, _correlation(flat, power, 1), False
    for lag in range(2, highest + 2):
        after = _correlation(flat, power, lag)
        crossed = crossed or here < 0
        if crossed and here >= LEAST_CORRELATION and before < here >= after:
            bend = before - 2 * here + after
            place = lag - 1 + (0.5 * (before - after) / bend if bend else 0.0)
            return Period(place * step_s, here) if 2.5 <= place <= highest else None
        before, here = here, after
    return None


def _detrended(values: Sequence[float]) -> list[float]:
    """The residuals from the fitted straight line."""
    count = len(values)
    if not count:
        return []
    middle, mean = (count - 1) / 2, sum(values) / count
    spread = count * (count * count - 1) / 12
    slope = sum((place - middle) * value for place, value in enumerate(values)) / spread if spread else 0.0
    return [value - mean - slope * (place - middle) for place, value in enumerate(values)]


def _correlation(flat: list[float], power: float, lag: int) -> float:
    """Autocorrelation at `lag`, scaled for the shorter overlap."""
    count = len(flat)
    like: float = sum(map(mul, flat, flat[lag:]))
    return like / power * count / (count - lag)


def swing(duty: float, windows: float) -> float:
    """Spread of samples (0-1) for steps of `windows` sampling windows, busy for `duty` of each."""
    return max(0.0, min(1.0, duty * windows) + min(1.0, (1 - duty) * windows) - 1)


def slope(values: Sequence[float | None], step_s: float) -> float | None:
    """Growth per second by the Theil-Sen estimator: median slope of pairs half the series apart; gaps are skipped."""
    half = len(values) // 2
    pairs = zip(values, values[half:], strict=False)
    steps = [after - before for before, after in pairs if before is not None and after is not None]
    return median(steps) / (half * step_s) if half and steps else None


def leak(values: Sequence[float | None], step_s: float, capacity: float) -> Leak | None:
    """Steady growth of memory in bytes, as opposed to a plateau, a running maximum or a staircase that ends.

    A leak grows by at least 256 MiB and 0.5 % of the capacity, by 64 MiB in each of the last two thirds, in the last
    third at least 0.8 times as much as in the second, and in three or more steps there.
    """
    third = len(values) // 3
    parts = [values[0:third], values[third : 2 * third], values[2 * third : 3 * third]]
    known = [[value for value in part if value is not None] for part in parts]
    if third < 4 or any(2 * len(part) < third for part in known):
        return None
    grown = (known[0][-1] - known[0][0], known[1][-1] - known[0][-1], known[2][-1] - known[1][-1])
    steps = sum(after > before for before, after in pairwise(known[2]))
    mib = 1024.0**2
    least = max(256 * mib, 0.005 * capacity)
    if sum(grown) < least or min(grown[1:]) < 64 * mib or grown[2] < 0.8 * grown[1]:
        return None
    per_s = slope(values[third:], step_s)
    return Leak(per_s, grown, least) if steps >= 3 and per_s is not None and per_s > 0 else None


def rise(values: Sequence[float | None], step_s: float) -> Rise | None:
    """Linear growth that continues, over the shortest part of the series that shows it; None for any other shape.

    The means of five equal parts rise by similar amounts, and by no less at the end. A finished load, an allocator's
    staircase, a single jump and a running maximum of random sizes do not.
    """
    size = len(values) // _PARTS
    parts = [[one for one in values[len(values) - size * n :][:size] if one is not None] for n in range(_PARTS, 0, -1)]
    if size < _LEAST_PART or any(5 * len(part) < 2 * size for part in parts):
        return None
    means = [sum(part) / len(part) for part in parts]
    steps = [after - before for before, after in pairwise(means)]
    usual = sum(steps) / len(steps)
    even = usual > 0 and min(steps) >= _LEAST_STEP * usual and max(steps) <= usual / _LEAST_STEP
    if not even or steps[-1] < _NO_SLOWER * usual or parts[-1][-1] - parts[-1][0] < _STILL * usual:
        return None
    per_s = usual / (size * step_s)
    return Rise(per_s, per_s * len(values) * step_s, len(values) * step_s)


def change_point(values: Sequence[float], least: int = 10) -> int | None:
    """Index of the first value after the largest change of the mean; None for too few values."""
    count = len(values)
    if count < 2 * least:
        return None
    total, before, highest = sum(values), 0.0, 0.0
    found: int | None = None
    for place, value in enumerate(values[:-least], 1):
        before += value
        if place >= least:
            gap = before / place - (total - before) / (count - place)
            score = gap * gap * place * (count - place)
            if score > highest:
                highest, found = score, place
    return found

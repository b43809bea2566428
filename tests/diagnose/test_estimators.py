"""Estimators over series: shapes, rhythms, leaks and changes, as tables of cases."""

from __future__ import annotations

import math
import random

import pytest

from gputop.demo.generator import WINDOW_S, Pulse, shares
from gputop.diagnose.estimators import change_point, leak, period, shape, slope, spacing, swing

MIB, GIB = 2.0**20, 2.0**30
MINUTES_15 = 900


def busy(period_s: float, duty: float = 0.5, jitter: float = 0.05, seconds: float = 30.0, seed: int = 3) -> list[float]:
    """What the driver's buffer says of steps of this length."""
    pulse = Pulse(period_s, duty, jitter, seed)
    edges = [100 + number * WINDOW_S for number in range(int(seconds / WINDOW_S) + 1)]
    return [round(100 * part) for part in shares(pulse, edges)]


def test_shape() -> None:
    found = shape([0.0] * 5 + [50.0] * 10 + [100.0] * 5)
    assert found is not None
    assert (found.mean, found.low, found.high, found.empty, found.full) == (50, 0, 100, 0.25, 0.25)
    assert found.sigma == pytest.approx(math.sqrt(1250))
    assert shape([50.0] * 9) is None


@pytest.mark.parametrize(
    ("times", "expected"), [([], None), ([1], None), ([0, 0.17, 0.33, 0.5, 3], 0.17), ([5, 4, 3], 1)]
)
def test_spacing(times: list[float], expected: float | None) -> None:
    assert spacing(times) == pytest.approx(expected)


@pytest.mark.parametrize("windows", [6, 8, 12, 20, 30])
@pytest.mark.parametrize("duty", [0.35, 0.6])
def test_period_of_slow_steps_is_within_a_tenth(windows: float, duty: float) -> None:
    found = period(busy(windows * WINDOW_S, duty), WINDOW_S)
    assert found is not None
    assert found.seconds == pytest.approx(windows * WINDOW_S, rel=0.1)
    assert 0.35 <= found.correlation <= 1.2


@pytest.mark.parametrize(
    "values",
    [
        busy(0.9 * WINDOW_S),  # shorter than a window
        busy(200.0, seconds=30),  # longer than a quarter of the series
        [97.0] * 180,
        [],
        [50.0, 60.0, 50.0],
    ],
)
def test_no_period_where_none_shows(values: list[float]) -> None:
    found = period(values, WINDOW_S)
    assert found is None or found.seconds >= 2.5 * WINDOW_S


def test_noise_has_no_period() -> None:
    rng = random.Random(7)
    found = [period([rng.gauss(50, 10) for _ in range(180)], WINDOW_S) for _ in range(20)]
    assert sum(one is not None for one in found) <= 1


@pytest.mark.parametrize("duty", [0.3, 0.45, 0.6])
@pytest.mark.parametrize(("windows", "so_long"), [(1.35, False), (1.5, False), (2.6, True), (3, True), (6, True)])
def test_steps_that_are_too_short_swing_less_than_those_they_look_like(
    windows: float, duty: float, so_long: bool
) -> None:
    values = busy(windows * WINDOW_S, duty)
    rhythm, spread = period(values, WINDOW_S), shape(values)
    assert rhythm is not None
    assert spread is not None
    whole = 100 * swing(spread.mean / 100, rhythm.seconds / WINDOW_S)
    assert (spread.high - spread.low >= 0.75 * whole) is so_long


def test_slope_does_not_mind_an_outlier_or_a_gap() -> None:
    values: list[float | None] = [3.0 * place for place in range(100)]
    values[10], values[70], values[71] = 9e9, None, None
    assert slope(values, 2.0) == pytest.approx(1.5)
    assert slope([1.0], 1.0) is None
    assert slope([None] * 10, 1.0) is None


def leaking(mib_per_s: float) -> list[float | None]:
    return [30 * GIB + second * mib_per_s * MIB for second in range(MINUTES_15)]


def plateau() -> list[float | None]:
    return [30 * GIB + min(second, 100) // 16 * 2 * GIB for second in range(MINUTES_15)]


def running_maximum() -> list[float | None]:
    rng, highest, values = random.Random(4), 0.0, []
    for _ in range(MINUTES_15):
        highest = max(highest, rng.lognormvariate(0, 0.4) * 4 * GIB)
        values.append(30 * GIB + highest)
    return list(values)


def two_steps() -> list[float | None]:
    return [30 * GIB + (second >= 400) * 2 * GIB + (second >= 800) * 2 * GIB for second in range(MINUTES_15)]


@pytest.mark.parametrize("rate", [20, 6, 5, 3])
def test_a_leak_is_told_with_its_rate(rate: float) -> None:
    found = leak(leaking(rate), 1.0, 80 * GIB)
    assert found is not None
    assert found.per_s == pytest.approx(rate * MIB, rel=0.01)
    assert sum(found.thirds) == pytest.approx(rate * MIB * MINUTES_15, rel=0.01)


@pytest.mark.parametrize(
    "values",
    [
        plateau(),
        running_maximum(),
        two_steps(),
        leaking(0.2),
        leaking(0),
        leaking(-5),
        leaking(20)[:9],
        [None] * 600 + leaking(20)[:300],
    ],
)
def test_what_is_no_leak(values: list[float | None]) -> None:
    assert leak(values, 1.0, 80 * GIB) is None


def test_a_leak_with_gaps_is_still_one() -> None:
    values = [value if place % 3 else None for place, value in enumerate(leaking(6))]
    assert leak(values, 1.0, 80 * GIB) is not None


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0] * 30 + [5.0] * 40, 30),
        ([1.0] * 60 + [5.0] * 12, 60),
        ([1.0] * 50, None),
        ([1.0, 2.0], None),
    ],
)
def test_change_point(values: list[float], expected: int | None) -> None:
    assert change_point(values) == expected

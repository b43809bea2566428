"""When something began, by the seconds that the history keeps: a rule that waits to be sure tells it all the same."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.history import FINE_S, FINE_SLOTS

BACK_S = FINE_S * FINE_SLOTS  # as far as the history keeps seconds


def since_above(values: Sequence[float | None], bound: float) -> float:
    """Seconds since a value was above a bound, the newest value last."""
    for age, value in enumerate(reversed(values)):
        if value is not None and value > bound:
            return FINE_S * age
    return BACK_S


def since_more(values: Sequence[float | None], bound: float, least_s: float) -> float:
    """Seconds since the mean was above a bound, over `least_s` or whatever more has passed: a moment alone counts
    little.
    """
    added = 0.0
    for age, value in enumerate(reversed(values)):
        added += value or 0.0
        if added > bound * max(least_s, age + 1.0):
            return FINE_S * age
    return BACK_S


def watched(values: Sequence[float | None]) -> float:
    """Seconds since the first value that is known."""
    return FINE_S * next((len(values) - place for place, value in enumerate(values) if value is not None), 0)

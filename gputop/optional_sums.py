"""Sums and means of values that may be unknown."""

from __future__ import annotations

from collections.abc import Iterable


def total(values: Iterable[float | None]) -> float | None:
    """The sum; None if any value is unknown, 0 if empty."""
    try:
        return sum(values, 0.0)  # type: ignore[type-var]
    except TypeError:
        return None


def added(values: Iterable[float | None]) -> float | None:
    """The sum of known values; None if there are none."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of known values; None if there are none."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None

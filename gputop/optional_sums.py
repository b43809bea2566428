"""Sums and means of values of which some may be unknown."""

from __future__ import annotations

from collections.abc import Iterable


def total(values: Iterable[float | None]) -> float | None:
    """The sum; None where a part of it is unknown, 0 of nothing."""
    try:
        return sum(values, 0.0)  # type: ignore[type-var]
    except TypeError:
        return None


def added(values: Iterable[float | None]) -> float | None:
    """The sum of what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None

"""Sums and means of values of which some may be unknown."""

from __future__ import annotations

from collections.abc import Iterable


def total(values: Iterable[float | None]) -> float | None:
    """The sum; None where a part of it is unknown, 0 of nothing."""
    found = 0.0
    for value in values:
        if value is None:
            return None
        found += value
    return found


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None

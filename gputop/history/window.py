"""The values of one metric over some time."""

from __future__ import annotations

import math
from collections.abc import Sequence


class Window:
    """The values of one metric over some time, gaps left out."""

    __slots__ = ("covered", "seconds", "values")

    def __init__(self, values: Sequence[float | None]) -> None:
        self.seconds = values  # each slot of it, None for a gap
        self.values = [value for value in values if value is not None]
        self.covered = len(self.values) / len(values) if values else 0.0  # share of the window that is known

    def mean(self) -> float | None:
        """Arithmetic mean."""
        return sum(self.values) / len(self.values) if self.values else None

    def percentile(self, share: float) -> float | None:
        """The value that `share` (0-1) of the values do not exceed, nearest rank."""
        if not self.values:
            return None
        return sorted(self.values)[max(0, math.ceil(share * len(self.values)) - 1)]

    def share_above(self, bound: float) -> float | None:
        """Share (0-1) of the values above a bound."""
        return sum(value > bound for value in self.values) / len(self.values) if self.values else None

"""What the counters of many things grew between two looks, and the rates that follow."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar

from gputop.collect.rates import Counters, Counts

K = TypeVar("K", bound=Hashable)


class Growth(NamedTuple):
    """What the counters of one thing grew between two looks; None for one that went backwards or is not there."""

    seconds: float
    by: tuple[int | None, ...]

    def per_s(self, counter: int) -> float | None:
        """Its growth a second."""
        grown = self.by[counter]
        return None if grown is None else grown / self.seconds

    def percent(self, counter: int, unit_s: float) -> float | None:
        """Its growth as a share of the time that passed, for a counter of time in units of `unit_s`; at most 100."""
        grown = self.by[counter]
        return None if grown is None else min(100.0, 100 * grown * unit_s / self.seconds)

    def mean(self, counter: int, events: int) -> float | None:
        """Its growth for each event of another counter; None where nothing happened."""
        grown, count = self.by[counter], self.by[events]
        return grown / count if grown is not None and count else None


class Ledger(Generic[K]):
    """Counters by what they count; what is gone is forgotten, and is new when it comes back."""

    def __init__(self) -> None:
        self._rows: dict[K, Counters] = {}

    def grown(self, now_s: float, table: Mapping[K, Counts]) -> dict[K, Growth]:
        """What each row grew since the last look; left out is a row that is new, and one without a pair of looks."""
        self._rows = {key: self._rows.get(key) or Counters() for key in table}
        found = ((key, self._rows[key].grown(now_s, counts)) for key, counts in table.items())
        return {key: Growth(*grown) for key, grown in found if grown is not None}


def total(values: Iterable[float | None]) -> float | None:
    """The sum; None when there is nothing to add or a part of it is unknown."""
    known = list(values)
    return None if not known or None in known else sum(value for value in known if value is not None)

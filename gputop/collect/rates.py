"""Counters between two samples: what they grew by, and the rates that follow; what cannot be a rate is a gap."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

SHORTEST_S = 0.05  # below it one clock tick of a counter reads as thousands of percent
LONGEST_S = 30.0  # a mean over a longer gap (a suspend, a stopped monitor) says nothing about now,
LONGER = 3.0  # unless samples are that rare: it is not much longer than the gap before it

Counts = Sequence[int | None]
Rates = tuple[float | None, ...]


class Counters:
    """The last counts of one thing. Backwards, too soon, too late or unknown is None, never negative or infinite."""

    __slots__ = ("counts", "passed_s", "taken_s")

    def __init__(self) -> None:
        self.counts: Counts = ()
        self.taken_s = self.passed_s = 0.0

    def grown(self, now_s: float, counts: Counts) -> tuple[float, tuple[int | None, ...]] | None:
        """Seconds since the last sample and by how much each count grew; None where the two samples make no pair."""
        before = self._pair(now_s, counts)
        if before is None:
            return None
        # a list first: twice as fast as a generator, and this is the innermost loop
        return self.passed_s, tuple(
            [
                None if new is None or old is None or new < old else new - old
                for new, old in zip(counts, before, strict=True)
            ]
        )

    def rates(self, now_s: float, counts: Counts) -> Rates:
        """The growth of each count a second since the last sample."""
        before = self._pair(now_s, counts)
        if before is None:
            return (None,) * len(counts)
        passed_s = self.passed_s
        return tuple(
            [
                None if new is None or old is None or new < old else (new - old) / passed_s
                for new, old in zip(counts, before, strict=True)
            ]
        )

    def _pair(self, now_s: float, counts: Counts) -> Counts | None:
        """Take in new counts; the last ones, if the two samples make a pair."""
        before, passed_s, longest_s = self.counts, now_s - self.taken_s, LONGEST_S
        if passed_s > longest_s:
            longest_s = max(longest_s, LONGER * self.passed_s)
        if before and 0 <= passed_s < SHORTEST_S:
            return None
        self.counts, self.taken_s, self.passed_s = counts, now_s, passed_s if before else 0.0
        return before if len(before) == len(counts) and SHORTEST_S <= passed_s <= longest_s else None


K = TypeVar("K", bound=Hashable)


class Growth(NamedTuple):
    """What the counters of one thing grew between two samples; None for one that went backwards or is not there."""

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
        """Growth of one counter per event of another; None without events."""
        grown, count = self.by[counter], self.by[events]
        return grown / count if grown is not None and count else None


class Ledger(Generic[K]):
    """Counters by subject. A subject that disappears is forgotten, and starts again if it returns."""

    def __init__(self) -> None:
        self._rows: dict[K, Counters] = {}

    def grown(self, now_s: float, table: Mapping[K, Counts]) -> dict[K, Growth]:
        """Growth of each row since the last sample; rows without two samples are left out."""
        self._rows = {key: self._rows.get(key) or Counters() for key in table}
        found = ((key, self._rows[key].grown(now_s, counts)) for key, counts in table.items())
        return {key: Growth(*grown) for key, grown in found if grown is not None}


def total(values: Iterable[float | None]) -> float | None:
    """The sum; None when there is nothing to add or a part of it is unknown."""
    known = list(values)
    return None if not known or None in known else sum(value for value in known if value is not None)

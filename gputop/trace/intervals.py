"""Time spans as two arrays, starts and ends: unions, intersections, gaps.

A breakdown rests on unions, not summed durations: simultaneous kernels on two streams are one busy GPU.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge

_RUN = 1 << 16  # keys sorted at once: a list of floats takes eight times the memory of an array


def order(keys: Sequence[float]) -> Sequence[int]:
    """Indices of the keys in ascending order, stable; in little memory for any number."""
    if all(keys[index - 1] <= keys[index] for index in range(1, len(keys))):
        return range(len(keys))
    runs = [
        array("I", sorted(range(first, min(first + _RUN, len(keys))), key=keys.__getitem__))
        for first in range(0, len(keys), _RUN)
    ]
    return runs[0] if len(runs) == 1 else array("I", merge(*runs, key=keys.__getitem__))


def join(wanted: Sequence[int], keys: Sequence[int], times: Sequence[float] = ()) -> array[int]:
    """For each wanted key the index of the equal entry of `keys`, else -1; 0 matches nothing.

    Of several matches the one with the latest time, or the last one without times.
    """
    found = array("i", [-1]) * len(wanted)
    if not found:  # a trace without a GPU has a million keys without a match
        return found
    ranked = iter(order(keys))
    at = next(ranked, None)
    match = -1
    for index in order(wanted):
        key = wanted[index]
        while at is not None and keys[at] <= key:
            if not times or match < 0 or keys[match] != keys[at] or times[match] <= times[at]:
                match = at
            at = next(ranked, None)
        if key and match >= 0 and keys[match] == key:
            found[index] = match
    return found


class Spans:
    """Disjoint spans in ascending order; microseconds."""

    __slots__ = ("ends", "starts")

    def __init__(self, spans: Iterable[tuple[float, float]] = ()) -> None:
        """The union of spans ordered by start."""
        self.starts, self.ends = array("d"), array("d")
        for start, end in spans:
            self.add(start, end)

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[tuple[float, float]]:
        return zip(self.starts, self.ends, strict=True)

    def add(self, start: float, end: float, within: float = 0.0) -> None:
        """Add a span that starts no earlier than the previous ones; `within`: largest gap to merge."""
        if end <= start:
            return
        if self.ends and start <= self.ends[-1] + within:
            self.ends[-1] = max(self.ends[-1], end)
        else:
            self.starts.append(start)
            self.ends.append(end)

    @property
    def total(self) -> float:
        """Total time covered."""
        return sum(self.ends, 0.0) - sum(self.starts, 0.0)

    def within(self, start: float, end: float) -> Spans:
        """The part within a window."""
        first, last = bisect_right(self.ends, start), bisect_left(self.starts, end)
        cut = zip(self.starts[first:last], self.ends[first:last], strict=True)
        return Spans((max(a, start), min(b, end)) for a, b in cut)

    def shared(self, other: Spans) -> Spans:
        """The intersection of both."""
        return Spans(self._shared(other))

    def gaps(self, start: float, end: float) -> Spans:
        """The uncovered parts of a window."""
        return Spans(self._gaps(start, end))

    def covers(self, time: float) -> bool:
        """Whether a span covers a time."""
        place = bisect_right(self.starts, time) - 1
        return place >= 0 and time < self.ends[place]

    def _shared(self, other: Spans) -> Iterator[tuple[float, float]]:
        mine = theirs = 0
        while mine < len(self) and theirs < len(other):
            start, end = max(self.starts[mine], other.starts[theirs]), min(self.ends[mine], other.ends[theirs])
            if start < end:
                yield start, end
            if self.ends[mine] < other.ends[theirs]:
                mine += 1
            else:
                theirs += 1

    def _gaps(self, start: float, end: float) -> Iterator[tuple[float, float]]:
        for first, last in self.within(start, end):
            yield start, first
            start = last
        yield start, end


def union(starts: Sequence[float], durations: Sequence[float]) -> Spans:
    """The union of spans in any order."""
    return Spans((starts[index], starts[index] + durations[index]) for index in order(starts))

"""The outermost operators and annotations of each thread of a trace: when they ran, thinned where there are too many.

What lies within a step but in no other span is outermost: steps themselves and Python functions do not count.
"""

from __future__ import annotations

from array import array

MOST = 100_000


class Outer:
    """Starts and durations in microseconds, in the order in which they came; the shortest go first."""

    def __init__(self) -> None:
        self.start, self.took = array("d"), array("f")
        self.name, self.thread = array("I"), array("H")
        self.shortest_us = 0.0  # what is shorter is not here

    def __len__(self) -> int:
        return len(self.start)

    def add(self, thread: int, start: float, took: float, name: int) -> None:
        """One more."""
        if took < self.shortest_us:
            return
        self.start.append(start)
        self.took.append(took)
        self.name.append(name)
        self.thread.append(thread)
        if len(self.start) >= MOST:
            self._thin()

    def _thin(self) -> None:
        """Leave out the shorter half."""
        self.shortest_us = max(sorted(self.took)[len(self.took) // 2], 2 * self.shortest_us)
        kept = [place for place, took in enumerate(self.took) if took > self.shortest_us]
        self.start = array("d", (self.start[place] for place in kept))
        self.name = array("I", (self.name[place] for place in kept))
        self.thread = array("H", (self.thread[place] for place in kept))
        self.took = array("f", (self.took[place] for place in kept))

"""Who called whom on the CPU of a trace, and the time of each call path: one tree a thread, in flat memory."""

from __future__ import annotations

from array import array

MOST = 60_000  # call paths; what is called below one that has no room is its own time
NAME_BITS = 17  # more than there are names


class Nesting:
    """Call paths as numbers: the parent of each, its name, and its own time in microseconds.

    `known` has the path of a call by its parent and name, as one number.
    """

    def __init__(self) -> None:
        self.parent, self.name = array("i"), array("I")
        self.self_us = array("d")
        self.known: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.name)

    def root(self) -> int:
        """A new tree; its name says nothing."""
        return self._new(-1, 0)

    def add(self, parent: int, name: int) -> int:
        """The path of one more call, which is not known yet; the parent's own where there is no room for another."""
        if len(self.name) >= MOST:
            return parent
        found = self.known[parent << NAME_BITS | name] = self._new(parent, name)
        return found

    def totals(self) -> array[float]:
        """The time of each path with all that was called in it."""
        totals = array("d", self.self_us)
        for path in range(len(totals) - 1, -1, -1):  # a parent is older than its children
            if self.parent[path] >= 0:
                totals[self.parent[path]] += totals[path]
        return totals

    def _new(self, parent: int, name: int) -> int:
        self.parent.append(parent)
        self.name.append(name)
        self.self_us.append(0.0)
        return len(self.name) - 1

"""The lines of a tab in a window: a cursor that keeps its line, and an order that holds still."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

from gputop.ui.details.tab import Entry
from gputop.ui.table.listing import CALM_S


class Window:
    """Some of the entries, from `top` on, with a cursor where one can be selected."""

    def __init__(self, cursor: bool) -> None:
        self.entries: Sequence[Entry] = ()
        self.at = self.top = 0
        self.height = 1
        self._cursor = cursor
        self._ranked_s = self._touched_s = -math.inf

    @property
    def selected(self) -> Hashable:
        """The key of the line under the cursor."""
        return self.entries[self.at].key if self._cursor and self.entries else None

    @property
    def shown(self) -> Sequence[Entry]:
        """What is in the window."""
        return self.entries[self.top : self.top + self.height]

    def feed(self, entries: Sequence[Entry], height: int, now_s: float) -> None:
        """Take in the newest lines; they change places only when that does not disturb anybody."""
        seen = self.top <= self.at < self.top + self.height
        selected, before = self.selected, {entry.key: place for place, entry in enumerate(self.entries)}
        if now_s - self._ranked_s >= CALM_S and now_s - self._touched_s >= CALM_S:
            self._ranked_s, before = now_s, {}
        ranked = any(entry.rank is not None for entry in entries)
        if ranked:
            entries = sorted(entries, key=lambda entry: (before.get(entry.key, len(before)), -(entry.rank or 0.0)))
        self.entries, self.height = entries, max(1, height)
        places = (place for place, entry in enumerate(entries) if entry.key == selected)
        if self._touched_s > -math.inf:  # before a key the cursor is nobody's, and stays on top
            self.at = next(places, self.at)
        self.at = min(self.at, max(0, len(entries) - 1))
        if seen:
            self.move(0)
        else:
            self.scroll(0)

    def touch(self, now_s: float) -> None:
        """A key was pressed: for a while nothing changes places."""
        self._touched_s = now_s

    def move(self, lines: int) -> None:
        """Move the cursor; where there is none, the window."""
        if self._cursor:
            self.at = min(max(0, self.at + lines), max(0, len(self.entries) - 1))
            self.top = min(max(self.top, self.at - self.height + 1), self.at)
            lines = 0
        self.scroll(lines)

    def scroll(self, lines: int) -> None:
        """Move the window and leave the cursor."""
        self.top = min(max(0, self.top + lines), max(0, len(self.entries) - self.height))

"""The lines of a tab in a window: a cursor that keeps its line, and an order that holds still."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from gputop.ui.details.tab import Entry
from gputop.ui.widgets.cursor_list import CursorList


class ListWindow(CursorList):
    """Some of the entries, from `top` on, with a cursor where one can be selected."""

    def __init__(self, cursor: bool) -> None:
        self.entries: Sequence[Entry] = ()
        self._cursor = cursor

    @property
    def count(self) -> int:
        """How many entries there are."""
        return len(self.entries)

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
        in_sight = self._cursor and self.in_sight
        selected, before = self.selected, {entry.key: place for place, entry in enumerate(self.entries)}
        if self.may_rank(now_s):
            self._ranked_s, before = now_s, {}
        if any(entry.rank is not None for entry in entries):
            entries = sorted(entries, key=lambda entry: (before.get(entry.key, len(before)), -(entry.rank or 0.0)))
        self.entries, self.height = entries, max(1, height)
        if self.touched:  # before a key the cursor is nobody's, and stays on top
            self.at = next((place for place, entry in enumerate(entries) if entry.key == selected), self.at)
        self.settle(in_sight)

    def move(self, lines: int) -> None:
        """Move the cursor; where there is none, the window."""
        if self._cursor:
            super().move(lines)
        else:
            self.scroll(lines)

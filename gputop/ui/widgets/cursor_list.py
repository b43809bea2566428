"""A list of which a window is in sight: its cursor stays in sight, and its order holds still while it is read."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

CALM_S = 3.0  # lines change places at most this often, and not this soon after a key
WHEEL = 3  # lines that a notch of the mouse wheel scrolls


class CursorList(ABC):
    """A cursor at one of `count` lines, of which `height` are to be seen from `top` on."""

    at = top = 0
    height = 1
    _ranked_s = _touched_s = -math.inf

    @property
    @abstractmethod
    def count(self) -> int:
        """How many lines there are."""

    @property
    def in_sight(self) -> bool:
        """Whether the cursor is in the window: the wheel moves the window alone."""
        return self.top <= self.at < self.top + self.height

    def move(self, lines: int) -> None:
        """Move the cursor, as far as there are lines."""
        self.at = min(max(0, self.at + lines), max(0, self.count - 1))
        self.reveal()

    def scroll(self, lines: int) -> None:
        """Move the window and leave the cursor, which may go out of sight."""
        self.top = min(max(0, self.top + lines), max(0, self.count - self.height))

    def resize(self, height: int) -> None:
        """Give the window another height; the cursor stays in sight."""
        self.height = max(1, height)
        self.reveal()

    def reveal(self) -> None:
        """Move the window as little as shows the cursor."""
        self.top = min(max(self.top, self.at - self.height + 1), self.at)
        self.scroll(0)

    def settle(self, in_sight: bool) -> None:
        """There are other lines: the cursor is on one of them, and to be seen where it was."""
        self.at = min(self.at, max(0, self.count - 1))
        if in_sight:
            self.reveal()
        else:
            self.scroll(0)

    def touch(self, now_s: float) -> None:
        """A key was pressed: for a while nothing changes places."""
        self._touched_s = now_s

    @property
    def touched(self) -> bool:
        """Whether a key ever was."""
        return self._touched_s > -math.inf

    def may_rank(self, now_s: float) -> bool:
        """Whether lines may change places without disturbing the reader."""
        return now_s - self._ranked_s >= CALM_S and now_s - self._touched_s >= CALM_S

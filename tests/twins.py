"""Two terminals: one gets what Textual writes, one what the diff lets through of it."""

from __future__ import annotations

import re
from collections.abc import Callable

import pyte
from pyte.screens import Char

from gputop.ui.delta import Delta

_NO_WRAP = "\x1b[?7l"
_UNKNOWN_TO_PYTE = re.compile(r"\x1b\[(?:[<>=]\d*u|\?\d+\$p|\?2026[hl])")
_SCREEN_SWITCH = re.compile(r"\x1b\[\?1049[hl]")


class Twins:
    """The terminals, and the diff before the second."""

    def __init__(self, width: int, height: int, make: Callable[[int, int], Delta] = Delta) -> None:
        self._make = make
        self.resize(width, height)

    def resize(self, width: int, height: int) -> None:
        """Both terminals have another size, and nobody knows what they show."""
        self.raw, self.reduced = pyte.Screen(width, height), pyte.Screen(width, height)
        self.delta = self._make(width, height)
        for screen in (self.raw, self.reduced):
            feed(screen, _NO_WRAP)

    def write(self, data: str) -> str:
        """What was sent of it; fails if the terminals differ then."""
        sent = self.delta.reduce(data)
        self.feed(data, sent)
        assert state(self.reduced) == state(self.raw), (data, sent)
        return sent

    def late(self, data: str) -> None:
        """Only what cannot wait is sent."""
        self.feed(data, self.delta.keep(data))

    def feed(self, data: str, sent: str) -> None:
        """One terminal gets the data, one what was sent of it."""
        feed(self.raw, data)
        feed(self.reduced, sent)


def feed(screen: pyte.Screen, data: str) -> None:
    """What a terminal does with data that pyte does not know."""
    pyte.Stream(screen).feed(_SCREEN_SWITCH.sub("\x1b[2J\x1b[H", _UNKNOWN_TO_PYTE.sub("", data)))


def state(screen: pyte.Screen) -> tuple[object, ...]:
    """Every cell, the cursor and its pen."""
    cells = [[_seen(screen.buffer[y][x]) for x in range(screen.columns)] for y in range(screen.lines)]
    cursor = screen.cursor
    return cells, cursor.y, min(cursor.x, screen.columns - 1), cursor.attrs._replace(data="")


def _seen(char: Char) -> Char:
    """A cell without what nobody sees: the ink of a blank."""
    if char.data == " " and not (char.underscore or char.strikethrough or char.reverse):
        return char._replace(fg="default", bold=False, italics=False, blink=False)
    return char

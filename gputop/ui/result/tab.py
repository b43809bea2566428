"""What a tab of a result is: it draws itself into a size, and does what its keys mean there."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence

from textual.strip import Strip

from gputop.ui.details.tab import Body, Entry
from gputop.ui.theme import Ground, Look
from gputop.ui.widgets.drawing import Line, Run
from gputop.ui.widgets.window import ListWindow

_FEW = 3  # lines of a list that are worth a glance
Draws = Callable[[int, Look], Body]  # at a width


class Tab(ABC):
    """One view of a result. Drawing changes nothing but what there is room for."""

    id = ""
    title = ""
    short = ""
    keys: frozenset[str] = frozenset()  # ids of the keys that do something here
    takes = ""  # what Enter does here, in the key bar
    leads_to = ""  # the tab that a key of this one opens

    @property
    def facts(self) -> str:
        """In a few words, what is shown; at the right of the line of the tabs."""
        return ""

    @abstractmethod
    def draw(self, width: int, height: int, look: Look) -> list[Strip]:
        """It in at most so many lines."""

    @abstractmethod
    def natural(self, width: int, look: Look) -> int:
        """How many lines all of it takes."""

    def move(self, lines: int) -> None:  # noqa: B027
        """Up or down."""

    def page(self, pages: int) -> None:
        """A page up or down."""
        self.move(10 * pages)

    def press(self, what: str, amount: int = 0) -> str:  # noqa: ARG002
        """Do what a key means here; what there is to say of it."""
        return ""

    def find(self, text: str) -> str:  # noqa: ARG002
        """Mark what has this text; how much it is."""
        return ""

    def click(self, x: int, y: int) -> None:  # noqa: B027
        """A click in a cell of it."""


class Listed(Tab):
    """A tab that is a list with a cursor; `body` makes its lines."""

    def __init__(self, id: str, title: str, short: str, body: Draws, *, cursor: bool = True) -> None:
        self.id, self.title, self.short = id, title, short
        self._body, self._cursor = body, cursor
        self._window = ListWindow(cursor)
        self._facts, self._head, self._shift = "", 0, 0
        self.keys = frozenset({"result-left", "result-right"})

    @property
    def facts(self) -> str:
        """How much there is, and which of it is to be seen."""
        window, count = self._window, len(self._window.entries)
        if count <= window.height:
            return self._facts
        seen = f"{window.top + 1}-{min(window.top + window.height, count)} of {count}"
        return f"{self._facts}  {seen}" if self._facts else seen

    @property
    def selected(self) -> Hashable:
        """The key of the line under the cursor."""
        return self._window.selected

    def draw(self, width: int, height: int, look: Look) -> list[Strip]:
        """Its head, and the lines that fit."""
        body, window = self._body(width, look), self._window
        head = list(body.head)[: max(0, height - 1)]
        window.feed(body.entries, height - len(head), time.monotonic())
        self._facts, self._head = body.facts, len(head)
        lines = [
            entry.draw("selected" if self._cursor and place == window.at else "background", self._shift)
            for place, entry in enumerate(window.shown, window.top)
        ]
        return [*head, *lines][: max(0, height)]

    def natural(self, width: int, look: Look) -> int:
        """Its head and all of its lines."""
        body = self._body(width, look)
        return len(body.head) + max(1, len(body.entries))

    def glance(self, width: int, height: int, look: Look) -> list[Strip]:
        """Its first lines, below another tab: nothing is selected there. None where only a few would fit."""
        body = self._body(width, look)
        room = height - len(body.head)
        if room < min(_FEW, len(body.entries)) or not body.entries:
            return []
        return [*body.head, *(each.draw("background", 0) for each in body.entries[:room])]

    def move(self, lines: int) -> None:
        """The cursor, or the window where there is none."""
        self._window.touch(time.monotonic())
        self._window.move(lines)

    def page(self, pages: int) -> None:
        """A page up or down."""
        self.move(pages * max(1, self._window.height - 1))

    def press(self, what: str, amount: int = 0) -> str:
        """Long lines from further on."""
        if what == "sideways":
            self._shift = max(0, self._shift + 8 * amount)
        return ""

    def click(self, x: int, y: int) -> None:  # noqa: ARG002
        """Select the line."""
        if 0 <= y - self._head < len(self._window.shown):
            self.move(self._window.top + y - self._head - self._window.at)


def entry(key: Hashable, runs: Sequence[Run], width: int, look: Look) -> Entry:
    """A line of text, further on where it is scrolled."""

    def drawn(on: Ground, shift: int) -> Strip:
        strip = Line(look, on).add(" ").runs(runs).strip(1 << 12 if shift else width)
        return strip.crop(shift, shift + width) if shift else strip

    return Entry(key, drawn)

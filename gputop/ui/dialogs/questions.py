"""Small questions over the screen: which column, how long between two looks, which letter."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Generic

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.strip import Strip

from gputop import units
from gputop.config import BY_KEY
from gputop.ui.dialogs.modal import Answer, Modal
from gputop.ui.draw import Line
from gputop.ui.keys import bindings
from gputop.ui.keys.declared import ORDERS
from gputop.ui.look import Look
from gputop.ui.panes.lines import Lines
from gputop.ui.table.columns import BY_ID

SCRAPS = 8  # cells, on both sides together
FASTEST_S, SLOWEST_S = BY_KEY["interval"].low, BY_KEY["interval"].high


def framed(strips: Sequence[Strip], width: int, look: Look) -> list[Strip]:
    """A box that has no ground of its own gets a frame: in its margins, and in its first and last line."""
    side, rule = Strip([look.ink(look.glyphs.column, "faint")]), look.glyphs.rule
    inner = [Strip.join([side, strip.crop(1, width - 1), side]) for strip in strips[1:-1]]
    ends = []
    for strip in (strips[0], strips[-1]):
        text = len(strip.text.rstrip()) + 1
        fill = [Strip([look.ink(rule * cells, "faint")]) for cells in (1, width - text)]
        ends.append(Strip.join([fill[0], strip.crop(1, text), fill[1]]))
    return [ends[0], *inner, ends[1]]


class Dialog(Modal[Answer], Generic[Answer], inherit_bindings=False):
    """A box on the raised ground; Esc leaves it without an answer, whatever it asks."""

    BINDINGS: ClassVar[list[BindingType]] = bindings.everywhere(typing=True)
    DEFAULT_CSS = "Dialog { align: center middle; background: transparent; }"
    TITLE_TEXT = ""
    FOOT = "Esc leaves it as it is"
    WIDTH = 56

    def __init__(self, look: Look) -> None:
        super().__init__()
        self.look = look

    def compose(self) -> ComposeResult:
        """One box."""
        yield Lines()

    def on_mount(self) -> None:
        """Draw it."""
        self.redraw()

    @abstractmethod
    def lines(self) -> Sequence[Line]:
        """What is in the box."""

    def line(self) -> Line:
        """An empty line of the box."""
        return Line(self.look, "raised").add("  ")

    def heading(self) -> Line:
        """The first line of the box."""
        return self.line().add(self.TITLE_TEXT, "bright", bold=True)

    def body(self) -> Sequence[Line]:
        """All of the box: the heading, what is in it, how to leave it."""
        return [self.heading(), self.line(), *self.lines(), self.line(), self.line().add(self.FOOT, "dim")]

    @property
    def width(self) -> int:
        """Cells of the box: the whole width where what would be seen beside it is no more than scraps."""
        most = self.app.size.width
        return most if most - self.WIDTH < SCRAPS else self.WIDTH

    def on_resize(self) -> None:
        """Another place for the box."""
        self.redraw()

    def redraw(self) -> None:
        """Draw the box anew."""
        width = self.width
        strips: list[Strip] = [line.strip(width) for line in self.body()]
        if self.look.palette.raised is None:
            strips = framed(strips, width, self.look)
        box = self.query_one(Lines)
        box.styles.width, box.styles.height = width, min(len(strips), self.app.size.height)
        box.show(strips)

    def on_key(self, event: events.Key) -> None:
        """Every key stays in the dialog, except those that leave the program."""
        if event.key in ("ctrl+c", "ctrl+z", "f10"):
            return
        event.stop()
        if event.key == "escape":
            self.dismiss(None)
        else:
            self.press(event)

    @abstractmethod
    def press(self, event: events.Key) -> None:
        """A key that is not Esc."""


class OrderDialog(Dialog[str]):
    """Which column to sort by, with a letter."""

    TITLE_TEXT = "sort by, with a letter"

    def lines(self) -> Sequence[Line]:
        """The letters."""
        return [
            self.line().add(letter, "busy", bold=True).add(f"  {BY_ID[column].title}", "text")
            for letter, column in ORDERS.items()
        ]

    def press(self, event: events.Key) -> None:
        """Take the letter's column; any other key is no answer."""
        self.dismiss(ORDERS.get(event.key))


class DelayDialog(Dialog[float]):
    """How long to wait between two looks."""

    TITLE_TEXT = "time between two looks"

    def __init__(self, look: Look, now_s: float) -> None:
        super().__init__(look)
        self._now_s = now_s
        self._text = ""
        self._wrong = ""

    def lines(self) -> Sequence[Line]:
        """The time now, the one being typed, and what is wrong with it."""
        typed = self.line().add("new  ", "dim").add(self._text, "bright").add(" ", "bright", reverse=True)
        hint = f"{FASTEST_S:g}s to {SLOWEST_S:g}s, for example 2s or 500ms; Enter takes it"
        return [
            self.line().add("now  ", "dim").add(f"{self._now_s:g}s", "text"),
            typed,
            self.line().add(self._wrong or hint, "warn" if self._wrong else "dim"),
        ]

    def press(self, event: events.Key) -> None:
        """Type, or take it."""
        if event.key == "enter":
            self._take()
        elif event.key == "backspace":
            self._text, self._wrong = self._text[:-1], ""
        elif event.character and (event.character.isalnum() or event.character == "."):
            self._text, self._wrong = (self._text + event.character)[:8], ""
        if self.is_current:
            self.redraw()

    def _take(self) -> None:
        try:
            seconds = units.duration(self._text)
        except ValueError:
            self._wrong = "not a time: use for example 2s or 500ms"
            return
        if FASTEST_S <= seconds <= SLOWEST_S:
            self.dismiss(seconds)
        else:
            self._wrong = f"between {FASTEST_S:g}s and {SLOWEST_S:g}s"

"""The box of a dialog: a screen over the main one, made of lines; Esc leaves it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen
from textual.strip import Strip
from textual.widget import Widget

from gputop.ui.theme import Look
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line
from gputop.ui.widgets.strip_pane import Lines

Answer = TypeVar("Answer")


class Modal(ModalScreen[Answer], Generic[Answer], inherit_bindings=False):
    """What everything that opens over a screen with commands is. Those that work above dialogs do so here."""

    @property
    def takes_text(self) -> bool:
        """Whether a letter is text here: it is then no command, whatever it is remapped to."""
        return False

    def dismiss(self, result: Answer | None = None) -> AwaitComplete:
        """Go, with an answer; nothing happens once it has gone. Textual would close whatever is on top."""
        return super().dismiss(result) if self.is_active else AwaitComplete()


SCRAPS = 8  # cells, on both sides together


class Dialog(Modal[Answer], Generic[Answer], inherit_bindings=False):
    """A box on the raised ground; Esc leaves it without an answer, whatever it asks."""

    DEFAULT_CSS = "Dialog { align: center middle; background: transparent; overflow: hidden; }"
    AUTO_FOCUS = ""  # every key is for the dialog
    TITLE_TEXT = ""
    FOOT = "Esc cancels"
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

    def foot(self) -> Line:
        """The last line of the box: the keys that take it and leave it."""
        return self.line().add(drawing.cut(self.FOOT, max(0, self.width - 4), self.look.glyphs.more), "dim")

    def body(self) -> Sequence[Line]:
        """All of the box: the heading, what is in it, how to leave it."""
        return [self.heading(), self.line(), *self.lines(), self.line(), self.foot()]

    @property
    def width(self) -> int:
        """Cells of the box: the whole width where what would be seen beside it is no more than scraps."""
        most = self.app.size.width
        return most if most - self.WIDTH < SCRAPS else self.WIDTH

    def on_resize(self) -> None:
        """Another place for the box."""
        self.redraw()

    def redraw(self) -> None:
        """Draw the box again."""
        strips, box = self.boxed(self.body()), self.query_one(Lines)
        self.stack((box, len(strips)))
        box.show(strips)

    def stack(self, *parts: tuple[Widget, int]) -> None:
        """Give each part of the box its lines, from the top; on a low screen the last ones have none."""
        room = self.app.size.height
        for part, lines in parts:
            part.styles.width, part.styles.height = self.width, min(lines, room)
            room -= min(lines, room)

    def boxed(self, lines: Sequence[Line]) -> list[Strip]:
        """Lines of the box, from its first to its last. Without a separate background it gets a frame: in these two."""
        width, look = self.width, self.look
        strips = [line.strip(width) for line in lines]
        if look.palette.raised is not None:
            return strips
        ends = []
        for strip in (strips[0], strips[-1]):
            text = len(strip.text.rstrip()) + 1
            fill = [Strip([look.ink(look.glyphs.rule * cells, "faint")]) for cells in (1, width - text)]
            ends.append(Strip.join([fill[0], strip.crop(1, text), fill[1]]))
        return [ends[0], *map(self.sided, strips[1:-1]), ends[1]]

    def sided(self, strip: Strip) -> Strip:
        """A line between the first and the last: without a separate background the frame stands in the margins."""
        if self.look.palette.raised is not None:
            return strip
        side = Strip([self.look.ink(self.look.glyphs.column, "faint")])
        return Strip.join([side, strip.crop(1, self.width - 1), side])

    @property
    def takes_text(self) -> bool:
        """Every letter may be text, or an answer."""
        return True

    def on_key(self, event: events.Key) -> None:
        """Every key stays in the dialog."""
        event.stop()
        if event.key == "escape":
            self.dismiss(None)
        else:
            self.press(event)

    @abstractmethod
    def press(self, event: events.Key) -> None:
        """A key that is not Esc."""

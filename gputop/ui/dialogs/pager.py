"""A pager: lines over the whole screen, more of them than there may be room for; the plain screen is one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.strip import Strip

from gputop import labels
from gputop.ui.dialogs.box import Modal
from gputop.ui.screen import CommandScreen
from gputop.ui.theme import Look
from gputop.ui.widgets import drawing
from gputop.ui.widgets.cursor_list import WHEEL
from gputop.ui.widgets.drawing import Line
from gputop.ui.widgets.strip_pane import Lines

_KEYS = {
    "escape": "dismiss", "up": "scroll(-1)", "down": "scroll(1)", "pageup": "page(-1)", "pagedown": "page(1)",
    "home": "scroll(-1_000_000)", "end": "scroll(1_000_000)",
}  # fmt: skip


class Pager(Modal[None], inherit_bindings=False):
    """Some of its lines, from `first` on, between a head and a foot that stay; Esc leaves it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding(key, action, show=False) for key, action in _KEYS.items()]

    def __init__(self, look: Look) -> None:
        super().__init__()
        self.look = look
        self.first = 0
        self._room = 0

    def compose(self) -> ComposeResult:
        """One pane."""
        yield Lines()

    def on_resize(self) -> None:
        """Wrap again."""
        self.redraw()

    @abstractmethod
    def page(self, width: int) -> tuple[Sequence[Strip], Sequence[Line]]:
        """The head, and all lines that scroll below it."""

    @abstractmethod
    def foot(self, width: int, below: int) -> Strip:
        """The last line of the screen, with the number of lines below those in sight."""

    def action_scroll(self, lines: int) -> None:
        """Up or down."""
        self.first += lines
        self.redraw()

    def action_page(self, pages: int) -> None:
        """A page up or down; a line of the last one stays in sight."""
        self.action_scroll(pages * max(1, self._room - 1))

    @on(events.MouseScrollDown)
    @on(events.MouseScrollUp)
    def wheel(self, event: events.MouseEvent) -> None:
        """Scroll."""
        self.action_scroll(WHEEL if isinstance(event, events.MouseScrollDown) else -WHEEL)

    def redraw(self) -> None:
        """Draw the lines that are in sight."""
        width, height = self.app.size
        head, lines = self.page(width)
        room = self._room = max(0, height - len(head) - 1)
        self.first = min(max(0, self.first), max(0, len(lines) - room))
        shown = [line.strip(width) for line in lines[self.first : self.first + room]]
        shown += [drawing.blank(width, self.look)] * (room - len(shown))
        self.query_one(Lines).show([*head, *shown, self.foot(width, len(lines) - self.first - room)])


class Plain(Pager):
    """Text from its first column on and nothing around it: while it is open, the terminal has its mouse back."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter,space", "dismiss", show=False)]

    def __init__(self, screen: CommandScreen, texts: Sequence[str]) -> None:
        super().__init__(screen.look)
        self._session = screen.session
        self._texts = texts

    def on_mount(self) -> None:
        """The mouse is the terminal's."""
        self._session.app.listen_to_mouse(False)

    def on_unmount(self) -> None:
        """And ours again."""
        self._session.app.listen_to_mouse(self._session.settings.mouse)

    def on_key(self, event: events.Key) -> None:
        """The key that opens it closes it, too."""
        if any(event.key in command.keys for command in self._session.commands if command.id == "show"):
            event.stop()
            self.dismiss()

    def page(self, width: int) -> tuple[Sequence[Strip], Sequence[Line]]:
        """Each text on separate lines, folded at the edge so that none of it is missing."""
        parts = [part for text in self._texts for part in (*folded(text, max(1, width)), "")][:-1]
        return (), [Line(self.look).add(part, "text") for part in parts]

    def foot(self, width: int, below: int) -> Strip:
        """What to do, and how much there is that is not to be seen; that comes first where room is short."""
        line = Line(self.look)
        unseen = [f"+{labels.amount(below, 'line')}"] if below > 0 else []
        unseen += ["arrows, PgUp, PgDn scroll"] if below > 0 or self.first else []
        if unseen:
            line.add(f"{'   '.join(unseen)}   ", "bright")
        return line.add("select with the mouse; Esc goes back", "dim").strip(width)


def folded(text: str, width: int) -> list[str]:
    """The text in pieces of this many characters, cut anywhere."""
    return [text[start : start + width] for start in range(0, len(text), width)] or [""]

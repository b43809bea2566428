"""A plain screen: text from its first column on and nothing around it, for the terminal's own mouse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from gputop import labels
from gputop.ui.dialogs.box import Modal
from gputop.ui.screen import CommandScreen
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line
from gputop.ui.widgets.strip_pane import Lines

_ALL = 1_000_000  # lines


class Plain(Modal[None], inherit_bindings=False):
    """While it is open, the terminal has its mouse back."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,space", "dismiss", show=False),
        *(Binding(key, f"scroll({lines})", show=False) for key, lines in {"up": -1, "down": 1}.items()),
        *(Binding(key, f"page({pages})", show=False) for key, pages in {"pageup": -1, "pagedown": 1}.items()),
        *(Binding(key, f"scroll({lines})", show=False) for key, lines in {"home": -_ALL, "end": _ALL}.items()),
    ]

    def __init__(self, screen: CommandScreen, texts: Sequence[str]) -> None:
        super().__init__()
        self.look = screen.look
        self._session = screen.session
        self._texts = texts
        self._first = 0

    def compose(self) -> ComposeResult:
        """One pane."""
        yield Lines()

    def on_mount(self) -> None:
        """The mouse is the terminal's."""
        self._session.app.listen_to_mouse(False)
        self.redraw()

    def on_unmount(self) -> None:
        """And ours again."""
        self._session.app.listen_to_mouse(self._session.settings.mouse)

    def on_resize(self) -> None:
        """Fold again."""
        self.redraw()

    def on_key(self, event: events.Key) -> None:
        """The key that opens it closes it, too."""
        if any(event.key in command.keys for command in self._session.commands if command.id == "show"):
            event.stop()
            self.dismiss()

    def action_scroll(self, lines: int) -> None:
        """Other lines of what is too long for the screen."""
        self._first += lines
        self.redraw()

    def action_page(self, pages: int) -> None:
        """A page up or down."""
        self.action_scroll(pages * max(1, self.app.size.height - 2))

    def redraw(self) -> None:
        """Each text on lines of its own, folded at the edge so that none of it is missing."""
        width, height = self.app.size
        lines = [part for text in self._texts for part in (*folded(text, max(1, width)), "")][:-1]
        room = max(0, height - 1)
        self._first = min(max(0, self._first), max(0, len(lines) - room))
        body = [Line(self.look).add(part, "text").strip(width) for part in lines[self._first : self._first + room]]
        body += [drawing.blank(width, self.look)] * (room - len(body))
        self.query_one(Lines).show([*body, self._foot(len(lines) - self._first - room).strip(width)])

    def _foot(self, more: int) -> Line:
        """What to do, and how much there is that is not to be seen; that comes first where room is short."""
        line = Line(self.look)
        unseen = [f"+{labels.amount(more, 'line')}"] if more > 0 else []
        unseen += ["arrows, PgUp, PgDn scroll"] if more > 0 or self._first else []
        if unseen:
            line.add(f"{'   '.join(unseen)}   ", "bright")
        return line.add("select with the mouse; Esc goes back", "dim")


def folded(text: str, width: int) -> list[str]:
    """The text in pieces of this many characters, cut anywhere."""
    return [text[start : start + width] for start in range(0, len(text), width)] or [""]

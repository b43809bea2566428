"""A plain screen: text from its first column on and nothing around it, for the terminal's own mouse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from gputop.ui import draw
from gputop.ui.dialogs.modal import Modal
from gputop.ui.draw import Line
from gputop.ui.keys import bindings
from gputop.ui.keys.declared import key
from gputop.ui.look import Look
from gputop.ui.panes.lines import Lines


class Plain(Modal[None], inherit_bindings=False):
    """While it is open, the terminal has its mouse back."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,space", "dismiss", show=False),
        Binding(",".join(key("show").keys), "dismiss", show=False, id="show"),
        *bindings.everywhere(),
    ]

    def __init__(self, look: Look, texts: Sequence[str], mouse: Callable[[bool], None]) -> None:
        super().__init__()
        self.look = look
        self._texts = texts
        self._mouse = mouse

    def compose(self) -> ComposeResult:
        """One pane."""
        yield Lines()

    def on_mount(self) -> None:
        """The mouse is the terminal's."""
        self._mouse(False)
        self.redraw()

    def on_unmount(self) -> None:
        """And ours again."""
        self._mouse(True)

    def on_resize(self) -> None:
        """Fold anew."""
        self.redraw()

    def redraw(self) -> None:
        """Each text on lines of its own, folded at the edge so that none of it is missing."""
        width, height = self.app.size
        lines: list[Line] = []
        for text in self._texts:
            lines += [Line(self.look).add(part, "text") for part in folded(text, max(1, width))]
            lines.append(Line(self.look))
        body = [line.strip(width) for line in lines[: max(0, height - 1)]]
        body += [draw.blank(width, self.look)] * (height - 1 - len(body))
        self.query_one(Lines).show(
            [*body, Line(self.look).add("select with the mouse; Esc goes back", "dim").strip(width)]
        )


def folded(text: str, width: int) -> list[str]:
    """The text in pieces of this many characters, cut anywhere."""
    return [text[start : start + width] for start in range(0, len(text), width)] or [""]

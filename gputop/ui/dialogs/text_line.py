"""A line of a dialog in which something is typed: Textual edits it, and it is drawn as every line is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual import events
from textual.geometry import Region
from textual.strip import Strip
from textual.widgets import Input

from gputop.ui.widgets.drawing import Line

_EDITS: dict[str, Callable[[Input], None]] = {
    "left": Input.action_cursor_left, "right": Input.action_cursor_right,
    "ctrl+left": Input.action_cursor_left_word, "ctrl+right": Input.action_cursor_right_word,
    "home": Input.action_home, "ctrl+a": Input.action_home, "end": Input.action_end, "ctrl+e": Input.action_end,
    "backspace": Input.action_delete_left, "ctrl+h": Input.action_delete_left, "delete": Input.action_delete_right,
    "ctrl+u": Input.action_delete_left_all, "ctrl+k": Input.action_delete_right_all,
    "ctrl+w": Input.action_delete_left_word,
}  # fmt: skip


class TextLine(Input, can_focus=False):
    """It takes no focus, for the reason that `Choices` takes none.

    It pastes nothing: what was copied here last may be what a process calls itself.
    """

    DEFAULT_CSS = "TextLine { border: none; padding: 0; }"

    def __init__(self, longest: int, restrict: str | None = None) -> None:
        """`restrict` is what all of the text matches."""
        super().__init__(max_length=longest, restrict=restrict)
        self.cursor_blink = False
        self._strips: Sequence[Strip] = ()

    def press(self, event: events.Key) -> None:
        """Type a key."""
        if event.key in _EDITS:
            _EDITS[event.key](self)
        elif event.is_printable and event.character:
            self.insert_text_at_cursor(event.character)

    def restricted(self) -> None:
        """What is no text here does nothing."""

    def write(self, line: Line) -> Line:
        """The text and its cursor, behind what a line says; a click there moves the cursor."""
        self.styles.padding = (0, 0, 0, line.cells)
        at, text = self.cursor_position, self.value
        line.add(text[:at], "bright").add(text[at : at + 1] or " ", "bright", reverse=True)
        return line.add(text[at + 1 :], "bright")

    def show(self, strips: Sequence[Strip]) -> None:
        """Draw these; the text is on the first."""
        self._strips = strips
        self.refresh()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Those of them that are asked for."""
        return [strip.crop(*crop.column_span) for strip in self._strips[crop.y : crop.bottom]]

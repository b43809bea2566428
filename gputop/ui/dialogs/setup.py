"""Setup: every setting as it is declared, changed live, and saved at once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from textual import events

from gputop.config import SETTINGS, Setting
from gputop.safe.text import clean
from gputop.ui.dialogs.choices import ListDialog
from gputop.ui.dialogs.columns import Columns
from gputop.ui.settings_editor import SettingsEditor
from gputop.ui.theme import Token
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line, wrap

NAME, VALUE = 15, 14  # cells
DETAIL_LINES = 3
MOST_NAMED = 6  # choices that are named; more of them are found by stepping
LADDER_S = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)


def beside(setting: Setting, value: Any, step: int) -> Any:
    """The value of a setting before (-1) or after (1) this one; around the end, but for numbers."""
    if isinstance(setting.default, float):
        ladder = [rung for rung in LADDER_S if setting.low <= rung <= setting.high]
        further = [rung for rung in ladder if (rung > value if step > 0 else rung < value)]
        return further[0 if step > 0 else -1] if further else value
    if setting.several:
        return value  # a separate list changes it
    values = setting.choices or (False, True)
    return values[(values.index(value) + step) % len(values)]


def said(value: Any) -> str:
    """A value as a person reads it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return f"{len(value) + 1} chosen" if value else "auto"  # with COMMAND
    return value if isinstance(value, str) else f"{value:g}s"


class Setup(ListDialog[None, Setting]):
    """A line for each setting; what the chosen one means stands below."""

    TITLE_TEXT = "setup"
    FOOT = "Left Right Enter change it   Esc closes"
    WIDTH = 78

    def __init__(self, editor: SettingsEditor, keys: Collection[str]) -> None:
        """`keys` open it, and close it again."""
        super().__init__(editor.look, SETTINGS)
        self._keys = keys
        self._editor = editor
        self._notice = ""

    def row(self, setting: Setting, line: Line, chosen: bool) -> Line:
        """Its name, its value, what it means."""
        value, look = getattr(self._editor.current(), setting.field), self.look
        fixed = bool(self._editor.fixed(setting))
        line.add(f"  {setting.key:{NAME}}", "bright" if chosen else "text")
        left, right = ("< ", " >") if chosen and not fixed else ("  ", "  ")
        line.add(left, "busy").add(said(value), "dim" if fixed else "text" if value == setting.default else "bright")
        line.add(right, "busy").to(2 + NAME + VALUE)
        brief = setting.help.partition(";")[0]  # all of it stands below
        return line.add(drawing.cut_words(brief, max(0, self.width - line.cells - 2), look.glyphs.more), "dim")

    def heading(self) -> Line:
        """The name, and the file at the end of the line."""
        line, path = super().heading(), clean(self._editor.current().origin.path or "")
        more = self.look.glyphs.more
        room = self.width - line.cells - 5
        text = path if len(path) <= room else more + path[len(path) - room + 1 :]
        return line.to(self.width - 2 - len(text)).add(text, "dim") if room > 8 else line

    def lines(self) -> Sequence[Line]:
        """What the chosen one means, what it may be, where it comes from and what became of the last change."""
        setting, current = SETTINGS[self.at], self._editor.current()
        room = max(20, self.width - 4)
        named = 0 < len(setting.choices) <= MOST_NAMED or isinstance(setting.default, float)
        means = f"{setting.help}; {setting.allowed}" if named else setting.help
        means = f"{setting.help}; opens the list of them" if setting.several else means
        help: list[tuple[str, Token]] = [(text, "text") for text in wrap(means, room)]
        origin = current.origin.overruled.get(setting.key)
        where = [f"from {origin}, which overrides the file"] if origin else []
        where += ["takes effect at the next start"] if setting.later else []
        texts: list[tuple[str, Token]] = [*help, ("; ".join(where), "dim"), ("", "dim"), ("", "dim")][:DETAIL_LINES]
        result = drawing.cut(clean(self._notice or self._editor.fixed(setting)), room, self.look.glyphs.more)
        return [self.line(), *(self.line().add(*text) for text in texts), self.line().add(result, "bright")]

    def take(self, setting: Setting) -> None:
        """The next value."""
        self._change(setting, 1)

    def press(self, event: events.Key) -> None:
        """Move, or change what is under the cursor."""
        if event.key in ("left", "right", "space"):
            self._change(SETTINGS[self.at], -1 if event.key == "left" else 1)
        elif event.key in self._keys:
            self.dismiss(None)
        else:
            self._notice = ""
            super().press(event)

    def _change(self, setting: Setting, step: int) -> None:
        self._notice = ""
        if setting.several:
            self.app.push_screen(Columns(self._editor), lambda _: self.redraw())
        elif not self._editor.fixed(setting):
            before = getattr(self._editor.current(), setting.field)
            self._editor.change(setting, beside(setting, before, step), self._tell)
            self.look = self._editor.look
        self.redraw()

    def _tell(self, line: str) -> None:
        self._notice = line
        if self.is_current:
            self.redraw()

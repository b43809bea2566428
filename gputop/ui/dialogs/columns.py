"""Which columns the table has, and in which order: shown, hidden and moved live, and saved at once."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events

from gputop.columns import BY_ID, COLUMNS, TITLE, of
from gputop.config import BY_KEY, FIRST, LAST
from gputop.safe.text import clean
from gputop.ui.dialogs.choices import ListDialog
from gputop.ui.settings_editor import SettingsEditor
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line, wrap

SETTING = BY_KEY["columns"]
AUTO = "automatic"  # the first line: as they are declared
HELP_LINES = 2
_FIXED = {FIRST: "always first", LAST: "always last"}
_MOVES = {"shift+up": -1, "left_square_bracket": -1, "shift+down": 1, "right_square_bracket": 1}


class Columns(ListDialog[None, str]):
    """A line for each column, those that are shown first and as they stand; the first line gives all of it up."""

    TITLE_TEXT = "columns"
    FOOT = "Enter Space show, hide it   [ ] or Shift+Up Down move it   Esc closes"
    WIDTH = 78

    def __init__(self, editor: SettingsEditor) -> None:
        super().__init__(editor.look, ())
        self._editor = editor
        self._notice = ""
        self._picked: set[str] = set()
        self._arrange()

    def _arrange(self) -> None:
        """As the settings have it: those that are shown, then the others; without a setting, as they are declared."""
        chosen = self._editor.current().columns
        ids = [column.id for column in of("main", chosen)]
        others = [column.id for column in COLUMNS if column.id not in ids]
        self._picked = set(ids)
        self.put((AUTO, *([*ids[:-1], *others, LAST] if chosen else [column.id for column in COLUMNS])))

    def row(self, id: str, line: Line, chosen: bool) -> Line:
        """Whether it is shown, its title, what it says; at the end why it is not seen."""
        look = self.look
        if id == AUTO:
            mark = look.glyphs.picked if not self._editor.current().columns else " "
            line.add(f"  ({mark}) ", "busy").add(f"{AUTO:{TITLE}}", "bright" if chosen else "text")
            return line.add("default columns in default order", "dim")
        column, shown = BY_ID[id], id in self._picked
        line.add(f"  [{'x' if shown else ' '}] ", "busy" if shown else "dim")
        line.add(drawing.fit(column.title, TITLE), "bright" if chosen else "text" if shown else "dim")
        note = _FIXED.get(id) or ("no room" if shown and id not in self._editor.columns_in_sight() else "")
        room = max(0, self.width - line.cells - len(note) - 4)
        line.add(drawing.cut(column.help, room, look.glyphs.more), "dim")
        return line.to(self.width - 2 - len(note)).add(note, "text")

    def lines(self) -> Sequence[Line]:
        """What the column under the cursor means, the titles as they stand now, what became of the last change."""
        room, more = max(20, self.width - 4), self.look.glyphs.more
        help = "" if self.at == 0 else BY_ID[self.items[self.at]].help
        said = [*wrap(help, room), "", ""]
        if len(said) > HELP_LINES + 2:
            said[HELP_LINES - 1] = drawing.cut_words(f"{said[HELP_LINES - 1]} {said[HELP_LINES]}", room, more)
        seen = self._editor.columns_in_sight()
        titles = " ".join(BY_ID[id].title for id in self.items if id in self._picked and id in seen)
        return [
            self.line(),
            *(self.line().add(text, "text") for text in said[:HELP_LINES]),
            self.line().add("now  ", "dim").add(drawing.cut(titles, room - 5, more), "text"),
            self.line().add(drawing.cut(clean(self._notice), room, more), "bright"),
        ]

    def take(self, id: str) -> None:
        """Show or hide the column; the first line has all of them as they were declared."""
        if id == AUTO:
            self._change(())
            self._arrange()
        elif id in _FIXED:
            self._notice = f"{BY_ID[id].title} is always shown"
        else:
            self._picked ^= {id}
            self._change(self._value())
        self.redraw()

    def press(self, event: events.Key) -> None:
        """Go to a column, show or hide it, move it."""
        self._notice = ""
        if event.key in _MOVES:
            self._move(_MOVES[event.key])
        elif event.key == "space":
            self.take(self.items[self.at])
        else:
            super().press(event)

    def _move(self, step: int) -> None:
        """Put the column under the cursor before or behind its neighbour; the cursor goes with it."""
        place, to, last = self.at, self.at + step, len(self.items) - 1
        if 1 < place < last and 1 < to < last:
            items = list(self.items)
            items[place], items[to] = items[to], items[place]
            self.put(items, to)
            self._change(self._value())
        self.redraw()

    def _value(self) -> tuple[str, ...]:
        """What is chosen; what is as it is declared is no choice."""
        ids = tuple(id for id in self.items if id in self._picked)
        return () if ids == tuple(column.id for column in of("main")) else ids[:-1]

    def _change(self, value: tuple[str, ...]) -> None:
        self._notice = ""
        if value != self._editor.current().columns:
            self._editor.change(SETTING, value, self._tell)

    def _tell(self, line: str) -> None:
        self._notice = line
        if self.is_current:
            self.redraw()

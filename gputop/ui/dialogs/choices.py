"""Dialogs with a list: the column to sort by, the user to show. Textual keeps its cursor, window and clicks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from textual import events, on
from textual.app import ComposeResult
from textual.geometry import Region
from textual.strip import Strip
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from gputop.columns import BY_ID, SORTABLE, TITLE, Column
from gputop.labels import amount
from gputop.ui.dialogs.box import Answer, Dialog
from gputop.ui.dialogs.text_line import TextLine
from gputop.ui.theme import Look
from gputop.ui.widgets import drawing
from gputop.ui.widgets.cursor_list import WHEEL
from gputop.ui.widgets.drawing import Line
from gputop.ui.widgets.strip_pane import Lines

Item = TypeVar("Item")  # what a line of the list stands for
LEAST = 3  # lines of the list that are shown on a low screen before all that is above and below it


class Choices(OptionList, can_focus=False):
    """A list whose lines the dialog draws: they look like all others, and nothing in them is markup.

    It takes no focus. A key that travels by way of the focus is overtaken by the next one, so the dialog gets every key
    first and moves the cursor itself.
    """

    DEFAULT_CSS = "Choices { border: none; padding: 0; scrollbar-size-vertical: 0; }"

    def __init__(self, draw: Callable[[int, bool], Strip]) -> None:
        """`draw` makes the line at a place, that with the cursor or another; also of those below the last."""
        super().__init__(markup=False)
        self._draw = draw

    def render_lines(self, crop: Region) -> list[Strip]:
        """The lines that are in the window."""
        top, (left, right) = self.scroll_offset.y, crop.column_span
        places = range(top + crop.y, top + crop.bottom)
        return [self._draw(place, place == self.highlighted).crop(left, right) for place in places]

    def move(self, lines: int) -> None:
        """Move the cursor by lines that can be chosen, and stop at the ends."""
        places = [place for place, option in enumerate(self.options) if not option.disabled]
        if self.highlighted is not None:
            self.highlighted = places[max(0, min(places.index(self.highlighted) + lines, len(places) - 1))]

    def on_click(self, event: events.Click) -> None:
        """The second of a double-click was meant for what stood there before."""
        if event.chain > 1:
            event.prevent_default()
            event.stop()

    @on(events.MouseScrollDown)
    @on(events.MouseScrollUp)
    def wheel(self, event: events.MouseEvent) -> None:
        """The wheel moves the cursor: Enter must not take a line that is out of sight."""
        event.prevent_default()
        event.stop()
        self.move(WHEEL if isinstance(event, events.MouseScrollDown) else -WHEEL)

    def on_resize(self) -> None:
        """The cursor stays in the window."""
        self.scroll_to_highlight()


MOVES: dict[str, Callable[[Choices], None]] = {
    "up": lambda choices: choices.move(-1),
    "down": lambda choices: choices.move(1),
    "pageup": Choices.action_page_up,
    "pagedown": Choices.action_page_down,
    "home": Choices.action_first,
    "end": Choices.action_last,
}
STEPS = {"up": -1, "left": -1, "down": 1, "right": 1}
JUMPS = {"tab": 1, "shift+tab": -1}


class ListDialog(Dialog[Answer], Generic[Answer, Item]):
    """What is in the list, how it is written and what it does, the subclass says."""

    FOOT = "Enter applies   Esc cancels"
    ROWS = 0  # always this number of lines, where they fit, blank ones too; 0: as many as there are

    def __init__(self, look: Look, items: Sequence[Item], at: int = 0) -> None:
        super().__init__(look)
        self.head: Lines | TextLine = Lines()
        self.choices, self._foot = Choices(self._drawn), Lines()
        self.put(items, at)

    def put(self, items: Sequence[Item], at: int = 0) -> None:
        """Have these in the list, and the cursor on one of them."""
        self.items = items
        disabled = [not self.can_choose(item) for item in items]
        if disabled != [option.disabled for option in self.choices.options]:
            self.choices.set_options(Option(" ", disabled=each) for each in disabled)
        self.choices.highlighted = at

    def can_choose(self, item: Item) -> bool:  # noqa: ARG002
        """Whether the cursor can be on it."""
        return True

    @property
    def at(self) -> int:
        """Where the cursor is; 0 in an empty list."""
        return self.choices.highlighted or 0

    @abstractmethod
    def row(self, item: Item, line: Line, chosen: bool) -> Line:
        """Write a line of the list, with the cursor on it or not; the line is on its ground already."""

    @abstractmethod
    def take(self, item: Item) -> None:
        """What Enter and a click do."""

    def above(self) -> Sequence[Line]:
        """What stands over the list."""
        return ()

    def lines(self) -> Sequence[Line]:
        """What stands under the list, as many lines whatever it says."""
        return ()

    def compose(self) -> ComposeResult:
        """The list between what is above and below it."""
        yield from (self.head, self.choices, self._foot)

    def redraw(self) -> None:
        """Draw the box again."""
        self._draw_around()
        self.choices.refresh()

    def _draw_around(self) -> None:
        """Draw what is above and below the list, which gets the lines that are left."""
        room, rows = self.app.size.height, self.ROWS or len(self.items)
        least = min(rows, LEAST)
        head = [self.heading(), self.line(), *self.above()][: max(1, room - least)]
        strips = self.boxed([*head, *self.lines(), self.line(), self.foot()])
        rows = max(1, least, min(room - len(strips), rows))
        self.stack((self.head, len(head)), (self.choices, rows), (self._foot, len(strips) - len(head)))
        self.head.show(strips[: len(head)])
        self._foot.show(strips[len(head) :])

    def _drawn(self, place: int, chosen: bool) -> Strip:
        line = Line(self.look, "selected" if chosen else "raised")
        if place < len(self.items):
            line = self.row(self.items[place], line, chosen)
        strip = self.sided(line.strip(self.width))
        if place in self._thumb():
            knob = self.look.ink(self.look.glyphs.knob, "text", on="selected" if chosen else "raised")
            strip = Strip.join([strip.crop(0, self.width - 1), Strip([knob])])
        return self.clickable(strip, place) if place < len(self.items) else strip

    def clickable(self, strip: Strip, place: int) -> Strip:
        """The line at a place, with what Textual is to find under a click."""
        return strip.apply_meta({"option": place})

    def _thumb(self) -> range:
        """The lines that have a mark at the right: they lie in the window as that lies in the whole list."""
        top, rows, count = self.choices.scroll_offset.y, self.choices.size.height, len(self.items)
        if count <= rows:
            return range(0)
        length = max(1, rows * rows // count)
        start = top + round((rows - length) * top / (count - rows))
        return range(start, start + length)

    def press(self, event: events.Key) -> None:
        """Move, or take a line."""
        if event.key in MOVES:
            MOVES[event.key](self.choices)
        elif event.key == "enter" and self.items:
            self.take(self.items[self.at])

    @on(OptionList.OptionHighlighted)
    def moved(self, event: OptionList.OptionHighlighted) -> None:
        """What is said of the line with the cursor follows it; the list has drawn itself."""
        event.stop()
        self._draw_around()

    @on(OptionList.OptionSelected)
    def clicked(self, event: OptionList.OptionSelected) -> None:
        """A click takes a line."""
        event.stop()
        if event.option_index < len(self.items):
            self.take(self.items[event.option_index])


class SortDialog(ListDialog[str, Column]):
    """Which column to sort by: those `here` first, then the others."""

    TITLE_TEXT = "sort by"
    FOOT = "Enter sorts   Esc cancels"
    WIDTH = 64

    def __init__(self, look: Look, column: str, here: Sequence[Column]) -> None:
        self._here = [column for column in here if column in SORTABLE]
        columns = [*self._here, *(column for column in SORTABLE if column not in here)]
        super().__init__(look, columns, [each.id for each in columns].index(column))

    def row(self, column: Column, line: Line, chosen: bool) -> Line:
        """Its title and what it says."""
        line.add(f"  {column.title:{TITLE}}", "bright" if chosen else "text" if column in self._here else "dim")
        return line.add(drawing.cut(column.help, max(0, self.width - line.cells - 2), self.look.glyphs.more), "dim")

    def take(self, column: Column) -> None:
        """Sort by it."""
        self.dismiss(column.id)


# the letters of nvitop after `o`: the columns they sort by
LETTERS = {"c": "cpu", "m": "rss", "t": "time", "p": "pid", "s": "gpu-busy", "g": "vram", "u": "user"}


class OrderDialog(ListDialog[str, str]):
    """Which column to sort by, with a letter."""

    TITLE_TEXT = "sort by, with a letter"
    FOOT = "letter, Enter sort by it   Esc cancels"

    def __init__(self, look: Look, column: str) -> None:
        letters = list(LETTERS)
        super().__init__(look, letters, next((at for at, each in enumerate(letters) if LETTERS[each] == column), 0))

    def row(self, letter: str, line: Line, chosen: bool) -> Line:
        """The letter and its column."""
        line.add(f"  {letter}", "busy", bold=True)
        return line.add(f"  {BY_ID[LETTERS[letter]].title}", "bright" if chosen else "text")

    def take(self, letter: str) -> None:
        """Sort by its column."""
        self.dismiss(LETTERS[letter])

    def press(self, event: events.Key) -> None:
        """Take the letter's column, or move; any other key is no answer."""
        if event.key in LETTERS:
            self.take(event.key)
        elif event.key in (*MOVES, "enter"):
            super().press(event)
        else:
            self.dismiss(None)


class UserDialog(ListDialog[str, tuple[str, int, int]]):
    """The user whose processes to show; the answer is empty for all users."""

    TITLE_TEXT = "show processes of user"
    FOOT = "Enter shows only these   Esc cancels"

    def __init__(self, look: Look, users: Sequence[tuple[str, int, int]], chosen: str | None) -> None:
        """Users with how many GPUs and how many processes they have."""
        users = [("", 0, sum(processes for _, _, processes in users)), *users]
        names = [name for name, _, _ in users]
        super().__init__(look, users, names.index(chosen) if chosen in names else 0)

    def row(self, user: tuple[str, int, int], line: Line, chosen: bool) -> Line:  # noqa: ARG002
        """A name, and what is theirs."""
        name, gpus, processes = user
        line.add("  ").add(
            drawing.fit(name or "everybody", 20, more=self.look.glyphs.more), "bright" if gpus else "text"
        )
        line.add(f"{amount(gpus, 'GPU') if gpus else '':>9}", "text")
        return line.add(f"{amount(processes, 'process'):>17}", "dim")

    def take(self, user: tuple[str, int, int]) -> None:
        """This one."""
        self.dismiss(user[0])

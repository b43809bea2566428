"""Dialogs with a list: the column to sort by, the user to look at; arrows, wheel and mouse move the cursor."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from textual import events, on

from gputop.labels import amount
from gputop.ui.dialogs.dialog import Answer, Dialog
from gputop.ui.table.columns import SORTABLE, TITLE, Column
from gputop.ui.table.widget import WHEEL
from gputop.ui.theme import Look
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line
from gputop.ui.widgets.strip_pane import Lines

_STEPS = {"up": -1, "down": 1, "pageup": -8, "pagedown": 8, "home": -(1 << 20), "end": 1 << 20}
_AROUND = 4  # lines of the box that are not ours: its title, its foot, a blank beside each


class ListDialog(Dialog[Answer]):
    """What is in the list, and what a line does, the subclass says."""

    FOOT = "Enter takes it   Esc leaves it as it is"
    ROWS = 0  # always so many lines, where they fit, blank ones too; 0: as many as there are

    def __init__(self, look: Look) -> None:
        super().__init__(look)
        self.at = 0
        self._top = 0
        self._shown = 0

    @property
    @abstractmethod
    def count(self) -> int:
        """How many lines the list has."""

    @abstractmethod
    def row(self, place: int, line: Line) -> Line:
        """Write one of them; the line is on its ground already."""

    @abstractmethod
    def take(self, place: int) -> None:
        """What Enter and a click do."""

    def above(self) -> Sequence[Line]:
        """What stands over the list, as many lines whatever it says."""
        return ()

    def below(self) -> Sequence[Line]:
        """What stands under it, as many lines whatever it says."""
        return ()

    def lines(self) -> Sequence[Line]:
        """The part of the list that fits, with the cursor in it."""
        self.at = min(max(0, self.at), max(0, self.count - 1))
        above, below = self.above(), self.below()
        room = max(1, self.app.size.height - _AROUND - len(above) - len(below))
        room = min(room, self.ROWS or room)
        self._top = min(max(self._top, self.at - room + 1), self.at, max(0, self.count - room))
        self._shown = min(room, self.count)
        places = range(self._top, self._top + self._shown)
        rows = [self.row(place, Line(self.look, "selected" if place == self.at else "raised")) for place in places]
        blank = [self.line() for _ in range(len(rows), room if self.ROWS else 0)]
        return [*above, *rows, *blank, *below]

    def press(self, event: events.Key) -> None:
        """Move, or take a line."""
        if event.key in _STEPS:
            self.move(_STEPS[event.key])
        elif event.key == "enter" and self.count:
            self.take(self.at)

    def move(self, lines: int) -> None:
        """Put the cursor elsewhere."""
        self.at += lines
        self.redraw()

    @on(events.Click)
    def click(self, event: events.Click) -> None:
        """A click takes a line."""
        event.stop()
        box = self.query_one(Lines).region
        place = event.screen_y - box.y - 2 - len(self.above())
        if box.contains(event.screen_x, event.screen_y) and 0 <= place < self._shown:
            self.at = self._top + place
            self.redraw()
            self.take(self.at)

    @on(events.MouseScrollDown)
    @on(events.MouseScrollUp)
    def wheel(self, event: events.MouseEvent) -> None:
        """The wheel moves the cursor."""
        event.stop()
        self.move(WHEEL if isinstance(event, events.MouseScrollDown) else -WHEEL)


class SortDialog(ListDialog[str]):
    """Which column to sort by: those `here` first, then the others."""

    TITLE_TEXT = "sort by"
    FOOT = "Enter sorts by it   Esc leaves it as it is"
    WIDTH = 64

    def __init__(self, look: Look, column: str, here: Sequence[Column]) -> None:
        super().__init__(look)
        first = [column for column in here if column in SORTABLE]
        self._columns = [*first, *(column for column in SORTABLE if column not in here)]
        self.at = [place.id for place in self._columns].index(column)
        self._here = len(first)

    @property
    def count(self) -> int:
        """As many as there are columns."""
        return len(self._columns)

    def row(self, place: int, line: Line) -> Line:
        """Its title and what it says."""
        column = self._columns[place]
        chosen = place == self.at
        line.add(f"  {column.title:{TITLE}}", "bright" if chosen else "text" if place < self._here else "dim")
        return line.add(drawing.fit(column.help, self.WIDTH - 14, more=self.look.glyphs.more), "dim")

    def take(self, place: int) -> None:
        """Sort by it."""
        self.dismiss(self._columns[place].id)


class UserDialog(ListDialog[str]):
    """Whose processes to show; the answer is empty for everybody's."""

    TITLE_TEXT = "whose processes"
    FOOT = "Enter shows only these   Esc leaves it as it is"

    def __init__(self, look: Look, users: Sequence[tuple[str, int, int]], chosen: str | None) -> None:
        """Users with how many GPUs and how many processes they have."""
        super().__init__(look)
        self._users = [("", 0, sum(processes for _, _, processes in users)), *users]
        names = [name for name, _, _ in self._users]
        self.at = names.index(chosen) if chosen in names else 0

    @property
    def count(self) -> int:
        """As many as there are users, and one for everybody."""
        return len(self._users)

    def row(self, place: int, line: Line) -> Line:
        """A name, and what is theirs."""
        name, gpus, processes = self._users[place]
        line.add("  ").add(
            drawing.fit(name or "everybody", 20, more=self.look.glyphs.more), "bright" if gpus else "text"
        )
        line.add(f"{amount(gpus, 'GPU') if gpus else '':>9}", "text")
        return line.add(f"{amount(processes, 'process'):>17}", "dim")

    def take(self, place: int) -> None:
        """This one."""
        self.dismiss(self._users[place][0])

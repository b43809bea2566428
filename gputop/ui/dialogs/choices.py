"""Which one of a list: the column to sort by, the user to look at."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.labels import amount
from gputop.ui import draw
from gputop.ui.dialogs.choosing import ListDialog
from gputop.ui.draw import Line
from gputop.ui.look import Look
from gputop.ui.table.columns import SORTABLE, TITLE, Column


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
        return line.add(draw.fit(column.help, self.WIDTH - 14, more=self.look.glyphs.more), "dim")

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
        line.add("  ").add(draw.fit(name or "everybody", 20, more=self.look.glyphs.more), "bright" if gpus else "text")
        line.add(f"{amount(gpus, 'GPU') if gpus else '':>9}", "text")
        return line.add(f"{amount(processes, 'process'):>17}", "dim")

    def take(self, place: int) -> None:
        """This one."""
        self.dismiss(self._users[place][0])

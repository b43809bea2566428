"""The threads tab: how much of each thread was seen, how much of that it waits, what it does most."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.frozen_dataclass import frozen_dataclass
from gputop.ui.result.flame import FlameChoice, Sampled
from gputop.ui.theme import Look, Token
from gputop.ui.widgets.grid import Grid, GridColumn
from gputop.ui.widgets.tabs import Body, Entry, ListTab


@frozen_dataclass(frozen=True, slots=True)
class ThreadRow:
    """One thread, or several together."""

    place: int  # among the choices
    title: str
    amount: str
    share: float  # of the largest
    waits: float  # of its own, 0 to 1
    does: str
    busy: bool


def rows(choices: Sequence[Sampled]) -> list[ThreadRow]:
    """A line each, in their order."""
    largest = max((each.root.count for each in choices), default=0.0) or 1.0
    found = []
    for place, each in enumerate(choices):
        total = each.root.count or 1.0
        waits = sum(function.self_count for function in each.top if each.kind(function.name) == "waits") / total
        most = each.top[0] if each.top else None
        does = f"{100 * most.self_count / total:.0f}% in {most.name}" if most else ""
        found.append(
            ThreadRow(
                place, each.title, each.number(each.root.count), each.root.count / largest, waits, does, waits < 0.9
            )
        )
    return found


class ThreadsTab(ListTab):
    """The list; Enter shows the flame graph of one."""

    id, title, short = "threads", "Threads", "Thr"
    takes = "Its flame"
    keys = ListTab.keys | {"take"}

    def __init__(self, choice: FlameChoice) -> None:
        self.choice = choice
        self._rows = rows(choice.choices)

    def body(self, width: int, look: Look) -> Body:
        """A line for each, busy ones brighter."""
        unit = self.choice.choices[0].unit if self.choice.choices else ""
        columns: tuple[GridColumn[ThreadRow], ...] = (
            GridColumn("THREAD", 30 if width >= 100 else 20, lambda row: row.title, right=False),
            GridColumn(unit, 9, lambda row: row.amount),
            GridColumn("WAITS%", 6, lambda row: f"{100 * row.waits:.0f}", keep=2),
            GridColumn("TOP FRAME", 20, lambda row: row.does, right=False),
        )
        table = Grid(columns, width, look)

        def line(row: ThreadRow) -> Entry:
            token: Token = "text" if row.busy else "dim"
            return Entry(row.place, lambda on, shift: table.line(row, on, shift, token))

        return Body([line(row) for row in self._rows], [table.titles()], "Enter shows its flame")

    def press(self, what: str, amount: int = 0) -> str:
        """The flame graph of the thread under the cursor."""
        if what == "take" and isinstance(self.selected, int):
            self.choice.at, self.leads_to = self.selected, "flame"
            return ""
        return super().press(what, amount)

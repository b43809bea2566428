"""A tab with the last collective of each rank, as their flight recorders report it."""

from __future__ import annotations

from gputop.collectives.comparison import Comparison, RankState
from gputop.collectives.report import relevant
from gputop.ui.theme import Look, Token
from gputop.ui.widgets.grid import Grid, GridColumn
from gputop.ui.widgets.tabs import Body, Entry, ListTab


class CollectivesTab(ListTab):
    """A line for each rank in each process group that ranks wait in; one that is missing has a sign."""

    id, title, short = "collectives", "Collectives", "Colls"

    def __init__(self, found: Comparison) -> None:
        self._rows = relevant(found)
        self._several = len({one.group for one in self._rows}) > 1
        self._missing = sum(one.missing for one in self._rows)

    def body(self, width: int, look: Look) -> Body:
        """The ranks in their order."""
        group = GridColumn[RankState]("GROUP", 12, lambda one: one.group, right=False, keep=4)
        columns: tuple[GridColumn[RankState], ...] = (
            GridColumn("", 1, lambda one: look.glyphs.crit if one.missing else "", right=False),
            GridColumn("RANK", 9, lambda one: one.label, right=False),
            *((group,) if self._several else ()),
            GridColumn("WAITS IN", 26, lambda one: one.waits_in, right=False, keep=5),
            GridColumn("LAST ENTERED", 26, _entered, right=False),
            GridColumn("COMPLETED", 10, lambda one: f"#{one.completed}" if one.completed else "none", keep=3),
            GridColumn("YOUR CODE", 24, lambda one: one.place, right=False, keep=2),
        )
        grid = Grid(columns, width, look)

        def line(row: RankState) -> Entry:
            token: Token = "crit" if row.missing else "text"
            return Entry((row.group, row.label), lambda on, shift: grid.line(row, on, shift, token))

        facts = f"{self._missing} never entered the collective that the others wait in" if self._missing else ""
        return Body([line(row) for row in self._rows], [grid.titles()], facts)


def _entered(one: RankState) -> str:
    return f"{one.entered_name} #{one.entered}".strip() if one.entered else "none"

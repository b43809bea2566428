"""The functions tab: which functions the time is in, by their own part or by all that they call."""

from __future__ import annotations

from gputop.profile.stacks import Function
from gputop.profile.training_parts import Kind
from gputop.ui.result.flame import SIGNS, FlameChoice, Sampled
from gputop.ui.theme import Look, Token
from gputop.ui.widgets.grid import Grid, GridColumn
from gputop.ui.widgets.tabs import Body, Entry, ListTab

MOST = 500
ROOMY = 110  # cells
_TOKENS: dict[Kind, Token] = {"waits": "warn", "own": "bright", "library": "text"}


def grid(sampled: Sampled, width: int, look: Look) -> Grid[Function]:
    """The columns at a width."""
    total = sampled.root.count or 1.0
    columns: tuple[GridColumn[Function], ...] = (
        GridColumn("SELF%", 6, lambda each: f"{100 * each.self_count / total:.1f}"),
        GridColumn("TOTAL%", 6, lambda each: f"{100 * each.total_count / total:.1f}"),
        GridColumn(sampled.unit, 8, lambda each: sampled.number(each.self_count), keep=2),
        GridColumn("", 1, lambda each: SIGNS[sampled.kind(each.name)], right=False, keep=1),
        GridColumn("FUNCTION", 20, lambda each: _called(sampled, each, width >= ROOMY), right=False),
    )
    return Grid(columns, width, look)


def _called(sampled: Sampled, each: Function, roomy: bool) -> str:
    """Its name, and the folder of its file where there is room."""
    if not roomy:
        return each.name
    file = sampled.files.get(each.name, "")
    where = file.rsplit("/", 2)[-2:] if "/" in file else []
    folder = f"  {where[0]}/" if len(where) == 2 and where[0] else ""
    return f"{each.name}{folder}"


class Functions(ListTab):
    """The list, sorted by own or by total."""

    id, title, short = "functions", "Functions", "Func"
    keys = ListTab.keys | {"self", "total", "find", "turn"}
    terms = ("own code", "waits")

    def __init__(self, choice: FlameChoice) -> None:
        self.choice = choice
        self._by = "self"
        self._text = ""

    def body(self, width: int, look: Look) -> Body:
        """A line for each with the text that is looked for."""
        sampled = self.choice.chosen
        rows = [each for each in sampled.top if self._text in each.name.casefold()]
        if self._by == "total":
            rows = sorted(rows, key=lambda each: (-each.total_count, -each.self_count, each.name))
        table = grid(sampled, width, look)

        def entry(each: Function) -> Entry:
            nothing = self._by == "self" and not each.self_count
            token: Token = "dim" if nothing else _TOKENS[sampled.kind(each.name)]
            return Entry(each.name, lambda on, shift: table.line(each, on, shift, token))

        by = "self time" if self._by == "self" else "total time"
        found = f", with {self._text}" if self._text else ""
        return Body([entry(each) for each in rows[:MOST]], [table.titles()], f"by {by}, {sampled.title}{found}")

    def press(self, what: str, amount: int = 0) -> str:
        """Another order, another thread."""
        if what in ("self", "total"):
            self._by = what
            self.move(-(1 << 20))
            return f"by {what} time"
        if what == "turn":
            return self.choice.turn()
        return super().press(what, amount)

    def find(self, text: str) -> str:
        """Show those with this text."""
        self._text = text.strip().casefold()
        count = sum(self._text in each.name.casefold() for each in self.choice.chosen.top)
        return f"{count} functions" if self._text else ""

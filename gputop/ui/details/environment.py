"""The environment tab: what it was started with; secrets are masked, and shown one by one."""

from __future__ import annotations

from gputop.labels import amount
from gputop.model import Variable
from gputop.safe.text import MASK
from gputop.ui.details.lines import without
from gputop.ui.details.process_view import ProcessView
from gputop.ui.theme import Token
from gputop.ui.widgets.grid import Grid, GridColumn
from gputop.ui.widgets.tabs import Body, Entry

NAME_LEAST, NAME_MOST = 12, 40
MASKED = 8  # however long the secret is


def body(view: ProcessView, width: int) -> Body:
    """A line for each variable, by name."""
    variables = view.detail.environment
    if variables is None:
        return without(view, width, "environment")
    mask = view.look.glyphs.mask * MASKED
    longest = max((len(one.name) for one in variables), default=0)

    def value(variable: Variable) -> str:
        hidden = variable.secret and not variable.revealed
        return variable.value.replace(MASK, mask) if hidden else variable.value

    grid: Grid[Variable] = Grid(
        (
            GridColumn("NAME", min(max(NAME_LEAST, longest), NAME_MOST, width // 2), lambda one: one.name, right=False),
            GridColumn("VALUE", 10, value, right=False),
        ),
        width, view.look,
    )  # fmt: skip

    def entry(variable: Variable) -> Entry:
        token: Token = "warn" if variable.revealed and variable.secret else "text"
        return Entry(variable.name, lambda on, shift: grid.line(variable, on, shift, token))

    secrets = sum(one.secret and not one.revealed for one in variables)
    facts = amount(len(variables), "variable") + (f", {secrets} masked" if secrets else "")
    return Body([entry(one) for one in variables], [grid.titles()], facts)

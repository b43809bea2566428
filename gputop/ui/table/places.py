"""Which columns of the table fit a width, and where each one stands."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.frozen_dataclass import frozen_dataclass
from gputop.ui.table.columns import Column, Preset, of


@frozen_dataclass(frozen=True, slots=True)
class Place:
    """A column on the screen: the cells from `left` on, its gap included."""

    column: Column
    left: int
    width: int


def fit(width: int, preset: Preset = "main", sort: str = "pid", chosen: Sequence[str] = ()) -> tuple[Place, ...]:
    """Which columns of a preset a table of this width shows, and where; the command gets what is left.

    Of the main preset those that somebody has `chosen`, if any. The column that sorts is the last to yield: an order
    whose reason cannot be seen looks like none.
    """
    columns = of(preset, chosen)
    command = 24 if preset != "main" else 32 if width >= 100 else 25  # besides its gap
    shown = sorted(columns, key=lambda column: (column.id not in ("pid", "command", sort), -column.keep))
    while len(shown) > 2 and sum(column.width for column in shown) + command > width:
        shown.pop()
    spare = width - sum(column.width for column in shown) - command
    sizes = {}
    for column in sorted(shown, key=lambda column: column.ease):
        ease = column.ease if column.ease <= spare else 0
        sizes[column.id] = column.width + ease
        spare -= ease
    places: list[Place] = []
    left = 0
    for column in (column for column in columns if column in shown):
        size = max(0, width - left) if column.id == "command" else sizes[column.id]
        places.append(Place(column, left, size))
        left += size
    return tuple(places)

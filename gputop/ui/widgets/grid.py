"""A small table: columns that are declared, dropped where it is narrow; the last one takes what is left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from textual.strip import Strip

from gputop.fit import fit
from gputop.frozen_dataclass import frozen_dataclass
from gputop.ui.theme import Ground, Look, Token
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line

Item = TypeVar("Item")
GAP = 2
_UNKNOWN = frozenset({"-", "·", ""})
_NOTHING = _UNKNOWN | {"0", "0:00", "0%", "none"}
ALWAYS = 99


@frozen_dataclass(frozen=True, slots=True)
class GridColumn(Generic[Item]):
    """One column; what stands in the last one may be longer than it and is scrolled."""

    title: str
    width: int  # of the last one: at least
    text: Callable[[Item], str]
    right: bool = True
    keep: int = ALWAYS  # the lowest is dropped first
    token: Token = "text"
    tail: bool = False  # of a text that is too long the end is shown


class Grid(Generic[Item]):
    """The columns that fit a width."""

    def __init__(self, columns: Sequence[GridColumn[Item]], width: int, look: Look) -> None:
        self.columns = fit(columns, width - 1, lambda column: GAP + column.width, always=ALWAYS)
        self.width, self.look = width, look
        # a text may be cut, a number may not: half of it is another one
        while cut := [column for left, cells, column in self._places() if column.right and left + cells > width]:
            self.columns.remove(cut[0])

    def titles(self) -> Strip:
        """The line above."""
        line = Line(self.look)
        for left, width, column in self._places():
            line.to(left).add(drawing.fit(column.title, width, right=column.right), "dim")
        return line.strip(self.width)

    def line(self, item: Item, on: Ground = "background", shift: int = 0, token: Token = "text") -> Strip:
        """One line; `token` is the weight of its values, where they have any."""
        look, more = self.look, self.look.glyphs.more
        line, even = Line(look, on), on != "background" and look.palette.selected is None
        line.add(look.glyphs.cursor if even else " ")
        for left, width, column in self._places():
            text = column.text(item)
            weight = column.token if token == "text" else token
            quiet = _NOTHING if column.right else _UNKNOWN
            if column is self.columns[-1] and not column.right:
                text = text[min(shift, max(0, len(text) - width)) :]
            if column.tail and not shift:
                text = drawing.tail(text, width, more)
            text = drawing.fit(text, width, right=column.right, more=more)
            line.to(left).add(text, "text" if even else "dim" if text.strip() in quiet else weight)
        return line.strip(self.width)

    def _places(self) -> list[tuple[int, int, GridColumn[Item]]]:
        """Where each column begins, and its width."""
        places, left = [], GAP
        for column in self.columns:
            last = column is self.columns[-1] and not column.right
            places.append((left, max(1, self.width - left - 1) if last else column.width, column))
            left += column.width + GAP
        return places

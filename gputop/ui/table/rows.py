"""Lines of the table as they are drawn: rails, names, cells, the header with its arrow."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from textual.strip import Strip

from gputop.columns import ALWAYS, Column, Preset, of
from gputop.fit import fit
from gputop.frozen_dataclass import frozen_dataclass
from gputop.ui.gpus.state import State
from gputop.ui.table.row import TableRow
from gputop.ui.table.tree import TableView
from gputop.ui.theme import UNICODE, Ground, Look, Token
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line, Run


@frozen_dataclass(frozen=True, slots=True)
class ColumnPlace:
    """A column on the screen: the cells from `left` on, its gap included."""

    column: Column
    left: int
    width: int


def places(
    width: int, preset: Preset = "main", sort: str = "pid", chosen: Sequence[str] = ()
) -> tuple[ColumnPlace, ...]:
    """Which columns of a preset a table of this width shows, and where; the command gets what is left.

    Of the main preset those that the user has `chosen`, if any. The column that sorts is the last to yield: an order
    whose reason cannot be seen looks like none.
    """
    columns = of(preset, chosen)
    command = 24 if preset != "main" else 32 if width >= 100 else 25  # besides its gap

    def keep(column: Column) -> int:
        return max(column.keep, ALWAYS - 1) if column.id == sort else column.keep

    shown = fit(columns, width - command, lambda column: column.width, keep=keep, always=ALWAYS)
    spare = width - sum(column.width for column in shown) - command
    sizes = {}
    for column in sorted(shown, key=lambda column: (column.ease, -keep(column))):
        ease = column.ease if column.ease <= spare else 0
        sizes[column.id] = column.width + ease
        spare -= ease
    placed: list[ColumnPlace] = []
    left = 0
    for column in shown:
        size = max(0, width - left) if column.id == "command" else sizes[column.id]
        placed.append(ColumnPlace(column, left, size))
        left += size
    return tuple(placed)


_NOTHING = frozenset({"0", "0:00", "·"})
_NAMES = frozenset({"pid", "user"})


def header(places: Sequence[ColumnPlace], view: TableView, width: int, look: Look) -> Strip:
    """Titles above their columns; the one that sorts is brighter, an arrow in the gap behind it."""
    line = Line(look)
    arrow = look.glyphs.down if view.descending else look.glyphs.up
    for place, after in itertools.zip_longest(places, places[1:]):
        column = place.column
        left = place.left + 1 if column.align == "left" else place.left + place.width - len(column.title)
        if column.id == view.sort and column.align == "right" and after.column.align == "left":
            left -= 1  # there is no gap behind it: the arrow ends the column
        line.to(left).add(column.title, "text" if column.id == view.sort else "dim")
        if column.id == view.sort:
            line.add(arrow, "busy")
    return line.strip(width)


def texts(row: TableRow, places: Sequence[ColumnPlace], state: State | None = None) -> tuple[str, ...]:
    """What the line says, cell by cell; `state` is what stands at its end."""
    figures, taken = row.figures, 2 + (drawing.cells(_ending(state)) if state and state.sign else 0)
    return tuple(
        _wording(row, place.width - taken) if place.column.id == "command"
        else place.column.text(figures) if figures.count or place.column.id in _NAMES
        else ""
        for place in places
    )  # fmt: skip


def _wording(row: TableRow, room: int) -> str:
    texts = row.texts
    return next((text for text in texts if len(text) <= room), texts[-1])


def line(
    row: TableRow,
    says: Sequence[str],
    places: Sequence[ColumnPlace],
    look: Look,
    *,
    on: Ground = "background",
    shift: int = 0,
    tagged: bool = False,
    marked: bool = False,
    state: State | None = None,
) -> Strip:
    """One line of the table, from the row and its `texts`; `shift` scrolls the command.

    `state` is what the rules say of it; `marked` is what a finding that is chosen elsewhere is about.
    """
    drawn = Line(look, on)
    even = on != "background" and look.palette.selected is None  # reversed: one colour, or it would be a chequerboard
    token, more = "text" if even else weight(row), look.glyphs.more
    for place, text in zip(places, says, strict=True):
        column = place.column
        if column.id == "pid":
            _name(drawn, row, place, look, even, tagged, marked)
        elif column.id == "command":
            ending = _fitting(state, text, place.width - 2, look)
            room = max(0, place.width - 2 - drawing.cells(ending))
            drawn.to(place.left + 1).add(drawing.cut(text[shift:], room, more), token)
            drawn.runs(run._replace(token="text") if even else run for run in ending)
        elif column.align == "left":
            words = token if even else _words(row, column.id)
            drawn.to(place.left + 1).add(drawing.cut(text, place.width - 2, more), words)
        else:
            cell: Token = "dim" if text in _NOTHING and column.id != "gpu" and not even else token
            said = _alarm(column, row, text, place.width, look) or Run(text, cell)
            drawn.to(place.left + place.width - len(said.text))
            drawn.add(said.text, "text" if even and said.bold else said.token, bold=said.bold)
    last = places[-1]
    return drawn.strip(last.left + last.width)


def _alarm(column: Column, row: TableRow, text: str, width: int, look: Look) -> Run | None:
    """The cell of a process that is short of something: with a sign where there is room for it."""
    value = column.value(row.figures) if column.levels and text not in _NOTHING else None
    if not column.levels or not isinstance(value, int | float) or row.context:
        return None
    (said,) = drawing.alarmed(text, value, column.levels, look)
    if not said.bold:
        return None
    return said if len(said.text) < width else said._replace(text=text)


def _ending(state: State | None, look: Look | None = None) -> list[Run]:
    """What the rules say of a line that is in trouble, or that has no verdict yet."""
    if state is None:
        return []
    if not state.sign:
        return [Run("   "), Run(state.word, state.token)] if state.token == "dim" else []
    sign = getattr(look.glyphs if look else UNICODE, state.sign)
    return [Run("   "), Run(f"{sign} {state.word}", state.token, True)]


def _fitting(state: State | None, text: str, width: int, look: Look) -> list[Run]:
    """The same; that there is no verdict yet only where there is room for it, as the rows of GPUs say so, too."""
    ending = _ending(state, look)
    return [] if state and not state.sign and drawing.cells([Run(text), *ending]) > width else ending


def _words(row: TableRow, column: str) -> Token:
    if column == "user":
        return "owner" if row.kind == "job" else "dim"
    return "text" if row.kind in ("job", "process") and not row.context else "dim"


def weight(row: TableRow) -> Token:
    """How much a line wants to be read: jobs first, loaders and what does nothing last."""
    if row.kind == "job":
        return "bright"
    if row.kind != "process" or row.context:
        return "dim"
    figures = row.figures
    rests = figures.gpu_percent == 0 if figures.gpus else True
    cpu_percent = figures.total("cpu_percent")
    return "dim" if rests and cpu_percent is not None and cpu_percent < 1 else "text"


def fold_cell(row: TableRow) -> int | None:
    """The column of a line's fold mark, for the mouse; None when there is nothing to fold."""
    return None if row.open is None or row.kind == "more" else 1 + _indent(row)


def _indent(row: TableRow) -> int:
    return 3 * len(row.rails) - 1 if row.rails else 0


def _name(drawn: Line, row: TableRow, place: ColumnPlace, look: Look, even: bool, tagged: bool, marked: bool) -> None:
    glyphs = look.glyphs
    if tagged:
        drawn.add(glyphs.tag, "text" if even else "busy", bold=True)
    elif marked:
        drawn.add(glyphs.shut, "text" if even else "busy", bold=True)
    else:
        drawn.add(glyphs.cursor if even else " ", "text")
    rails = [_rail(letter, glyphs.stem, glyphs.branch, glyphs.last) for letter in row.rails]
    drawn.add(" ".join(rails), "text" if even else "faint")
    drawn.to(1 + _indent(row))
    if row.open is not None and row.kind != "more":
        mark: Token = "busy" if row.kind == "job" else "dim"
        drawn.add(glyphs.open if row.open else glyphs.shut, "text" if even else mark)
    elif len(row.rails) == 1:
        drawn.add(glyphs.rule, "text" if even else "faint")
    elif not row.rails:
        drawn.add(" ")
    drawn.add(" ")
    room = place.left + place.width - drawn.cells
    token: Token = "text" if even else "busy" if tagged else weight(row)
    drawn.add(drawing.cut(row.label, room, glyphs.more), token, bold=tagged or row.kind == "job")


def _rail(letter: str, stem: str, branch: str, last: str) -> str:
    return {"s": stem, "b": branch, "l": last, " ": "  "}[letter]

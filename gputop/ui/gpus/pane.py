"""The GPU pane in three densities: a card with charts, a row, a cell; the smallest cells are tiny."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from textual.strip import Strip

from gputop.model import Frame, Gpu
from gputop.ui import draw
from gputop.ui.draw import Line, Run
from gputop.ui.gpus.card import CARD_LEAST, CARD_MOST, card
from gputop.ui.gpus.fields import CELL, ROW, TINY
from gputop.ui.gpus.layout import Cell, Field, Place, place
from gputop.ui.gpus.models import with_instances
from gputop.ui.gpus.scene import Scene
from gputop.ui.gpus.state import Past, State
from gputop.ui.gpus.tile import TILE_LEAST, TILE_MOST, TILE_WIDTH, tile
from gputop.ui.look import Look

Density = Literal["card", "row", "cell", "tiny"]
DENSITIES: tuple[Density, ...] = ("card", "row", "cell", "tiny")

_LEAST_WIDTH: dict[Density, int] = {"card": 60, "row": 64, "cell": 36, "tiny": 20}
_BETWEEN = 3  # cells between columns of cells


def columns(density: Density, width: int, height: int, count: int) -> int:
    """How many columns of cells: as few as fit the height, as many as fit the width. Of cards as many as fit."""
    if density == "row":
        return 1
    least = TILE_WIDTH if density == "card" else _LEAST_WIDTH[density]
    most = max(1, min(count, (width + _BETWEEN) // (least + _BETWEEN)))
    if density == "card":
        return math.ceil(count / math.ceil(count / most))  # no row is much emptier than the others
    return min(most, max(1, math.ceil(count / max(1, height - 1))))


def _card_lines(columns: int) -> tuple[int, int]:
    """The fewest and the most lines of a card, in a grid of so many columns."""
    return (CARD_LEAST, CARD_MOST) if columns == 1 else (TILE_LEAST, TILE_MOST)


def least_lines(width: int, count: int) -> int:
    """The fewest lines in which every GPU has its card."""
    many = columns("card", width, 0, count) if count else 1
    return math.ceil(count / many) * _card_lines(many)[0]


def lines(density: Density, width: int, height: int, count: int) -> int:
    """Lines that `count` GPUs take in a density, in a pane `width` wide and at most `height` high."""
    if count == 0:
        return 0
    many = columns(density, width, height, count)
    if density == "card":
        rows, (least, most) = math.ceil(count / many), _card_lines(many)
        return min(height, rows * most) if rows * least <= height else rows * least
    return math.ceil(count / many) + 1


def pick(width: int, height: int, count: int, *, cards: bool = True) -> Density:
    """The richest density that fits, the smallest if none does: then the pane scrolls."""
    for density in DENSITIES if cards else DENSITIES[1:]:
        if width >= _LEAST_WIDTH[density] and lines(density, width, height, count) <= height:
            return density
    return "tiny"


def fitting(density: Density, width: int, height: int, count: int) -> int:
    """How many GPUs a pane shows at once."""
    many = columns(density, width, height, count)
    if density == "card":
        return many * max(1, height // _card_lines(many)[0])
    return max(1, height - 1) * many


def furthest(density: Density, width: int, height: int, count: int) -> int:
    """The highest `first` that still fills the pane."""
    return max(0, count - fitting(density, width, height, count))


def gpus(
    frame: Frame, past: Past, width: int, height: int, look: Look, *, density: Density | None = None, first: int = 0,
    verdicts: Mapping[str, State] = MappingProxyType({}), marked: Collection[str] = (),
) -> list[Strip]:  # fmt: skip
    """The pane's lines, at most `height`; `first` is the topmost GPU where not all fit.

    `verdicts` are the words of the rules by uuid, `marked` the GPUs that what is chosen elsewhere is about.
    """
    shown = with_instances(frame.gpus)
    if not shown or width <= 0 or height <= 0:
        return []
    density = density or pick(width, height, len(shown))
    scene = Scene(gpus=shown, host=frame.host, past=past, look=look, verdicts=verdicts, marked=marked)
    if density == "card":
        return _cards(scene, width, height, first)
    if density == "row":
        return _table(scene, ROW, width, height, first, 1)
    many = columns(density, width, height, len(shown))
    return _table(scene, CELL if density == "cell" else TINY, width, height, first, many)


def _cards(scene: Scene, width: int, height: int, first: int) -> list[Strip]:
    count = len(scene.gpus)
    many, room = columns("card", width, height, count), fitting("card", width, height, count)
    first = max(0, min(first, furthest("card", width, height, count)))
    shown = scene.gpus[first : first + room]
    rows = math.ceil(len(shown) / many)
    each = height // rows
    if many == 1:
        strips = [strip for gpu in shown for strip in card(gpu, scene, width, each)][:height]
    else:
        strips = [
            strip
            for start in range(0, len(shown), many)
            for strip in _side_by_side(scene, shown[start : start + many], many, width, each)
        ][:height]
    if hidden := count - len(shown):
        end = Line(scene.look).add(f"  {hidden} more", "dim")
        strips[-1] = Strip.join([strips[-1].crop(0, max(0, width - end.cells)), end.strip(min(width, end.cells))])
    return strips


def _side_by_side(scene: Scene, shown: Sequence[Gpu], many: int, width: int, height: int) -> list[Strip]:
    """One row of the grid: so many tiles with a line between them, the last ones blank where there are fewer GPUs."""
    each = (width - (many - 1) * _BETWEEN) // many
    between = Line(scene.look).add(f" {scene.look.glyphs.column} ", "faint").strip(_BETWEEN)
    drawn = [tile(gpu, scene, each, height) for gpu in shown]
    strips = []
    for y in range(max(map(len, drawn))):
        row = [part for tiles in drawn for part in (between, tiles[y])][1:]
        used = sum(part.cell_length for part in row)
        strips.append(Strip.join([*row, draw.blank(max(0, width - used), scene.look)]))
    return strips


def _table(scene: Scene, fields: Sequence[Field], width: int, height: int, first: int, many: int) -> list[Strip]:
    each = (width - 1 - (many - 1) * _BETWEEN) // many
    places, count = place(fields, scene, each), len(scene.gpus)
    # read as a newspaper is: down a column, then the next one; scrolled, what leaves a column enters the one before
    bare = many == 1 and count == height  # better all of them than their titles
    deep = min(math.ceil(count / many), max(0, height - (not bare)))
    first = max(0, min(first, count - many * deep))
    shown = scene.gpus[first : first + many * deep]
    strips = [] if bare else [_titles(places, each, many, width, count - len(shown), scene.look)]
    for y in range(deep):
        row = [_row(gpu, places, scene) for gpu in shown[y::deep]]
        strips.append(_joined(row + [[]] * (many - len(row)), each, scene.look).strip(width))
    return strips


def _titles(places: Sequence[Place], each: int, many: int, width: int, hidden: int, look: Look) -> Strip:
    """The titles, and at their right how many GPUs are not on the screen."""
    titles = []
    for f, column, cells in places:
        title = f"last {cells} s" if f.title == "last" else f.title
        indent = max(0, cells - len(title)) if f.right else 0
        titles.append((column + indent, [Run(title if f.right else draw.cut(title, cells), "dim")]))
    more = f"  {hidden} more" if hidden else ""
    room = width - len(more) - (many - 1) * (each + _BETWEEN)
    last = [(column, runs) for column, runs in titles if not more or column + draw.cells(runs) <= room]
    line = _joined([titles] * (many - 1) + [last], each, look)
    return line.to(width - len(more)).add(more).strip(width)


def _row(gpu: Gpu, places: Sequence[Place], scene: Scene) -> list[tuple[int, list[Run]]]:
    state = scene.states[gpu.uuid]
    row = []
    for f, column, width in places:
        runs = f.draw(Cell(gpu, state, width, scene))
        row.append((column + (max(0, width - draw.cells(runs)) if f.right else 0), runs))
    return row


def _joined(rows: Sequence[Sequence[tuple[int, list[Run]]]], each: int, look: Look) -> Line:
    line = Line(look)
    for number, row in enumerate(rows):
        start = number * (each + _BETWEEN)
        if number:
            line.to(start - 2).add(look.glyphs.column, "faint")
        for column, runs in row:
            line.to(start + column).runs(runs)
    return line

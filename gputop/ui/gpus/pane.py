"""The GPU pane: which GPU is chosen and in sight, and each as a card with charts, a row, a cell or a tiny cell."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Literal

from textual.strip import Strip

from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Frame, Gpu
from gputop.ui.gpus.cards import CARD_LEAST, CARD_MOST, TILE_LEAST, TILE_MOST, TILE_WIDTH, card, tile
from gputop.ui.gpus.fields import CELL, ROW, TINY, Cell, GpuField, Place, place
from gputop.ui.gpus.scene import GpuScene, with_instances
from gputop.ui.gpus.state import GpuHistory, State
from gputop.ui.theme import Ground, Look
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line, Run
from gputop.ui.widgets.strip_pane import Lines

Density = Literal["card", "row", "cell", "tiny"]
DENSITIES: tuple[Density, ...] = ("card", "row", "cell", "tiny")

_CHOICES: tuple[Density | None, ...] = (None, "card", "row", "cell")
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
    """The fewest and the most lines of a card, in a grid with this number of columns."""
    return (CARD_LEAST, CARD_MOST) if columns == 1 else (TILE_LEAST, TILE_MOST)


def least_lines(width: int, count: int) -> int:
    """The fewest lines in which every GPU has its card."""
    return card_rows(width, count) * _card_lines(columns("card", width, 0, count) if count else 1)[0]


def card_rows(width: int, count: int) -> int:
    """How many cards stand one above the other."""
    return math.ceil(count / columns("card", width, 0, count)) if count else 0


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


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class GpuGrid:
    """Where each GPU stands in the pane: what draws it, what a click in it is on, and where an arrow leads."""

    count: int
    many: int  # columns
    deep: int  # GPUs in one
    tall: int  # lines of each
    wide: int  # cells of each
    head: int  # lines of titles
    across: bool  # read across, as cards are; else down a column, then the next one, as a newspaper is
    first: int  # the topmost GPU

    @property
    def fitting(self) -> int:
        """How many GPUs are in sight at once."""
        return self.many * self.deep

    @property
    def furthest(self) -> int:
        """The highest `first` that still fills the pane."""
        return max(0, self.count - self.fitting)

    def at(self, x: int, y: int) -> int | None:
        """The place of the GPU that is drawn in a cell of the pane."""
        row, column = (y - self.head) // self.tall, min(self.many - 1, x // (self.wide + _BETWEEN))
        place = self.first + (row * self.many + column if self.across else column * self.deep + row)
        return place if 0 <= row < self.deep and place < min(self.count, self.first + self.fitting) else None

    def showing(self, place: int) -> int:
        """The `first` that is as near as can be and has this GPU in sight."""
        return min(max(self.first, place - self.fitting + 1), place)

    def moved(self, place: int, lines: int, columns: int = 0) -> int:
        """The place some lines below a GPU and some columns beside it; the same at the end of the grid."""
        if self.many == 1:
            columns = 0
        to = place + (lines * self.many + columns if self.across else lines + columns * self.deep)
        end, group = min(max(0, to), self.count - 1), self.many if self.across else max(1, self.deep)
        far = abs(lines) > 1 or (end - self.first) // group != (place - self.first) // group
        return end if end == to or far else place


def grid(density: Density, width: int, height: int, count: int, first: int = 0) -> GpuGrid:
    """The places of `count` GPUs in a pane; the topmost is `first` as far as that fills it."""
    many, head, tall = columns(density, width, height, count), 0, 1
    if density == "card":
        least, most = _card_lines(many)
        deep = max(1, height // least)
        rows = max(1, math.ceil(min(count, many * deep) / many))
        tall, wide = min(most, max(1, height // rows)), (width - (many - 1) * _BETWEEN) // many
    else:
        head = 0 if many == 1 and count == height else 1  # better all of them than their titles
        deep = min(math.ceil(count / many), max(0, height - head))
        wide = (width - 1 - (many - 1) * _BETWEEN) // many
    found = GpuGrid(
        count=count, many=many, deep=deep, tall=tall, wide=wide, head=head, across=density == "card", first=0,
    )  # fmt: skip
    return replace(found, first=max(0, min(first, found.furthest)))


class GpuPane(Lines, can_focus=True):
    """Which GPU is chosen and in sight, and how large each is drawn."""

    def __init__(self, density: str, changed: Callable[[], object]) -> None:
        """`changed` draws it again."""
        super().__init__(id="gpus")
        self.cards: Sequence[Gpu] = ()  # in the order in which they are shown
        self.uuid = ""  # of the one that was chosen last
        self.first = 0  # the first in sight
        self.density: Density | None = None  # None: as it fits best
        self.set_density(density)
        self._changed = changed
        self._space: tuple[Density, int, int] | None = None

    def set_density(self, name: str) -> None:
        """Take it from the settings."""
        self.density = next((each for each in _CHOICES if each == name), None)

    def next_density(self) -> None:
        """Another size."""
        place = _CHOICES.index(self.density) + 1
        self.density, self.first = _CHOICES[place % len(_CHOICES)], 0

    def fit(self, density: Density, space: tuple[int, int] | None) -> None:
        """Its width and height in cells now, and the density of its GPUs; None: it is not shown."""
        self._space = (density, *space) if space else None

    @property
    def grid(self) -> GpuGrid | None:
        """Where each stands; None while none is shown."""
        return grid(*self._space, len(self.cards), self.first) if self._space and self.cards else None

    @property
    def chosen(self) -> Gpu | None:
        """The one that was chosen last, the first where that is gone."""
        return next((gpu for gpu in self.cards if gpu.uuid == self.uuid), self.cards[0] if self.cards else None)

    def choose(self, lines: int = 0, columns: int = 0) -> None:
        """Select another one, some lines below and columns beside; in sight in any case."""
        chosen, places = self.chosen, self.grid
        if chosen is None or places is None:
            return
        place = places.moved(next(at for at, gpu in enumerate(self.cards) if gpu is chosen), lines, columns)
        self.uuid, self.first = self.cards[place].uuid, places.showing(place)
        self._changed()

    def scroll(self, lines: int) -> None:
        """Others are in sight; the chosen one stays."""
        if places := self.grid:
            self.first = min(max(0, places.first + lines), places.furthest)
            self._changed()

    def at(self, x: int, y: int) -> Gpu | None:
        """The one that is drawn in a cell."""
        place = places.at(x, y) if (places := self.grid) else None
        return None if place is None else self.cards[place]


def gpus(
    frame: Frame, past: GpuHistory, width: int, height: int, look: Look, *,
    density: Density | None = None, first: int = 0,
    verdicts: Mapping[str, State] = MappingProxyType({}), marked: Collection[str] = (), chosen: str | None = None,
) -> list[Strip]:  # fmt: skip
    """The pane's lines, at most `height`; `first` is the topmost GPU where not all fit.

    `verdicts` are the words of the rules by uuid, `marked` the GPUs that what is chosen elsewhere is about,
    `chosen` the one that the keys are about.
    """
    shown = with_instances(frame.gpus)
    if not shown or width <= 0 or height <= 0:
        return []
    density = density or pick(width, height, len(shown))
    scene = GpuScene(
        gpus=shown, host=frame.host, past=past, look=look, verdicts=verdicts, marked=marked, chosen=chosen,
    )  # fmt: skip
    places = grid(density, width, height, len(shown), first)
    if density == "card":
        return _cards(scene, places, width, height)
    return _table(scene, {"row": ROW, "cell": CELL}.get(density, TINY), places, width)


def _cards(scene: GpuScene, places: GpuGrid, width: int, height: int) -> list[Strip]:
    many, first = places.many, places.first
    shown = scene.gpus[first : first + places.fitting]
    if many == 1:
        strips = [strip for gpu in shown for strip in card(gpu, scene, width, places.tall)][:height]
    else:
        strips = [
            strip
            for start in range(0, len(shown), many)
            for strip in _side_by_side(scene, shown[start : start + many], places, width)
        ][:height]
    if hidden := places.count - len(shown):
        end = Line(scene.look).add(f"  {hidden} more", "dim")
        strips[-1] = Strip.join([strips[-1].crop(0, max(0, width - end.cells)), end.strip(min(width, end.cells))])
    return strips


def _side_by_side(scene: GpuScene, shown: Sequence[Gpu], places: GpuGrid, width: int) -> list[Strip]:
    """One row of the grid: tiles with a line between them, the last ones blank where there are fewer GPUs."""
    between = Line(scene.look).add(f" {scene.look.glyphs.column} ", "faint").strip(_BETWEEN)
    drawn = [tile(gpu, scene, places.wide, places.tall) for gpu in shown]
    strips = []
    for y in range(max(map(len, drawn))):
        row = [part for tiles in drawn for part in (between, tiles[y])][1:]
        used = sum(part.cell_length for part in row)
        strips.append(Strip.join([*row, drawing.blank(max(0, width - used), scene.look)]))
    return strips


def _table(scene: GpuScene, fields: Sequence[GpuField], grid: GpuGrid, width: int) -> list[Strip]:
    each, many, deep, first = grid.wide, grid.many, grid.deep, grid.first
    places = place(fields, scene, each)
    shown = scene.gpus[first : first + grid.fitting]
    hidden = grid.count - len(shown)
    strips = [_titles(places, each, many, width, hidden, scene.look)] if grid.head else []
    for y in range(deep):
        across = shown[y::deep]
        row = [_row(gpu, places, scene) for gpu in across] + [[]] * (many - len(across))
        strip = _joined(row, each, scene.look).strip(width)
        for number, gpu in enumerate(across):
            if gpu.uuid == scene.chosen:
                start, end = number * (each + _BETWEEN), width if many == 1 else number * (each + _BETWEEN) + each + 1
                lit = _joined(row, each, scene.look, scene.ground).strip(width)
                strip = Strip.join([strip.crop(0, start), lit.crop(start, end), strip.crop(end, width)])
        strips.append(strip)
    return strips


def _titles(places: Sequence[Place], each: int, many: int, width: int, hidden: int, look: Look) -> Strip:
    """The titles, and at their right how many GPUs are not on the screen."""
    titles = []
    for f, column, cells in places:
        title = f"last {cells} s" if f.title == "last" else f.title
        indent = max(0, cells - len(title)) if f.right else 0
        titles.append((column + indent, [Run(title if f.right else drawing.cut(title, cells), "dim")]))
    more = f"  {hidden} more" if hidden else ""
    room = width - len(more) - (many - 1) * (each + _BETWEEN)
    last = [(column, runs) for column, runs in titles if not more or column + drawing.cells(runs) <= room]
    line = _joined([titles] * (many - 1) + [last], each, look)
    return line.to(width - len(more)).add(more).strip(width)


def _row(gpu: Gpu, places: Sequence[Place], scene: GpuScene) -> list[tuple[int, list[Run]]]:
    state = scene.states[gpu.uuid]
    row = [(0, [Run(scene.look.glyphs.cursor, "busy", True)])] if gpu.uuid == scene.chosen else []
    for f, column, width in places:
        runs = f.draw(Cell(gpu, state, width, scene))
        row.append((column + (max(0, width - drawing.cells(runs)) if f.right else 0), runs))
    return row


def _joined(rows: Sequence[Sequence[tuple[int, list[Run]]]], each: int, look: Look, on: Ground = "background") -> Line:
    line = Line(look, on)
    for number, row in enumerate(rows):
        start = number * (each + _BETWEEN)
        if number:
            line.to(start - 2).add(look.glyphs.column, "faint")
        for column, runs in row:
            line.to(start + column).runs(runs)
    return line

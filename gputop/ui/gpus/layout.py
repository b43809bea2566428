"""Which fields a row has room for: each says how wide it is and how dearly it is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Gpu
from gputop.ui.draw import Run
from gputop.ui.gpus.scene import Scene
from gputop.ui.gpus.state import State

COMFORT = 50  # a field kept less dearly than this comes only where the others have their good width


@frozen_dataclass(frozen=True, slots=True)
class Cell:
    """One field of one GPU, about to be drawn."""

    gpu: Gpu
    state: State
    width: int
    scene: Scene


Draw = Callable[[Cell], list[Run]]


@frozen_dataclass(frozen=True, kw_only=True)
class Field:
    """One thing in a row. It takes `good` cells where there is room, `least` where there is not, up to `most`."""

    title: str
    draw: Draw
    keep: int  # the lowest goes first
    least: int | Callable[[Scene], int]
    good: int = 0
    most: int = 0
    gap: int = 2
    right: bool = True
    needs: str | None = None  # a metric that some GPU must offer
    when: Callable[[Scene], bool] = field(default=lambda _: True)

    def width(self, scene: Scene) -> int:
        """The fewest cells it can be drawn in."""
        return self.least if isinstance(self.least, int) else self.least(scene)


Place = tuple[Field, int, int]  # field, column, cells


def place(fields: Sequence[Field], scene: Scene, width: int) -> list[Place]:
    """Which fields fit, where, and how wide: the least kept go first, the dearest kept grow first."""
    chosen = [f for f in fields if f.when(scene) and (f.needs is None or scene.offered(f.needs))]
    least = {id(f): f.width(scene) for f in chosen}

    def total(comfortable: bool) -> int:
        return sum(f.gap + max(least[id(f)], f.good if comfortable else 0) for f in chosen)

    while chosen and total(comfortable=min(f.keep for f in chosen) < COMFORT) > width:
        chosen.remove(min(chosen, key=lambda f: f.keep))
    widths = {id(f): least[id(f)] for f in chosen}
    spare = width - total(comfortable=False)
    for goal in ("good", "most"):
        for f in sorted(chosen, key=lambda f: -f.keep):
            more = max(0, min(spare, getattr(f, goal) - widths[id(f)]))
            widths[id(f)] += more
            spare -= more
    places, column = [], 0
    for f in chosen:
        column += f.gap
        places.append((f, column, widths[id(f)]))
        column += widths[id(f)]
    return places

"""What yields where there is not room for all: one answer for columns, sections, keys and the lines of a dialog."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TypeVar

Item = TypeVar("Item")


def fit(
    items: Iterable[Item],
    room: float,
    size: Callable[[Item], float],
    *,
    keep: Callable[[Item], float] = attrgetter("keep"),
    always: float = math.inf,
) -> list[Item]:
    """As many of the items as there is room for, in their order.

    `size` is what an item takes, in cells or lines, its gap included. Where all of them take more than `room`, the one
    with the lowest `keep` yields first, of equals the last one; what is kept as dearly as `always` never does.
    """
    found, gone = list(items), set[int]()
    over = sum(map(size, found)) - room
    for place in sorted(range(len(found)), key=lambda place: (keep(found[place]), -place)):
        if over <= 0 or keep(found[place]) >= always:
            break
        gone.add(place)
        over -= size(found[place])
    return [item for place, item in enumerate(found) if place not in gone]

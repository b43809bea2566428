"""Drop items when space is short: one rule for columns, sections, keys and the lines of a dialog."""

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
    """As many of the items as fit, in order."""
    found, gone = list(items), set[int]()
    over = sum(map(size, found)) - room
    for place in sorted(range(len(found)), key=lambda place: (keep(found[place]), -place)):
        if over <= 0 or keep(found[place]) >= always:
            break
        gone.add(place)
        over -= size(found[place])
    return [item for place, item in enumerate(found) if place not in gone]

"""Lists of CPUs such as 0-7,64-71, as the kernel writes them."""

from __future__ import annotations

from functools import lru_cache

from gputop import units


@lru_cache(maxsize=256)
def parsed(listed: str | None) -> frozenset[int]:
    """The CPUs of a list; none where there is none, or it makes no sense."""
    try:
        return frozenset(units.listed(listed)) if listed else frozenset()
    except ValueError:
        return frozenset()

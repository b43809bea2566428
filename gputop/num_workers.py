"""How many DataLoader workers are advised: the one computation behind every `num_workers=` that gputop prints.

The guides differ: all cores but a few, 4 to 8, half of the cores. Start at half of the CPUs a rank may use, at most 8,
and never more than there are CPUs for; then time more and fewer.
"""

from __future__ import annotations

import math

MOST_FIRST = 8
PREFETCH = 4  # batches a worker prepares ahead
LEAST_IDLE = 0.5  # of a CPU, below which there is none for a worker; a test holds it equal to the rules' `spare`

IN_WORKERS = f"Set num_workers to half of the rank's CPUs, at most {MOST_FIRST}; gputop doctor gives the number."
MORE = "Raise num_workers if CPUs are idle, or do less work per sample; gputop doctor gives the number."


def first(cpus: float, idle: float | None = None) -> int:
    """How many to begin with: half of a rank's CPUs, at most 8, no more than CPUs are `idle` where that is known.

    None where a rank has less than two CPUs, or less than half of one is idle: the training process needs it.
    """
    if cpus < 2 or (idle is not None and idle < LEAST_IDLE):
        return 0
    return max(1, math.floor(min(MOST_FIRST, cpus / 2, math.inf if idle is None else idle)))


def most(cpus: float) -> int:
    """As many as so many CPUs have room for: one each, and one that is left for the training process."""
    return max(1, math.floor(cpus) - 1)


def fitting(wanted: float, cpus: float) -> int:
    """As many as are wanted, as far as there is room."""
    return min(math.ceil(wanted), most(cpus))


def waiting(have: int, cpus: float) -> int:
    """How many to try where workers wait for storage and need little CPU: twice as many, at most two a CPU."""
    return min(max(1, int(cpus) * 2), max(2, 2 * have))


def fewer(have: int) -> int:
    """How many to try where workers hold too much memory: half."""
    return max(1, have // 2)

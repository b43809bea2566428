"""The advised number of DataLoader workers: the one computation behind every `num_workers=` in gputop.

Guides differ: all cores but a few, 4 to 8, half of the cores. Start at half of the CPUs a rank may use, at most 8,
within the available CPUs; then time more and fewer.
"""

from __future__ import annotations

import math

MOST_FIRST = 8
PREFETCH = 4  # batches a worker prepares ahead
LEAST_IDLE = 0.5  # of a CPU, needed for a worker; a test keeps it equal to the rules' `spare`

IN_WORKERS = f"Set num_workers to half of the rank's CPUs, at most {MOST_FIRST}; gputop loader finds the best number."
MORE = "Raise num_workers: gputop loader finds the best number. If all CPUs are busy, do less work per sample."


def initial(cpus: float, idle: float | None = None) -> int:
    """Initial number: half of a rank's CPUs, at most 8, at most the `idle` CPUs if known.

    0 if a rank has less than two CPUs, or less than half of one is idle: the training process needs it.
    """
    if cpus < 2 or (idle is not None and idle < LEAST_IDLE):
        return 0
    return max(1, math.floor(min(MOST_FIRST, cpus / 2, math.inf if idle is None else idle)))


def maximum(cpus: float) -> int:
    """The number that fits: one per CPU, with one left for the training process."""
    return max(1, math.floor(cpus) - 1)


def fitting(wanted: float, cpus: float) -> int:
    """The wanted number, limited to what fits."""
    return min(math.ceil(wanted), maximum(cpus))


def for_slow_storage(have: int, cpus: float) -> int:
    """Number to try if workers wait for storage with little CPU use: double, at most two per CPU."""
    return min(max(1, int(cpus) * 2), max(2, 2 * have))


def fewer(have: int) -> int:
    """Number to try if workers hold too much memory: half."""
    return max(1, have // 2)

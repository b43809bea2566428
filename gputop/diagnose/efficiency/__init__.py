"""Rules about what a GPU gets done while it is busy, and about a program that does not let it."""

from gputop.diagnose.efficiency import (
    bandwidth,
    bound,
    evaluation,
    fp32,
    ineffective,
    launches,
    slowdown,
    small,
    stalls,
    transfers,
)

__all__ = [
    "bandwidth", "bound", "evaluation", "fp32", "ineffective", "launches", "slowdown", "small", "stalls", "transfers",
]  # fmt: skip

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

__all__ = [  # noqa: RUF022  in which their rules are asked
    "bandwidth", "bound", "evaluation", "fp32", "ineffective", "stalls", "transfers", "launches", "slowdown", "small",
]  # fmt: skip

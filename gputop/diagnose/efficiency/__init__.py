"""Rules about what a GPU gets done while it is busy, and about a program that does not let it."""

from gputop.diagnose.efficiency import bandwidth, bound, fp32, ineffective, launches, slowdown, small, stalls, transfers

__all__ = ["bandwidth", "bound", "fp32", "ineffective", "launches", "slowdown", "small", "stalls", "transfers"]

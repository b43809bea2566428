"""Rules on CPU shortage: threads, quotas, clocks, placement, other processes."""

from gputop.diagnose.rules.cpu import limits, neighbour, placement, threads

__all__ = ["ORDER", "limits", "neighbour", "placement", "threads"]

ORDER = (
    "openblas-on-intel",
    "cpu-slow",
    "neighbour",
    "numa-misplacement",
    "cpu-quota",
    "threads-process",
    "threads-host",
)

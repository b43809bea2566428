"""Rules about why CPUs are short: threads, quotas, clocks, places, neighbours."""

from gputop.diagnose.cpu import blas, clocks, neighbour, numa, quota, threads

__all__ = ["blas", "clocks", "neighbour", "numa", "quota", "threads"]

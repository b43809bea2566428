"""The signatures T00 to T27: what a trace looks like when something is wrong, and what to do about it.

One decorated function each, grouped by where the time goes. Importing this declares them all.
"""

from gputop.trace.signatures import copies, host, idle, kernels, memory, ranks
from gputop.trace.verdict import SIGNATURES

__all__ = ["SIGNATURES", "casts", "copies", "health", "host", "idle", "kernels", "memory", "ranks"]

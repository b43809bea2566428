"""The signatures T00 to T27: patterns of problems in a trace, with advice.

One decorated function each, grouped by where the time goes. Importing this declares all.
"""

from gputop.trace.signatures import copies, host, idle, kernels, memory, ranks
from gputop.trace.verdict import SIGNATURES

__all__ = ["SIGNATURES", "casts", "copies", "health", "host", "idle", "kernels", "memory", "ranks"]

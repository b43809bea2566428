"""Rules about GPUs that are not used at all, and about programs that do not get to use them."""

from gputop.diagnose.usage import context, idle, stack, start, unused

__all__ = ["context", "idle", "stack", "start", "unused"]

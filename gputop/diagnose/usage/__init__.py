"""Rules about GPUs that are not used at all, and about programs that do not get to use them."""

from gputop.diagnose.usage import context, idle, stack, start, unused

__all__ = ["context", "start", "idle", "stack", "unused"]  # noqa: RUF022  in which their rules are asked

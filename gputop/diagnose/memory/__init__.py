"""Rules about memory: of the host that is short or grows, of GPUs that is full, grows, or is held for nothing."""

from gputop.diagnose.memory import full, leaks, pressure, shared, zombies

__all__ = ["leaks", "full", "pressure", "shared", "zombies"]  # noqa: RUF022  in which their rules are asked

"""Rules on memory: host memory that is short or grows, device memory that is full, grows, or is held for nothing."""

from gputop.diagnose.rules.memory import device, host, leaks, zombies

__all__ = ["ORDER", "device", "host", "leaks", "zombies"]

ORDER = ("gmem-leak", "host-memory-leak", "gmem-nearly-full", "memory-pressure", "gpu-shared", "zombie-memory")

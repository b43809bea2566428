"""Rules on storage: slow disks and file servers, a cold cache, checkpoints, a full /dev/shm."""

from gputop.diagnose.rules.storage import checkpoints, full, read_patterns, slow_reads

__all__ = ["ORDER", "checkpoints", "full", "read_patterns", "slow_reads"]

# cold-cache and io-small-files refine findings of the two before them
ORDER = ("io-bound", "network-fs-bound", "cold-cache", "io-small-files", "checkpoint-stall", "shm-nearly-full")

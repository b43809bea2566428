"""What people paste when they ask why training is slow: profiler tables, nvidia-smi, CSV, logs, memory snapshots."""

from gputop.paste.kinds import KINDS, read, recognise
from gputop.paste.pasted import Kind, Pasted

__all__ = ["KINDS", "Kind", "Pasted", "read", "recognise"]

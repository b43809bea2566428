"""How a process was started, for commands that start it in another way."""

from __future__ import annotations

import shlex

from gputop.model import Process

_LONGEST = 120  # characters


def started(process: Process) -> str:
    """Its command line as a shell takes it, the end of a long one left out; where nobody knows it, a usual one."""
    words = [shlex.quote(word) for word in process.command] or ["python", "train.py"]
    kept = len(words)
    while kept > 2 and len(" ".join(words[:kept])) > _LONGEST:
        kept -= 1
    return " ".join((*words[:kept], "...") if kept < len(words) else words)

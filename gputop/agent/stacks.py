"""What every thread of the process does now, by itself, without a debugger: names, functions and lines, no values."""

from __future__ import annotations

import sys
import threading
from typing import Any

_MOST_THREADS, _MOST_FRAMES, _LONGEST = 256, 100, 300
_MOST_IN_ALL = 4000  # frames: while they are written as JSON no other thread runs


def stacks() -> list[dict[str, Any]]:
    """The threads, the main one first; of each its frames, the innermost first."""
    # not threading.enumerate(): it waits for a lock that a thread of the program may hold
    named = getattr(threading, "_active", {}).copy()
    main = threading.main_thread().ident
    found, count = [], 0
    for ident, frame in sorted(sys._current_frames().items(), key=lambda each: each[0] != main)[:_MOST_THREADS]:
        thread = named.get(ident)
        frames: list[dict[str, Any]] = []
        at: Any = frame
        while at is not None and len(frames) < _MOST_FRAMES and count + len(frames) < _MOST_IN_ALL:
            code = at.f_code
            frames.append({"name": code.co_name[:_LONGEST], "file": code.co_filename[:_LONGEST], "line": at.f_lineno})
            at = at.f_back
        count += len(frames)
        found.append(
            {
                "thread": str(getattr(thread, "_name", ""))[:_LONGEST],
                "main": ident == main,
                "tid": getattr(thread, "native_id", None),
                "frames": frames,
            }
        )
    return found

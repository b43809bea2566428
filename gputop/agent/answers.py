"""What the agent can be asked: a capture, to end it, stacks, facts, steps, memory, marks, a sign of life."""

from __future__ import annotations

import math
import sys
import threading
import time
from typing import Any

from .capture import MOST_STEPS, Problem, Wish
from .facts import facts
from .marks import marks

_LONGEST_WAIT_S = 600.0
_LATEST_S = 120.0  # from now
_MOST_MARKS = 500
_MOST_THREADS, _MOST_FRAMES, _LONGEST = 256, 100, 300
_MOST_IN_ALL = 4000  # frames: while they are written as JSON no other thread runs


def answer(op: Any, request: dict[str, Any]) -> dict[str, Any]:
    """The reply to a request that is answered at once. Problem says what is wrong with it."""
    if op == "facts":
        return {"facts": facts(_only(request, "all").get("all") is True)}
    _only(request)
    if op == "ping":
        return {"state": "here"}
    if op == "cancel":
        return {"state": "cancelled"}
    if op == "stacks":
        return {"stacks": stacks()}
    if op == "marks":
        return {"marks": marks[-_MOST_MARKS:]}
    raise Problem("bad-op")


def wish(request: dict[str, Any]) -> Wish:
    """A request as it is meant; there is no path in it, and what is not known is refused."""
    found = Wish(**_only(request, *Wish._fields))
    for name in ("shapes", "stacks", "memory", "graphs"):
        if type(getattr(found, name)) is not bool:
            raise Problem("bad-args", name)
    if type(found.steps) is not int or not 1 <= found.steps <= MOST_STEPS:
        raise Problem("bad-args", f"steps: 1 to {MOST_STEPS}")
    at = 0.0 if found.at is None else found.at
    for name, value, most in (("wait", found.wait, _LONGEST_WAIT_S), ("at", at, time.time() + _LATEST_S)):
        if type(value) not in (int, float) or not math.isfinite(value) or not 0 <= value <= most:
            raise Problem("bad-args", name)
    return found._replace(at=float(at))


def since(request: dict[str, Any]) -> int:
    """How many steps the client has received one by one."""
    found = _only(request, "since").get("since", 0)
    if type(found) is not int or found < 0:
        raise Problem("bad-args", "since")
    return found


def tensors(request: dict[str, Any]) -> bool:
    """Whether the client asks for the live tensors, too, with the memory."""
    found = _only(request, "tensors").get("tensors", False)
    if type(found) is not bool:
        raise Problem("bad-args", "tensors")
    return found


def _only(request: dict[str, Any], *names: str) -> dict[str, Any]:
    unknown = sorted(set(request) - set(names))
    if unknown:
        raise Problem("bad-args", ", ".join(unknown)[:100])
    return request


def stacks() -> list[dict[str, Any]]:
    """What every thread of this process does now: the main one first, of each its frames, the innermost first.

    Without a debugger: names, functions and lines, no values.
    """
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

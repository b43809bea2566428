"""Whose a frame of a profile is, and whether who is in it waits."""

from __future__ import annotations

import re
from typing import Literal

from gputop.profile.code import is_own
from gputop.profile.parts import PARTS

Kind = Literal["waits", "own", "library"]

_WAITING_PARTS = tuple(part.frame for part in PARTS if part.name in ("waits-for-data", "collectives"))
# what blocks, in Python's own library and in torch: function and file
_BLOCKS = re.compile(
    r"(?:^|\.)(?:wait|wait_for|acquire|_wait_for_tstate_lock|join|get|recv|_recv|recv_bytes|poll|_poll|select|accept"
    r"|sleep|synchronize|readinto) \((?:threading|queues?|connection|selectors|popen_fork|socket|subprocess|synchronize"
    r"|streams|__init__)\.py(?::\d+)?\)$"
)


def kind(frame: str, files: dict[str, str]) -> Kind:
    """Of a frame as profiles name it; `files` has the whole path of its file where that is known."""
    if _BLOCKS.search(frame) or any(pattern.search(frame) for pattern in _WAITING_PARTS):
        return "waits"
    return "own" if is_own(files.get(frame, "")) else "library"

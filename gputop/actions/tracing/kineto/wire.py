"""What Kineto and its daemon say to each other: datagrams of a size, a word, and what follows them.

A process asks every five seconds whether there is something to do, waits 90 ms for the reply, and reads one that comes
later when it asks the next time. So what it is asked for has a time: begun later than that, it is dropped.
"""

from __future__ import annotations

import struct

NAME = "dynolog"
LONGEST = 1 << 14  # bytes of a request: 4,000 ancestors
_HEADER = struct.Struct("=Q32s")
_REQUEST = struct.Struct("=iiq")  # what may be asked for, so many pids, the job; the pids
_ACTIVITIES = 2


class Malformed(Exception):
    """Nothing that Kineto sends when it asks for work."""


def asks(message: bytes) -> bool:
    """Whether this asks for work and a trace may be asked for now: not while another profiler runs. Malformed."""
    if len(message) < _HEADER.size + _REQUEST.size or len(message) > LONGEST:
        raise Malformed
    size, word = _HEADER.unpack_from(message)
    mask, count, _ = _REQUEST.unpack_from(message, _HEADER.size)
    if word.rstrip(b"\0") != b"req" or size != len(message) - _HEADER.size or size != _REQUEST.size + 4 * count:
        raise Malformed
    return bool(mask & _ACTIVITIES)


def reply(wish: str) -> bytes:
    """A trace that is asked for."""
    return _HEADER.pack(len(wish), b"req") + wish.encode("ascii")


def wish(path: str, at_s: float, seconds: float, warm_up_s: int) -> str:
    """A trace of so many seconds from a Unix time on.

    Not of so many steps: that waits in the process for its next step, however late that comes, cannot be taken back,
    and records without end if the steps end before their number is full.
    """
    return (
        f"ACTIVITIES_LOG_FILE={path}\n"
        f"PROFILE_START_TIME={at_s * 1000:.0f}\n"
        f"ACTIVITIES_DURATION_MSECS={seconds * 1000:.0f}\n"
        f"ACTIVITIES_WARMUP_PERIOD_SECS={warm_up_s}\n"
    )

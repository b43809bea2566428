"""Moments and numbers that the program itself notes, for the agent's clients."""

from __future__ import annotations

import math
import os
import sys
import time
from typing import Any, Callable, Optional, Tuple

WATCH = "GPUTOP_WATCH_NAN"  # 1: a loss or a gradient norm that is no finite number is an event
_MOST = 10_000
_NAMES, _LONGEST_NAME = 24, 40  # of notes: the first that come, and the characters of each
_READ_S = 1.0  # between two values of one name that a device has to be waited for
_SENT = 12  # marks that are sent with the steps
_WATCHED = ("loss", "grad")  # in the names of what must be finite


# name, Unix seconds, optimizer steps made by then (None if they are not counted), value; a plain tuple, since to make
# one with names takes as long as all else
Note = Tuple[str, float, Optional[int], float]

marks: list[tuple[float, str, float]] = []  # Unix seconds, name, value
latest: dict[str, Note] = {}  # by name
lost: Note | None = None  # the first loss or gradient norm that was no finite number
steps_made: Callable[[], int | None] = type(None)  # the server sets what counts them; until then they are unknown
_watches = os.environ.get(WATCH) == "1"
_read_s: dict[str, float] = {}  # when a device was waited for, by name
_doubted: dict[str, Note] = {}  # gradient norms that were not finite, before a step was made with them


def mark(name: str, value: float = 1.0) -> None:
    """Note a moment or a number of the training; the last 10,000 are kept. What is no number is left out."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):  # the job is worth more than a note
        return
    if len(marks) >= _MOST:
        del marks[: _MOST // 10]
    marks.append((time.time(), str(name)[:80], number))


def note(numbers: dict[str, Any]) -> None:
    """Note numbers of the step that is being made, of which the newest is kept by name. What is no number is left out.

    A tensor on the CPU is read at once. One on a device is read once a second at most: reading waits for the device.
    """
    try:
        at_s, step = time.time(), steps_made()
        for name, value in numbers.items():
            kind = type(value)
            number = float(value) if kind is float or kind is int else _read(name, value)
            if number is not None and (name in latest or len(latest) < _NAMES):
                latest[name] = found = name, at_s, step, number
                if _watches and (name in _doubted or not math.isfinite(number)):
                    _watch(found)
    except Exception:  # the job is worth more than a note
        pass


def noted() -> dict[str, Any]:
    """The newest of each name, the newest marks, and what the watch has found."""
    found = [_as_sent(each) for each in latest.copy().values()]
    moments = [[name[:_LONGEST_NAME], at_s, value] for at_s, name, value in marks[-_SENT:]]
    return {"notes": found, "marks": moments, "watched": _watches, "lost": None if lost is None else _as_sent(lost)}


def last_words() -> str:
    """What the watch has to say at the end of the program; empty where all was finite."""
    failed = hasattr(sys, "last_type")  # of an error: then also what was not yet sure
    found = lost or (next(iter(_doubted.values()), None) if failed else None)
    if found is None:
        return ""
    name, _, step, value = _as_sent(found)
    when = "" if step is None else f" after {step} optimizer steps"
    clean = "".join(each if each.isprintable() else "?" for each in name)
    return f"gputop: {clean} was {value}{when}; `gputop recipe nan` finds the operation\n"


def _as_sent(found: Note) -> list[Any]:
    """As it is sent, with a name that is not too long."""
    return [found[0][:_LONGEST_NAME], *found[1:]]


def _read(name: str, value: Any) -> float | None:
    """A value that is no plain number as one; None where it is none, or must be waited for and was so a moment ago."""
    torch = sys.modules.get("torch")
    kinds = (getattr(torch, "Tensor", None), getattr(getattr(torch, "nn", None), "Parameter", None))
    if type(value) not in kinds:
        # a tensor of another kind may run a collective to be read
        return None if kinds[0] is not None and isinstance(value, kinds[0]) else float(value)
    if value.numel() != 1 or value.device.type == "meta":
        return None
    if value.device.type != "cpu":
        now_s = time.monotonic()
        if now_s - _read_s.get(name, -math.inf) < _READ_S or _captures(torch):
            return None
        _read_s[name] = now_s
    return float(value.detach().item())


def _captures(torch: Any) -> bool:
    """Whether a CUDA graph is being captured, which reading a value would break."""
    return bool(torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())


def _watch(found: Note) -> None:
    """A loss counts at once. A gradient norm counts with the next one that is as bad after another optimizer step: a
    GradScaler skips the step where gradients overflow, and finds a scale with which they do not."""
    global lost
    name, _, step, value = found
    watched = [part for part in _WATCHED if part in name.lower()]
    if lost is not None or not watched:
        return
    if math.isfinite(value):
        _doubted.pop(name, None)
    elif watched[0] == _WATCHED[0]:
        lost = found
    else:
        before = _doubted.get(name)
        if before is None or before[2] is None:  # before steps are counted it is unknown whether one was made
            _doubted[name] = found
        elif step is not None and step != before[2]:
            lost = before

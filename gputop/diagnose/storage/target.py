"""Where a trainer writes its checkpoints: the file system that took most of the last one."""

from __future__ import annotations

import math
from itertools import takewhile
from typing import NamedTuple

from gputop.diagnose.pauses import Pause, Pauses
from gputop.diagnose.storage.advice import on
from gputop.diagnose.storage.saves import settle
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.model import Mount

_MOST = 0.5  # of the checkpoint must have gone there
_LATELY_S = 120.0  # in which one has ended that is not taken in yet


class Target(NamedTuple):
    """A file system, and the bytes of the last checkpoint."""

    mount: Mount
    last: float


def target(view: View, trainer: Trainer) -> Target | None:
    """It, as long as it is mounted; None where none was seen, or nothing tells where it went."""
    pauses, notes = view.pauses(trainer), view.notes(trainer)
    settle(view, trainer, pauses)
    newest = _newest(view, pauses, notes.get("start_s", -math.inf))
    if newest is not None and newest.written:  # a save of unknown size does not say how many more fit
        notes["start_s"] = newest.start_s
        path = _path(view, newest)
        if path is not None:
            notes["path"], notes["last"] = path, newest.written
    mounts = (mount for mount in view.frame.host.mounts if mount.path == notes.get("path"))
    return next((Target(mount, notes["last"]) for mount in mounts), None)


def _newest(view: View, pauses: Pauses, after_s: float) -> Pause | None:
    """The last checkpoint that is written, of those that began after a time: work may have paused again since."""
    now_s = view.frame.mono_s
    lately = takewhile(lambda one: one.start_s > after_s and one.end_s > now_s - _LATELY_S, reversed(pauses.known))
    return next((one for one in lately if one.settled and one.cause == "save"), None)


def _path(view: View, one: Pause) -> str | None:
    """The file server or the disk that was written to most since the pause began."""
    seconds = view.frame.mono_s - one.start_s + 1
    host = view.frame.host
    found = {m.path: _written(view, f"mount {m.path}", seconds) for m in host.mounts if m.network}
    for disk in host.disks:
        mounts = [mount for mount in host.mounts if on(mount, disk.name)]
        if len(mounts) == 1:  # of several on one disk nobody knows which
            found[mounts[0].path] = _written(view, f"disk {disk.name}", seconds)
    path = max(found, key=lambda one: found[one], default=None)
    return path if path is not None and found[path] >= _MOST * one.written else None


def _written(view: View, key: str, seconds: float) -> float:
    return sum(value or 0.0 for value in view.history.values(key, "write_bytes_per_s", seconds))

"""Frames as the lines of a recording: now and then a whole one, after it what changed from frame to frame."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import compress
from operator import attrgetter, ne
from typing import Any

from gputop.export import codec
from gputop.export.private import masked
from gputop.model import Frame, Process
from gputop.safe.text import redact_argv

WHOLE_EVERY = 60  # lines; who reads can begin at a whole frame only
IDENTITIES = {"gpus": ("uuid",), "processes": ("pid", "started_ticks"), "jobs": ("key",)}  # what tells items apart
_ALWAYS = ("wall_s", "mono_s")  # first, so that readers find them without reading the rest

Key = str | tuple[int, int]
_KEYS: dict[str, Callable[[Any], Key]] = {name: attrgetter(*fields) for name, fields in IDENTITIES.items()}


class Lines:
    """Makes the lines of one frame after the other, with secrets masked."""

    def __init__(self) -> None:
        self._before: Frame | None = None
        self._left = 0  # lines until the next whole frame

    def restart(self) -> None:
        """Begin with a whole frame: what was made last is not in the recording."""
        self._before = None

    def line(self, frame: Frame) -> tuple[str, bool]:
        """The line of a frame, and whether it holds the whole of it."""
        change = _change(self._before, frame) if self._before and self._left > 0 else None
        self._before, self._left = frame, WHOLE_EVERY - 1 if change is None else self._left - 1
        return _whole(frame) if change is None else codec.line(change), change is None


def _whole(frame: Frame) -> str:
    """The line of a frame, process by process: the pieces of them all would take a hundred bytes for each number."""
    rest = codec.dumps(codec.frame_line(replace(frame, processes=())))[:-2]
    processes = ",".join([codec.dumps(masked(process)) for process in frame.processes])
    return codec.sealed(f'{rest},"processes":[{processes}]}}}}')


def _change(before: Frame, frame: Frame) -> dict[str, Any] | None:
    """What turns one frame into the other; None where only the whole can say it."""
    changed = {**{name: getattr(frame, name) for name in _ALWAYS}, **_fields(before, frame)}
    if "host" in changed:
        changed["host"] = _fields(before.host, frame.host)
    gone: dict[str, list[Key]] = {}
    for name, key in _KEYS.items():
        items = changed.pop(name, None)
        if items is None:
            continue
        left = _left(getattr(before, name), items, key)
        if left is None:
            return None
        found = _items(getattr(before, name), items, name)
        changed |= {name: found} if found else {}
        gone |= {name: left} if left else {}
    return {"type": "change", "frame": changed, **({"gone": gone} if gone else {}), "after": before.mono_s}


def _fields(before: Any, now: Any) -> dict[str, Any]:
    kind: Any = type(now)
    names, values, _ = codec.shape(kind)
    new = values(now)
    # all in C: this is asked of every process that changed, every second
    return dict(compress(zip(names, new, strict=True), map(ne, values(before), new)))


def _left(before: Sequence[Any], now: Sequence[Any], key: Callable[[Any], Key]) -> list[Key] | None:
    """Who is gone; None unless the others are where they were, who is new comes last, and nobody is there twice."""
    old, new = dict.fromkeys(map(key, before)), dict.fromkeys(map(key, now))
    if len(old) < len(before) or len(new) < len(now):
        return None
    if old.keys() == new.keys():
        return [] if list(old) == list(new) else None
    left = [one for one in old if one not in new]
    stayed = [one for one in old if one in new]
    return left if list(new)[: len(stayed)] == stayed else None


def _items(before: Sequence[Any], now: Sequence[Any], name: str) -> list[dict[str, Any]]:
    """Who is new, whole; of the others what changed, after what tells them apart."""
    key, identity = _KEYS[name], IDENTITIES[name]
    same, old = set(map(id, before)), {key(one): one for one in before}
    found = []
    for one in now:
        if id(one) in same:
            continue
        known = old.get(key(one))
        if known is None:
            found.append(codec.said(masked(one) if isinstance(one, Process) else one))
        elif changed := _fields(known, one):
            if "command" in changed:
                changed["command"] = redact_argv(one.command)
            found.append({**{part: getattr(one, part) for part in identity}, **changed})
    return found

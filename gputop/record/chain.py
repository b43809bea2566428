"""A whole frame and the lines that say what changed after it: none is read before somebody wants its frame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gputop.export.codec import MOST_CHARS
from gputop.export.lines import IDENTITIES
from gputop.record.parse import MOST_PROCESSES, loaded

Key = tuple[int | str, ...]

MOST = 600  # lines that one whole frame may carry
_MOST_BYTES = 8 * MOST_CHARS  # that they may have


class Chain:
    """Frames that are made of those before them; with a line that is damaged all that follow are lost."""

    def __init__(self, whole: bytes) -> None:
        self._lines = [whole]
        self._size = len(whole)
        self._at = -1  # which frame `_frame` is
        self._frame: dict[str, Any] = {}
        self._lost = MOST  # from which frame on

    def add(self, line: bytes) -> int:
        """One more line; which one it is."""
        self._size += len(line)
        if len(self._lines) >= MOST or self._size > _MOST_BYTES:
            raise ValueError("too much has changed since the last whole frame")
        self._lines.append(line)
        return len(self._lines) - 1

    def frame(self, number: int) -> Mapping[str, Any] | None:
        """A frame as JSON has it, good until the next call; the first is number 0. None if it is lost.

        ValueError says in one line why the first that is lost is.
        """
        if number < self._at:
            self._at = -1
        while self._at < number < self._lost:
            try:
                self._go_on(loaded(self._lines[self._at + 1]))
            except ValueError:
                self.lose(self._at + 1)
                raise
            self._at += 1
        return self._frame if number < self._lost else None

    def lose(self, number: int) -> None:
        """What a frame says makes no sense: it is lost, and with it all that are made of it."""
        self._lost, self._at = min(self._lost, number), -1

    def _go_on(self, data: Mapping[str, Any]) -> None:
        if self._at < 0:
            self._frame = _object(data.get("frame"))
        else:
            _apply(self._frame, data)


def _apply(frame: dict[str, Any], data: Mapping[str, Any]) -> None:
    """Turn a frame into the next one."""
    if data.get("after") != frame.get("mono_s"):
        raise ValueError("a change of another frame than the one before it")
    changed, gone = _object(data.get("frame")), _object(data.get("gone", {}))
    for name, value in changed.items():
        if name == "host":
            frame[name] = {**_object(frame.get(name)), **_object(value)}
        elif name not in IDENTITIES:
            frame[name] = value
    for name, identity in IDENTITIES.items():
        if name in changed or name in gone:
            frame[name] = _items(frame.get(name, []), changed.get(name, []), gone.get(name, []), identity)


def _items(before: Any, changed: Any, gone: Any, identity: tuple[str, ...]) -> list[dict[str, Any]]:
    items = {_of(_object(one), identity): one for one in _list(before)}
    for one in _list(gone):
        items.pop(_key(one if type(one) is list else [one]), None)
    for one in _list(changed):
        key = _of(_object(one), identity)
        items[key] = {**items.get(key, {}), **one}
    if len(items) > MOST_PROCESSES:
        raise ValueError(f"{len(items)} processes are more than there can be")
    return list(items.values())


def _of(one: Mapping[str, Any], identity: tuple[str, ...]) -> Key:
    return _key([one.get(name) for name in identity])


def _key(parts: list[Any]) -> Key:
    if not all(type(part) in (int, str) for part in parts):
        raise ValueError("a change of something without identity")
    return tuple(parts)


def _object(value: Any) -> dict[str, Any]:
    if type(value) is not dict:
        raise ValueError("a change that is no object")
    return value


def _list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise ValueError("a change that is no list")
    return value

"""Frames as lines of a recording: a complete one at intervals, changes in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import compress
from operator import attrgetter, ne
from typing import Any, NamedTuple

from gputop.export import codec
from gputop.export.codec import MOST_CHARS
from gputop.export.format import masked
from gputop.model import Frame, Note, Process
from gputop.record.index import FrameClock
from gputop.record.lines import Damage
from gputop.record.parse import MOST_PROCESSES, Header, Times, frame_of, glance, loaded
from gputop.safe.text import redact_argv

WHOLE_EVERY = 60  # lines; reading can start only at a complete frame
IDENTITIES = {"gpus": ("uuid",), "processes": ("pid", "started_ticks"), "jobs": ("key",)}  # identifies items
_ALWAYS = ("wall_s", "mono_s")  # first, so that readers find them without parsing the rest

Key = str | tuple[int, int]
_KEYS: dict[str, Callable[[Any], Key]] = {name: attrgetter(*fields) for name, fields in IDENTITIES.items()}


class FrameLines:
    """Produces the line of each frame, with secrets masked."""

    def __init__(self) -> None:
        self._before: Frame | None = None
        self._left = 0  # lines until the next complete frame

    def restart(self) -> None:
        """Start with a complete frame: the last line is not in the recording."""
        self._before = None

    def line(self, frame: Frame) -> tuple[str, bool]:
        """The line of a frame, and whether it is complete."""
        change = _change(self._before, frame) if self._before and self._left > 0 else None
        self._before, self._left = frame, WHOLE_EVERY - 1 if change is None else self._left - 1
        return _whole(frame) if change is None else codec.line(change), change is None


def _whole(frame: Frame) -> str:
    """The line of a complete frame, process by process: all pieces at once would take a hundred bytes per number."""
    rest = codec.dumps(codec.frame_line(replace(frame, processes=())))[:-2]
    processes = ",".join([codec.dumps(masked(process)) for process in frame.processes])
    return codec.with_checksum(f'{rest},"processes":[{processes}]}}}}')


def _change(before: Frame, frame: Frame) -> dict[str, Any] | None:
    """The change from one frame to the other; None if only a complete frame can express it."""
    changed = {**{name: getattr(frame, name) for name in _ALWAYS}, **_fields(before, frame)}
    if "host" in changed:
        changed["host"] = _fields(before.host, frame.host)
    gone: dict[str, list[Key]] = {}
    for name, key in _KEYS.items():
        items = changed.pop(name, None)
        if items is None:
            continue
        left = _removed(getattr(before, name), items, key)
        if left is None:
            return None
        found = _changed_items(getattr(before, name), items, name)
        changed |= {name: found} if found else {}
        gone |= {name: left} if left else {}
    return {"type": "change", "frame": changed, **({"gone": gone} if gone else {}), "after": before.mono_s}


def _fields(before: Any, now: Any) -> dict[str, Any]:
    kind: Any = type(now)
    names, values, _ = codec.shape(kind)
    new = values(now)
    # all in C: called for every changed process, every second
    return dict(compress(zip(names, new, strict=True), map(ne, values(before), new)))


def _removed(before: Sequence[Any], now: Sequence[Any], key: Callable[[Any], Key]) -> list[Key] | None:
    """Removed items; None unless the others keep their order, new ones come last, and there are no duplicates."""
    old, new = dict.fromkeys(map(key, before)), dict.fromkeys(map(key, now))
    if len(old) < len(before) or len(new) < len(now):
        return None
    if old.keys() == new.keys():
        return [] if list(old) == list(new) else None
    left = [one for one in old if one not in new]
    stayed = [one for one in old if one in new]
    return left if list(new)[: len(stayed)] == stayed else None


def _changed_items(before: Sequence[Any], now: Sequence[Any], name: str) -> list[dict[str, Any]]:
    """New items in full; for the others what changed, after their identity."""
    key, identity = _KEYS[name], IDENTITIES[name]
    same, old = set(map(id, before)), {key(one): one for one in before}
    found = []
    for one in now:
        if id(one) in same:
            continue
        known = old.get(key(one))
        if known is None:
            found.append(codec.non_default_fields(masked(one) if isinstance(one, Process) else one))
        elif changed := _fields(known, one):
            if "command" in changed:
                changed["command"] = redact_argv(one.command)
            found.append({**{part: getattr(one, part) for part in identity}, **changed})
    return found


ItemKey = tuple[int | str, ...]

MOST = 600  # lines that one complete frame may carry
_MOST_BYTES = 8 * MOST_CHARS  # bytes that they may have


class DeltaChain:
    """Frames based on earlier ones; after a damaged line all following ones are lost."""

    def __init__(self, whole: bytes) -> None:
        self._lines = [whole]
        self._size = len(whole)
        self._at = -1  # number of the frame in `_frame`
        self._frame: dict[str, Any] = {}
        self._lost = MOST  # number of the first lost frame

    def add(self, line: bytes) -> int:
        """Add a line; return its number."""
        self._size += len(line)
        if len(self._lines) >= MOST or self._size > _MOST_BYTES:
            raise ValueError("too much has changed since the last whole frame")
        self._lines.append(line)
        return len(self._lines) - 1

    def frame(self, number: int) -> Mapping[str, Any] | None:
        """A frame as JSON, valid until the next call; the first is number 0. None if it is lost.

        For the first lost one ValueError says why in one line.
        """
        if number < self._at:
            self._at = -1
        while self._at < number < self._lost:
            try:
                self._apply_line(loaded(self._lines[self._at + 1]))
            except ValueError:
                self.lose(self._at + 1)
                raise
            self._at += 1
        return self._frame if number < self._lost else None

    def lose(self, number: int) -> None:
        """Declare an invalid frame lost, with all that are based on it."""
        self._lost, self._at = min(self._lost, number), -1

    def _apply_line(self, data: Mapping[str, Any]) -> None:
        if self._at < 0:
            self._frame = _object(data.get("frame"))
        else:
            _apply(self._frame, data)


def _apply(frame: dict[str, Any], data: Mapping[str, Any]) -> None:
    """Apply a change to a frame."""
    if data.get("after") != frame.get("mono_s"):
        raise ValueError("a change relative to a different frame")
    changed, gone = _object(data.get("frame")), _object(data.get("gone", {}))
    for name, value in changed.items():
        if name == "host":
            frame[name] = {**_object(frame.get(name)), **_object(value)}
        elif name not in IDENTITIES:
            frame[name] = value
    for name, identity in IDENTITIES.items():
        if name in changed or name in gone:
            frame[name] = _restored_items(frame.get(name, []), changed.get(name, []), gone.get(name, []), identity)


def _restored_items(before: Any, changed: Any, gone: Any, identity: tuple[str, ...]) -> list[dict[str, Any]]:
    items = {_of(_object(one), identity): one for one in _list(before)}
    for one in _list(gone):
        items.pop(_key(one if type(one) is list else [one]), None)
    for one in _list(changed):
        key = _of(_object(one), identity)
        items[key] = {**items.get(key, {}), **one}
    if len(items) > MOST_PROCESSES:
        raise ValueError(f"{len(items)} processes exceed the maximum")
    return list(items.values())


def _of(one: Mapping[str, Any], identity: tuple[str, ...]) -> ItemKey:
    return _key([one.get(name) for name in identity])


def _key(parts: list[Any]) -> ItemKey:
    if not all(type(part) in (int, str) for part in parts):
        raise ValueError("a change without an identity")
    return tuple(parts)


def _object(value: Any) -> dict[str, Any]:
    if type(value) is not dict:
        raise ValueError("a change that is not an object")
    return value


def _list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise ValueError("a change that is not a list")
    return value


_KEY = "recording-damaged"


class DeltaFrame(NamedTuple):
    """One frame of a recording: its number since the last complete one."""

    time: FrameClock
    chain: DeltaChain
    number: int

    @property
    def mono_s(self) -> float:
        """When it was taken, by the monotonic clock of its machine."""
        return self.time.mono_s


def steps(lines: Iterable[bytes], time: FrameClock, damage: Damage) -> Iterator[DeltaFrame]:
    """The frames of lines. After damage those up to the next complete frame are lost, as their base is unknown."""
    chain: DeltaChain | None = None
    for line in lines:
        try:
            found = glance(line)
            if isinstance(found, Header):
                time.header()
                chain = None
            elif isinstance(found, Times):
                time.step(found.wall_s, found.mono_s)
                number = 0
                if found.whole:
                    chain = DeltaChain(line)
                elif chain:
                    number = chain.add(line)
                if chain:
                    yield DeltaFrame(time.copy(), chain, number)
        except ValueError as error:
            damage.add(str(error))
            chain = None


def frame_of_step(step: DeltaFrame, damage: Damage, *, coarse: bool = False) -> Frame | None:
    """The frame with growing time and a note on damage, if any; None if it is damaged itself."""
    try:
        data = step.chain.frame(step.number)
        frame = None if data is None else frame_of(data, coarse=coarse)
    except ValueError as error:
        damage.add(str(error))
        step.chain.lose(step.number)
        return None
    if frame is None:
        return None
    time = step.time
    if (frame.wall_s, frame.mono_s) != (time.wall_s, time.mono_s):
        frame = replace(frame, wall_s=time.wall_s, mono_s=time.mono_s)
    return with_damage_note(frame, damage) if damage.count else frame


def with_damage_note(frame: Frame, damage: Damage) -> Frame:
    """The frame with the current note on damage."""
    said = Note(subject="monitor", key=_KEY, text=str(damage))
    return replace(frame, notes=(*(note for note in frame.notes if note.key != _KEY), said))

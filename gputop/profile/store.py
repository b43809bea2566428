"""Stored profiles: a private folder each, with metadata, for later comparison.

They are in the state folder as `profiles/20261120-143207-41207/`: start time and PID.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

from gputop.frozen_dataclass import frozen_dataclass
from gputop.profile.files import parse
from gputop.profile.stacks import Profile
from gputop.safe.files import Folder, Refused, in_state_folder
from gputop.safe.text import clean

FOLDER = "profiles"
SPEEDSCOPE, COLLAPSED, FLAME, META = "flame.speedscope.json", "stacks.txt", "flame.svg", "meta.json"
LEAST_FREE_BYTES = 64 << 20  # a profile that may not fit is not started
MOST_BYTES = 256 << 20
_MOST_META = 1 << 20
_MOST_LISTED = 1000
_TRIES = 100


@frozen_dataclass(frozen=True, slots=True)
class StoredProfile:
    """One stored profile. `meta` is its metadata; a foreign file may contain anything."""

    path: str
    name: str
    meta: Mapping[str, Any]

    @property
    def pid(self) -> int | None:
        """PID of its process."""
        return self._number("pid")

    @property
    def started_ticks(self) -> int | None:
        """Start time of that process in ticks, which distinguishes it from later ones with the same PID."""
        return self._number("started_ticks")

    @property
    def title(self) -> str:
        """One line: when, of which process, how long."""
        meta = self.meta
        at = meta.get("at_s")
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)) if isinstance(at, (int, float)) else self.name
        parts = [
            when,
            str(self.pid or ""),
            str(meta.get("short") or meta.get("command", ""))[:80],
            str(meta.get("how", "")),
        ]
        return clean("  ".join(part for part in parts if part))

    def open(self) -> Profile:
        """Its samples; Refused if they can no longer be read."""
        folder = in_state_folder(FOLDER)
        try:
            one = folder.inner(self.name)
            try:
                data = one.read(SPEEDSCOPE, MOST_BYTES)
            finally:
                one.close()
        finally:
            folder.close()
        if data is None:
            raise Refused(f"{self.path}/{SPEEDSCOPE} no longer exists")
        profile = parse(data.decode("utf-8", "replace"))
        profile.pid, profile.lines = self.pid, _texts(self.meta.get("lines"))
        return profile

    def _number(self, key: str) -> int | None:
        value = self.meta.get(key)
        return value if type(value) is int else None


def _texts(value: object) -> dict[str, str]:
    """Texts by name; empty if invalid."""
    if not isinstance(value, dict):
        return {}
    return {clean(name): clean(text) for name, text in value.items() if isinstance(text, str)}


def place() -> str:
    """The folder of all profiles; Refused if there can be none."""
    folder = in_state_folder(FOLDER)
    folder.close()
    return folder.path


def check_space() -> None:
    """Check that a profile can be stored, before the user waits for one; Refused says why not."""
    folder = in_state_folder(FOLDER)
    try:
        free = folder.free_bytes()
    finally:
        folder.close()
    if free < LEAST_FREE_BYTES:
        raise Refused(
            f"{folder.path}: {free >> 20} MB free on its disk: free space, or set XDG_STATE_HOME to another disk"
        )


def keep(meta: Mapping[str, Any], files: Mapping[str, bytes]) -> StoredProfile:
    """Store files in a new folder, metadata last; on a disk error Refused, with nothing left behind."""
    folder = in_state_folder(FOLDER)
    try:
        stem = f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(meta['at_s']))}-{meta['pid']}"
        name, one = _new(folder, stem)
        try:
            for file, data in {**files, META: json.dumps(meta, indent=1).encode()}.items():
                one.write(file, data)
        except Refused:
            for file in one.sizes():
                one.remove(file)
            folder.remove_folder(name)
            raise
        finally:
            one.close()
        return StoredProfile(one.path, name, meta)
    finally:
        folder.close()


def history(pid: int | None = None, started_ticks: int | None = None) -> list[StoredProfile]:
    """Stored profiles, newest first: all, of a PID, or of one process. Refused if nothing can be stored."""
    return [
        each
        for each in _all()
        if (pid is None or each.pid == pid) and (started_ticks is None or each.started_ticks == started_ticks)
    ]


def alike(command: str) -> list[StoredProfile]:
    """Stored profiles of the same command line, newest first: earlier runs to compare with."""
    return [each for each in _all() if each.meta.get("command") == command]


def _all() -> Iterator[StoredProfile]:
    folder = in_state_folder(FOLDER)
    try:
        for name in reversed(folder.folders()[-_MOST_LISTED:]):
            try:
                one = folder.inner(name)
            except Refused:
                continue
            try:
                meta = json.loads(one.read(META, _MOST_META) or b"")
            except (ValueError, RecursionError):
                continue
            finally:
                one.close()
            if isinstance(meta, dict):
                yield StoredProfile(one.path, name, meta)
    finally:
        folder.close()


def _new(folder: Folder, stem: str) -> tuple[str, Folder]:
    for number in range(1, _TRIES):
        name = stem if number == 1 else f"{stem}-{number}"
        if name not in folder.folders():
            return name, folder.inner(name, new=True)
    raise Refused(f"{folder.path}/{stem} exists {_TRIES} times")

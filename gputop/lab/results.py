"""Stored results of the lab: one private file each in the state folder; the latest can be printed again."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from gputop.model import Identity
from gputop.safe.files import Folder, Refused, in_state_folder, state_place
from gputop.safe.text import clean

FOLDER = "lab"
KEPT = 100  # of each kind
_MOST_BYTES = 16 << 20
_TRIES = 100
_LOOKED_AT = 8  # newest ones searched for one of a process
_LONGEST = 200  # characters of a summary


def keep(kind: str, result: Mapping[str, Any]) -> str:
    """Write a new file with mode 0600, and drop the oldest beyond a hundred; return its path.

    Refused on a disk error.
    """
    folder = in_state_folder(FOLDER)
    try:
        stem = f"{kind}-{time.strftime('%Y%m%d-%H%M%S', time.localtime(result['at_s']))}"
        taken = folder.sizes()
        names = (f"{stem}-{number:02}.json" for number in range(_TRIES))
        name = next((name for name in names if name not in taken), None)
        if name is None:
            raise Refused(f"{folder.path}/{stem} exists {_TRIES} times")
        folder.write(name, json.dumps(result, allow_nan=False).encode())
        for old in _names(folder, kind)[:-KEPT]:
            folder.remove(old)
        return f"{folder.path}/{name}"
    finally:
        folder.close()


def last(kind: str, factory: str | None = None) -> dict[str, Any] | None:
    """The latest readable result, of this function if given; None if there is none; creates no folder.

    Refused if nothing can be stored at all.
    """
    if not os.path.isdir(os.path.join(state_place(), "gputop", FOLDER)):
        return None
    folder = in_state_folder(FOLDER)
    try:
        for name in reversed(_names(folder, kind)):
            with contextlib.suppress(ValueError, RecursionError):
                found = json.loads(folder.read(name, _MOST_BYTES) or b"")
                if isinstance(found, dict) and factory in (None, found.get("factory")):
                    return found
        return None
    finally:
        folder.close()


class LabResult(NamedTuple):
    """The summary of a stored result in one line, and its age."""

    text: str
    age_s: float


def of(process: Identity, command: str, now_s: float) -> LabResult | None:
    """The latest complete result of a finding's command with the settings of this process; None without one.

    `command`: as in the finding, such as `gputop loader --from 41207`. Refused if nothing can be stored at all.
    """
    kind = command.split()[1]
    folder = in_state_folder(FOLDER)
    try:
        for name in reversed(_names(folder, kind)[-_LOOKED_AT:]):
            with contextlib.suppress(ValueError, RecursionError):
                found = json.loads(folder.read(name, _MOST_BYTES) or b"")
                if isinstance(found, dict) and found.get("of") == [*process] and found.get("says"):
                    return LabResult(clean(str(found["says"]), _LONGEST), max(0.0, now_s - float(found["at_s"])))
        return None
    finally:
        folder.close()


def _names(folder: Folder, kind: str) -> list[str]:
    return sorted(name for name in folder.sizes() if name.startswith(f"{kind}-") and name.endswith(".json"))

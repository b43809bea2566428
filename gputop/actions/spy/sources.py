"""The text of the user's own lines in a profile: what a program calls there in C has no frame of its own."""

from __future__ import annotations

import os
import re
import stat

from gputop.profile import Profile
from gputop.safe import plain
from gputop.safe.deadline import within
from gputop.safe.text import clean, redact

MOST_LINES, MOST_BYTES, LONGEST = 40, 4 << 20, 100
_PLACE = re.compile(r":(\d+)\)$")


def lines(profile: Profile, pid: int, uid: int | None) -> dict[str, str]:
    """Frame to the text of its line, of the most sampled ones, as the process sees its files; secrets masked.

    Root is shown no file that the user of the process could not read either: the process chose the path.
    """
    found: dict[str, str] = {}
    files: dict[str, list[bytes]] = {}
    for each in profile.own().top()[:MOST_LINES]:
        place, file = _PLACE.search(each.name), profile.files.get(each.name)
        if not place or not file or not each.self_count:
            continue
        if file not in files:
            files[file] = _lines(f"/proc/{pid}/root{file}", uid) if file.startswith("/") else []
        number = int(place[1])
        if 0 < number <= len(files[file]):
            found[each.name] = redact(clean(files[file][number - 1].decode("utf-8", "replace").strip(), LONGEST))
    return found


def _lines(path: str, uid: int | None) -> list[bytes]:
    try:
        return within(path, _read, path, uid)
    except OSError:  # it does not answer
        return []


def _read(path: str, uid: int | None) -> list[bytes]:
    try:
        fd = plain.opened(path)
    except (OSError, ValueError):
        return []
    with open(fd, "rb") as file:
        info = os.fstat(fd)
        theirs = info.st_uid == uid or info.st_mode & stat.S_IROTH
        if not theirs or info.st_size > MOST_BYTES:
            return []
        return file.read(MOST_BYTES).split(b"\n")

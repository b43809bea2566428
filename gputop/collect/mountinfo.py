"""/proc/self/mountinfo: what is mounted where, as proc_pid_mountinfo(5) lays it out."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

_ESCAPED = re.compile(rb"\\([0-7]{3})")


class Mounted(NamedTuple):
    """One mount. Its paths are for the kernel, undecodable bytes as surrogates: clean them before they are shown."""

    device: str  # major:minor of the file system, the same for all mounts of it
    root: str  # what part of the file system is seen here
    path: str
    kind: str
    source: str
    options: tuple[str, ...]  # of the file system, not of this mount


def parse(raw: bytes) -> Iterator[Mounted]:
    """Every mount, in the order they were made; lines that are none are left out."""
    for line in raw.splitlines():
        before, separator, after = line.partition(b" - ")
        left, right = before.split(b" "), after.split(b" ")
        if not separator or len(left) < 6 or len(right) < 3:
            continue
        device, root, path, kind, source, options = (unescape(part) for part in (*left[2:5], *right[:3]))
        yield Mounted(device, root, path, kind, source, tuple(options.split(",")))


def unescape(raw: bytes) -> str:
    """A path as the kernel writes it in tables: space, tab, newline and backslash are octal."""
    return os.fsdecode(_ESCAPED.sub(lambda match: bytes((int(match[1], 8) & 0xFF,)), raw))

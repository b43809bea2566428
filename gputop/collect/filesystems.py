"""File systems: what is mounted where, how large and how full each is, /dev/shm among them."""

from __future__ import annotations

import errno
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


def parse_mountinfo(raw: bytes) -> Iterator[Mounted]:
    """Every mount, in the order they were made; lines that are none are left out."""
    for line in raw.split(b"\n"):  # not splitlines: a path may hold a carriage return
        before, separator, after = line.partition(b" - ")
        left, right = before.split(b" ", 5), after.split(b" ", 2)
        if separator and len(left) == 6 and len(right) == 3:
            device, root, path = left[2:5]
            kind, source, options = right
            yield Mounted(
                device.decode("ascii", "replace"),
                unescape(root),
                unescape(path),
                kind.decode("ascii", "replace"),
                unescape(source),
                tuple(unescape(options).split(",")),
            )


def unescape(raw: bytes) -> str:
    """A path as the kernel writes it in tables: space, tab, newline and backslash are octal."""
    if b"\\" in raw:
        raw = _ESCAPED.sub(lambda match: bytes((int(match[1], 8) & 0xFF,)), raw)
    return os.fsdecode(raw)


class Size(NamedTuple):
    """Bytes of a file system, and bytes free for ordinary users."""

    total: int
    free: int


def size_of(path: str) -> Size:
    """What statvfs says; OSError where it says nothing. A dead disk, server or FUSE program never answers."""
    size = os.statvfs(path)
    return Size(size.f_blocks * size.f_frsize, size.f_bavail * size.f_frsize)


class FilesystemUse(NamedTuple):
    """Bytes of the file system, and bytes in use."""

    total: int
    used: int


def shared_memory(path: str) -> FilesystemUse:
    """What statvfs says of the file system mounted at this path; OSError where none is.

    It may block: the path of another process leads through that one's root folder.
    """
    if os.stat(path).st_dev == os.stat(os.path.dirname(path)).st_dev:
        raise FileNotFoundError(errno.ENOENT, "a folder, not a separate file system", path)
    size = os.statvfs(path)
    return FilesystemUse(size.f_blocks * size.f_frsize, (size.f_blocks - size.f_bfree) * size.f_frsize)

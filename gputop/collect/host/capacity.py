"""How large and how full file systems are."""

from __future__ import annotations

import os
from typing import NamedTuple


class Size(NamedTuple):
    """Bytes of a file system, and bytes free for ordinary users."""

    total: int
    free: int


def size_of(path: str) -> Size:
    """What statvfs says; OSError where it says nothing. A dead disk, server or FUSE program never answers."""
    size = os.statvfs(path)
    return Size(size.f_blocks * size.f_frsize, size.f_bavail * size.f_frsize)

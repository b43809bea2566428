"""How large and how full a /dev/shm is."""

from __future__ import annotations

import errno
import os
from typing import NamedTuple


class SharedMemory(NamedTuple):
    """Bytes of the file system, and bytes in use."""

    total: int
    used: int


def shared_memory(path: str) -> SharedMemory:
    """What statvfs says of the file system mounted at this path; OSError where none is.

    It may block: the path of another process leads through that one's root folder.
    """
    if os.stat(path).st_dev == os.stat(os.path.dirname(path)).st_dev:
        raise FileNotFoundError(errno.ENOENT, "a folder, not a file system of its own", path)
    size = os.statvfs(path)
    return SharedMemory(size.f_blocks * size.f_frsize, (size.f_blocks - size.f_bfree) * size.f_frsize)

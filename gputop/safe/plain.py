"""Files whose path somebody else chose, as a process in a container does: only plain ones are opened at all.

To open a device is to use it: it may wind a tape back or start a watchdog that nobody feeds.
"""

from __future__ import annotations

import errno
import os
import stat


def opened(path: str | bytes | os.PathLike[str], *, folder: int | None = None, links: bool = True) -> int:
    """A descriptor to read a plain file from, without waiting; OSError where it is none, or without `links` a link."""
    looked = os.open(path, os.O_PATH | os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW), dir_fd=folder)
    try:
        mode = os.fstat(looked).st_mode
        if stat.S_ISLNK(mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a plain file")
        return os.open(f"/proc/self/fd/{looked}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    finally:
        os.close(looked)

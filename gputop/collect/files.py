"""Small files of the kernel, read whole in one call: the hot path of everything about processes."""

from __future__ import annotations

import errno
import os
import resource
from typing import Literal

from gputop.collect.gate import Gate
from gputop.model import Reason

_FLAGS = os.O_RDONLY | os.O_CLOEXEC
_CHUNK = 1 << 16

_REASONS: dict[int | None, Reason | Literal["gone"]] = {
    errno.ENOENT: "gone",
    errno.ESRCH: "gone",
    errno.ENOTDIR: "gone",
    errno.EACCES: "denied",
    errno.EPERM: "denied",
    errno.EOPNOTSUPP: "unsupported",
    errno.ENOSYS: "unsupported",
    errno.EINVAL: "unsupported",
    errno.ENODEV: "unsupported",
    errno.ETIMEDOUT: "stale",
}


def slurp(path: str, size: int = 4096) -> bytes:
    """What one read gives, at most `size` bytes; OSError as the kernel gave it."""
    fd = os.open(path, _FLAGS)
    try:
        return os.read(fd, size)
    finally:
        os.close(fd)


def slurp_all(path: str, limit: int) -> bytes:
    """A file of which the kernel hands out a page or so at a time, up to about `limit` bytes; OSError as it came."""
    fd = os.open(path, _FLAGS)
    try:
        parts, size = [], 0
        while size < limit and (part := os.read(fd, _CHUNK)):
            parts.append(part)
            size += len(part)
        return b"".join(parts)
    finally:
        os.close(fd)


def entries(path: str, _: int = 0) -> bytes:
    """How many names there are in a folder, as text; OSError as it came."""
    return b"%d" % len(os.listdir(path))


def why(error: OSError) -> Reason | Literal["gone"]:
    """What an error says about a process's file; `gone` is the process, or a file that this kernel does not have."""
    return _REASONS.get(error.errno, "lost")


class Shelf:
    """Room for files of /proc that stay open: to open and close one costs more than to read it.

    Only the kernel's own files may stay open. It answers each read anew, for the process that was there when the file
    was opened: once that has ended the file says so, and never speaks of another process with its pid.
    """

    MOST = 2048
    OTHERS = 256  # descriptors left to everything else

    def __init__(self, root: str = "/proc", gate: Gate | None = None) -> None:
        self.gate = gate or Gate()  # through which all of them are read
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.room = 0 if root != "/proc" else max(0, min(self.MOST, (soft - self.OTHERS) // 2))


class Kept:
    """One file that is read again and again, open in between where the shelf has room."""

    __slots__ = ("_fd", "_path", "_shelf")

    def __init__(self, path: str, shelf: Shelf) -> None:
        self._path, self._shelf = path, shelf
        self._fd = -1

    def read(self, size: int = 4096) -> bytes:
        """What one read gives, at most `size` bytes; OSError as the kernel gave it."""
        return self._shelf.gate.ask(self._path, self._read, size)

    def _read(self, size: int) -> bytes:
        if self._fd >= 0:
            return os.pread(self._fd, size, 0)
        fd = os.open(self._path, _FLAGS)
        try:
            raw = os.read(fd, size)
        except OSError:
            os.close(fd)
            raise
        if self._shelf.room > 0:
            self._shelf.room -= 1
            self._fd = fd
        else:
            os.close(fd)
        return raw

    def close(self) -> None:
        """Give the room back; the next read opens the file again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._shelf.room += 1

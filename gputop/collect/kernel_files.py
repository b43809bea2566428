"""The files of the kernel, /proc and /sys: small ones read whole in one call; a test gives copies of them."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable
from typing import Literal

from gputop.collect.lane import LaneGate, LaneSilent
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Reason
from gputop.safe.text import decode

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


class FdCache:
    """Room for files of /proc that stay open: to open and close one costs more than to read it.

    Only the kernel's own files may stay open. It answers each read afresh, for the process that was there when the file
    was opened: once that has ended the file says so, and never speaks of another process with its pid.
    """

    MOST = 2048
    OTHERS = 256  # descriptors left to everything else

    def __init__(self, root: str = "/proc", gate: LaneGate | None = None) -> None:
        self.gate = gate or LaneGate()  # through which all of them are read
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.room = 0 if root != "/proc" else max(0, min(self.MOST, (soft - self.OTHERS) // 2))


class CachedFile:
    """One file that is read again and again, kept open in between where the cache has room."""

    __slots__ = ("_fd", "_path", "_shelf")

    def __init__(self, path: str, shelf: FdCache) -> None:
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


Read = Callable[[str], bytes]

_LIMIT = 1 << 24  # a mount table of tens of thousands of lines


def read_file(path: str) -> bytes:
    """All bytes of a file; OSError as the kernel gave it."""
    return slurp_all(path, _LIMIT)


def reason(error: Exception) -> Reason:
    """Why a read gave no value, in the model's words; text that is not as documented counts as unsupported."""
    if not isinstance(error, OSError):
        return "unsupported"
    known = why(error)
    return "absent" if known == "gone" else known


@frozen_dataclass(frozen=True, slots=True)
class Kernel:
    """Where /proc, /sys and shared memory are, and the function that reads a file."""

    proc_root: str = "/proc"
    sys_root: str = "/sys"
    shm: str = "/dev/shm"
    read: Read = read_file
    listed: Callable[[str], list[str]] = os.listdir

    def proc(self, name: str) -> bytes:
        """A file of /proc; OSError where there is none."""
        return self.read(f"{self.proc_root}/{name}")

    def sys(self, name: str) -> bytes:
        """A file of /sys; OSError where there is none."""
        return self.read(f"{self.sys_root}/{name}")

    def word(self, name: str) -> str | None:
        """The clean text of a small file of /sys; None where it has none."""
        try:
            return decode(self.sys(name).strip(), 256) or None
        except LaneSilent:
            raise
        except OSError:
            return None

    def number(self, name: str) -> int | None:
        """The number a small file of /sys holds; None where it holds none, or is not there."""
        try:
            return int(self.sys(name))
        except LaneSilent:
            raise
        except (OSError, ValueError):
            return None

    def names(self, name: str) -> tuple[str, ...]:
        """What a folder of /sys holds, sorted; nothing where it is not there."""
        return self._names(f"{self.sys_root}/{name}")

    def proc_names(self, name: str) -> tuple[str, ...]:
        """The same of a folder of /proc."""
        return self._names(f"{self.proc_root}/{name}")

    def _names(self, folder: str) -> tuple[str, ...]:
        try:
            return tuple(sorted(self.listed(folder)))
        except OSError:
            return ()

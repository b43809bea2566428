"""Small files of the kernel, read whole in one call: the hot path of everything about processes."""

from __future__ import annotations

import errno
import os
from typing import Literal

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


def why(error: OSError) -> Reason | Literal["gone"]:
    """What an error says about a process's file; `gone` is the process, or a file that this kernel does not have."""
    return _REASONS.get(error.errno, "lost")

"""Process handles that are immune to PID reuse: pidfd_open(2), Linux 5.3.

Called by syscall number: `os.pidfd_open` is missing if Python was built with older kernel headers, and actions would be
refused on a kernel that supports it.
"""

from __future__ import annotations

import ctypes
import os
import select
from collections.abc import Iterable
from functools import cache
from typing import Any

_SEND, _OPEN = 424, 434  # the same on all architectures but alpha; include/uapi/asm-generic/unistd.h


def open_pidfd(pid: int) -> int:
    """A descriptor for a process, closed on exec. OSError: ESRCH gone, EINVAL a thread, ENOSYS and EPERM no pidfds."""
    return _call(_OPEN, pid, 0)


def send(fd: int, number: int) -> None:
    """Send a signal; 0 only checks permission. OSError: ESRCH gone, EPERM not allowed."""
    _call(_SEND, fd, number, 0, 0)


def ended(fds: Iterable[int], wait_s: float = 0.0) -> set[int]:
    """Descriptors of processes that have ended with all threads; waits up to `wait_s` for the first."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return {fd for fd, _ in poll.poll(max(0, round(wait_s * 1000)))}


def _call(number: int, *arguments: int) -> int:
    result: int = _syscall()(*map(ctypes.c_long, (number, *arguments)))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))  # raises the specific class: PermissionError, ProcessLookupError
    return result


@cache
def _syscall() -> Any:
    function = ctypes.CDLL(None, use_errno=True).syscall
    function.restype = ctypes.c_long
    return function

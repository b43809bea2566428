"""Handles on processes that no later process with the same pid can take over: pidfd_open(2), Linux 5.3.

Called by number: Python's own `os.pidfd_open` is missing where Python was built with older kernel headers than the
kernel it runs on has, and then the safe way would be refused on a kernel that offers it.
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
    """Send a signal; 0 only asks whether one could be sent. OSError: ESRCH gone, EPERM not allowed."""
    _call(_SEND, fd, number, 0, 0)


def ended(fds: Iterable[int], wait_s: float = 0.0) -> set[int]:
    """Those whose process has ended, with all of its threads; waits so long for a first one."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return {fd for fd, _ in poll.poll(max(0, round(wait_s * 1000)))}


def _call(number: int, *arguments: int) -> int:
    result: int = _syscall()(*map(ctypes.c_long, (number, *arguments)))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))  # of the right kind: PermissionError, ProcessLookupError
    return result


@cache
def _syscall() -> Any:
    function = ctypes.CDLL(None, use_errno=True).syscall
    function.restype = ctypes.c_long
    return function

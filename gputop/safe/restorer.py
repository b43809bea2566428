"""A child that gives the terminal back where the program cannot: it was ended by SIGKILL."""

from __future__ import annotations

import os
import signal
import termios
import time
from collections.abc import Callable

_NAME = b"gputop-restore"  # as ps and top show it; the kernel keeps fifteen characters
_REAP_S = 0.2


class Restorer:
    """Waits for the end of this process in a session of its own, so that no signal of the terminal reaches it."""

    def __init__(self, restore: Callable[[], None], keep: int) -> None:
        """`restore` runs in the child, after an end without a word; of the files only `keep` is open there."""
        reader, self._writer = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                if _holds_at_the_end(reader, keep):
                    restore()
            finally:
                os._exit(0)
        os.close(reader)

    def holds(self, terminal: bool) -> None:
        """Whether the terminal is the program's now; while it is suspended the shell has it back."""
        try:
            os.write(self._writer, b"+" if terminal else b"-")
        except OSError:  # somebody has ended it
            pass

    def dismiss(self) -> None:
        """The terminal has been given back: it ends, and is waited for, but not for long."""
        try:
            os.write(self._writer, b".")
            os.close(self._writer)
            deadline = time.monotonic() + _REAP_S
            while os.waitpid(self._pid, os.WNOHANG)[0] == 0 and time.monotonic() < deadline:
                time.sleep(0.001)
        except OSError:  # somebody has ended it
            pass


def _holds_at_the_end(reader: int, keep: int) -> bool:
    """Waits until the pipe is closed: whether the program held the terminal then, and gave it back to nobody."""
    os.setsid()
    for number in range(1, signal.NSIG):
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            try:
                signal.signal(number, signal.SIG_DFL)
            except (OSError, ValueError):
                pass
    least, most = sorted((reader, keep))
    os.closerange(0, least)
    os.closerange(least + 1, most)
    os.closerange(most + 1, os.sysconf("SC_OPEN_MAX"))
    with open("/proc/self/comm", "wb", buffering=0) as comm:
        comm.write(_NAME)
    held = False
    while (word := os.read(reader, 1)) in (b"+", b"-"):
        held = word == b"+"
    return held and not word


def still_ours(tty: int) -> bool:
    """Whether the line is as a full-screen program left it: a shell that reads by itself lets the line make signals."""
    return not termios.tcgetattr(tty)[3] & (termios.ICANON | termios.ISIG)

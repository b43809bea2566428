"""Signals that end us, but for a hangup that whoever started us has turned off: what `nohup` began goes on."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Thread
from time import sleep

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def on_ending(take: Callable[[int, object], None], numbers: Iterable[int] = ENDINGS) -> None:
    """Have the signals taken, from now on. Main thread only.

    Ctrl+C counts also where a shell has it ignored, as a script does for what it runs in the background: with the
    script its recorder is to end.
    """
    for number in numbers:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, take)


DEAF_LOOKS, _LOOK_S = 3, 0.4  # in a row, until the main thread counts as stuck in the kernel
_PENDING = (b"SigPnd:", b"ShdPnd:")


def end_when_deaf() -> None:
    """End the command when the main thread does not get to an ending signal, in a thread of its own.

    A call on a dead mount lets no handler run, and only a signal without a handler would interrupt it.
    """
    # a thread that could take the signal itself would leave nothing pending, and the main thread never hears of it
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
    Thread(target=_listen, name="endings", daemon=True).start()
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def waiting(status: bytes) -> int:
    """The first ending signal that is pending and not blocked, by the text of /proc/PID/status; 0 for none."""
    fields = {key: value for key, _, value in (line.partition(b"\t") for line in status.splitlines())}
    try:
        pending = int(fields[_PENDING[0]], 16) | int(fields[_PENDING[1]], 16)
        open_ = pending & ~int(fields[b"SigBlk:"], 16)
    except (KeyError, ValueError):
        return 0
    return next((int(number) for number in ENDINGS if open_ >> (number - 1) & 1), 0)


def _listen() -> None:
    looks = 0
    while looks < DEAF_LOOKS:
        sleep(_LOOK_S)
        try:
            with open("/proc/self/status", "rb") as file:
                number = waiting(file.read())
        except OSError:
            return
        looks = looks + 1 if number else 0
    with suppress(OSError, ValueError):  # closed
        os.write(sys.stderr.fileno(), b"gputop: ended while a file did not answer: a dead mount?\n")
    os._exit(128 + number)

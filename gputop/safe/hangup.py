"""Signals that end us, but for a hangup that whoever started us has turned off: what `nohup` began goes on."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def on_ending(take: Callable[[int, object], None], numbers: Iterable[int] = ENDINGS) -> None:
    """Have the signals taken, from now on. Main thread only.

    Ctrl+C counts also where a shell has it ignored, as a script does for what it runs in the background: with the
    script its recorder is to end.
    """
    for number in numbers:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, take)

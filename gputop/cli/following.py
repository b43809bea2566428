"""Following a source for some time, with a sink that takes what comes: until it ends, is over, or somebody ends it."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Protocol

from gputop.cli.line import OK
from gputop.cli.opening import say_damage, uncollected
from gputop.safe.hangup import on_ending

if TYPE_CHECKING:
    from gputop.monitor import Monitor, Update

_NOTICE_S = 0.5  # how soon it is said that the disk is full


class Sink(Protocol):
    """What writes updates down."""

    @property
    def problem(self) -> str | None:
        """Why nothing is written now."""

    @property
    def missed(self) -> int:
        """How many updates are not in the file."""

    def take(self, update: Update) -> None:
        """Write an update down, now or soon."""


def follow(
    monitor: Monitor,
    sink: Sink,
    seconds: float | None,
    apart_s: float = 0.0,
    longer: Callable[[float], bool] = lambda _: False,
) -> int:
    """Feed a sink for so many seconds of its source, or until it ends or a signal comes; the exit code.

    `longer` is asked once they are over, with the seconds since then: whether to go on for another frame.
    """
    over: SimpleQueue[int | Exception | None] = SimpleQueue()
    on_ending(lambda number, _: over.put(128 + number))
    first_s: float | None = None
    due_s = -math.inf

    def take(update: Update) -> None:
        nonlocal first_s, due_s
        frame, slack_s = update.frame, 0.1 * monitor.source.interval_s
        if first_s is None:
            first_s = frame.mono_s
            for note in frame.notes:
                if note.subject == "driver":
                    sys.stderr.write(f"gputop: {note.text}\n")
        if frame.mono_s >= due_s - slack_s:
            due_s = frame.mono_s + apart_s
            sink.take(update)
        # a frame stands for the time until the next one
        over_s = 0.0 if seconds is None else frame.mono_s - first_s - seconds + monitor.source.interval_s
        if seconds is not None and over_s >= -slack_s and not longer(over_s):
            over.put(None)
            monitor.stop()

    monitor.start(take, over.put)
    ended = _watched(over, lambda: sink.problem)
    monitor.stop()
    say_damage(monitor.source)
    if isinstance(ended, Exception):
        raise uncollected(ended)
    return OK if ended is None else ended


def _watched(over: SimpleQueue[int | Exception | None], problem: Callable[[], str | None]) -> int | Exception | None:
    """Wait for the end; what goes wrong meanwhile is said once, and that it goes on."""
    said: str | None = None
    while True:
        try:
            return over.get(timeout=_NOTICE_S)
        except Empty:
            now = problem()
            if now != said and (now is None or said is None):
                sys.stderr.write(f"gputop: {now or 'it goes on'}\n")
                said = now

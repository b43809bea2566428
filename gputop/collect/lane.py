"""A lane: a daemon thread that reads again and again and publishes its newest result."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event, Thread
from typing import Generic, TypeVar

T = TypeVar("T")
NOTICE_S = 0.5  # how soon a pause takes notice of another interval


def pause(stopped: Event, left_s: Callable[[], float]) -> bool:
    """Wait until nothing is left of a time that may change meanwhile; True as soon as it is over for good."""
    while (rest_s := left_s()) > 0:
        if stopped.wait(min(rest_s, NOTICE_S)):
            return True
    return stopped.is_set()


class Lane(Generic[T]):
    """Reads when it is nudged. Nobody joins it: `read` may be inside a call that never returns."""

    def __init__(self, name: str, read: Callable[[], T], start: T) -> None:
        self.name = name
        self.latest: T = start  # swapped whole; its own time is inside
        self.error: str | None = None  # what the last read raised, in one line
        self._read = read
        self._wanted, self._done, self._stopped = Event(), Event(), False

    def start(self) -> None:
        """Begin to listen for nudges."""
        Thread(target=self._run, name=self.name, daemon=True).start()

    def nudge(self) -> None:
        """Ask for one read; while one is under way it is not asked twice."""
        self._done.clear()
        self._wanted.set()

    def settled(self, until_s: float) -> bool:
        """Wait for the read that was asked for, no longer than until this time of the monotonic clock."""
        return self._done.wait(max(0.0, until_s - time.monotonic()))

    def stop(self) -> None:
        """Let the thread end when it comes back."""
        self._stopped = True
        self._wanted.set()

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            if self._stopped:
                return
            try:
                self.latest = self._read()
                self.error = None
            except Exception as error:  # one bad read costs one tick; the frame's notes carry it
                self.error = f"{type(error).__name__}: {error}"
            self._done.set()

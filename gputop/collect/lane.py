"""A lane: a daemon thread that reads again and again and publishes its newest result."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from threading import Event, Thread, get_ident
from typing import Generic, TypeVar

T = TypeVar("T")

MOST = 8  # threads that wait for a file; where more hang, nothing is read any more
SAME_KIND = 2  # files of a kind that may hang, as those of as many processes; then no other one is asked


class LaneSilent(TimeoutError):
    """A file that hangs, and is not asked again before it answers."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.ETIMEDOUT, "does not answer", path)


class Superseded(Exception):
    """The file answered after all, but another thread has taken over: this one must not go on."""


class LaneGate:
    """Every read of one lane goes through it. Only reads of the thread that works return."""

    def __init__(self) -> None:
        self.at: str | None = None  # the file that is being read
        self.reads = 0  # so far: whether a thread gets on
        self.hung: dict[str, tuple[int, float]] = {}  # by path: the thread that waits for it, and since when
        self._owner: int | None = None  # None: any thread

    def ask(self, path: str, call: Callable[..., T], *arguments: object) -> T:
        """The result of a call that reads this file; LaneSilent where it would hang."""
        if self.hung:
            self._refuse(path)
        self.reads += 1
        self.at = path
        try:
            return call(*arguments)
        finally:
            if self._owner is not None and self._owner != get_ident():
                raise Superseded
            self.at = None

    def take(self) -> None:
        """From now on this thread is the one that works."""
        self._owner = get_ident()

    def leave(self) -> None:
        """This thread has come back: nothing hangs any more that it waited for."""
        own = get_ident()
        for path in [path for path, (thread, _) in list(self.hung.items()) if thread == own]:
            self.hung.pop(path, None)

    def supersede(self, now_s: float) -> bool:
        """Replace the thread that works: the file it waits for is not asked again before it answers."""
        path = self.at
        if path is None or self._owner is None or len(self.hung) >= MOST:
            return False
        self.hung[path] = self._owner, now_s
        self._owner, self.at = -1, None
        return True

    def _refuse(self, path: str) -> None:
        kind = _kind(path)
        if path in self.hung or sum(_kind(other) == kind for other in list(self.hung)) >= SAME_KIND:
            raise LaneSilent(path)


def _kind(path: str) -> str:
    """What two files have in common that may hang for the same reason."""
    return "cgroup" if "/cgroup/" in path else path.rpartition("/")[2]


NOTICE_S = 0.5  # how soon a pause takes notice of another interval


def pause(stopped: Event, left_s: Callable[[], float]) -> bool:
    """Wait until nothing is left of a time that may change during the wait; True as soon as it is over for good."""
    while (rest_s := left_s()) > 0:
        if stopped.wait(min(rest_s, NOTICE_S)):
            return True
    return stopped.is_set()


class Lane(Generic[T]):
    """Reads when it is nudged. It is never joined: `read` may be inside a call that never returns."""

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

"""Calls with a deadline, for paths chosen by other processes: a path on a dead mount never responds.

A thread inside such a call cannot be ended, and Python sees no Ctrl+C there. The call runs in a daemon thread, and the
caller, whose wait signals interrupt, continues without it.
"""

from __future__ import annotations

import errno
import os
import selectors
import time
from collections.abc import Callable, Iterable
from threading import Event, Lock, Thread
from typing import Any, Generic, Protocol, TypeVar


class _File(Protocol):
    def fileno(self) -> int: ...


_F = TypeVar("_F", bound=_File)


def readable(files: Iterable[_F], seconds: float) -> list[_F]:
    """The files that are readable or at their end within `seconds`; empty after a timeout.

    Not with select.select: it refuses descriptors from 1024 on, and jobs with many threads need that many files of
    /proc.
    """
    with selectors.PollSelector() as waiting:
        by_number = {file.fileno(): file for file in files}
        for number in by_number:
            waiting.register(number, selectors.EVENT_READ)
        return [by_number[key.fd] for key, _ in waiting.select(seconds)]


T = TypeVar("T")

DEADLINE_S = 2.0
MOST = 16  # threads that never returned; beyond that further calls are refused


class NoAnswer(TimeoutError):
    """The path does not respond; an OSError, like any other reason why it is unusable."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.ETIMEDOUT, "does not respond (dead mount?)", path)


class _Call(Generic[T]):
    """One call in its thread; `late` after its caller has given up."""

    def __init__(self, path: str, call: Callable[..., T], arguments: tuple[Any, ...]) -> None:
        self.path, self._call, self._arguments = path, call, arguments
        self.done = Event()
        self.result: list[T] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result.append(self._call(*self._arguments))
        except BaseException as error:
            self.error = error
        self.done.set()
        with _lock:
            if self in _late:
                _late.remove(self)
                self.result.clear()  # closes a socket or file in it


_late: list[_Call[Any]] = []
_lock = Lock()


def within(path: str | bytes, call: Callable[..., T], *arguments: Any, seconds: float | None = None) -> T:
    """The result of a call on this path; NoAnswer after the deadline.

    A path that has not responded is not tried again until it does.
    """
    name = os.fsdecode(path)
    with _lock:
        if len(_late) >= MOST or any(late.path == name for late in _late):
            raise NoAnswer(name)
    asked = _Call(name, call, arguments)
    try:
        Thread(target=asked.run, name="deadline", daemon=True).start()
    except RuntimeError as error:  # this user's thread limit is reached
        raise OSError(errno.EAGAIN, str(error), name) from None
    until_s = time.monotonic() + (DEADLINE_S if seconds is None else seconds)
    while not asked.done.wait(max(0.0, until_s - time.monotonic())):
        with _lock:
            if not asked.done.is_set():
                _late.append(asked)
                raise NoAnswer(name)
    if asked.error is not None:
        raise asked.error
    return asked.result.pop()

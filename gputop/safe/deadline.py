"""Calls on paths that another process chose, each with a deadline: what lies on a dead mount never answers.

A thread inside such a call cannot be ended, and Python sees no Ctrl+C there. So the call is made in a daemon thread,
and the caller, whose wait signals interrupt, goes on without it.
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
    """Those that can be read, or have ended, within so many seconds; none if there is none until then.

    Not by select.select: it refuses numbers from 1024 on, and so many files of /proc are open where jobs have many
    threads.
    """
    with selectors.PollSelector() as waiting:
        by_number = {file.fileno(): file for file in files}
        for number in by_number:
            waiting.register(number, selectors.EVENT_READ)
        return [by_number[key.fd] for key, _ in waiting.select(seconds)]


T = TypeVar("T")

DEADLINE_S = 2.0
MOST = 16  # threads that never came back; beyond that nothing is asked any more


class NoAnswer(TimeoutError):
    """The path does not answer; an OSError, as every other reason why it cannot be used."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.ETIMEDOUT, "does not answer: a dead mount?", path)


class _Call(Generic[T]):
    """One call in its thread; `late` once nobody waits for it any more."""

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
                self.result.clear()  # a socket or a file in it is closed


_late: list[_Call[Any]] = []
_lock = Lock()


def within(path: str | bytes, call: Callable[..., T], *arguments: Any, seconds: float | None = None) -> T:
    """The result of a call that uses this path; NoAnswer where it does not come in time.

    A path that has not answered is not asked again until it does.
    """
    name = os.fsdecode(path)
    with _lock:
        if len(_late) >= MOST or any(late.path == name for late in _late):
            raise NoAnswer(name)
    asked = _Call(name, call, arguments)
    try:
        Thread(target=asked.run, name="deadline", daemon=True).start()
    except RuntimeError as error:  # this user may have no more threads
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

"""How large and how full file systems are, asked in threads of their own: a dead server answers never."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from threading import Thread
from typing import NamedTuple

PATIENCE_S = 2.0  # an answer that takes longer is stale


class Size(NamedTuple):
    """Bytes of a file system, and bytes free for ordinary users."""

    total: int
    free: int


class _Question:
    """One statvfs under way; the thread leaves its answer here."""

    def __init__(self, asked_s: float, before: Size | OSError | None) -> None:
        self.asked_s = asked_s
        self.before = before
        self.answer: Size | OSError | None = None


def size_of(path: str) -> Size:
    """What statvfs says; OSError where it says nothing."""
    size = os.statvfs(path)
    return Size(size.f_blocks * size.f_frsize, size.f_bavail * size.f_frsize)


class Capacity:
    """Sizes by path, each renewed from time to time; never more than one question under way for a path."""

    def __init__(self, ask: Callable[[str], Size] = size_of, every_s: float = 30.0) -> None:
        self._ask = ask
        self._every_s = every_s
        self._questions: dict[str, _Question] = {}

    def size(self, path: str, now_s: float) -> Size | OSError | None:
        """The last answer, an error too; None while there is none; TimeoutError for a path that does not answer."""
        question = self._questions.get(path)
        if question is None or (question.answer is not None and now_s - question.asked_s >= self._every_s):
            question = self._questions[path] = self._start(path, now_s, question)
        if question.answer is None and now_s - question.asked_s >= PATIENCE_S:
            return TimeoutError(path)
        return question.answer or question.before

    def keep(self, paths: frozenset[str]) -> None:
        """Forget every other path but one that hangs: were it forgotten, it would be asked again when it is back."""
        self._questions = {
            path: question for path, question in self._questions.items() if path in paths or question.answer is None
        }

    def _start(self, path: str, now_s: float, last: _Question | None) -> _Question:
        question = _Question(now_s, last.answer if last else None)

        def run() -> None:
            try:
                question.answer = self._ask(path)
            except OSError as error:
                question.answer = error

        try:
            Thread(target=run, name="capacity", daemon=True).start()
        except RuntimeError as error:  # this user may have no more threads; it is asked again in time
            question.answer = OSError(errno.EAGAIN, str(error))
        return question

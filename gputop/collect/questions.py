"""Questions about many things, each asked in a thread of its own: one that is never answered costs its own thing."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Collection, Iterable
from threading import Event, Thread
from typing import Generic, TypeVar

T = TypeVar("T")

PATIENCE_S = 2.0  # an answer that takes longer is stale
AT_ONCE_S = 0.05  # most answers come at once, and are waited for
MOST = 32  # threads that wait for answers; more questions are not asked meanwhile


class _Question(Generic[T]):
    """One question under way; the thread leaves its answer here."""

    def __init__(self, asked_s: float, before: T | OSError | None) -> None:
        self.asked_s = asked_s
        self.before = before
        self.answer: T | OSError | None = None
        self.answered = Event()


class Questions(Generic[T]):
    """Answers by key, each renewed from time to time; never more than one question under way for a key."""

    def __init__(self, ask: Callable[[str], T], every_s: float = 30.0) -> None:
        self._ask = ask
        self._every_s = every_s
        self._questions: dict[str, _Question[T]] = {}

    def ask(self, keys: Iterable[str], now_s: float) -> None:
        """Ask about these what was not asked lately, and wait a moment for the answers."""
        fresh: list[_Question[T]] = []
        until_s, room = time.monotonic() + AT_ONCE_S, MOST - self._waiting()
        for key in keys:
            question = self._questions.get(key)
            if question is None or (question.answer is not None and now_s - question.asked_s >= self._every_s):
                if room <= 0:
                    _wait(fresh, until_s)
                    room = MOST - self._waiting()
                if room <= 0:
                    break
                self._questions[key] = question = self._start(key, now_s, question)
                fresh.append(question)
                room -= 1
        _wait(fresh, until_s)

    def answer(self, key: str, now_s: float) -> T | OSError | None:
        """The last answer, an error too; None while there is none; TimeoutError for a key that is not answered."""
        question = self._questions.get(key)
        if question is None:
            return TimeoutError(key) if self._waiting() >= MOST else None
        if question.answer is None and now_s - question.asked_s >= PATIENCE_S:
            return TimeoutError(key)
        return question.before if question.answer is None else question.answer

    def keep(self, keys: Collection[str]) -> None:
        """Forget every other key but one that hangs: were it forgotten, it would be asked again when it is back."""
        self._questions = {
            key: question for key, question in self._questions.items() if key in keys or question.answer is None
        }

    def hang(self, now_s: float) -> list[tuple[str, float]]:
        """Keys that are not answered, and since when."""
        return [
            (key, question.asked_s)
            for key, question in self._questions.items()
            if question.answer is None and now_s - question.asked_s >= PATIENCE_S
        ]

    def _waiting(self) -> int:
        return sum(question.answer is None for question in self._questions.values())

    def _start(self, key: str, now_s: float, last: _Question[T] | None) -> _Question[T]:
        question: _Question[T] = _Question(now_s, last.answer if last else None)

        def run() -> None:
            try:
                question.answer = self._ask(key)
            except OSError as error:
                question.answer = error
            except Exception as error:  # what nobody foresaw costs this answer only
                question.answer = OSError(errno.EIO, f"{type(error).__name__}: {error}")
            question.answered.set()

        try:
            Thread(target=run, name="question", daemon=True).start()
        except RuntimeError as error:  # this user may have no more threads; it is asked again in time
            question.answer = OSError(errno.EAGAIN, str(error))
            question.answered.set()
        return question


def _wait(questions: Iterable[_Question[T]], until_s: float) -> None:
    for question in questions:
        question.answered.wait(max(0.0, until_s - time.monotonic()))

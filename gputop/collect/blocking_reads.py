"""Reads that may never return, on few threads: one that hangs costs its own answer only."""

from __future__ import annotations

import errno
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable
from threading import Condition, Event, Lock, Thread
from typing import Generic, TypeVar

from gputop.model import Host

T = TypeVar("T")

PATIENCE_S = 2.0  # an answer that takes longer is stale
AT_ONCE_S = 0.05  # most answers come at once, and are waited for
MOST = 32  # threads that wait for answers; with as many, no more questions are asked


class _Question(Generic[T]):
    """One question under way; the thread leaves its answer here."""

    def __init__(self, asked_s: float, before: T | OSError | None) -> None:
        self.asked_s = asked_s
        self.before = before
        self.answer: T | OSError | None = None
        self.answered = Event()


class PendingAnswers(Generic[T]):
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
            except Exception as error:  # an unforeseen error costs this answer only
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


LATE_S = 0.1  # a read that takes longer keeps the thread it is on; another thread goes on with the rest


class RepeatedRead:
    """One read that is done again and again; it handles its own errors."""

    def __init__(self, read: Callable[[], None]) -> None:
        self.read = read
        self.asked_s: float | None = None  # by the crew's clock; None once it is done
        self.began_s: float | None = None  # by the monotonic clock, while it is under way
        self.worker: _Worker | None = None  # the thread it has for itself, if it was ever late


class _Worker:
    """One thread: the jobs that wait for it, and the one it is at."""

    def __init__(self, lock: Lock, jobs: deque[RepeatedRead]) -> None:
        self.wake = Condition(lock)
        self.jobs = jobs
        self.job: RepeatedRead | None = None
        self.stopped = False


class ReaderPool:
    """Does the jobs it is asked for, on one thread and one more for each job that was ever late.

    A job that hangs is not begun again before it returns, and nothing joins its thread.
    """

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._name, self._clock = name, clock
        self._lock = Lock()  # guards all below, the workers and the fields of the jobs
        self._idle = Condition(self._lock)
        self._shared: _Worker | None = None  # serves every job that returns in time
        self._asked: set[RepeatedRead] = set()
        self._apart: list[RepeatedRead] = []  # jobs that have a thread of their own

    def ask(self, jobs: Iterable[RepeatedRead]) -> None:
        """Have these done, except for those that wait or are under way already; RuntimeError without a thread."""
        with self._lock:
            if self._shared is None:
                self._shared = self._hire(deque())
            self._watch()
            now_s, woken = self._clock(), set[_Worker]()
            for job in jobs:
                if job.asked_s is None:
                    job.asked_s = now_s
                    self._asked.add(job)
                    worker = job.worker or self._shared
                    worker.jobs.append(job)
                    woken.add(worker)
            for worker in woken:
                worker.wake.notify()

    def settled(self, until_s: float) -> bool:
        """Wait for what was asked, no longer than until this time of the monotonic clock; a late job is not waited for.

        True if nothing is left.
        """
        with self._lock:
            while True:
                self._watch()
                now_s = time.monotonic()
                left_s = [LATE_S if job.began_s is None else job.began_s + LATE_S - now_s for job in self._asked]
                awaited_s = [seconds for seconds in left_s if seconds > 0]
                if not awaited_s or now_s >= until_s:
                    return not self._asked
                self._idle.wait(min(*awaited_s, until_s - now_s))

    def stop(self) -> None:
        """Let each thread end after the job it is at."""
        with self._lock:
            workers = [job.worker for job in self._apart]
            for worker in (*workers, self._shared):
                if worker is not None:
                    worker.stopped = True
                    worker.wake.notify()
            for job in self._apart:
                job.worker = None
            self._apart.clear()
            self._shared = None

    def _watch(self) -> None:
        """Leave the shared thread to a job that is late, and let another one go on with the rest."""
        worker = self._shared
        job = None if worker is None else worker.job
        if worker is None or job is None or job.began_s is None or time.monotonic() - job.began_s < LATE_S:
            return
        try:
            self._shared = self._hire(worker.jobs)
        except RuntimeError:  # this user may have no more threads: the rest waits, and ages
            return
        worker.jobs, job.worker = deque(), worker
        self._apart.append(job)

    def _hire(self, jobs: deque[RepeatedRead]) -> _Worker:
        worker = _Worker(self._lock, jobs)
        Thread(target=self._run, args=(worker,), name=self._name, daemon=True).start()
        return worker

    def _run(self, worker: _Worker) -> None:
        while True:
            with self._lock:
                if (done := worker.job) is not None:
                    worker.job = done.asked_s = done.began_s = None
                    self._asked.discard(done)
                    if not worker.jobs:
                        self._idle.notify_all()
                while not worker.jobs:
                    if worker.stopped:
                        return
                    worker.wake.wait()
                job = worker.job = worker.jobs.popleft()
                job.began_s = time.monotonic()
            job.read()


ASIDE_LATE_S = 5.0


class BackgroundReader(ABC):
    """A reader beside another one. What it keeps for that one is swapped whole, as they are read by two threads."""

    fills: tuple[str, ...] = ()
    every_s = 0.0

    def __init__(self) -> None:
        self._since_s: float | None = None  # since when a read has been under way

    def late(self, now_s: float) -> bool:
        """Whether a read has been under way for so long that the last value is out of date."""
        since_s = self._since_s
        return since_s is not None and now_s - since_s >= ASIDE_LATE_S

    def read(self, now_s: float) -> Host:
        """Look; nothing of it stands in this Host."""
        self._since_s = now_s
        try:
            self.look(now_s)
        finally:
            self._since_s = None
        return Host()

    @abstractmethod
    def look(self, now_s: float) -> None:
        """Read what there is."""

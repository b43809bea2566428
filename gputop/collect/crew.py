"""Reads that may never return, on few threads: one thread does all in turn, and a read that is late keeps its own."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from threading import Condition, Lock, Thread

LATE_S = 0.1  # a read that takes longer keeps the thread it is on; another thread goes on with the rest


class Job:
    """One read that is done again and again; it handles its own errors."""

    def __init__(self, read: Callable[[], None]) -> None:
        self.read = read
        self.asked_s: float | None = None  # by the crew's clock; None once it is done
        self.began_s: float | None = None  # by the monotonic clock, while it is under way
        self.worker: _Worker | None = None  # the thread it has for itself, if it was ever late


class _Worker:
    """One thread: the jobs that wait for it, and the one it is at."""

    def __init__(self, lock: Lock, jobs: deque[Job]) -> None:
        self.wake = Condition(lock)
        self.jobs = jobs
        self.job: Job | None = None
        self.stopped = False


class Crew:
    """Does the jobs it is asked for, on one thread and one more for each job that was ever late.

    A job that hangs is not begun again before it returns, and nothing joins its thread.
    """

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._name, self._clock = name, clock
        self._lock = Lock()  # guards all below, the workers and the fields of the jobs
        self._idle = Condition(self._lock)
        self._shared: _Worker | None = None  # serves every job that returns in time
        self._asked: set[Job] = set()
        self._apart: list[Job] = []  # jobs that have a thread of their own

    def ask(self, jobs: Iterable[Job]) -> None:
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

    def _hire(self, jobs: deque[Job]) -> _Worker:
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

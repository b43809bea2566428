"""What the threads of a simulated process use of the CPUs: now, and since it started."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from gputop.demo.generator import around, spent
from gputop.demo.server import Job, Work
from gputop.model import Role

_FULL = 99.6  # percent of a core: no single thread of a loader uses more

Amount = Callable[[float, float, int, float], float]  # of a load, its noise, its seed, and the most there can be


class Cores(NamedTuple):
    """Percent of a core, or seconds: of the main thread, and of each of the others that compute."""

    main: float
    each: float = 0.0
    others: int = 0

    @property
    def all(self) -> float:
        """Of the process."""
        return self.main + self.each * self.others


Threads = Callable[[Work, int, Amount], Cores]  # of a kind of process, with its pid


def rank(work: Work, pid: int, amount: Amount) -> Cores:
    """A rank: its main thread, and a pool."""
    main, pool = amount(work.main_cpu, 0.015, pid, 100.0), amount(work.pool_cpu, 0.05, pid + 1, math.inf)
    return Cores(main, pool, work.pool_threads)


def loader(work: Work, pid: int, amount: Amount) -> Cores:
    """A loader: threads beside its main one only where that is not enough."""
    others = math.ceil(work.loader_cpu / 100) - 1 if work.loader_cpu > 100 else 0
    main = amount(work.loader_cpu, 0.06, pid, _FULL)
    more = amount(work.loader_cpu, 0.06, pid, math.inf) - main if others else 0.0
    return Cores(main, more / others if others else 0.0, others)


def now(threads: Threads, work: Work, pid: int, t: float) -> Cores:
    """Percent of a core at t."""
    return threads(work, pid, lambda load, share, seed, most: min(most, around(load, share, seed, t)))


def so_far(job: Job, role: Role, pid: int, started_s: float, t: float) -> list[Cores]:
    """CPU seconds from its start to t, for each phase of its work: they grow by what it uses now."""
    threads, found = rank if role is Role.TRAINER else loader, []
    for start_s, end_s, work in job.phases(t, job.card(pid)):
        if end_s > started_s:
            one = threads(work, pid, partial(spent, since_s=max(start_s, started_s), until_s=end_s))
            found.append(Cores(one.main / 100, one.each / 100, one.others))
    return found

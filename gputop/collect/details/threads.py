"""The threads of an open process: what each does, how long it waits for a CPU, where it sleeps."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable

from gputop.collect.details.calls import system_call
from gputop.collect.files import slurp
from gputop.collect.processes.readings import Values, run_and_wait, sleeps_in, switches, waited_percent
from gputop.collect.rates import Counters
from gputop.model import Identity, Missing, Thread
from gputop.safe import attach
from gputop.safe.identity import Stat, parse_stat

FILLS = ("threads", "threads_count")
MOST = 1024  # threads that are read; of a process that has more, the oldest
REFUSED_S = 30.0  # a file that was denied is asked for again after this


class _Task:
    """One thread from look to look."""

    def __init__(self) -> None:
        self.run, self.switches = Counters(), Counters()
        self.raw = b""
        self.state = ""
        self.counts: tuple[int | None, int | None] = (None, None)
        self.waiting_in: str | None = None
        self.system_call: str | None = None


class Tasks:
    """Reads all threads at each look; of those that have not run since the last one, half as much."""

    def __init__(self, root: str, identity: Identity, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._clock = f"{root}/{identity.pid}/task", clock
        self._known: dict[int, _Task] = {}
        self._hertz = os.sysconf("SC_CLK_TCK")
        self._refused_s, self._refusal = 0.0, 0  # since when system calls are not asked for, and the kernel's error

    def read(self) -> Values:
        """The threads, with rates from the second look on; OSError when the process has gone or hides them."""
        tids = sorted(int(name) for name in os.listdir(self._folder))
        self._known = {tid: self._known.get(tid) or _Task() for tid in tids[:MOST]}
        threads = [thread for tid, task in self._known.items() if (thread := self._thread(tid, task)) is not None]
        return {"threads": tuple(threads), "threads_count": len(tids), "missing": self._missing(threads)}

    def _thread(self, tid: int, task: _Task) -> Thread | None:
        """One thread; None when it has ended meanwhile."""
        folder = f"{self._folder}/{tid}"
        try:
            stat, now_s = parse_stat(slurp(f"{folder}/stat")), self._clock()
            if stat is None:
                return None
            run, wait = self._ran(folder, stat, task, now_s)
            asked, forced = task.switches.rates(now_s, task.counts)
        except (OSError, ValueError):
            return None
        ticks = None if stat.user_ticks is None or stat.system_ticks is None else stat.user_ticks + stat.system_ticks
        return Thread(
            tid=tid,
            name=stat.comm,
            state=stat.state,
            cpu_percent=None if run is None else min(100.0, run / 1e7),
            run_wait_percent=waited_percent(run, wait),
            waiting_in=task.waiting_in,
            system_call=task.system_call,
            last_cpu=stat.cpu,
            voluntary_switches_per_s=asked,
            involuntary_switches_per_s=forced,
            cpu_time_s=None if ticks is None else ticks / self._hertz,
        )

    def _ran(self, folder: str, stat: Stat, task: _Task, now_s: float) -> tuple[float | None, float | None]:
        """Nanoseconds a second it ran and waited to run; where it sleeps and its switches change only if it ran."""
        try:
            raw = slurp(f"{folder}/schedstat", 128)
            counts: tuple[int | None, int | None] = run_and_wait(raw)
        except (OSError, ValueError):  # a kernel without these statistics: CPU time by the clock tick
            raw = b""
            user, system = stat.user_ticks, stat.system_ticks
            ticks = None if user is None or system is None else (user + system) * 1_000_000_000 // self._hertz
            counts = (ticks, None)
        if not raw or raw != task.raw or stat.state != task.state:
            task.raw, task.state = raw, stat.state
            self._where(folder, stat, task, now_s)
        run, wait = task.run.rates(now_s, counts)
        return run, wait

    def _where(self, folder: str, stat: Stat, task: _Task, now_s: float) -> None:
        task.counts = switches(slurp(f"{folder}/status", 16384))
        task.waiting_in = task.system_call = None
        if stat.state in "RZX":
            return
        try:
            task.waiting_in = sleeps_in(slurp(f"{folder}/wchan", 128))
        except OSError:
            pass  # a kernel without it
        if self._refusal and now_s - self._refused_s < REFUSED_S:
            return
        try:
            task.system_call = system_call(slurp(f"{folder}/syscall", 256))
            self._refusal = 0
        except OSError as error:
            self._refused_s, self._refusal = now_s, error.errno or 0

    def _missing(self, threads: list[Thread]) -> tuple[Missing, ...]:
        missing = []
        if self._refusal in (errno.EACCES, errno.EPERM):
            unlock = attach.unlock()
            if unlock and self._refusal == errno.EPERM and os.geteuid() != 0:  # root needs the capability too
                unlock += f", or {attach.ALLOW}"
            missing.append(Missing(metric="system_call", reason="denied", unlock=unlock))
            asleep = [thread for thread in threads if thread.state in ("S", "D")]
            if self._refusal == errno.EACCES and asleep and not any(thread.waiting_in for thread in asleep):
                missing.append(Missing(metric="waiting_in", reason="denied", unlock=attach.unlock()))
        elif self._refusal:
            missing.append(Missing(metric="system_call", reason="unsupported"))
        return tuple(missing)

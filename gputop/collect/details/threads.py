"""The threads of an open process: what each does, how long it waits for a CPU, where it sleeps."""

from __future__ import annotations

import errno
import os
import platform
import time
from collections.abc import Callable

from gputop.collect.kernel_files import slurp
from gputop.collect.proc.proc_files import Values, run_and_wait, sleeps_in, switches, waited_percent
from gputop.collect.rates import Counters
from gputop.model import Identity, Missing, Thread
from gputop.safe import ptrace_access
from gputop.safe.identity import Stat, parse_stat

# include/uapi/asm-generic/unistd.h, and arch/x86/entry/syscalls/syscall_64.tbl: (x86-64, arm64) of each
_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "read": (0, 63), "write": (1, 64), "open": (2, None), "close": (3, 57), "stat": (4, None), "fstat": (5, 80),
    "poll": (7, None), "mmap": (9, 222), "munmap": (11, 215), "ioctl": (16, 29), "pread64": (17, 67),
    "pwrite64": (18, 68), "readv": (19, 65), "writev": (20, 66), "select": (23, None), "madvise": (28, 233),
    "pause": (34, None), "nanosleep": (35, 101), "sendfile": (40, 71), "connect": (42, 203), "accept": (43, 202),
    "sendto": (44, 206), "recvfrom": (45, 207), "sendmsg": (46, 211), "recvmsg": (47, 212), "wait4": (61, 260),
    "semop": (65, 193), "msgrcv": (70, 188), "flock": (73, 32), "fsync": (74, 82), "fdatasync": (75, 83),
    "ftruncate": (77, 46), "getdents": (78, None), "rename": (82, None), "unlink": (87, None),
    "rt_sigsuspend": (130, 133), "rt_sigtimedwait": (128, 137), "sync": (162, 81), "futex": (202, 98),
    "getdents64": (217, 61), "semtimedop": (220, 192), "fadvise64": (221, 223), "clock_nanosleep": (230, 115),
    "epoll_wait": (232, None), "waitid": (247, 95), "openat": (257, 56), "newfstatat": (262, 79),
    "unlinkat": (263, 35), "pselect6": (270, 72), "ppoll": (271, 73), "splice": (275, 76),
    "sync_file_range": (277, 84), "epoll_pwait": (281, 22), "fallocate": (285, 47), "accept4": (288, 242),
    "preadv": (295, 69), "pwritev": (296, 70), "recvmmsg": (299, 243), "syncfs": (306, 267),
    "process_vm_readv": (310, 270), "finit_module": (313, 273), "preadv2": (327, 286), "pwritev2": (328, 287),
    "statx": (332, 291), "io_uring_enter": (426, 426), "openat2": (437, 437), "epoll_pwait2": (441, 441),
    "futex_waitv": (449, 449), "futex_wait": (455, 455),
}  # fmt: skip
_COLUMNS = {"x86_64": 0, "aarch64": 1}


def _table(machine: str) -> dict[int, str]:
    column = _COLUMNS.get(machine)
    if column is None:
        return {}
    return {number: name for name, numbers in _NUMBERS.items() if (number := numbers[column]) is not None}


_CALLS = _table(platform.machine())


def system_call(raw: bytes) -> str | None:
    """The name of the call in a `syscall` file; None when the thread runs, or is in none."""
    first = raw.split(None, 1)[0] if raw.strip() else b""
    if not first.isdigit():  # running, or -1: blocked outside a call, at a page fault say
        return None
    number = int(first)
    return _CALLS.get(number, f"call {number}")


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


class ThreadReader:
    """Reads all threads at each sample; of those that have not run since the last one, half as much."""

    def __init__(self, root: str, identity: Identity, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._clock = f"{root}/{identity.pid}/task", clock
        self._known: dict[int, _Task] = {}
        self._hertz = os.sysconf("SC_CLK_TCK")
        self._refused_s, self._refusal = 0.0, 0  # since when system calls are not asked for, and the kernel's error

    def read(self) -> Values:
        """The threads, with rates from the second sample on; OSError when the process has gone or hides them."""
        tids = sorted(int(name) for name in os.listdir(self._folder))
        self._known = {tid: self._known.get(tid) or _Task() for tid in tids[:MOST]}
        threads = [thread for tid, task in self._known.items() if (thread := self._thread(tid, task)) is not None]
        return {"threads": tuple(threads), "threads_count": len(tids), "missing": self._missing(threads)}

    def _thread(self, tid: int, task: _Task) -> Thread | None:
        """One thread; None if it has ended since."""
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
            unlock = ptrace_access.unlock()
            if unlock and self._refusal == errno.EPERM and os.geteuid() != 0:  # root needs the capability too
                unlock += f", or {ptrace_access.ALLOW}"
            missing.append(Missing(metric="system_call", reason="denied", unlock=unlock))
            asleep = [thread for thread in threads if thread.state in ("S", "D")]
            if self._refusal == errno.EACCES and asleep and not any(thread.waiting_in for thread in asleep):
                missing.append(Missing(metric="waiting_in", reason="denied", unlock=ptrace_access.unlock()))
        elif self._refusal:
            missing.append(Missing(metric="system_call", reason="unsupported"))
        return tuple(missing)

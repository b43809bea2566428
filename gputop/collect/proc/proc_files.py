"""The files of /proc/PID, in the units in which this kernel counts: one declared reading a file."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import field, replace
from functools import lru_cache
from typing import Any, Literal

from gputop.collect.kernel_files import entries, slurp, why
from gputop.collect.rates import Counters
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Missing, Reason
from gputop.safe import ptrace_access
from gputop.safe.identity import Stat, read_stat
from gputop.safe.text import decode


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """What the numbers in /proc mean."""

    ticks_per_s: int = field(default_factory=lambda: os.sysconf("SC_CLK_TCK"))
    page_bytes: int = field(default_factory=lambda: os.sysconf("SC_PAGE_SIZE"))
    online: frozenset[int] | None = None  # CPUs; an affinity may name others
    delays_from_ticks: float | None = None  # since when new processes have their delays counted; None: they have not

    def delays_of(self, stat: Stat) -> bool:
        """Whether field 42 counts: the kernel keeps delays only of what was started after they were enabled."""
        since = self.delays_from_ticks
        return since is not None and (stat.started_ticks or 0) >= since

    def cpus(self, affinity: str) -> int | None:
        """How many CPUs a list of ranges allows of those that are online."""
        try:
            allowed = cpus(affinity)
        except ValueError:
            return None
        return len(allowed if self.online is None else allowed & self.online) or None

    @property
    def cpu_count(self) -> int:
        """How many CPUs there are."""
        return len(self.online) if self.online else os.cpu_count() or 1

    def renewed(self, first: bool, boot_s: float, proc: str, sys: str, read: Callable[[str], bytes] = slurp) -> Scale:
        """The same after another reading of what may change."""
        try:
            online = cpus(read(f"{sys}/devices/system/cpu/online").decode("ascii", "replace"))
        except (OSError, ValueError):
            online = None
        since = self.delays_from_ticks
        if not delays_on(proc, read):
            since = None
        elif since is None:
            since = 0.0 if first else boot_s * self.ticks_per_s
        return replace(self, online=online, delays_from_ticks=since)


def delays_on(proc: str, read: Callable[[str], bytes] = slurp) -> bool:
    """Whether the kernel counts how long a process waits for storage, for those it starts from now on."""
    try:
        return read(f"{proc}/sys/kernel/task_delayacct").strip() == b"1"
    except OSError as error:
        if why(error) != "gone":
            return False
    # before Linux 5.14 there is no such setting: it is on if the first process, which has read from disk, shows it
    stat = read_stat(1, proc)
    return stat is not None and bool(stat.io_wait_ticks)


@lru_cache(maxsize=256)
def cpus(ranges: str) -> frozenset[int]:
    """The CPUs of a list of ranges, 0-3,8; ValueError if it is none."""
    found: set[int] = set()
    for part in ranges.strip().split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


Values = dict[str, Any]  # fields of a Process
When = Literal["tick", "slow", "seen"]  # slow: every few seconds; seen: the same, but only while it is on the screen

QUOTA, QUOTA_FILLS = "cpu.max", ("allowed_cpus", "throttled_percent")  # of the process's control group
UNLOCK_DELAYS = "sudo sysctl -w kernel.task_delayacct=1"


@frozen_dataclass(frozen=True, slots=True)
class ProcFile:
    """One file, the metrics it fills, and how its text becomes them; ValueError: the kernel does not keep them."""

    file: str
    fills: tuple[str, ...]
    values: Callable[[bytes, Counters, float, Scale], Values]
    when: When
    size: int  # as long as it gets: one read takes it whole
    take: Callable[[str, int], bytes]


def reading(
    file: str, *fills: str, when: When = "tick", size: int = 4096, take: Callable[[str, int], bytes] = slurp
) -> Callable[[Callable[[bytes, Counters, float, Scale], Values]], ProcFile]:
    """Declares the function below it as the one source of these metrics."""
    return lambda values: ProcFile(file, fills, values, when, size, take)


# filled by ProcessState, which reads this file first, of every process
STAT_FILLS = (
    "cpu_percent", "cpu_time_s", "age_s", "threads", "last_cpu", "nice", "rss_bytes", "major_faults_per_s",
    "io_wait_percent", "blocked_percent",
)  # fmt: skip


def stat_values(stat: Stat, counters: Counters, now_s: float, scale: Scale) -> Values:
    """CPU of all threads, the main thread's place and delays. Percentages are of one core."""
    hertz = scale.ticks_per_s
    user, system = stat.user_ticks, stat.system_ticks
    ticks = None if user is None or system is None else user + system
    waited_ticks = stat.io_wait_ticks if scale.delays_of(stat) else None
    busy, faults, waited = counters.rates(now_s, (ticks, stat.major_faults, waited_ticks))
    return {
        "cpu_percent": None if busy is None else 100 * busy / hertz,
        "cpu_time_s": None if ticks is None else ticks / hertz,
        "threads": stat.threads,
        "last_cpu": stat.cpu,
        "nice": stat.nice,
        "rss_bytes": None if stat.rss_pages is None else stat.rss_pages * scale.page_bytes,
        "major_faults_per_s": faults,
        "io_wait_percent": None if waited is None else min(100.0, 100 * waited / hertz),
    }


_IO = (b"rchar:", b"wchar:", b"syscr:", b"syscw:", b"read_bytes:", b"write_bytes:")


@reading(
    "io", "read_bytes_per_s", "write_bytes_per_s", "read_chars_per_s", "write_chars_per_s", "read_calls_per_s",
    "write_calls_per_s", "mean_read_bytes",
)  # fmt: skip
def io(raw: bytes, counters: Counters, now_s: float, _: Scale) -> Values:
    """Bytes and calls, of storage and of everything else; the owner's alone."""
    words = raw.split()
    if tuple(words[:12:2]) == _IO:  # every kernel but a made-up one
        counts: list[int | None] = [int(word) for word in words[1:12:2]]
    else:
        found = dict(zip(words[::2], words[1::2], strict=False))
        counts = [int(found[name]) if name in found else None for name in _IO]
    read_chars, written_chars, reads, writes, read, written = counters.rates(now_s, counts)
    return {
        "read_bytes_per_s": read,
        "write_bytes_per_s": written,
        "read_chars_per_s": read_chars,
        "write_chars_per_s": written_chars,
        "read_calls_per_s": reads,
        "write_calls_per_s": writes,
        "mean_read_bytes": read_chars / reads if reads and read_chars is not None else None,
    }


def run_and_wait(raw: bytes) -> tuple[int, int]:
    """Nanoseconds a thread ran and waited to run; ValueError where the kernel does not count them."""
    run, wait, slices = raw.split()
    if run == b"0" == slices:
        raise ValueError("the kernel keeps no scheduler statistics")
    return int(run), int(wait)


@reading("schedstat", "main_thread_percent", "main_run_wait_percent", size=128)
def schedstat(raw: bytes, counters: Counters, now_s: float, _: Scale) -> Values:
    """How much the main thread ran, and how much it waited for a CPU."""
    run, wait = counters.rates(now_s, run_and_wait(raw))
    return {
        "main_thread_percent": None if run is None else min(100.0, run / 1e7),
        "main_run_wait_percent": waited_percent(run, wait),
    }


def waited_percent(run: float | None, wait: float | None) -> float | None:
    """Waiting of waiting and running; what wanted no CPU has waited for none."""
    if run is None or wait is None:
        return None
    return 100 * wait / (run + wait) if wait else 0.0


@reading("statm", "shared_bytes", when="slow", size=256)
def statm(raw: bytes, _: Counters, _now_s: float, scale: Scale) -> Values:
    """Resident pages of files and shared memory."""
    return {"shared_bytes": int(raw.split()[2]) * scale.page_bytes}


@reading(
    "status", "affinity", "memory_nodes", "swap_bytes", "voluntary_switches_per_s", "involuntary_switches_per_s",
    when="slow", size=16384,
)  # fmt: skip
def status(raw: bytes, counters: Counters, now_s: float, _: Scale) -> Values:
    """Affinity, swap, and context switches: of the main thread; busy ones are added by the sampler of threads."""
    affinity, swap = line(raw, b"\nCpus_allowed_list:"), line(raw, b"\nVmSwap:")
    nodes = line(raw, b"\nMems_allowed_list:")
    voluntary, involuntary = counters.rates(now_s, switches(raw))
    return {
        "affinity": decode(affinity) if affinity else None,
        "memory_nodes": decode(nodes) if nodes else None,
        "swap_bytes": int(swap.split()[0]) * 1024 if swap else None,
        "voluntary_switches_per_s": voluntary,
        "involuntary_switches_per_s": involuntary,
    }


def switches(raw: bytes) -> tuple[int | None, int | None]:
    """Context switches of the thread whose status this is: asked for, and forced on it."""
    asked, forced = line(raw, b"\nvoluntary_ctxt_switches:"), line(raw, b"\nnonvoluntary_ctxt_switches:")
    return int(asked) if asked else None, int(forced) if forced else None


def line(raw: bytes, name: bytes) -> bytes:
    """The rest of the line that begins with this name, its newline included; empty if there is none."""
    start = raw.find(name)
    if start < 0:
        return b""
    start += len(name)
    end = raw.find(b"\n", start)
    return raw[start : end if end >= 0 else len(raw)].strip()


@reading("wchan", "waiting_in", when="slow", size=128)
def wchan(raw: bytes, _: Counters, _now_s: float, _scale: Scale) -> Values:
    """Where in the kernel the main thread sleeps."""
    return {"waiting_in": sleeps_in(raw)}


def sleeps_in(raw: bytes) -> str | None:
    """The function that a wchan names, as in the kernel's source: without the .isra.0 of a compiler's copy of it.

    0 is nowhere, or not for us to know.
    """
    name = decode(raw.strip(b"\x00\n")).partition(".")[0]
    return name if name not in ("", "0") else None


@reading("fd", "open_files", when="seen", take=entries)
def descriptors(raw: bytes, _: Counters, _now_s: float, _scale: Scale) -> Values:
    """How many files are open: the owner's alone, and a walk over all of them for the kernel."""
    return {"open_files": int(raw)}


READINGS: tuple[ProcFile, ...] = (io, schedstat, statm, status, wchan, descriptors)


@lru_cache(maxsize=256)
def missing(troubles: tuple[tuple[str, Reason], ...]) -> tuple[Missing, ...]:
    """What files that gave nothing leave unknown; one shared tuple for the same troubles."""
    filled = {reading.file: reading.fills for reading in READINGS} | {QUOTA: QUOTA_FILLS}
    return tuple(
        Missing(metric=name, reason=reason, unlock=_unlock(name, reason, file))
        for file, reason in troubles
        for name in filled.get(file, (file,))
    )


def _unlock(name: str, reason: Reason, file: str) -> str | None:
    if reason == "stale":
        return f"its file {file} does not answer"
    if name == "io_wait_percent":
        return UNLOCK_DELAYS
    return ptrace_access.unlock() if reason == "denied" else None

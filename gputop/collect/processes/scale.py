"""The units in which this kernel counts, and what it counts at all; some of that may change while we look."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import field, replace
from functools import lru_cache

from gputop.collect.files import slurp, why
from gputop.declare import record
from gputop.safe.identity import Stat, read_stat


@record(frozen=True, slots=True, kw_only=True)
class Scale:
    """What the numbers in /proc mean."""

    ticks_per_s: int = field(default_factory=lambda: os.sysconf("SC_CLK_TCK"))
    page_bytes: int = field(default_factory=lambda: os.sysconf("SC_PAGE_SIZE"))
    online: frozenset[int] | None = None  # CPUs; an affinity may name others
    delays_from_ticks: float | None = None  # since when new processes have their delays counted; None: they have not

    def delays_of(self, stat: Stat) -> bool:
        """Whether field 42 counts: the kernel only keeps delays of what was started after it was told to."""
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
        """The same after another look at what may change."""
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

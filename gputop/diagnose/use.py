"""What all who share a machine take of its CPUs and disks, added up by job, else by user and control group, over time.

A build is one user of CPUs, though none of its compilers lives for more than seconds: its use is that of the group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gputop.declare import record
from gputop.history import Track
from gputop.model import Process, Unit, metric

_LEAST_CORES, _LEAST_BYTES = (
    0.05,
    1e5,
)  # less is nobody's trouble, and keeps most groups of a machine out of the history
_KEPT_S = 60.0  # after that
_BRIEF_S = 3.0  # age of a process whose use since the last look is its use since it started
CORES, MOVED = "group_cores", "group_moved_bytes_per_s"


@record(frozen=True, slots=True, kw_only=True)
class Use:
    """What one group takes."""

    group_cores: float | None = metric(Unit.COUNT, "CPU cores in use, all its processes", history=True)
    group_moved_bytes_per_s: float | None = metric(Unit.BYTES_PER_S, "read from and written to storage", history=True)


USE = Track(Use, coarse=True, mortal=True)


def group(process: Process) -> str:
    """Which group a process counts with, as the history keeps it."""
    return f"use {process.job or f'{process.uid} {process.cgroup}'}"


def cores(process: Process) -> float:
    """CPU cores in use; of a process that has just begun, what it used since then."""
    if process.cpu_percent is not None:
        return process.cpu_percent / 100
    if process.age_s is None or process.cpu_time_s is None or process.age_s > _BRIEF_S:
        return 0.0
    return process.cpu_time_s / max(1.0, process.age_s)


def moved(process: Process) -> float:
    """Bytes a second from and to storage, as far as they are known."""
    return (process.read_bytes_per_s or 0.0) + (process.write_bytes_per_s or 0.0)


class Row(NamedTuple):
    """A group at this moment, and when it last took something."""

    cores: float
    moved: float
    used_s: float


def added_up(processes: Iterable[Process], now_s: float, before: Mapping[str, Row]) -> dict[str, Row]:
    """Every group that takes something, or did a short while ago."""
    sums: dict[str, list[float]] = {}
    for process in processes:
        if process.unseen is not None:
            continue
        used, bytes_per_s = cores(process), moved(process)
        if used or bytes_per_s:
            row = sums.setdefault(group(process), [0.0, 0.0])
            row[0] += used
            row[1] += bytes_per_s
    found = {}
    for key in sums.keys() | before.keys():
        used, bytes_per_s = sums.get(key, (0.0, 0.0))
        takes = used >= _LEAST_CORES or bytes_per_s >= _LEAST_BYTES
        used_s = now_s if takes else before[key].used_s if key in before else now_s - _KEPT_S
        if now_s - used_s < _KEPT_S:
            found[key] = Row(used, bytes_per_s, used_s)
    return found

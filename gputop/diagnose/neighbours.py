"""Processes unrelated to a trainer, and what every group of processes uses of the CPUs and disks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from gputop.diagnose.job_tree import DEEPEST
from gputop.frozen_dataclass import frozen_dataclass
from gputop.history import MetricTrack
from gputop.model import Frame, Identity, Process, Unit, metric


def unrelated(frame: Frame, trainer: Process) -> Iterator[Process]:
    """Processes that are not of the trainer's job, cannot be, and did not start it."""
    by_pid = {process.pid: process for process in frame.processes if process.unseen is None}
    above = list(_ancestors(by_pid, trainer))
    started = {one.identity for one in above}
    shells = {one.identity for one in _certain_ancestors(above, trainer)} if trainer.group is not None else set()
    # in a pipe with it, or in one script; a launcher may put its ranks into separate groups
    together = {None, *(one.group for one in (trainer, *above))}
    for process in by_pid.values():
        if process.identity in started:
            continue
        apart = process.job is None and process.group not in together
        if _belongs_elsewhere(process, trainer) or (
            apart and _another_command(_ancestors(by_pid, process), trainer, shells)
        ):
            yield process


def _certain_ancestors(above: Sequence[Process], trainer: Process) -> Iterator[Process]:
    """Ancestors of a trainer that certainly started what runs below them.

    The first process of a container or control group may have adopted orphans of others.
    """
    for one, its_parent in pairwise(above):
        if None is not one.cgroup == its_parent.cgroup == trainer.cgroup:
            yield one


def _belongs_elsewhere(process: Process, trainer: Process) -> bool:
    """Whether it belongs to another job, user or control group."""
    if process.job is not None:
        return process.job != trainer.job
    return process.uid != trainer.uid or process.cgroup not in (None, trainer.cgroup)


def _another_command(above: Iterable[Process], trainer: Process, shells: Collection[Identity]) -> bool:
    """Whether a common ancestor started the other process by a different command."""
    for one in above:
        if one.identity in shells:
            return True
        if one.identity == trainer.identity:
            break
    return False


def _ancestors(by_pid: Mapping[int, Process], process: Process) -> Iterator[Process]:
    """The ancestors of a process, its parent first."""
    for _ in range(DEEPEST):
        parent = by_pid.get(process.parent_pid)
        if parent is None:
            return
        yield parent
        process = parent


_LEAST_CORES, _LEAST_BYTES = 0.05, 1e5  # less is harmless; keeps most groups out of the history
_KEPT_S = 60.0  # after that
_BRIEF_S = 3.0  # seconds of age up to which a process's use since start counts as its current use
CORES, MOVED = "group_cores", "group_moved_bytes_per_s"


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class GroupUse:
    """What one group uses."""

    group_cores: float | None = metric(Unit.COUNT, "CPU cores in use, all its processes", history=True)
    group_moved_bytes_per_s: float | None = metric(Unit.BYTES_PER_S, "read from and written to storage", history=True)


USE = MetricTrack(GroupUse, coarse=True, mortal=True)


def group_key(process: Process) -> str:
    """The group that a process counts toward, as the history keeps it."""
    return f"use {process.job or f'{process.uid} {process.cgroup}'}"


def cores(process: Process) -> float:
    """CPU cores in use; for a new process, the mean since it started."""
    if process.cpu_percent is not None:
        return process.cpu_percent / 100
    if process.age_s is None or process.cpu_time_s is None or process.age_s > _BRIEF_S:
        return 0.0
    return process.cpu_time_s / max(1.0, process.age_s)


def moved_bytes_per_s(process: Process) -> float:
    """Storage I/O in bytes/s, as far as known."""
    return (process.read_bytes_per_s or 0.0) + (process.write_bytes_per_s or 0.0)


class GroupRow(NamedTuple):
    """Current use of a group, and when it last used anything."""

    cores: float
    moved: float
    used_s: float


def group_uses(processes: Iterable[Process], now_s: float, before: Mapping[str, GroupRow]) -> dict[str, GroupRow]:
    """Every group that uses something, or did recently."""
    sums: dict[str, list[float]] = {}
    for process in processes:
        if process.unseen is not None:
            continue
        used, bytes_per_s = cores(process), moved_bytes_per_s(process)
        if used or bytes_per_s:
            row = sums.setdefault(group_key(process), [0.0, 0.0])
            row[0] += used
            row[1] += bytes_per_s
    found = {}
    for key in sums.keys() | before.keys():
        used, bytes_per_s = sums.get(key, (0.0, 0.0))
        takes = used >= _LEAST_CORES or bytes_per_s >= _LEAST_BYTES
        used_s = now_s if takes else before[key].used_s if key in before else now_s - _KEPT_S
        if now_s - used_s < _KEPT_S:
            found[key] = GroupRow(used, bytes_per_s, used_s)
    return found

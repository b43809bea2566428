"""What each experiment, and each program beside them, takes of the machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from gputop import known
from gputop.declare import record
from gputop.diagnose.cpu.threads import pool
from gputop.diagnose.room import affinity, part, together
from gputop.diagnose.tree import key, members
from gputop.model import Frame, Gpu, Identity, Job, Process, Role

WINDOW_S = 30.0


class Past(Protocol):
    """What is read of a history."""

    def values(self, key: str | Identity, metric: str, seconds: float, step_s: float = 1.0) -> Sequence[float | None]:
        """The last `seconds` of a metric, oldest first, None for a gap."""
        ...


def mean(past: Past, about: str | Identity, metric: str) -> float | None:
    """The mean of the last half minute; None where nothing is known."""
    known = [value for value in past.values(about, metric, WINDOW_S) if value is not None]
    return sum(known) / len(known) if known else None


@record(frozen=True, slots=True, kw_only=True)
class Load:
    """One experiment: its trainers with their trees, and the means of those."""

    job: Job
    trees: tuple[tuple[Process, ...], ...]  # each trainer first
    gpus: tuple[Gpu, ...]
    cpus: frozenset[int]  # that it may run on; none where that is not known
    allowed: float | None  # the same as a number, with its quota
    asked: int | None  # threads that its libraries start
    busy_percent: float | None
    cores: float | None
    wanting: float | None
    wait: float | None  # for a CPU, 0-1
    blocked: float | None  # loaders that wait for storage, 0-1
    loader_cores: float | None  # of one
    throttled: float | None  # share of periods in which its CPU quota ran out, 0-1
    stopped: float | None  # CPUs' worth of work that was stopped meanwhile
    read: float | None
    write: float | None

    @property
    def trainers(self) -> list[Process]:
        """The first of each tree."""
        return [tree[0] for tree in self.trees]

    @property
    def moved(self) -> float | None:
        """Bytes a second to and from storage."""
        return None if self.read is None or self.write is None else self.read + self.write

    @property
    def loaders(self) -> int:
        """Processes that load."""
        return sum(process.role is Role.LOADER for tree in self.trees for process in tree)


def loads(frame: Frame, past: Past) -> list[Load]:
    """Every experiment, in the order of its first GPU."""
    jobs: dict[str, list[tuple[Process, ...]]] = {}
    for tree in members(frame).values():
        jobs.setdefault(tree[0].job or "", []).append(tuple(tree))
    found = [_load(frame, past, job, tuple(jobs[job.key])) for job in frame.jobs if job.key in jobs]
    places = {gpu.uuid: place for place, gpu in enumerate(frame.gpus)}
    return sorted(found, key=lambda load: min((places[gpu.uuid] for gpu in load.gpus), default=len(places)))


def _load(frame: Frame, past: Past, job: Job, trees: tuple[tuple[Process, ...], ...]) -> Load:
    trainers = [tree[0] for tree in trees]
    uuids = {share.uuid for one in trainers for share in one.gpus if share.kind != "graphics"}
    keys = [key(one.identity) for one in trainers]
    waits = [mean(past, about, name) for about in keys for name in ("run_wait", "loader_wait")]
    groups = {one.cgroup for one in trainers if one.cgroup}
    return Load(
        job=job,
        trees=trees,
        gpus=tuple(gpu for gpu in frame.gpus if gpu.uuid in uuids),
        cpus=_cpus(trainers),
        allowed=together([part(one) for one in trainers], frame.host.cpus_total),
        asked=_asked(trainers),
        busy_percent=known.mean([mean(past, about, "busy_percent") for about in keys]),
        cores=known.total(mean(past, about, "cores") for about in keys),
        wanting=known.total(mean(past, about, "compute_threads") for about in keys),
        wait=_most(waits),
        blocked=known.mean([mean(past, about, "loader_blocked") for about in keys]),
        loader_cores=known.mean([mean(past, about, "loader_cpu") for about in keys]),
        throttled=_most(mean(past, about, "throttled") for about in keys),
        stopped=_most(mean(past, f"cgroup {path}", "throttled_cpus") for path in groups),
        read=known.total(mean(past, about, "read_bytes_per_s") for about in keys),
        write=known.total(mean(past, about, "write_bytes_per_s") for about in keys),
    )


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _cpus(trainers: Sequence[Process]) -> frozenset[int]:
    sets = [affinity(one) for one in trainers]
    return frozenset[int]().union(*sets) if all(sets) else frozenset()


def _asked(trainers: Sequence[Process]) -> int | None:
    total = 0
    for one in trainers:
        size = pool(one)
        if size is None:
            return None
        total += size
    return total

"""The load of each experiment, and of each program beside them, as plain values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Protocol

from gputop import optional_sums
from gputop.diagnose.cpu_budget import (
    affinity,
    cpu_limit,
    idle_count,
    least_idle,
    least_share,
    overlap,
    shares_quota,
    united_cpus,
)
from gputop.diagnose.job_tree import key, members
from gputop.diagnose.limits import Limits
from gputop.diagnose.rules.cpu.threads import pool
from gputop.diagnose.starvation import shows_work
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Frame, Gpu, Identity, Job, Process, Role

Resource = Literal["cpu", "disk", "gpu"]


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Slower:
    """A consumer of what an experiment waits for."""

    name: str  # display name of the other experiment, or of a program with its user
    experiment: str | None  # key of that experiment; None for another program
    resource: Resource
    share: float  # of the total (0-1): CPUs of the machine, its storage I/O, time of the GPU


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Settings per trainer with which an experiment does not slow the others, as the rules advise them."""

    threads: int  # OMP_NUM_THREADS and torch.set_num_threads that fit its share of the CPUs
    loaders: int | None  # num_workers; None if it has no loaders, or if the present number is fine
    prefix: str  # prefix of its command: OMP_NUM_THREADS=8 ... taskset -c 0-7; empty if nothing changes


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One experiment. Values are sums over its trainers with their loaders, means over the last half minute.

    None: unknown, mostly because another user owns it.
    """

    key: str  # of its Job
    name: str
    trainers: tuple[Identity, ...]  # by rank
    gpus: tuple[str, ...]  # uuids of the GPUs it computes on, in frame order
    gpu_busy_percent: float | None  # mean of its trainers; its own part of a shared GPU

    threads_asked: int | None  # compute threads its libraries start: OMP_NUM_THREADS, else one per visible CPU
    threads_wanting: float | None  # running or runnable compute threads
    loaders: int  # loader processes
    cpus_allowed: float | None  # CPUs it may use: affinity and quota
    cores: float | None  # CPUs in use
    cpu_wait_percent: float | None  # run-queue wait of its threads, relative to waiting and running

    read_bytes_per_s: float | None  # from storage, without the page cache
    write_bytes_per_s: float | None
    io_share: float | None  # share of the machine's storage I/O (0-1)
    io_wait_percent: float | None  # share of samples in which its loaders waited for storage

    slowed_by: tuple[Slower, ...]  # consumers of what it waits for, largest first; empty if nothing is lost
    fit: Fit | None  # None if it is idle, or if the CPUs are unknown


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """All experiments on the machine."""

    experiments: tuple[Experiment, ...]  # in the order of their first GPU; those without one last
    cpus: int | None  # shared by the experiments
    cpu_percent: float | None  # of all CPUs of the machine
    threads_asked: int | None  # by all experiments with a known value
    threads_wanting: float | None
    moved_bytes_per_s: float | None  # storage I/O of the machine
    crowded: bool  # more runnable compute threads than CPUs
    full: bool  # loaders of several experiments use all CPUs: no settings make them fit


WINDOW_S = 30.0


class LoadHistory(Protocol):
    """The part of the history that is read here."""

    def values(self, key: str | Identity, metric: str, seconds: float, step_s: float = 1.0) -> Sequence[float | None]:
        """The last `seconds` of a metric, oldest first, None for a gap."""
        ...


def mean(past: LoadHistory, about: str | Identity, metric: str) -> float | None:
    """The mean over the last half minute; None if unknown."""
    known = [value for value in past.values(about, metric, WINDOW_S) if value is not None]
    return sum(known) / len(known) if known else None


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One experiment: its trainers with their trees, and means over those."""

    job: Job
    trees: tuple[tuple[Process, ...], ...]  # each trainer first
    gpus: tuple[Gpu, ...]
    cpus: frozenset[int]  # CPUs it may run on; empty if unknown
    allowed: float | None  # their number, or its quota
    asked: int | None  # threads its libraries start
    busy_percent: float | None
    cores: float | None
    wanting: float | None
    wait: float | None  # run-queue wait, 0-1
    blocked: float | None  # share of loaders that wait for storage, 0-1
    loader_cores: float | None  # mean per loader
    throttled: float | None  # share of periods in which its CPU quota was exhausted, 0-1
    stopped: float | None  # throttled work, in CPUs
    read: float | None
    write: float | None

    @property
    def trainers(self) -> list[Process]:
        """The trainers: the first process of each tree."""
        return [tree[0] for tree in self.trees]

    @property
    def moved(self) -> float | None:
        """Storage I/O in bytes/s."""
        return None if self.read is None or self.write is None else self.read + self.write

    @property
    def loaders(self) -> int:
        """Number of loader processes."""
        return sum(process.role is Role.LOADER for tree in self.trees for process in tree)


def loads(frame: Frame, past: LoadHistory) -> list[Load]:
    """Every experiment, in the order of its first GPU."""
    jobs: dict[str, list[tuple[Process, ...]]] = {}
    for tree in members(frame).values():
        jobs.setdefault(tree[0].job or "", []).append(tuple(tree))
    found = [_load(frame, past, job, tuple(jobs[job.key])) for job in frame.jobs if job.key in jobs]
    places = {gpu.uuid: place for place, gpu in enumerate(frame.gpus)}
    return sorted(found, key=lambda load: min((places[gpu.uuid] for gpu in load.gpus), default=len(places)))


def _load(frame: Frame, past: LoadHistory, job: Job, trees: tuple[tuple[Process, ...], ...]) -> Load:
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
        allowed=united_cpus([cpu_limit(one) for one in trainers], frame.host.cpus_total),
        asked=_asked(trainers),
        busy_percent=optional_sums.mean([mean(past, about, "busy_percent") for about in keys]),
        cores=optional_sums.total(mean(past, about, "cores") for about in keys),
        wanting=optional_sums.total(mean(past, about, "compute_threads") for about in keys),
        wait=_most(waits),
        blocked=optional_sums.mean([mean(past, about, "loader_blocked") for about in keys]),
        loader_cores=optional_sums.mean([mean(past, about, "loader_cpu") for about in keys]),
        throttled=_most(mean(past, about, "throttled") for about in keys),
        stopped=_most(mean(past, f"cgroup {path}", "throttled_cpus") for path in groups),
        read=optional_sums.total(mean(past, about, "read_bytes_per_s") for about in keys),
        write=optional_sums.total(mean(past, about, "write_bytes_per_s") for about in keys),
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


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class OwnShare:
    """CPUs of one trainer if all get the same number."""

    cpus: float
    idle: float | None  # unused CPUs
    alone: bool  # no other trainer uses them
    crowded: bool  # more loaders than CPUs: those of its experiment, or of all together


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class _Seat:
    process: Process
    load: Load
    duty: float | None
    touched: float | None  # share of samples with any work on its GPUs
    cores: float


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class _Scene:
    cpus: int | None  # of the machine
    free: float | None  # unused CPUs of these
    working: Sequence[_Seat]  # all trainers that are not idle
    programs: int
    fed: float  # busy share (0-1) of a GPU that does not wait
    loaders: int  # of all experiments, if there are several


def own_shares(
    frame: Frame, past: LoadHistory, limits: Limits, loads: Sequence[Load], programs: int
) -> list[tuple[Load, OwnShare]]:
    """For each active experiment, the share of the trainer with the fewest CPUs.

    `programs`: number of other programs, each of which is left as many CPUs as a trainer.
    """
    seats = [_seat(past, load, one) for load in loads for one in load.trainers]
    scene = _Scene(
        cpus=frame.host.cpus_total,
        free=idle_count(frame.host.cpus_total, mean(past, "host", "cpu_percent")),
        working=[seat for seat in seats if seat.duty is None or _works(seat, limits["starved"])],
        programs=programs,
        fed=limits["gpu-bound-healthy"]["busy_percent"] / 100,
        loaders=sum(load.loaders for load in loads) if len(loads) > 1 else 0,
    )
    found = []
    for load in loads:
        each = [_own(scene, seat) for seat in scene.working if seat.load is load]
        if each:
            found.append((load, min(each, key=lambda own: own.cpus)))
    return found


def _seat(past: LoadHistory, load: Load, process: Process) -> _Seat:
    about = key(process.identity)
    busy, cores = mean(past, about, "busy_percent"), mean(past, about, "cores")
    duty, touched = None if busy is None else busy / 100, mean(past, about, "worked")
    return _Seat(process=process, load=load, duty=duty, touched=touched, cores=cores or 0.0)


def _works(seat: _Seat, table: Mapping[str, float]) -> bool:
    return shows_work(seat.duty, seat.touched, seat.load.loaders, seat.cores, table.__getitem__)


def _own(scene: _Scene, seat: _Seat) -> OwnShare:
    here, allowed = affinity(seat.process), seat.process.allowed_cpus
    beside = [one for one in scene.working if one is seat or overlap(here, affinity(one.process))]
    sharers = [one for one in beside if shares_quota(seat.process, one.process, one.load is seat.load)]
    total, all_beside = len(here) or scene.cpus, len(beside) + scene.programs
    left = (allowed or math.inf) - sum(one.cores for one in sharers)
    rivals, waiting = (sum(one is seat or (one.duty or 0.0) < scene.fed for one in some) for some in (beside, sharers))
    many = seat.load.loaders > math.ceil(seat.load.allowed) if seat.load.allowed else False
    return OwnShare(
        cpus=least_share(allowed or total or 1.0, len(sharers), total, all_beside),
        idle=None if scene.free is None else least_idle(scene.free, rivals, left, waiting),
        alone=all_beside == 1,
        crowded=many or scene.loaders > (scene.cpus or math.inf),
    )

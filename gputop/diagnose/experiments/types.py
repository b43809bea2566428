"""What is said of the experiments on one machine: plain values for whoever draws them side by side."""

from __future__ import annotations

from typing import Literal

from gputop.declare import record
from gputop.model import Identity

Resource = Literal["cpu", "disk", "gpu"]


@record(frozen=True, slots=True, kw_only=True)
class Slower:
    """Somebody who takes what an experiment waits for."""

    name: str  # of the other experiment, or of a program with its user, for people
    experiment: str | None  # key of that experiment; None for a program that is none
    resource: Resource
    share: float  # of all there is, 0-1: CPUs of the machine, bytes that it moves, time of the GPU


@record(frozen=True, slots=True, kw_only=True)
class Fit:
    """Settings with which an experiment leaves the others alone, as the rules advise them, for one trainer."""

    threads: int  # OMP_NUM_THREADS and torch.set_num_threads: that its share of the CPUs has room for
    loaders: int | None  # num_workers; None where it has no loaders, or all it has are fine
    prefix: str  # what to start it with: OMP_NUM_THREADS=8 MKL_NUM_THREADS=8 taskset -c 0-7; empty where that is as now


@record(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One experiment. Figures are sums over its trainers with their loaders, means of the last half minute.

    None: not known, mostly because it is somebody else's.
    """

    key: str  # of its Job
    name: str
    trainers: tuple[Identity, ...]  # by rank
    gpus: tuple[str, ...]  # uuids of those it computes on, in the order of the frame
    gpu_busy_percent: float | None  # mean of its trainers; its own part where a GPU is shared

    threads_asked: int | None  # compute threads its libraries start: OMP_NUM_THREADS, else one for each CPU they see
    threads_wanting: float | None  # compute threads that run or want to run
    loaders: int  # loader processes
    cpus_allowed: float | None  # CPUs it may use: affinity and quota
    cores: float | None  # CPUs in use
    cpu_wait_percent: float | None  # time that its threads waited for a CPU, of waiting and running

    read_bytes_per_s: float | None  # from storage, page cache excluded
    write_bytes_per_s: float | None
    io_share: float | None  # of all bytes that the machine moves to and from storage, 0-1
    io_wait_percent: float | None  # looks at which its loaders waited for storage

    slowed_by: tuple[Slower, ...]  # who takes what it waits for, the worst first; empty where nothing is lost
    fit: Fit | None  # None where it rests, or it is not known which CPUs there are


@record(frozen=True, slots=True, kw_only=True)
class Together:
    """All experiments on the machine."""

    experiments: tuple[Experiment, ...]  # in the order of their first GPU; those without one last
    cpus: int | None  # that the experiments share
    cpu_percent: float | None  # of all CPUs of the machine
    threads_asked: int | None  # by all experiments that tell
    threads_wanting: float | None
    moved_bytes_per_s: float | None  # to and from storage, by everybody
    crowded: bool  # more compute threads want to run than CPUs can take: they are in each other's way
    full: bool  # loaders of several use all CPUs: no numbers make them fit

"""What a simulated server is made of: cards, stores, jobs and the work that jobs do, as plain parameters."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from operator import itemgetter
from typing import Any

from gputop.frozen_dataclass import frozen_dataclass

GIB = 1024**3
MIB = 1024**2


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Dip:
    """A pause that comes back: a checkpoint, an epoch's end, a loader that falls behind."""

    every_s: float
    for_s: float
    duty: float = 0.0  # of the GPU during it
    jitter: float = 0.0
    write_bytes: float = 0.0  # written by rank 0 in each
    respawn: bool = False  # the loaders are replaced at the end of each


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a job asks of each GPU and of the host. Percentages hold while the GPU is on; rates are a process'."""

    period_s: float = 0.4
    duty: float = 0.98
    jitter: float = 0.02
    dip: Dip | None = None
    watts: float = 620  # while on, at the full clock
    sm: float = 90
    occupancy: float = 42
    tensor: float = 55
    dram: float = 38
    fp32: float = 6
    fp16: float = 3
    fp64: float = 0
    integer: float = 11
    pcie_rx: float = 0.4e9  # while on
    pcie_tx: float = 0.1e9
    nvlink: float = 0.0
    vram_bytes: float = 60 * GIB
    vram_per_s: float = 0.0  # what it grows by
    vram_step_bytes: float = 1.0
    vram_grows_for_s: float = math.inf
    main_cpu: float = 100  # percent of a core
    main_read: float = 0.0  # from storage, by a rank itself
    main_chars: float = 0.0  # the same from the page cache
    main_blocked: float = 1.0
    main_writes: float = 0.0  # by a rank itself: logs, pictures
    main_write_calls: float = 0.0
    pool_threads: int = 0  # compute threads beside the main one
    pool_cpu: float = 0.0  # of each
    run_wait: float = 2
    switches: float = 400
    throttled: float = 0.0  # percent of periods in which the job's CPU quota runs out
    stopped_cpus: float = 0.0  # CPUs' worth of work that is stopped
    far: bool = False  # it runs on CPUs that are not near its GPUs
    rss_per_s: float = 0.0  # what the host memory of a rank grows by
    loader_rss_per_s: float = 0.0  # and that of each loader
    loader_cpu: float = 10
    loader_blocked: float = 0
    loader_read: float = 3e6  # from storage
    loader_cached: float = 12e6  # from the page cache
    read_size: float = 128 * 1024  # a read call
    shm_used: float = 2 * MIB  # of the job's own /dev/shm, where it has one
    io_pressure: float = 0.3
    cpu_pressure: float = 1.0
    ethernet: float = 0.0  # between nodes, bytes a second each way, of the whole job
    infiniband: float = 0.0  # the same, of one port


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class DemoJob:
    """A program on the server: its processes, where they run, and its work over time."""

    name: str
    user: str
    uid: int
    pid: int  # of rank 0; the others follow
    ranks: tuple[tuple[int, ...], ...]  # GPU indexes of each rank
    work: tuple[tuple[float, Work], ...]  # (from when, what), the earliest first
    card_work: tuple[tuple[int, Work], ...] = ()  # GPUs whose work differs, and that of a rank with such a GPU alone
    card_work_from_s: float = -math.inf
    nodes: int = 1  # machines with as many ranks each
    command: tuple[str, ...] = ("python", "train.py")
    launcher: str = "python"
    launcher_command: tuple[str, ...] = ()  # empty: no separate process
    launcher_threads: int = 1
    loaders: int = 0  # of each rank
    pins: bool = True  # what those load, in a separate thread
    loader_pid: int = 0  # the first one's
    threads: int = 63  # of a rank
    rank_rss: float = 14 * GIB
    loader_rss: float = 2.1 * GIB
    started_s: float = -45_000  # on the scenario's clock
    ended_s: float = math.inf
    data: str = "/data"  # the mount it reads from
    slurm_job: str | None = None
    container: str | None = None
    omp_threads: int | None = 1
    libraries: tuple[str, ...] = ("torch", "cuda", "mkl", "gomp")
    torch: tuple[str, str | None] = ("2.11.0+cu128", "12.8")  # its build, and the CUDA of that
    visible: str | None = None  # CUDA_VISIBLE_DEVICES, where it is not just its GPUs
    quota: float | None = None  # CPUs
    shm_bytes: int | None = None  # size of its own /dev/shm
    nan_s: float | None = None  # when its loss, which it notes, is no number any more
    samples: int | None = None  # that a rank learns from in a step, where `gputop run` started it with a step meter

    @property
    def key(self) -> str:
        """What identifies it, as on a real server: not what people call it."""
        return f"{self.pid}.{abs(round(100 * self.started_s))}"

    def phase(self, t: float) -> tuple[float, Work]:
        """The work it does at t, and since when."""
        work = self.work
        start, now = work[0] if len(work) == 1 else work[max(0, bisect_right(work, t, key=itemgetter(0)) - 1)]
        return (start if start > self.started_s else self.started_s), now

    def on_card(self, t: float, card: int) -> Work:
        """The work it does at t on one GPU."""
        if t >= self.card_work_from_s:
            for index, own in self.card_work:
                if index == card:
                    return own
        return self.phase(t)[1]

    def phases(self, until_s: float, card: int | None = None) -> Iterator[tuple[float, float, Work]]:
        """What it has done until then, and a rank that has this GPU alone: from when, until when, what."""
        work = ((self.started_s, self.work[0][1]), *self.work[1:])
        for index, own in self.card_work:
            if index == card:
                from_s = max(self.started_s, self.card_work_from_s)
                work = (*(one for one in work if one[0] < from_s), (from_s, own))
        ends = [start_s for start_s, _ in work[1:]]
        for (start_s, now), end_s in zip(work, [*ends, math.inf], strict=True):
            first_s, last_s = max(start_s, self.started_s), min(end_s, until_s, self.ended_s)
            if first_s < last_s:
                yield first_s, last_s, now

    def card(self, pid: int) -> int | None:
        """The GPU of a rank that has one alone."""
        cards = self.ranks[pid - self.pid] if 0 <= pid - self.pid < len(self.ranks) else ()
        return cards[0] if len(cards) == 1 else None

    def runs(self, t: float) -> bool:
        """Whether it exists at t."""
        return self.started_s <= t < self.ended_s


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class PoorCooling:
    """A card that cannot be cooled: where its temperature ends and what that costs."""

    celsius: float
    clock_mhz: float
    soft_percent: float = 0.0
    hard_percent: float = 0.0
    from_s: float = -3600.0


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class DemoGpu:
    """One GPU and its settings."""

    index: int
    limit_watts: float = 700
    limit_from_s: float = -3600.0
    heat: PoorCooling | None = None
    ambient: float = 29
    kelvin_per_watt: float = 0.0585
    settings: tuple[tuple[float, str, Any], ...] = ()  # (from when, field of Gpu, value)


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class DemoStorage:
    """A mounted file system and the device or server behind it."""

    path: str
    device: str
    file_system: str
    total_bytes: int
    free_bytes: int
    bytes_per_s: float  # the most it gives
    calls_per_s: float = 400_000
    network: bool = False
    latency_s: float = 0.0002


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """A program that has nothing to do with a GPU and comes at some time."""

    pid: int
    user: str
    uid: int
    command: str
    cpu: float  # percent of a core
    from_s: float


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class DemoServer:
    """Everything of a machine that a scenario can set."""

    hostname: str = "dgx-07"
    cards: tuple[DemoGpu, ...] = ()
    jobs: tuple[DemoJob, ...] = ()
    stores: tuple[DemoStorage, ...] = ()
    cpus: int = 56
    memory_bytes: int = 2015 * GIB
    memory_base_bytes: float = 295 * GIB  # what no process of the list accounts for
    cached_bytes: float = 640 * GIB
    uptime_s: float = 23 * 86400.0  # at time 0
    viewer: int | None = None  # uid of the user; None is root, who may see the I/O of all
    others: tuple[tuple[int, str, int, str, float], ...] = ()  # (pid, user, uid, command, percent of a core)
    guests: tuple[Guest, ...] = ()
    seen_inside: tuple[tuple[float, str, str, float], ...] = ()  # (from when, fact, in words, share) of its first rank
    settings: tuple[tuple[float, str, Any], ...] = ()  # (from when, field of Host, value)
    ethernet_bytes_per_s: float = 100e9 / 8
    infiniband: bool = True  # a port for each card
    behind_s: float = 0.11  # by which each card begins its part of a step after the one before
    monitor_percent: float = 0.9  # what gputop itself costs, of one core


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A simulated server over time."""

    name: str
    title: str  # one line for the list of demos
    server: DemoServer
    open_at_s: float = 300.0  # what the monitor shows first; the trouble began at 120 s
    length_s: float = 600.0
    past_s: int = 900  # how long before the opening everything was already watched, second by second
    watched_s: int = 0  # how long before the opening it was already watched, seldom
    far_past_s: float = 0.0  # how long before the opening GPUs and host were already watched, coarsely

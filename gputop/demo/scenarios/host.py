"""Jobs that the machine around the GPUs holds up: CPUs, memory, disks, file servers, checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gputop.demo.scenarios.parts import (
    BEFORE_S,
    DATA,
    HEALTHY,
    ONSET_S,
    PARKED,
    ROOT,
    SCRATCH,
    dgx,
    each,
    fault,
    jupyter,
    llama,
    sd3,
    workstation,
)
from gputop.demo.server import GIB, MIB, DemoJob, DemoStorage, Dip, Guest, Scenario
from gputop.model import Pressure

_HUNGRY: dict[str, Any] = {"watts": 300, "sm": 60, "tensor": 30, "dram": 25}


def sweep(loaders: int, omp_threads: int | None, **changes: Any) -> tuple[DemoJob, ...]:
    """Four plain runs, each on a separate GPU."""
    before = replace(HEALTHY, vram_bytes=30 * GIB, nvlink=0)
    work = replace(before, **_HUNGRY, **changes)
    return tuple(
        replace(
            llama(each(card), (BEFORE_S, before), (ONSET_S, work), loaders=loaders),
            name=f"sweep-{card}", pid=41207 + 1000 * card, loader_pid=41390 + 1000 * card,
            command=("python", "bench.py", "--lr", f"1e-{card + 2}"), launcher="python", launcher_command=(),
            slurm_job=None, omp_threads=omp_threads,
        )
        for card in range(4)
    )  # fmt: skip


def experiments() -> Scenario:
    """Each with a pool for the whole machine."""
    jobs = sweep(
        2, None, period_s=0.9, duty=0.25, jitter=0.2, main_cpu=30, pool_threads=31, pool_cpu=23,
        run_wait=70, switches=5, loader_cpu=4, cpu_pressure=85,
    )  # fmt: skip
    title = "four experiments, each with one compute thread per CPU: CPU oversubscribed"
    return Scenario(name="threads-host", title=title, server=replace(dgx(4, *jobs), cpus=32))


def full() -> Scenario:
    """Each with loaders for a part of the CPUs; together they take all of them."""
    jobs = sweep(4, 1, period_s=0.9, duty=0.4, jitter=0.1, main_cpu=20, loader_cpu=92, cpu_pressure=30)
    title = "four experiments with sixteen workers on sixteen CPUs: CPU contention"
    return Scenario(name="starved-cpu-saturated-shared", title=title, server=replace(dgx(4, *jobs), cpus=16))


def openblas() -> Scenario:
    """Loaders that compute with NumPy and OpenBLAS."""
    scenario = fault(
        "openblas-on-intel", "workers that run NumPy on OpenBLAS and saturate all CPUs", loaders=8,
        period_s=1.4, duty=0.3, jitter=0.1, loader_cpu=185, cpu_pressure=40, main_cpu=30, **_HUNGRY,
    )  # fmt: skip
    return of_job(scenario, libraries=("torch", "cuda", "openblas", "gomp"))


def quota() -> Scenario:
    """A container with four CPUs."""
    scenario = fault(
        "cpu-quota", "a container limited to 4 of 16 CPUs", loaders=4, period_s=1.0, duty=0.4, jitter=0.15,
        loader_cpu=75, main_cpu=60, throttled=63, stopped_cpus=2.4, run_wait=20, cpu_pressure=20, **_HUNGRY,
    )  # fmt: skip
    return of_job(scenario, quota=4.0, container="5f2c9a71e0b4", slurm_job=None)


def slow() -> Scenario:
    """CPUs that save power while loaders need them."""
    scenario = fault(
        "cpu-slow", "powersave CPU governor with sixteen workers on all CPUs", loaders=16, period_s=1.3, duty=0.6,
        jitter=0.1, loader_cpu=96, cpu_pressure=30, main_cpu=30, **_HUNGRY,
    )  # fmt: skip
    saving = {"cpu_governor": "powersave", "cpu_driver": "acpi-cpufreq", "cpu_mhz": 1200.0, "cpu_low_mhz": 1190.0}
    settings = tuple((ONSET_S, name, value) for name, value in saving.items())
    return replace(scenario, server=replace(scenario.server, settings=settings))


def neighbour() -> Scenario:
    """A compilation on all CPUs."""
    scenario = fault(
        "neighbour", "another user's build uses fourteen of sixteen CPUs", period_s=0.8, duty=0.45, jitter=0.15,
        loader_cpu=40, main_cpu=45, run_wait=62, cpu_pressure=80, **_HUNGRY,
    )  # fmt: skip
    build = Guest(pid=77310, user="bob", uid=1002, command="stress-ng --cpu 14", cpu=1440, from_s=ONSET_S)
    return replace(scenario, server=replace(scenario.server, guests=(build,)))


def watched() -> Scenario:
    """gputop on a slow machine."""
    scenario = fault("self-overhead", "gputop's own overhead is high")
    return replace(scenario, server=replace(scenario.server, monitor_percent=6.5))


def blind() -> Scenario:
    """A job of another user that waits for a file server: its reads are hidden."""
    scenario = fault(
        "blind-spots", "another user's starved job, cause hidden by permissions", loaders=4, period_s=1.3, duty=0.4,
        jitter=0.1, loader_cpu=12, loader_blocked=55, loader_read=20e6, loader_cached=0, io_pressure=45, main_cpu=20,
        **_HUNGRY,
    )  # fmt: skip
    return replace(scenario, server=replace(scenario.server, viewer=1002))


def of_job(scenario: Scenario, **changes: object) -> Scenario:
    """The same with another first job."""
    first, *others = scenario.server.jobs
    server = replace(scenario.server, jobs=(replace(first, **changes), *others))  # type: ignore[arg-type]
    return replace(scenario, server=server)


def _cpu_scenarios() -> Iterator[Scenario]:
    """Each plants the rule it is named after."""
    crowded = fault(
        "threads-process", "one process with 64 compute threads on 16 CPUs",
        period_s=0.9, duty=0.3, jitter=0.2, main_cpu=22, pool_threads=63, pool_cpu=23, run_wait=72, switches=40,
        loader_cpu=4, cpu_pressure=80, **_HUNGRY,
    )  # fmt: skip
    yield of_job(crowded, threads=96)
    yield from (experiments(), full(), openblas(), quota(), slow())
    yield fault(
        "numa-misplacement", "a process on the wrong NUMA node for its GPU",
        period_s=0.5, duty=0.85, jitter=0.1, loader_cpu=30, pcie_rx=6.5e9, far=True,
    )  # fmt: skip
    yield from (neighbour(), watched(), blind())


def leak() -> Scenario:
    """A loss that is added up with all it was computed from."""
    title = "GPU memory growing by 6 MiB/s"
    scenario = fault("gmem-leak", title, length_s=1200, vram_per_s=6 * MIB, vram_step_bytes=2 * MIB)
    return replace(scenario, open_at_s=1140)


def host_leak() -> Scenario:
    """Lists in forked loaders."""
    title = "host memory of four workers growing by 60 MiB/s"
    scenario = fault("host-memory-leak", title, loaders=4, length_s=1200, loader_rss_per_s=34 * MIB)
    return replace(scenario, open_at_s=1140)


def nearly_full() -> Scenario:
    """Batches that get longer on a card with nothing left."""
    work = replace(HEALTHY, nvlink=0, vram_bytes=70 * GIB)
    grows = replace(work, vram_bytes=76.9 * GIB, vram_per_s=1.2 * MIB, vram_step_bytes=64 * MIB)
    job = llama(each(0), (BEFORE_S, work), (ONSET_S, grows), loaders=2)
    title = "a GPU whose memory is nearly full and growing"
    return Scenario(name="gmem-nearly-full", title=title, server=workstation(job))


def zombie() -> Scenario:
    """A notebook that was left alone hours ago."""
    job = replace(jupyter(0, -10_800), work=((-10_800 - 900, HEALTHY), (-10_800, replace(PARKED, vram_bytes=31 * GIB))))
    title = "an idle notebook that has held 31 GB of GPU memory for hours"
    return Scenario(name="zombie-memory", title=title, server=workstation(job), open_at_s=1140, length_s=1200)


def shared() -> Scenario:
    """A second job comes to a GPU that is in use."""
    alone = replace(HEALTHY, nvlink=0, vram_bytes=30 * GIB)
    first = llama(each(0), (BEFORE_S, alone), (ONSET_S, replace(alone, duty=0.52, period_s=0.1)), loaders=2)
    second = replace(
        sd3(each(0), (ONSET_S, replace(alone, duty=0.44, period_s=0.1))), started_s=ONSET_S - 11, data="/data"
    )
    title = "two jobs time-slicing one GPU"
    return Scenario(name="gpu-shared", title=title, server=workstation(first, second))


def pressure() -> Scenario:
    """Loaders that need more memory than there is."""
    scenario = fault(
        "memory-pressure", "swapping: sixteen workers need more memory than the host has", loaders=16,
        period_s=1.1, duty=0.6, jitter=0.2, watts=300, sm=60, tensor=30, dram=25, main_cpu=30, loader_cpu=20,
        loader_blocked=35,
    )  # fmt: skip
    short = {
        "swap_total_bytes": 64 * GIB,
        "swap_used_bytes": 41 * GIB,
        "swap_in_per_s": 5200.0,
        "swap_out_per_s": 4100.0,
        "memory_available_bytes": 9 * GIB,
        "memory_used_bytes": 247 * GIB,
        "memory_cached_bytes": 4 * GIB,
        "memory_pressure": Pressure(some_percent=38.0, full_percent=3.0, some_avg10_percent=38.0),
    }
    settings = tuple((ONSET_S, name, value) for name, value in short.items())
    return of_job(replace(scenario, server=replace(scenario.server, settings=settings)), loader_rss=18 * GIB)


def _memory_scenarios() -> Iterator[Scenario]:
    """Each plants the rule it is named after."""
    yield from (pressure(), host_leak(), nearly_full(), leak(), zombie(), shared())


_HUNGRY_READER: dict[str, Any] = {"watts": 300, "sm": 60, "tensor": 30, "dram": 25, "main_cpu": 20}
_WAITING: dict[str, Any] = _HUNGRY_READER | {
    "period_s": 1.3, "duty": 0.3, "jitter": 0.1, "loader_cpu": 15, "loader_blocked": 70, "loader_cached": 0,
    "io_pressure": 65,
}  # fmt: skip
_FULL = 250 * GIB  # page cache of a machine that has read more than it can keep
_DISK = replace(SCRATCH, bytes_per_s=1.03e9)


def _from(scenario: Scenario, store: DemoStorage, cached_bytes: float = _FULL, **changes: object) -> Scenario:
    """The same with the data on this store."""
    others = tuple(one for one in (DATA, SCRATCH, ROOT) if one.path != store.path)
    server = replace(scenario.server, stores=(store, *others), cached_bytes=cached_bytes)
    return of_job(replace(scenario, server=server), data=store.path, **changes)


def small_files() -> Scenario:
    """The disk could give far more bytes."""
    scenario = fault(
        "io-small-files", "eight workers with small random reads (9 kB each)", loaders=8, loader_read=11.25e6,
        read_size=9e3, **_WAITING,
    )  # fmt: skip
    return _from(scenario, replace(_DISK, calls_per_s=10.1e3))


def file_server() -> Scenario:
    """An old file server."""
    scenario = fault(
        "network-fs-bound", "eight workers waiting for NFS", loaders=8, loader_read=14.6e6,
        read_size=256e3, **_WAITING,
    )  # fmt: skip
    return _from(scenario, replace(DATA, bytes_per_s=118e6, latency_s=0.004))


def first_epoch() -> Scenario:
    """A job that begins, reads all of its data once, and then finds them in memory."""
    first = replace(HEALTHY, vram_bytes=30 * GIB, nvlink=0, loader_read=126e6, read_size=256e3, **_WAITING)
    later = replace(
        first, duty=0.95, period_s=0.4, jitter=0.02, watts=600, sm=90, tensor=52, dram=36, main_cpu=60, loader_cpu=25,
        loader_blocked=4, loader_read=25e6, loader_cached=100e6, io_pressure=4,
    )  # fmt: skip
    began_s = ONSET_S - 80
    job = replace(llama(each(0), (began_s, first), (400.0, later), loaders=8), started_s=began_s, data="/scratch")
    server = replace(workstation(job), stores=(DATA, _DISK, ROOT), memory_bytes=2015 * GIB, cached_bytes=60 * GIB)
    return Scenario(
        name="cold-cache", title="a job in its first epoch: data not yet in the page cache",
        server=server, open_at_s=300, length_s=1800,
    )  # fmt: skip


def small_shm() -> Scenario:
    """A container as Docker makes it."""
    scenario = fault(
        "shm-nearly-full", "a container with /dev/shm nearly full", loaders=8, loader_cpu=30,
        shm_used=61 * MIB,
    )  # fmt: skip
    return of_job(scenario, container="9d1f60c2a7be", slurm_job=None, shm_bytes=64 * MIB)


def _storage_scenarios() -> Iterator[Scenario]:
    """Each plants the rule it is named after."""
    slow = fault(
        "io-bound", "eight workers and a saturated disk", loaders=8, loader_read=127e6, read_size=512e3,
        **_WAITING,
    )  # fmt: skip
    yield _from(slow, _DISK)
    yield from (small_files(), file_server(), first_epoch())
    dip = Dip(every_s=300, for_s=24, write_bytes=13e9)
    saving = fault("checkpoint-stall", "training that stops for every checkpoint", length_s=1800, duty=0.97, dip=dip)
    yield replace(saving, open_at_s=1200)
    yield small_shm()


def scenarios() -> Iterator[Scenario]:
    """All of them, by what is short."""
    yield from (*_cpu_scenarios(), *_storage_scenarios(), *_memory_scenarios())

"""Jobs whose CPUs are short for a reason: threads, limits, clocks, places, neighbours; and a monitor that costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gputop.demo.scenarios.parts import BEFORE_S, HEALTHY, ONSET_S, dgx, each, fault, llama
from gputop.demo.server import GIB, Guest, Job, Scenario

_HUNGRY: dict[str, Any] = {"watts": 300, "sm": 60, "tensor": 30, "dram": 25}


def sweep(loaders: int, omp_threads: int | None, **changes: Any) -> tuple[Job, ...]:
    """Four plain runs, each on a GPU of its own."""
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
    title = "four experiments, each with a thread for every CPU of the machine"
    return Scenario(name="threads-host", title=title, server=replace(dgx(4, *jobs), cpus=32))


def full() -> Scenario:
    """Each with loaders for a part of the CPUs; together they take all of them."""
    jobs = sweep(4, 1, period_s=0.9, duty=0.4, jitter=0.1, main_cpu=20, loader_cpu=92, cpu_pressure=30)
    title = "four experiments whose sixteen loaders fill the sixteen CPUs of the machine"
    return Scenario(name="starved-cpu-saturated-shared", title=title, server=replace(dgx(4, *jobs), cpus=16))


def openblas() -> Scenario:
    """Loaders that compute with NumPy and OpenBLAS."""
    scenario = fault(
        "openblas-on-intel", "loaders that compute with NumPy on OpenBLAS and keep every CPU busy", loaders=8,
        period_s=1.4, duty=0.3, jitter=0.1, loader_cpu=185, cpu_pressure=40, main_cpu=30, **_HUNGRY,
    )  # fmt: skip
    return of_job(scenario, libraries=("torch", "cuda", "openblas", "gomp"))


def quota() -> Scenario:
    """A container with four CPUs."""
    scenario = fault(
        "cpu-quota", "a container that may use 4 CPUs of 16", loaders=4, period_s=1.0, duty=0.4, jitter=0.15,
        loader_cpu=75, main_cpu=60, throttled=63, stopped_cpus=2.4, run_wait=20, cpu_pressure=20, **_HUNGRY,
    )  # fmt: skip
    return of_job(scenario, quota=4.0, container="5f2c9a71e0b4", slurm_job=None)


def slow() -> Scenario:
    """CPUs that save power while loaders need them."""
    scenario = fault(
        "cpu-slow", "CPUs that save power while sixteen loaders need them", loaders=16, period_s=1.3, duty=0.6,
        jitter=0.1, loader_cpu=96, cpu_pressure=30, main_cpu=30, **_HUNGRY,
    )  # fmt: skip
    saving = {"cpu_governor": "powersave", "cpu_driver": "acpi-cpufreq", "cpu_mhz": 1200.0, "cpu_low_mhz": 1190.0}
    settings = tuple((ONSET_S, name, value) for name, value in saving.items())
    return replace(scenario, server=replace(scenario.server, settings=settings))


def neighbour() -> Scenario:
    """Somebody compiles, with every CPU there is."""
    scenario = fault(
        "neighbour", "another user's build takes fourteen of sixteen CPUs", period_s=0.8, duty=0.45, jitter=0.15,
        loader_cpu=40, main_cpu=45, run_wait=62, cpu_pressure=80, **_HUNGRY,
    )  # fmt: skip
    build = Guest(pid=77310, user="bob", uid=1002, command="stress-ng --cpu 14", cpu=1440, from_s=ONSET_S)
    return replace(scenario, server=replace(scenario.server, guests=(build,)))


def watched() -> Scenario:
    """gputop on a slow machine."""
    scenario = fault("self-overhead", "a monitor that takes more than it should")
    return replace(scenario, server=replace(scenario.server, monitor_percent=6.5))


def blind() -> Scenario:
    """A job of somebody else that waits for a file server: how much it reads is not shown to everybody."""
    scenario = fault(
        "blind-spots", "a job of another user that waits, and hides why", loaders=4, period_s=1.3, duty=0.4,
        jitter=0.1, loader_cpu=12, loader_blocked=55, loader_read=20e6, loader_cached=0, io_pressure=45, main_cpu=20,
        **_HUNGRY,
    )  # fmt: skip
    return replace(scenario, server=replace(scenario.server, viewer=1002))


def of_job(scenario: Scenario, **changes: object) -> Scenario:
    """The same with another first job."""
    first, *others = scenario.server.jobs
    server = replace(scenario.server, jobs=(replace(first, **changes), *others))  # type: ignore[arg-type]
    return replace(scenario, server=server)


def scenarios() -> Iterator[Scenario]:
    """Each plants the rule it is named after."""
    crowded = fault(
        "threads-process", "one process with 64 compute threads on 16 CPUs",
        period_s=0.9, duty=0.3, jitter=0.2, main_cpu=22, pool_threads=63, pool_cpu=23, run_wait=72, switches=40,
        loader_cpu=4, cpu_pressure=80, **_HUNGRY,
    )  # fmt: skip
    yield of_job(crowded, threads=96)
    yield from (experiments(), full(), openblas(), quota(), slow())
    yield fault(
        "numa-misplacement", "a process on the CPUs of the other socket",
        period_s=0.5, duty=0.85, jitter=0.1, loader_cpu=30, pcie_rx=6.5e9, far=True,
    )  # fmt: skip
    yield from (neighbour(), watched(), blind())

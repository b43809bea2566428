"""Memory that grows, is full, is short, or is held and shared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gputop.demo.scenarios.cpu import of_job
from gputop.demo.scenarios.parts import (
    BEFORE_S,
    HEALTHY,
    ONSET_S,
    PARKED,
    each,
    fault,
    jupyter,
    llama,
    sd3,
    workstation,
)
from gputop.demo.server import GIB, MIB, Scenario
from gputop.model import Pressure


def leak() -> Scenario:
    """A loss that is added up with all it was computed from."""
    title = "device memory that grows by 6 MiB every second"
    scenario = fault("gmem-leak", title, length_s=1200, vram_per_s=6 * MIB, vram_step_bytes=2 * MIB)
    return replace(scenario, open_at_s=1140)


def host_leak() -> Scenario:
    """Lists in forked loaders."""
    title = "host memory of four loaders that grows by 60 MiB every second"
    scenario = fault("host-memory-leak", title, loaders=4, length_s=1200, loader_rss_per_s=34 * MIB)
    return replace(scenario, open_at_s=1140)


def nearly_full() -> Scenario:
    """Batches that get longer on a card with nothing left."""
    work = replace(HEALTHY, nvlink=0, vram_bytes=70 * GIB)
    grows = replace(work, vram_bytes=76.9 * GIB, vram_per_s=1.2 * MIB, vram_step_bytes=64 * MIB)
    job = llama(each(0), (BEFORE_S, work), (ONSET_S, grows), loaders=2)
    title = "a GPU of whose memory little is left, and less by the minute"
    return Scenario(name="gmem-nearly-full", title=title, server=workstation(job))


def zombie() -> Scenario:
    """A notebook that was left alone hours ago."""
    job = replace(jupyter(0, -10_800), work=((-10_800 - 900, HEALTHY), (-10_800, replace(PARKED, vram_bytes=31 * GIB))))
    title = "a notebook that does nothing for hours and holds 31 GB of its GPU"
    return Scenario(name="zombie-memory", title=title, server=workstation(job), open_at_s=1140, length_s=1200)


def shared() -> Scenario:
    """A second job comes to a GPU that is in use."""
    alone = replace(HEALTHY, nvlink=0, vram_bytes=30 * GIB)
    first = llama(each(0), (BEFORE_S, alone), (ONSET_S, replace(alone, duty=0.52, period_s=0.1)), loaders=2)
    second = replace(
        sd3(each(0), (ONSET_S, replace(alone, duty=0.44, period_s=0.1))), started_s=ONSET_S - 11, data="/data"
    )
    title = "two jobs that take turns on one GPU"
    return Scenario(name="gpu-shared", title=title, server=workstation(first, second))


def pressure() -> Scenario:
    """Loaders that need more memory than there is."""
    scenario = fault(
        "memory-pressure", "a machine that swaps: sixteen loaders need more memory than it has", loaders=16,
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


def scenarios() -> Iterator[Scenario]:
    """Each plants the rule it is named after."""
    yield from (pressure(), host_leak(), nearly_full(), leak(), zombie(), shared())

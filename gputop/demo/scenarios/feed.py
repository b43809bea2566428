"""Jobs that wait for their loaders."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gputop.demo.scenarios.parts import HEALTHY, ONSET_S, fault, llama, workstation
from gputop.demo.server import GIB, Dip, Scenario


def crowd() -> Scenario:
    """A job that starts three loaders for every CPU."""
    work = replace(HEALTHY, loader_cpu=22, loader_read=20e3, vram_bytes=30 * GIB, nvlink=0)
    job = replace(llama(((0,),), (ONSET_S, work), loaders=48), started_s=ONSET_S - 11)
    return Scenario(
        name="workers-oversized", title="forty-eight loaders on sixteen CPUs", server=workstation(job)
    )  # fmt: skip


def scenarios() -> Iterator[Scenario]:
    """Each plants the rule it is named after."""
    hungry = {"watts": 300, "sm": 60, "tensor": 30, "dram": 25, "main_cpu": 30}
    yield fault(
        "starved-cpu-saturated", "sixteen loaders use every CPU and are still too slow",
        loaders=16, period_s=1.3, duty=0.4, jitter=0.1, loader_cpu=96, cpu_pressure=30, **hungry,
    )  # fmt: skip
    yield fault(
        "starved-cpu-idle", "two loaders for a fast model: most CPUs are idle",
        loaders=2, period_s=0.8, duty=0.55, jitter=0.1, loader_cpu=97, **hungry,
    )  # fmt: skip
    yield fault(
        "starved-cpu-idle-flat", "the same with steps too short to see",
        loaders=3, period_s=0.15, duty=0.45, jitter=0.1, loader_cpu=98, **hungry,
    )  # fmt: skip
    yield fault(
        "loader-in-main", "the training process loads its own data, between its steps",
        loaders=0, period_s=1.0, duty=0.35, jitter=0.1, main_chars=40e6, **{**hungry, "main_cpu": 100},
    )  # fmt: skip
    yield crowd()
    yield fault(
        "head-of-line", "loaders that sleep while all wait for one slow sample",
        loaders=4, period_s=0.1, duty=0.4, jitter=0.3, loader_cpu=2, loader_read=20e3, loader_cached=1e6,
        **{**hungry, "main_cpu": 5},
    )  # fmt: skip
    yield fault(
        "worker-respawn", "eight loaders that are started anew every 41 s, and a GPU that waits for them",
        loaders=8, duty=0.97, loader_cpu=20, dip=Dip(every_s=41.0, for_s=3.2, respawn=True),
    )  # fmt: skip
    yield fault(
        "starved-cause-unknown", "a main thread that waits for something that does not show",
        loaders=0, period_s=0.8, duty=0.5, jitter=0.2, **{**hungry, "main_cpu": 12},
    )  # fmt: skip

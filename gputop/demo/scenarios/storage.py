"""Jobs that wait for what they read or write: disks, file servers, checkpoints, /dev/shm."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gputop.demo.scenarios.cpu import of_job
from gputop.demo.scenarios.parts import DATA, HEALTHY, ONSET_S, ROOT, SCRATCH, each, fault, llama, workstation
from gputop.demo.server import GIB, MIB, Dip, Scenario, Store

_HUNGRY: dict[str, Any] = {"watts": 300, "sm": 60, "tensor": 30, "dram": 25, "main_cpu": 20}
_WAITING: dict[str, Any] = _HUNGRY | {
    "period_s": 1.3, "duty": 0.3, "jitter": 0.1, "loader_cpu": 15, "loader_blocked": 70, "loader_cached": 0,
    "io_pressure": 65,
}  # fmt: skip
_FULL = 250 * GIB  # page cache of a machine that has read more than it can keep
_DISK = replace(SCRATCH, bytes_per_s=1.03e9)


def _from(scenario: Scenario, store: Store, cached_bytes: float = _FULL, **changes: object) -> Scenario:
    """The same with the data on this store."""
    others = tuple(one for one in (DATA, SCRATCH, ROOT) if one.path != store.path)
    server = replace(scenario.server, stores=(store, *others), cached_bytes=cached_bytes)
    return of_job(replace(scenario, server=server), data=store.path, **changes)


def small_files() -> Scenario:
    """The disk could give far more bytes."""
    scenario = fault(
        "io-small-files", "eight loaders that read nine kilobytes at a time", loaders=8, loader_read=11.25e6,
        read_size=9e3, **_WAITING,
    )  # fmt: skip
    return _from(scenario, replace(_DISK, calls_per_s=10.1e3))


def file_server() -> Scenario:
    """An old file server."""
    scenario = fault(
        "network-fs-bound", "eight loaders that wait for a file server", loaders=8, loader_read=14.6e6,
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
        name="cold-cache", title="a job that reads its data for the first time: later they are in memory",
        server=server, open_at_s=300, length_s=1800,
    )  # fmt: skip


def small_shm() -> Scenario:
    """A container as Docker makes it."""
    scenario = fault(
        "shm-nearly-full", "a container whose /dev/shm is nearly full", loaders=8, loader_cpu=30,
        shm_used=61 * MIB,
    )  # fmt: skip
    return of_job(scenario, container="9d1f60c2a7be", slurm_job=None, shm_bytes=64 * MIB)


def scenarios() -> Iterator[Scenario]:
    """Each plants the rule it is named after."""
    slow = fault(
        "io-bound", "eight loaders and a disk that can no more", loaders=8, loader_read=127e6, read_size=512e3,
        **_WAITING,
    )  # fmt: skip
    yield _from(slow, _DISK)
    yield from (small_files(), file_server(), first_epoch())
    dip = Dip(every_s=300, for_s=24, write_bytes=13e9)
    saving = fault(
        "checkpoint-stall", "training that stands still for every checkpoint", length_s=1800, duty=0.97, dip=dip
    )
    yield replace(saving, open_at_s=1200)
    yield small_shm()

"""Whole servers: a healthy one, one with much to say, rest, and many GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gputop.demo.scenarios.parts import (
    BEFORE_S,
    DATA,
    HEALTHY,
    ONSET_S,
    ROOT,
    SCRATCH,
    SOON_S,
    dgx,
    each,
    fault,
    jupyter,
    llama,
    sd3,
    workstation,
)
from gputop.demo.server import GIB, MIB, Dip, PoorCooling, Scenario

WAITING = replace(
    HEALTHY,
    period_s=0.8,
    duty=0.7,
    jitter=0.08,
    dip=Dip(every_s=9, for_s=3, duty=0.34, jitter=0.12),
    watts=645,
    nvlink=24e9,
    pcie_rx=3.2e9,
    pcie_tx=0.5e9,
    vram_bytes=66.5 * GIB,
    main_cpu=98.5,
    loader_cpu=59,
    loader_blocked=42,
    loader_read=59.5 * MIB,
    loader_cached=0,
    read_size=256 * 1024,
    io_pressure=31,
    cpu_pressure=2,
)
HUNGRY = replace(
    HEALTHY, watts=780, sm=92, tensor=61, dram=44, pcie_rx=8.8e9, vram_bytes=66.4 * GIB, main_cpu=98,
    main_read=7 * MIB, main_chars=2e6, main_blocked=0.3, run_wait=4.4, pool_threads=2, pool_cpu=3,
)  # fmt: skip


def healthy() -> Scenario:
    """One GPU that trains a language model as it should."""
    work = replace(HEALTHY, loader_cpu=10, vram_bytes=61 * GIB, nvlink=0)
    job = llama(each(0), (BEFORE_S, work), loaders=2)
    title = "one busy GPU: no findings"
    return Scenario(name="healthy", title=title, server=workstation(job), past_s=SOON_S)


def plateau() -> Scenario:
    """The allocator takes 12 GB more in a staircase, and then no more: no leak."""
    title = "memory that grows for 100 s, then stays constant: no findings"
    return fault("healthy-plateau", title, vram_per_s=2**27, vram_step_bytes=2**31, vram_grows_for_s=96.0)


def showcase() -> Scenario:
    """Eight GPUs that each have something to say: two troubles, a power cap, a notebook that forgot its memory."""
    waiting = replace(llama(each(0, 1, 2, 3), (BEFORE_S, HEALTHY), (-72.0, WAITING)), samples=8)
    jobs = (waiting, sd3(each(4, 5, 6), (BEFORE_S, HUNGRY)), jupyter(7, 300 - 7860))
    server = dgx(8, *jobs)
    hot = PoorCooling(celsius=88, clock_mhz=1410, hard_percent=44, from_s=60)
    warm = tuple(replace(card, ambient=40) if card.index < 4 else card for card in server.cards)
    cards = tuple(replace(card, heat=hot) if card.index == 6 else card for card in warm)
    return Scenario(
        name="showcase",
        title="eight GPUs: an I/O-bound job, a power cap, a hot GPU, a forgotten notebook",
        server=replace(server, cards=cards),
        past_s=SOON_S,
        watched_s=720,  # a notebook is forgotten after ten minutes
        far_past_s=8400,
    )


def idle() -> Scenario:
    """Eight GPUs after their last job."""
    work = replace(HEALTHY, duty=0.93, jitter=0.05, vram_bytes=66 * GIB)
    ended = replace(llama(each(*range(8)), (BEFORE_S, work)), ended_s=ONSET_S, started_s=ONSET_S - 13_260)
    return Scenario(name="idle", title="eight idle GPUs, the last job exited 3 minutes ago", server=dgx(8, ended))


def sixteen() -> Scenario:
    """Sixteen GPUs with two big jobs, seen by a user who may not read the other's I/O."""
    jobs = llama(each(*range(8)), (BEFORE_S, WAITING)), sd3(each(*range(8, 16)), (BEFORE_S, HUNGRY))
    stores = (replace(DATA, bytes_per_s=4.0 * GIB), SCRATCH, ROOT)
    server = replace(dgx(16, *jobs), cpus=112, stores=stores, viewer=1001)
    title = "sixteen GPUs, two jobs of eight ranks, 64 workers"
    return Scenario(name="16gpu", title=title, server=server, past_s=SOON_S)


def many() -> Scenario:
    """As many GPUs as fit on one screen."""
    job = llama(each(*range(64)), (BEFORE_S, replace(HEALTHY, jitter=0.1, duty=0.96)), loaders=1)
    return Scenario(
        name="64gpu", title="sixty-four GPUs, one job", open_at_s=60, server=replace(dgx(64, job), cpus=256)
    )


def scenarios() -> Iterator[Scenario]:
    """All of them."""
    yield from (showcase(), healthy(), plateau(), idle(), sixteen(), many())

"""Jobs whose ranks wait for each other, for a network, or for one process; and one that becomes slower."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gputop.demo.scenarios.parts import BEFORE_S, HEALTHY, ONSET_S, PARKED, dgx, each, fault, llama
from gputop.demo.server import GIB, DemoJob, PoorCooling, Scenario, Work

SLOWER_FROM_S = 720.0
LENGTH_S = 400.0
# kernels of NCCL that wait: a few multiprocessors, nothing computed, nothing sent
SPINS = replace(
    HEALTHY, duty=1.0, jitter=0.0, watts=122, sm=12, occupancy=3, tensor=0, dram=0.6, fp32=0, fp16=0, integer=2,
    pcie_rx=2e6, pcie_tx=2e6, nvlink=0, loader_cpu=0.0, loader_read=500.0, loader_cached=0,
)  # fmt: skip


def dataparallel() -> Scenario:
    """One process on four GPUs: the first gathers what the others return."""
    one = replace(
        HEALTHY, period_s=0.6, duty=0.365, jitter=0.06, watts=430, sm=66, tensor=34, dram=26, vram_bytes=15 * GIB,
        nvlink=4e9, main_cpu=100, loader_cpu=30,
    )  # fmt: skip
    before = replace(PARKED, vram_bytes=0.45 * GIB)
    first = replace(one, duty=0.71, vram_bytes=22 * GIB)
    job = replace(
        llama(((0, 1, 2, 3),), (BEFORE_S, before), (ONSET_S, one), loaders=4), name="vit-base", launcher="python",
        launcher_command=(), slurm_job=None, card_work=((0, first),), card_work_from_s=ONSET_S,
        command=("python", "train.py", "--arch", "vit_base"),
    )  # fmt: skip
    title = "one process driving four GPUs with nn.DataParallel"
    return Scenario(name="dataparallel", title=title, length_s=LENGTH_S, server=dgx(4, job))


def in_turns() -> Scenario:
    """One process with a quarter of the layers on each of four GPUs."""
    stage = replace(
        HEALTHY, period_s=3.2, duty=0.25, jitter=0.0, watts=590, sm=88, tensor=52, dram=34, vram_bytes=31 * GIB,
        nvlink=1e9, main_cpu=100, loader_cpu=15,
    )  # fmt: skip
    before = replace(PARKED, vram_bytes=31 * GIB)
    job = replace(
        llama(((0, 1, 2, 3),), (BEFORE_S, before), (ONSET_S, stage), loaders=2), name="llama-13b", launcher="python",
        launcher_command=(), slurm_job=None, command=("python", "finetune.py", "--device_map", "auto"),
    )  # fmt: skip
    title = "four pipeline stages, one active at a time"
    server = replace(dgx(4, job), behind_s=stage.period_s / 4)
    return Scenario(name="model-parallel", title=title, length_s=LENGTH_S, server=server)


def _nodes(*work: tuple[float, Work]) -> DemoJob:
    """A job on two machines with four ranks each."""
    return replace(llama(each(*range(4)), *work, loaders=2), nodes=2)


def network() -> Scenario:
    """Two machines and 10 Gb/s between them."""
    slow = replace(
        HEALTHY, period_s=1.1, duty=0.99, watts=330, sm=48, tensor=21, dram=19, nvlink=12e9, ethernet=0.93 * 10e9 / 8
    )
    server = dgx(4, _nodes((BEFORE_S, HEALTHY), (ONSET_S, slow)))
    title = "a job on two hosts that saturates the 10 Gbit/s network"
    return Scenario(
        name="network-bound",
        title=title,
        length_s=LENGTH_S,
        server=replace(server, ethernet_bytes_per_s=10e9 / 8, infiniband=False),
    )


def network_tcp() -> Scenario:
    """Unused InfiniBand."""
    before = replace(HEALTHY, infiniband=18e9)
    slow = replace(HEALTHY, period_s=0.9, duty=0.99, watts=380, sm=55, tensor=27, dram=22, nvlink=15e9, ethernet=4.6e9)
    title = "a job on two hosts that communicates over TCP with InfiniBand idle"
    return Scenario(
        name="network-bound-tcp",
        title=title,
        length_s=LENGTH_S,
        server=dgx(4, _nodes((BEFORE_S, before), (ONSET_S, slow))),
    )


def wait() -> Scenario:
    """Rank 0 evaluates alone."""
    alone = replace(HEALTHY, period_s=0.3, duty=0.9, watts=480, tensor=40, nvlink=0)
    job = replace(
        llama(each(*range(4)), (BEFORE_S, HEALTHY), (ONSET_S, SPINS), loaders=2),
        card_work=((0, alone),), card_work_from_s=ONSET_S,
    )  # fmt: skip
    title = "evaluation on rank 0 only: three ranks wait in a collective"
    return Scenario(name="collective-wait", title=title, length_s=LENGTH_S, server=dgx(4, job))


def hang() -> Scenario:
    """Rank 3 is stuck in the kernel."""
    stuck = replace(
        PARKED, watts=88, vram_bytes=HEALTHY.vram_bytes, main_cpu=0.0, main_blocked=100, loader_cpu=0.0,
        loader_read=500.0, loader_cached=0,
    )  # fmt: skip
    job = replace(
        llama(each(*range(4)), (BEFORE_S, HEALTHY), (ONSET_S, SPINS), loaders=2),
        card_work=((3, stuck),), card_work_from_s=ONSET_S,
    )  # fmt: skip
    title = "a hang: rank 3 idle, the other ranks spin in NCCL"
    return Scenario(name="collective-wait-hang", title=title, length_s=LENGTH_S, server=dgx(4, job))


def straggler() -> Scenario:
    """A card with a low clock."""
    # all do the same in a step that takes 1.45 times as long: a fast card is done before and spins
    late = 1.0 / 1.45
    victim = replace(
        HEALTHY, period_s=0.58, sm=0.86 * HEALTHY.sm, tensor=late * HEALTHY.tensor, dram=late * HEALTHY.dram,
        watts=480, nvlink=late * HEALTHY.nvlink,
    )  # fmt: skip
    slow = replace(victim, duty=0.99, sm=HEALTHY.sm, tensor=HEALTHY.tensor, watts=620)
    job = replace(
        llama(each(*range(4)), (BEFORE_S, HEALTHY), (ONSET_S, victim), loaders=2),
        card_work=((2, slow),), card_work_from_s=ONSET_S,
    )  # fmt: skip
    server = dgx(4, job)
    hot = PoorCooling(celsius=91, clock_mhz=1290, hard_percent=60, from_s=ONSET_S)
    cards = tuple(replace(card, heat=hot) if card.index == 2 else card for card in server.cards)
    title = "a straggler: the ranks wait for one with a hot GPU at a low SM clock"
    return Scenario(name="straggler", title=title, length_s=LENGTH_S, server=replace(server, cards=cards))


def slowdown() -> Scenario:
    """Steps that take longer from one minute to the next."""
    before = fault("slowdown", "a job whose steps became 25 % slower some minutes ago", length_s=1260)
    (job,) = before.server.jobs
    steps = replace(job.work[0][1], period_s=1.2, duty=0.88, watts=560, jitter=0.02)
    work = ((BEFORE_S, steps), (SLOWER_FROM_S, replace(steps, period_s=1.5)))
    server = replace(before.server, jobs=(replace(job, work=work),))
    # ten minutes before it became slower have been watched, too: without them there is nothing to compare with
    return replace(before, server=server, open_at_s=1200, past_s=1200)


def scenarios() -> Iterator[Scenario]:
    """Each plants the rule it is named after."""
    yield from (dataparallel(), in_turns(), network(), network_tcp(), wait(), hang(), straggler(), slowdown())

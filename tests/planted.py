"""Scenarios with one dial at the value of a threshold, where that takes more than one parameter of `Work`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gputop.demo import SCENARIOS
from gputop.demo.cards import FULL_MHZ
from gputop.demo.scenarios.cpu import of_job
from gputop.demo.scenarios.parts import BEFORE_S, DATA, HEALTHY, ONSET_S, ROOT, SCRATCH, card_fault
from gputop.demo.scenarios.ranks import SLOWER_FROM_S
from gputop.demo.server import GIB, MIB, Dip, Heat, Scenario
from tests.dials import turned

VRAM = (81_559 - 551) * MIB  # of a card, but for what the driver takes
LEAKS_S = 640 - ONSET_S
Made = Callable[[float], Scenario]


def work(name: str, dial: str, scale: float = 1.0, **others: Any) -> Made:
    """A scenario with one parameter of its work at that value, `scale` times as the threshold counts it."""
    return lambda value: turned(name, **{**others, dial: scale * value})


def gpus(name: str, **settings: Callable[[float], Any]) -> Made:
    """A job that is well, on cards of which the driver says these things from the onset on."""

    def made(value: float) -> Scenario:
        return card_fault(name, name, settings=tuple((ONSET_S, one, of(value)) for one, of in settings.items()))

    return made


def machine(name: str, **settings: Callable[[float], Any]) -> Made:
    """A scenario whose machine says other things from the onset on."""

    def made(value: float) -> Scenario:
        scenario = SCENARIOS[name]
        added = tuple((ONSET_S, one, of(value)) for one, of in settings.items())
        return replace(scenario, server=replace(scenario.server, settings=(*scenario.server.settings, *added)))

    return made


def pool(name: str, threads: float) -> Scenario:
    """So many compute threads in a process, its main thread one of them."""
    return of_job(turned(name, pool_threads=round(threads) - 1), threads=round(threads) + 3)


def blas(cores: float) -> Scenario:
    """As many loaders as fill the CPUs with one thread each."""
    return of_job(turned("openblas-on-intel", loader_cpu=100 * cores, main_cpu=40), loaders=13)


def threads_of_all(each: float) -> Scenario:
    """Four pools on 32 CPUs."""
    return turned("threads-host", pool_threads=round(8 * each) - 1)


def slow_cpus(share: float) -> Scenario:
    """Their clock is capped, and that is the clock they have."""
    mhz = 3800 * share
    saving = {"cpu_cap_mhz": mhz, "cpu_mhz": mhz, "cpu_low_mhz": mhz - 20}
    scenario = SCENARIOS["cpu-slow"]
    settings = tuple((ONSET_S, name, value) for name, value in saving.items())
    return replace(scenario, server=replace(scenario.server, settings=settings))


def far_server(rtt_s: float) -> Scenario:
    """A file server that is half used: a read takes 1.5 times as long as one alone."""
    scenario = SCENARIOS["network-fs-bound"]
    store = replace(DATA, bytes_per_s=8 * 14.6e6 / 0.5, latency_s=rtt_s / 1.5)
    return replace(scenario, server=replace(scenario.server, stores=(store, SCRATCH, ROOT)))


def small_reads(mean: float) -> Scenario:
    """Reads of that size, so many that the disk can no more."""
    scenario = turned("io-small-files", read_size=mean)
    (first, *others) = (
        replace(one, calls_per_s=8 * 11.25e6 / mean / 0.9) if one.path == "/scratch" else one
        for one in scenario.server.stores
    )
    return replace(scenario, server=replace(scenario.server, stores=(first, *others)))


def saving(written: float) -> Scenario:
    """A pause of eight seconds every minute, and so much written in each."""
    return turned("checkpoint-stall", dip=Dip(every_s=60, for_s=8, write_bytes=written))


def restarts(cost_s: float) -> Scenario:
    """Loaders that come anew twice a minute, and cost so much each time."""
    return turned("worker-respawn", dip=Dip(every_s=30, for_s=cost_s, respawn=True), duty=1.0, jitter=0.0)


def shm(used: float) -> Scenario:
    """So much of it is in use all the time: none of it is growth."""
    scenario = SCENARIOS["shm-nearly-full"]
    (job,) = scenario.server.jobs
    steady = tuple((from_s, replace(one, shm_used=used * 64 * MIB)) for from_s, one in job.work)
    return replace(scenario, server=replace(scenario.server, jobs=(replace(job, work=steady),)))


def leaks(left_s: float) -> Scenario:
    """Device memory that is full so long after 640 s: by then a leak of five minutes has been told."""
    held = 60 * GIB
    return turned("gmem-leak", vram_bytes=held, vram_per_s=(VRAM - held) / (left_s + LEAKS_S))


def host_leaks(left_s: float) -> Scenario:
    """The same of host memory: 220 GiB are left, and of what four loaders grow by, 44 % are theirs alone."""
    return turned("host-memory-leak", loader_rss_per_s=220 * GIB / (left_s + LEAKS_S) / 4 / 0.44)


def first_gpu(skew: float) -> Scenario:
    """The first of four GPUs has more to do than the others, and holds as much."""
    scenario = SCENARIOS["dataparallel"]
    (job,) = scenario.server.jobs
    one = job.work[-1][1]
    first = replace(one, duty=skew * one.duty)
    return of_job(scenario, card_work=((0, first),))


def late_card(effect: float) -> Scenario:
    """A card whose clock is lower by that share, so that all steps take longer and the others wait."""
    scenario = SCENARIOS["straggler"]
    (job,) = scenario.server.jobs
    fast = 1 - effect
    victim = replace(
        HEALTHY, period_s=0.4 / fast, sm=0.86 * HEALTHY.sm, tensor=fast * HEALTHY.tensor, dram=fast * HEALTHY.dram,
        watts=480, nvlink=fast * HEALTHY.nvlink,
    )  # fmt: skip
    slow = replace(victim, duty=0.99, sm=HEALTHY.sm, tensor=HEALTHY.tensor, watts=620)
    late = replace(job, work=((BEFORE_S, HEALTHY), (ONSET_S, victim)), card_work=((2, slow),))
    hot = Heat(celsius=91, clock_mhz=fast * FULL_MHZ, hard_percent=60, from_s=ONSET_S)
    cards = tuple(replace(card, heat=hot) if card.index == 2 else card for card in scenario.server.cards)
    return replace(scenario, server=replace(scenario.server, jobs=(late,), cards=cards))


def slower(share: float) -> Scenario:
    """Steps that take longer from one moment on; long ones, which are measured better."""
    scenario = SCENARIOS["slowdown"]
    (job,) = scenario.server.jobs
    (from_s, before), _ = job.work
    steps = replace(before, period_s=2.0)
    after = replace(steps, period_s=2.0 / (1 - share))
    return of_job(scenario, work=((from_s, steps), (SLOWER_FROM_S, after)))


def crew(loaders: int, cores: float = 0.22) -> Scenario:
    """So many loaders on 16 CPUs, of a GPU that is kept busy."""
    return of_job(turned("workers-oversized", loader_cpu=100 * cores), loaders=loaders)


def starting(age_s: float) -> Scenario:
    """A job that has read its weights for so long when it is 480 s."""
    scenario, began_s = SCENARIOS["slow-start"], 480 - age_s
    (job,) = scenario.server.jobs
    return of_job(scenario, work=((began_s, job.work[0][1]),), started_s=began_s - 11)


def aged(years: float) -> Scenario:
    """A PyTorch that came out so long ago, at the time that the simulated server has."""
    versions = {2.2: "2.5.1+cu124", 1.8: "2.6.0+cu124"}
    return of_job(SCENARIOS["stack-vs-gpu"], torch=(versions[round(years, 1)], "12.4"))


def hot(soft_percent: float) -> Scenario:
    """A card that is slowed by its driver for so much of the time, long before it is too hot."""
    return card_fault("hot", "hot", heat=Heat(celsius=70, clock_mhz=1800, soft_percent=soft_percent, from_s=ONSET_S))


def capped(percent: float) -> Scenario:
    """A card at a limit whenever it works, for so much of the time."""
    return turned("power", duty=percent / 100, period_s=0.1)


def eight_lanes(percent: float) -> Scenario:
    """Half of a link, of a card that is busy for so much of the time, before as well."""
    scenario = SCENARIOS["pcie-degraded"]
    (job,) = scenario.server.jobs
    steady = replace(job.work[-1][1], duty=percent / 100, period_s=0.1)
    return of_job(scenario, work=((BEFORE_S, steady),))


def inside(share: float) -> Scenario:
    """What a profile has shown, in so many of its samples."""
    scenario = SCENARIOS["seen-inside"]
    seen = ((ONSET_S, "logs", "its main thread is logging", share),)
    return replace(scenario, server=replace(scenario.server, seen_inside=seen))


def monitor(percent: float) -> Scenario:
    """What the monitor costs."""
    scenario = SCENARIOS["self-overhead"]
    return replace(scenario, server=replace(scenario.server, monitor_percent=percent))


def instance(used: float) -> Scenario:
    """An instance that tells how busy its units are, and that so little of its memory is in use."""
    scenario = SCENARIOS["mig-visibility"]
    whole, *parts = scenario.server.cards
    told = {"busy_percent", "sm_active_percent", "missing"}
    cards = tuple(replace(card, settings=tuple(one for one in card.settings if one[1] not in told)) for card in parts)
    (job,) = scenario.server.jobs
    small = replace(job.work[-1][1], sm=20, duty=0.9, vram_bytes=used * 39 * GIB)
    return of_job(replace(scenario, server=replace(scenario.server, cards=(whole, *cards))), work=((BEFORE_S, small),))

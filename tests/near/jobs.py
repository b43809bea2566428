"""Jobs with one dial at the value of a threshold, where that takes more than one parameter of `Work`."""

from __future__ import annotations

from dataclasses import replace

from gputop.demo import SCENARIOS
from gputop.demo.gpu import FULL_MHZ, FULL_WATTS, IDLE_WATTS
from gputop.demo.scenarios.host import of_job
from gputop.demo.scenarios.parts import BEFORE_S, HEALTHY, ONSET_S
from gputop.demo.scenarios.ranks import SLOWER_FROM_S
from gputop.demo.server import GIB, Dip, PoorCooling, Scenario
from tests.scenario_variants import turned


def pool(name: str, threads: float) -> Scenario:
    """So many compute threads in a process, its main thread one of them."""
    return of_job(turned(name, pool_threads=round(threads) - 1), threads=round(threads) + 3)


def blas(cores: float) -> Scenario:
    """As many loaders as fill the CPUs with one thread each."""
    return of_job(turned("openblas-on-intel", loader_cpu=100 * cores, main_cpu=40), loaders=13)


def threads_of_all(each: float) -> Scenario:
    """Four pools on 32 CPUs."""
    return turned("threads-host", pool_threads=round(8 * each) - 1)


def crowd_of(share: float) -> Scenario:
    """Loaders for that share of 16 CPUs, which are not all in use."""
    return of_job(turned("starved-cpu-saturated", loader_cpu=90), loaders=round(16 * share))


def restarts(cost_s: float) -> Scenario:
    """Loaders that come anew four times a minute, and cost so much each time."""
    return turned("worker-respawn", dip=Dip(every_s=15, for_s=cost_s, respawn=True), duty=1.0, jitter=0.0)


def first_gpu(skew: float) -> Scenario:
    """The first of four GPUs has more to do than the others, and holds as much."""
    scenario = SCENARIOS["dataparallel"]
    (job,) = scenario.server.jobs
    one = job.work[-1][1]
    first = replace(one, duty=skew * one.duty)
    return of_job(scenario, card_work=((0, first),))


def together(sum_of_shares: float) -> Scenario:
    """The first of four GPUs does half as much again as each of the others: so much in all."""
    scenario = SCENARIOS["dataparallel"]
    (job,) = scenario.server.jobs
    before, (from_s, one) = job.work
    each = replace(one, duty=sum_of_shares / 4.5)
    first = replace(one, duty=1.5 * each.duty, vram_bytes=22 * GIB)
    return of_job(scenario, work=(before, (from_s, each)), card_work=((0, first),))


def unlike(by: float) -> Scenario:
    """One of the other GPUs is busier than the rest."""
    scenario = SCENARIOS["dataparallel"]
    (job,) = scenario.server.jobs
    one = job.work[-1][1]
    return of_job(scenario, card_work=(*job.card_work, (2, replace(one, duty=one.duty + by))))


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
    hot = PoorCooling(celsius=91, clock_mhz=fast * FULL_MHZ, hard_percent=60, from_s=ONSET_S)
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


def unused(percent: float) -> Scenario:
    """A job on two of its four GPUs, and these busy for so much of the time."""
    return turned("gpu-unused-in-job", duty=percent / 100)


def aged(years: float) -> Scenario:
    """A PyTorch that is so old at the time of the simulated server; there is none of every age."""
    versions = {2.2: "2.5.1+cu124", 1.8: "2.6.0+cu124"}
    return of_job(SCENARIOS["stack-vs-gpu"], torch=(versions[round(years, 1)], "12.4"))


def by_turns(both: float) -> Scenario:
    """A main thread that loads while its GPU is idle, and the two of them busy for so much of the time together."""
    duty = 0.5
    return turned("loader-in-main", duty=duty, main_cpu=100 * (both - duty))


def drawing(share: float) -> Scenario:
    """A small job that draws so much of what lies between idle and the limit."""
    duty = 0.45
    return turned("small-job", duty=duty, watts=IDLE_WATTS + share * (FULL_WATTS - IDLE_WATTS) / duty)


def alone(cores: float) -> Scenario:
    """A main thread that loads, and another thread for what is left of these cores."""
    return turned("loader-in-main", pool_threads=1, pool_cpu=100 * cores - 100)


def gaps(empty: float) -> Scenario:
    """Steps of 2 s in which so many samples are empty, of who is not seen to read; one in twelve is in part."""
    return turned("loader-in-main", main_chars=0.0, period_s=2.0, jitter=0.02, duty=1 - 1 / 12 - empty)


def reading(bytes_per_s: float) -> Scenario:
    """Four loaders that sleep, and read so much from a local disk."""
    return of_job(turned("head-of-line", loader_read=bytes_per_s / 4, loader_cached=0.0), data="/scratch")


def inside(share: float) -> Scenario:
    """What a profile has shown, in so many of its samples."""
    scenario = SCENARIOS["seen-inside"]
    seen = ((ONSET_S, "logs", "main thread logging", share),)
    return replace(scenario, server=replace(scenario.server, seen_inside=seen))

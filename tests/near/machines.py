"""What is around a job, with one dial at a threshold: CPUs, stores, memory, cards, and the monitor."""

from __future__ import annotations

from dataclasses import replace

from gputop.demo import SCENARIOS
from gputop.demo.gpu import FULL_MHZ
from gputop.demo.scenarios.host import of_job
from gputop.demo.scenarios.parts import BEFORE_S, DATA, ONSET_S, ROOT, SCRATCH, card_fault
from gputop.demo.server import GIB, MIB, Dip, PoorCooling, Scenario
from tests.scenario_variants import turned

VRAM = (81_559 - 551) * MIB  # of a card, but for what the driver takes
LEAKS_S = 640 - ONSET_S


def capped_cpus(share: float) -> Scenario:
    """Their clock is capped, and that is the clock they have."""
    return _clocked(cpu_cap_mhz=3800 * share, cpu_mhz=3800 * share)


def low_cpus(share: float) -> Scenario:
    """They run at that clock, and nothing says why."""
    return _clocked(cpu_mhz=3800 * share)


def _clocked(**settings: float) -> Scenario:
    scenario = SCENARIOS["cpu-slow"]
    low = settings | {"cpu_low_mhz": settings["cpu_mhz"] - 20}
    since = tuple((ONSET_S, name, value) for name, value in low.items())
    return replace(scenario, server=replace(scenario.server, settings=since))


def built(percent: float) -> Scenario:
    """A build that fills the CPUs so far, with what else runs."""
    scenario = SCENARIOS["neighbour"]
    (guest,) = scenario.server.guests
    return replace(scenario, server=replace(scenario.server, guests=(replace(guest, cpu=16 * percent - 135),)))


def far_server(rtt_s: float) -> Scenario:
    """A file server that is half used: a read takes 1.5 times as long as one alone.

    Loaders that sleep in its client for half of their time and more wait for it, whatever a read takes.
    """
    scenario = turned("network-fs-bound", loader_blocked=40)
    store = replace(DATA, bytes_per_s=8 * 14.6e6 / 0.5, latency_s=rtt_s / 1.5)
    return replace(scenario, server=replace(scenario.server, stores=(store, SCRATCH, ROOT)))


def small_reads(mean: float) -> Scenario:
    """Reads of that size, so many that the disk can no more."""
    scenario = turned("io-small-files", read_size=mean)
    disk = replace(scenario.server.stores[0], calls_per_s=8 * 11.25e6 / mean / 0.9)
    return replace(scenario, server=replace(scenario.server, stores=(disk, DATA, ROOT)))


def saving(written: float) -> Scenario:
    """A pause of eight seconds every minute, and so much written in each."""
    return turned("checkpoint-stall", dip=Dip(every_s=60, for_s=8, write_bytes=written))


def pausing(idle_s: float) -> Scenario:
    """A pause four times a minute, in which a checkpoint is written."""
    return turned("checkpoint-stall", dip=Dip(every_s=15, for_s=idle_s, write_bytes=2e9), duty=1.0, jitter=0.0)


def validating(share: float) -> Scenario:
    """Phases that take so much of the time."""
    return turned("evaluation-phase", dip=Dip(every_s=110, for_s=110 * share, duty=0.3))


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


def _heated(**heat: float) -> Scenario:
    usual = {"celsius": 70.0, "clock_mhz": FULL_MHZ - 100, "from_s": ONSET_S}
    return card_fault("hot", "a hot card", heat=PoorCooling(**{**usual, **heat}))


def by_driver(percent: float) -> Scenario:
    """A card that is slowed by its driver for so much of the time, long before it is too hot."""
    return _heated(soft_percent=percent)


def in_hardware(percent: float) -> Scenario:
    """The same by itself."""
    return _heated(hard_percent=percent)


def hot(distance: float) -> Scenario:
    """A card that is so far from its limit of 90 C, and not slowed yet."""
    return _heated(celsius=90 + distance)


def capped(percent: float) -> Scenario:
    """A card at a limit whenever it works, for so much of the time."""
    return turned("power", duty=percent / 100, period_s=0.1)


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

"""Labelled runs: scenarios of the simulated server as they are, disturbed, or with a signal that nobody may read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from random import Random
from typing import Any

from gputop.demo import SCENARIOS, Demo
from gputop.demo.server import Job, Scenario, Work
from gputop.model import Frame, Gpu, Missing, metrics
from gputop.thresholds import Thresholds, shipped
from tests.score.marks import LOOKED_S, Result, Truth, marked
from tests.score.moved import moved
from tests.score.tools import TOOLS, gputop
from tests.score.truths import BESIDE, EXPECTED, HEALTHY, WELL

ONSET_S = 120.0
AFTER_S = 150.0  # that a run goes on when its fault is over
LOST_SHARE, JITTER_S, CLOCK_S = 0.2, 0.3, 0.05
STRANGER = 1999  # uid of somebody who owns no process
_UNITS = tuple(metric.name for metric in metrics(Gpu) if "(GPM)" in metric.help)
Times = Callable[[Random, float], Iterator[tuple[float, float]]]  # when it is looked, and by how much the clock is off


def steady(chance: Random, end_s: float) -> Iterator[tuple[float, float]]:
    """Once a second."""
    yield from ((float(t), 0.0) for t in range(int(end_s)))


def lossy(chance: Random, end_s: float) -> Iterator[tuple[float, float]]:
    """One look of five never happens."""
    yield from ((t, off) for t, off in steady(chance, end_s) if chance.random() >= LOST_SHARE)


def jittery(chance: Random, end_s: float) -> Iterator[tuple[float, float]]:
    """Looks that come early or late, by a clock that is not quite right."""
    yield from (
        (max(0.0, t + chance.uniform(-JITTER_S, JITTER_S)), chance.uniform(-CLOCK_S, CLOCK_S))
        for t, _ in steady(chance, end_s)
    )


def bent(strength: float) -> Callable[[Scenario], Scenario]:
    """The same faults, weaker or stronger: what differs from the healthy work differs by less, or by more."""

    def change(scenario: Scenario) -> Scenario:
        jobs = tuple(_bent(job, strength) for job in scenario.server.jobs)
        return replace(scenario, server=replace(scenario.server, jobs=jobs))

    return change


def _bent(job: Job, strength: float) -> Job:
    (_, healthy), *_ = job.work
    work = tuple((from_s, _between(healthy, work, strength)) for from_s, work in job.work)
    return replace(job, work=work)


def _between(healthy: Work, faulty: Work, strength: float) -> Work:
    changes: dict[str, Any] = {}
    for field in fields(Work):
        before, now = getattr(healthy, field.name), getattr(faulty, field.name)
        if isinstance(now, (int, float)) and not isinstance(now, bool) and now != before and field.name not in _KEPT:
            moved = max(0.0, before + strength * (now - before))
            # what computes with several threads takes more than all of one CPU
            full = field.name in _SHARES and max(before, now) <= 100
            top = 1.0 if field.name == "duty" else 100.0 if full else moved
            changes[field.name] = type(now)(min(moved, top))
    return replace(faulty, **changes)


_KEPT = ("period_s", "read_size")  # how long and how large, not how bad
_SHARES = ("main_cpu", "main_blocked", "loader_blocked", "loader_cpu", "run_wait", "throttled", "io_pressure")


def strangers(scenario: Scenario) -> Scenario:
    """Seen by somebody who owns none of the processes."""
    return replace(scenario, server=replace(scenario.server, viewer=STRANGER))


def no_units(frame: Frame) -> Frame:
    """A card older than Hopper: how busy its units are is not known."""
    unsupported = tuple(Missing(metric=name, reason="unsupported") for name in _UNITS)
    unknown: dict[str, Any] = dict.fromkeys(_UNITS)
    gpus = (replace(gpu, missing=(*gpu.missing, *unsupported), **unknown) for gpu in frame.gpus)
    return replace(frame, gpus=tuple(gpus))


def no_pressure(frame: Frame) -> Frame:
    """A kernel without pressure."""
    none = {"cpu_pressure": None, "io_pressure": None, "memory_pressure": None}
    return replace(frame, host=replace(frame.host, **none))


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to disturb a run."""

    name: str
    times: Times = steady
    scenario: Callable[[Scenario], Scenario] = lambda scenario: scenario
    frame: Callable[[Frame], Frame] = lambda frame: frame
    limits: Callable[[], Thresholds] = shipped


PLAIN = Variant(name="as it is")
VARIANTS: Mapping[str, Variant] = {
    variant.name: variant
    for variant in (
        PLAIN,
        Variant(name="faults 30 % weaker", scenario=bent(0.7)),
        Variant(name="faults 30 % stronger", scenario=bent(1.3)),
        Variant(name="all thresholds x 0.7", limits=partial(moved, 0.7)),
        Variant(name="all thresholds x 1.3", limits=partial(moved, 1.3)),
        Variant(name="20 % of the looks lost", times=lossy),
        Variant(name="looks and clock jitter", times=jittery),
        Variant(name="no activity of units", frame=no_units),
        Variant(name="processes of somebody else", scenario=strangers),
        Variant(name="no pressure", frame=no_pressure),
    )
}


def names() -> list[str]:
    """Every labelled scenario, the longest first."""
    return sorted((*EXPECTED, *BESIDE, *HEALTHY), key=lambda name: -_end_s(name, truth_of(name, plain=True)))


def played(name: str, variant: str, tools: Iterable[str] = ("gputop",)) -> dict[str, Result]:
    """One run of a scenario, by tool."""
    how = VARIANTS[variant]
    truth, scenario = truth_of(name, plain=how is PLAIN), how.scenario(SCENARIOS[name])
    if truth.ends_s is not None and _heals(scenario):
        scenario = _healed(scenario, truth.ends_s)
    found = {}
    for tool in tools:
        demo = Demo(scenario, pace=False, anchor_s=1_795_185_127.0, at_s=0.0)
        frames = _frames(demo, how, Random(f"{name} {variant}"), _end_s(name, truth))
        said = gputop(frames, how.limits) if tool == "gputop" else TOOLS[tool](frames)
        found[tool] = marked(list(said), truth)
    return found


def truth_of(name: str, *, plain: bool) -> Truth:
    """What is so in a scenario; in a plain run a fault lasts for longer and, where that can be, is taken away."""
    if name in HEALTHY:
        return Truth(rule=WELL, well=True, due_s=SCENARIOS[name].length_s - LOOKED_S, never=HEALTHY[name])
    expected = BESIDE[name] if name in BESIDE else EXPECTED[name]
    due_s, ends_s = ONSET_S + expected.by_s, None
    if plain and expected.over_s is not None:
        ends_s = expected.over_s
    elif plain:
        # the slowest of the other tools needs 250 s
        end_s = max(due_s + LOOKED_S, ONSET_S + 330)
        due_s, ends_s = end_s - LOOKED_S, end_s if _heals(SCENARIOS[name]) else None
    return Truth(
        rule=expected.primary, beside=name in BESIDE, onset_s=ONSET_S, due_s=due_s, ends_s=ends_s,
        never=expected.never, mild=expected.mild, also=expected.also,
    )  # fmt: skip


def _end_s(name: str, truth: Truth) -> float:
    if truth.well:
        return SCENARIOS[name].length_s
    return truth.due_s + LOOKED_S if truth.ends_s is None else truth.ends_s + AFTER_S


def _heals(scenario: Scenario) -> bool:
    """Whether all that is wrong is the work of its jobs since the onset."""
    server = scenario.server
    cards = all(card.heat is None and card.limit_watts == 700 for card in server.cards)
    since = any(from_s == ONSET_S for job in server.jobs for from_s, _ in job.work)
    return since and cards and not server.guests and not server.settings


def _healed(scenario: Scenario, at_s: float) -> Scenario:
    jobs = tuple(replace(job, work=(*job.work, (at_s, job.work[0][1]))) for job in scenario.server.jobs)
    return replace(scenario, server=replace(scenario.server, jobs=jobs))


def _frames(demo: Demo, how: Variant, chance: Random, end_s: float) -> Iterator[tuple[float, Frame]]:
    for t, off_s in how.times(chance, end_s):
        frame = how.frame(demo.frame(t))
        yield t, replace(frame, mono_s=frame.mono_s + off_s) if off_s else frame

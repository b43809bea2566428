"""Labelled runs: scenarios of the simulated server as they are, disturbed, or with a signal that nobody may read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from random import Random

from gputop.demo import SCENARIOS, Demo
from gputop.demo.server import Scenario
from gputop.model import Frame
from tests.score.disturbed import PLAIN, VARIANTS, Variant
from tests.score.gains import Pace
from tests.score.marks import LOOKED_S, Result, Truth, marked
from tests.score.tools import TOOLS, gputop
from tests.score.truths import BESIDE, EXPECTED, HEALTHY, WELL

ONSET_S = 120.0
AFTER_S = 150.0  # that a run goes on when its fault is over


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
        frames = _frames(demo, how, Random(f"{name} {how.seed or variant}"), _end_s(name, truth))
        pace = Pace(truth)
        said = gputop(frames, how.limits, pace.take) if tool == "gputop" else TOOLS[tool](frames)
        found[tool] = pace.told(marked(list(said), truth))
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
    for second in range(int(end_s)):
        if look := how.look(chance, float(second)):
            t, off_s = look
            frame = how.frame(demo.frame(t))
            yield t, replace(frame, mono_s=frame.mono_s + off_s) if off_s else frame

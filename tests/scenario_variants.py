"""Scenarios whose dials are turned, and what the rules say of them: all through the physics of the simulated server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from gputop.demo import SCENARIOS, Demo
from gputop.demo.server import DemoJob, Scenario
from gputop.diagnose.engine import Verdict
from gputop.model import Frame
from tests.rule_cases import EACH_S, judged

FROM_S = 60.0  # one minute before the onset is enough to know what was there before


def turned(name: str, **dials: Any) -> Scenario:
    """A scenario whose faulty work differs in these parameters of `Work`."""
    scenario = SCENARIOS[name]
    jobs = tuple(_turned(job, dials) for job in scenario.server.jobs)
    return replace(scenario, server=replace(scenario.server, jobs=jobs))


def _turned(job: DemoJob, dials: dict[str, Any]) -> DemoJob:
    (from_s, work), *before = reversed(job.work)
    return replace(job, work=(*reversed(before), (from_s, replace(work, **dials))))


def looks(
    scenario: Scenario,
    until_s: float,
    from_s: float = FROM_S,
    each_s: int = EACH_S,
    seen: Callable[[Frame], Frame] | None = None,
) -> Iterator[tuple[float, Verdict]]:
    """What is said at each look, and when on the scenario's clock. `seen`: what of a frame is seen, if not all."""
    demo = Demo(scenario, pace=False, anchor_s=1_795_185_127.0, at_s=0.0)
    times = range(int(from_s), int(until_s), each_s)
    frames = (demo.frame(float(t)) for t in times)
    for frame, verdict in judged(map(seen, frames) if seen else frames):
        yield frame.mono_s - scenario.server.uptime_s, verdict


def named(verdict: Verdict) -> set[str]:
    """The rules that speak, on their own or as the cause of another finding."""
    return {rule for one in verdict.findings for rule in (one.rule, *one.causes)}


def alarms(verdict: Verdict) -> set[str]:
    """The rules that speak of more than a note, each on its own."""
    return {one.rule for one in verdict.findings if one.severity != "info"}


def leading(verdict: Verdict) -> set[str]:
    """The rules that lead, with what they come from."""
    return {rule for one in verdict.findings if one.primary for rule in (one.rule, *one.causes)}


def coarse(frame: Frame) -> Frame:
    """Of a driver without a buffer: how busy its GPUs are it tells once a second."""
    return replace(frame, gpus=tuple(replace(gpu, busy_samples=()) for gpu in frame.gpus))


def said(seen: Sequence[tuple[float, Verdict]], of: Callable[[Verdict], set[str]] = named) -> str:
    """What was said, for the words of a test that fails: each set of rules, and when it was first said."""
    first: dict[tuple[str, ...], float] = {}
    for t, verdict in seen:
        first.setdefault(tuple(sorted(of(verdict))), t)
    return ", ".join(f"{' + '.join(rules) or 'nothing'} from {t:.0f} s" for rules, t in first.items())

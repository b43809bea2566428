"""Disturbances: other faults, other thresholds, looks that never happen, and signals that nobody may read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from random import Random
from typing import Any

from gputop.collect.nvml import gpm
from gputop.collect.proc.gpu_processes import denied_io
from gputop.demo.bystanders import hide
from gputop.demo.server import DemoJob, Scenario, Work
from gputop.model import Frame, Missing, Process
from gputop.thresholds import Thresholds, shipped
from tests.score.moved import moved

LOST_SHARE, JITTER_S, CLOCK_S = 0.2, 0.3, 0.05
STRANGER = 1999  # uid of somebody who owns no process
_UNITS = tuple((gpm.SHARES | gpm.CHIP_TO_CHIP | gpm.CACHES).values())
# of a look that was to be at this second: when it is, and by how much the clock is off; None: it never happens
Look = Callable[[Random, float], "tuple[float, float] | None"]


def steady(chance: Random, t: float) -> tuple[float, float] | None:
    """As it was to be."""
    return t, 0.0


def lossy(chance: Random, t: float) -> tuple[float, float] | None:
    """One look of five never happens."""
    return (t, 0.0) if chance.random() >= LOST_SHARE else None


def jittery(chance: Random, t: float) -> tuple[float, float] | None:
    """Looks that come early or late, by a clock that is not quite right."""
    return max(0.0, t + chance.uniform(-JITTER_S, JITTER_S)), chance.uniform(-CLOCK_S, CLOCK_S)


def as_made(scenario: Scenario) -> Scenario:
    """The faults as they are planted."""
    return scenario


def bent(strength: float) -> Callable[[Scenario], Scenario]:
    """The same faults, weaker or stronger: what differs from the healthy work differs by less, or by more."""

    def change(scenario: Scenario) -> Scenario:
        jobs = tuple(_bent(job, strength) for job in scenario.server.jobs)
        return replace(scenario, server=replace(scenario.server, jobs=jobs))

    return change


def _bent(job: DemoJob, strength: float) -> DemoJob:
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


def strangers(frame: Frame) -> Frame:
    """Seen by somebody who owns none of the processes."""
    note = denied_io(len(frame.processes))
    return replace(
        frame,
        processes=tuple(map(_hidden, frame.processes)),
        notes=(*(one for one in frame.notes if one.key != note.key), note),
        viewer_uid=STRANGER,
    )


def _hidden(process: Process) -> Process:
    """With what could not be read before."""
    seen = hide(process, STRANGER)
    denied = {one.metric for one in seen.missing}
    return replace(seen, missing=(*seen.missing, *(one for one in process.missing if one.metric not in denied)))


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
    look: Look = steady
    scenario: Callable[[Scenario], Scenario] = as_made
    frame: Callable[[Frame], Frame] = lambda frame: frame
    limits: Callable[[], Thresholds] = shipped
    seed: str = ""  # instead of its name, so that published scores can be reproduced after it is renamed


PLAIN = Variant(name="as it is")
VARIANTS: Mapping[str, Variant] = {
    variant.name: variant
    for variant in (
        PLAIN,
        Variant(name="faults 30 % weaker", scenario=bent(0.7)),
        Variant(name="faults 30 % stronger", scenario=bent(1.3)),
        Variant(name="all thresholds x 0.7", limits=partial(moved, 0.7)),
        Variant(name="all thresholds x 1.3", limits=partial(moved, 1.3)),
        Variant(name="20 % of the samples lost", look=lossy, seed="20 % of the looks lost"),
        Variant(name="sample and clock jitter", look=jittery, seed="looks and clock jitter"),
        Variant(name="no activity of units", frame=no_units),
        Variant(name="other users' processes", frame=strangers),
        Variant(name="no pressure", frame=no_pressure),
    )
}
# what can be done to a recording as well: its faults are as bad as they were
RECORDED: Mapping[str, Variant] = {name: how for name, how in VARIANTS.items() if how.scenario is as_made}


def disturbed(frames: Iterable[tuple[float, Frame]], how: Variant, chance: Random) -> Iterator[tuple[float, Frame]]:
    """A recording as it would have been looked at; a look that comes early or late sees what was recorded by then."""
    for t, frame in frames:
        if look := how.look(chance, t):
            at_s, off_s = look
            yield at_s, replace(how.frame(frame), mono_s=frame.mono_s + (at_s - t) + off_s)

"""What is over: findings that asked for something to be done, and which numbers are better since."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

from gputop import finding_text, units
from gputop.diagnose import Finding
from gputop.diagnose.finding import POSSIBLE
from gputop.diagnose.subject_overlap import persists
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Frame, Identity, Process, Role
from gputop.monitor import Update
from gputop.optional_sums import mean
from gputop.ui.advice.finding_list import Key, key, troubles
from gputop.ui.gpus.state import GpuHistory

SHOWN_S = 180.0  # for so long it is said
BEFORE_S, AFTER_S = 30.0, 20.0  # over which numbers are taken
SETTLED_S = 60.0  # age of a program from which its numbers count: before, it imports and starts
_LONGEST_S = 60.0  # between two frames: what was between is not known after a longer gap
_MOST = 3  # numbers


@frozen_dataclass(frozen=True, slots=True)
class WatchedNumber:
    """A number that can get better: which, by how much to be worth a word, and in which direction."""

    name: str
    metric: str
    of: str  # gpus, processes, host
    least: float
    better: int  # 1: higher, -1: lower
    unit: str = "%"


NUMBERS = (
    WatchedNumber("run queue wait", "run_wait_percent", "processes", 10, -1),
    WatchedNumber("blocked on storage", "io_wait_percent", "processes", 10, -1),
    WatchedNumber("busy", "busy_percent", "gpus", 10, 1),
    WatchedNumber("temperature", "temperature_celsius", "gpus", 4, -1, "°C"),
    WatchedNumber("SM clock", "sm_clock_mhz", "gpus", 100, 1, "MHz"),
    WatchedNumber("device memory", "vram_used_bytes", "gpus", 2**30, -1, "B"),
    WatchedNumber("PSI cpu", "cpu_pressure", "host", 10, -1),
    WatchedNumber("PSI io", "io_pressure", "host", 10, -1),
)


@frozen_dataclass(frozen=True, slots=True)
class NumberChange:
    """A number before and after."""

    name: str
    before: float
    after: float
    unit: str

    @property
    def text(self) -> str:
        """As a person reads it: run queue wait 68 -> 3 %."""
        if self.unit == "B":
            return f"{self.name} {units.size(self.before)} -> {units.size(self.after)}"
        return f"{self.name} {self.before:.0f} -> {self.after:.0f} {self.unit}"


@frozen_dataclass(frozen=True, slots=True)
class Case:
    """A finding while it holds, its subject, and the numbers when it was seen first."""

    finding: Finding
    name: str
    gpus: tuple[str, ...]
    processes: tuple[Identity, ...]
    before: tuple[float | None, ...]


@frozen_dataclass(frozen=True, slots=True)
class ResolvedCase:
    """One that is over."""

    case: Case
    at_s: float  # monotonic
    changes: tuple[NumberChange, ...]
    became: Literal["", "exited", "restarted"] = ""  # of the processes that it was about

    @property
    def finding(self) -> Finding:
        """The finding as reported last."""
        return self.case.finding

    @property
    def name(self) -> str:
        """The name of its subject."""
        return self.case.name

    @property
    def rules(self) -> str:
        """The ids of its rules."""
        return ", ".join((self.finding.rule, *self.finding.causes))

    @property
    def said(self) -> str:
        """Its outcome."""
        if self.changes:
            return ", ".join(change.text for change in self.changes)
        return {"": "", "exited": "its processes exited", "restarted": "restarted, no verdict yet"}[self.became]


class ResolvedFindings:
    """Watches the findings of one update after the other."""

    def __init__(self) -> None:
        self.cleared: tuple[ResolvedCase, ...] = ()
        self._cases: dict[Key, Case] = {}
        self._at_s = -math.inf

    def feed(self, update: Update, past: GpuHistory, muted: Iterable[Finding] = ()) -> None:
        """Take in an update; `past` ends at its frame. What was never shown, or is muted, cannot be over."""
        now_s, frame = update.frame.mono_s, update.frame
        if not 0 <= now_s - self._at_s <= _LONGEST_S:
            self._cases, self.cleared = {}, ()
        self._at_s = now_s
        silent = {key(finding) for finding in muted}
        # a finding that was shown may be less certain now
        bad = {
            name: finding
            for finding in troubles(update.findings)
            if (name := key(finding)) not in silent and (finding.confidence >= POSSIBLE or name in self._cases)
        }
        gone = [case for name, case in self._cases.items() if name not in bad]
        fresh = [_over(case, now_s, frame, past) for case in gone if not persists(case.finding, update.findings)]
        recent = [
            _over(one.case, one.at_s, frame, past) if one.became and not one.changes else one
            for one in self.cleared
            if now_s - one.at_s < SHOWN_S and not persists(one.finding, update.findings)
        ]
        self.cleared = (*fresh, *recent)
        # the numbers are those of when it was seen first, its words the newest
        self._cases = {name: self._cases.get(name) or _case(finding, frame, past) for name, finding in bad.items()}


def _case(finding: Finding, frame: Frame, past: GpuHistory) -> Case:
    about = finding.subject
    trainers = [process for process in frame.processes if process.role is Role.TRAINER and process.gpus]
    processes = about.processes or tuple(
        process.identity for process in trainers if about.kind == "host" or _uses(process.gpus, about.gpus)
    )
    known = [frame.by_identity[one] for one in processes if one in frame.by_identity]
    gpus = about.gpus or tuple(dict.fromkeys(share.uuid for process in known for share in process.gpus))
    name = finding_text.subject_name(about, frame)
    return Case(finding, name, gpus, processes, _numbers(gpus, processes, past, BEFORE_S))


def _uses(shares: Iterable[object], uuids: Sequence[str]) -> bool:
    return any(getattr(share, "uuid", None) in uuids for share in shares)


def _numbers(
    gpus: Sequence[str], processes: Sequence[Identity], past: GpuHistory, seconds: float
) -> tuple[float | None, ...]:
    whose: dict[str, Sequence[str | Identity]] = {"gpus": gpus, "processes": processes, "host": ("host",)}
    return tuple(mean(mean(past.values(one, number.metric, seconds)) for one in whose[number.of]) for number in NUMBERS)


def _over(case: Case, at_s: float, frame: Frame, past: GpuHistory) -> ResolvedCase:
    """What is better without it. A job that ended and came back with other settings is found again by the GPUs."""
    alive = [one for one in case.processes if one in frame.by_identity]
    others = [] if alive or not case.processes else _successors(case, frame)
    if case.processes and not alive and not others:
        return ResolvedCase(case, at_s, (), "exited")
    if any((process.age_s or 0.0) < SETTLED_S for process in others):
        return ResolvedCase(case, at_s, (), "restarted")
    processes = alive or [process.identity for process in others]
    return ResolvedCase(case, at_s, tuple(_better(case, _numbers(case.gpus, processes, past, AFTER_S), frame)[:_MOST]))


def _successors(case: Case, frame: Frame) -> list[Process]:
    return [process for process in frame.processes if process.role is Role.TRAINER and _uses(process.gpus, case.gpus)]


def _better(case: Case, after: Sequence[float | None], frame: Frame) -> list[NumberChange]:
    changes = []
    for number, old, new in zip(NUMBERS, case.before, after, strict=True):
        if old is not None and new is not None and number.better * (new - old) >= number.least:
            where = f"{finding_text.gpus(case.gpus, frame)} " if number.of == "gpus" else ""
            changes.append(NumberChange(f"{where}{number.name}", old, new, number.unit))
    return changes

"""The words that findings put at the end of a GPU's row, of a job's and over a process: in each place the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from gputop.diagnose import Finding
from gputop.diagnose.rule import Level, Rule
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Frame, Identity, Process, Role
from gputop.ui.advice.finding_list import troubles, urgency
from gputop.ui.gpus.state import IDLE_BELOW, State
from gputop.ui.theme import Token

if TYPE_CHECKING:
    from gputop.diagnose.state import JobState

_HOT = frozenset({"thermal"})  # temperature and clock are what they rest on
_TOKENS: Mapping[str, Token] = {"crit": "crit", "warn": "warn", "info": "busy"}
_HELD = "zombie-memory"  # the rule that says it later
_OPEN = {"judging": State("judging", "JUDG", "dim"), "unknown": State("unknown", "UNKN", "dim")}


@frozen_dataclass(frozen=True, slots=True)
class States:
    """The words of the rules, by what they are about."""

    gpus: Mapping[str, State] = field(default_factory=dict)
    jobs: Mapping[str, State] = field(default_factory=dict)
    processes: Mapping[Identity, State] = field(default_factory=dict)

    def of(self, process: Process) -> State | None:
        """The word of a process: its own, else that of its job."""
        return self.processes.get(process.identity) or self.jobs.get(process.job or "")


def states(findings: Iterable[Finding], frame: Frame, of: Sequence[JobState] = ()) -> States:
    """The words of an update: of several findings the worst gives the word, of equals the one that leads.

    `of` are the states of jobs: one that is judging, or unknown, says so in place of a word that is older.
    """
    gpus: dict[str, State] = {}
    jobs: dict[str, State] = {}
    processes: dict[Identity, State] = {}
    on_gpu = _jobs_on(frame)
    for finding in sorted(findings, key=_weight):
        if not finding.state:
            continue
        said, subject = word(finding), finding.subject
        if subject.kind == "host":
            continue  # below: a subject with its own word keeps it
        for identity in subject.processes:
            processes.setdefault(identity, said)
        # a GPU in trouble drags the whole job, also where it is one of several
        dragged = [key for uuid in subject.gpus for key in on_gpu.get(uuid, ())] if subject.kind == "gpu" else []
        for key in (*subject.job_keys, *(dragged if said.sign else ())):
            jobs.setdefault(key, said)
        for uuid in subject.gpus or _used(subject.processes, frame):
            gpus.setdefault(uuid, said)
    for uuid in _held_by_exited(frame):
        gpus.setdefault(uuid, _state_of(_HELD))
    for finding in troubles(tuple(findings)):
        if finding.subject.kind == "host" and finding.primary and finding.state:
            _spread(finding, frame, gpus, jobs)
    for one in of:
        if one.open:
            for uuid in one.gpus:
                if uuid not in gpus or not gpus[uuid].sign:
                    gpus[uuid] = _OPEN[one.state]
            if not (known := jobs.get(one.key)) or not known.sign:
                jobs[one.key] = _OPEN[one.state]
    # a job of which one rank is in trouble is: that is what a folded line has to say
    for process in frame.processes:
        if process.job and (own := processes.get(process.identity)) and own.sign:
            jobs.setdefault(process.job, own)
    return States(gpus, jobs, processes)


def _jobs_on(frame: Frame) -> dict[str, list[str]]:
    """The jobs that compute on each GPU."""
    found: dict[str, list[str]] = {}
    for process in frame.processes:
        for share in process.gpus if process.job else ():
            if share.kind != "graphics" and process.job:
                found.setdefault(share.uuid, []).append(process.job)
    return found


def _rule(finding: Finding) -> Rule | None:
    # late: only a finding needs them
    from gputop.diagnose.rules import RULES

    return RULES.get(finding.rule)


def _state_of(rule: str) -> State:
    """The word of a rule that warns, before it has spoken."""
    from gputop.diagnose.rules import RULES

    return State(RULES[rule].state, RULES[rule].short, "warn", "warn")


def _weight(finding: Finding) -> tuple[object, ...]:
    """The worst first, mere remarks last; of what is well that which says more: at its limit a GPU is busy, too."""
    rule = _rule(finding)
    level = rule.level if rule and finding.healthy else 0
    remark = not (finding.primary or finding.healthy or finding.severity != "info")
    return remark, *urgency(finding)[:2], level, not finding.primary


def _spread(finding: Finding, frame: Frame, gpus: dict[str, State], jobs: dict[str, State]) -> None:
    """A finding on the machine gives its word to every trainer, or to those named, without one."""
    said, named_processes = word(finding), finding.subject.processes
    for process in frame.processes:
        if (
            process.role is Role.TRAINER
            and process.gpus
            and (not named_processes or process.identity in named_processes)
        ):
            jobs.setdefault(process.job or "", said)
            for share in process.gpus:
                gpus.setdefault(share.uuid, said)


def _held_by_exited(frame: Frame) -> list[str]:
    """GPUs at rest whose memory a process holds that has ended: certain at the first sample, before any rule speaks."""
    exited = [share for process in frame.processes if process.unseen == "exited" for share in process.gpus]
    idle = {gpu.uuid for gpu in frame.gpus if gpu.busy_percent is not None and gpu.busy_percent < IDLE_BELOW}
    return [share.uuid for share in exited if share.vram_bytes and share.uuid in idle]


def _used(identities: Iterable[Identity], frame: Frame) -> list[str]:
    known = (frame.by_identity.get(identity) for identity in identities)
    return [share.uuid for process in known if process for share in process.gpus]


def about(process: Process, findings: Iterable[Finding]) -> Finding | None:
    """What is worst of a process, of its job or of its GPUs; None where nothing is wrong with them."""
    return min(troubles(concerning(process, findings)), key=urgency, default=None)


def concerning(process: Process, findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Those about a process, about its job or about its GPUs."""
    gpus = {share.uuid for share in process.gpus}
    return tuple(
        finding
        for finding in findings
        if process.identity in finding.subject.processes
        or process.job in finding.subject.job_keys
        or gpus.intersection(finding.subject.gpus)
    )


def word(finding: Finding) -> State:
    """The word that a finding puts at the end of a row."""
    rule = _rule(finding)
    short = rule.short if rule and finding.state == rule.state else (finding.state or "").upper()
    sign = finding.severity if finding.severity != "info" else ""
    token: Token = "good" if rule and rule.level is Level.HEALTHY else _TOKENS[finding.severity]
    return State(finding.state or "", short, token, sign, hot=finding.rule in _HOT)

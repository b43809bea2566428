"""The diagnosis of a source over some time, as JSON and as a report."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from gputop import __version__, finding_text, labels, step_report, thresholds, units
from gputop.diagnose import Abstained, Class, Evidence, Finding, Severity, Step, Subject
from gputop.diagnose.finding import POSSIBLE
from gputop.diagnose.further_reading import choice, guides
from gputop.diagnose.subject_overlap import applies_to
from gputop.diagnose.workload_class import class_text, confidence
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Frame, Identity
from gputop.monitor import Update
from gputop.proven.report import as_object, sentence
from gputop.report import Do, Page, Point, ReportTable
from gputop.safe.text import redact

if TYPE_CHECKING:
    from gputop.diagnose.state import JobState
    from gputop.proven.fixes import Fix


def finding(found: Finding, frame: Frame) -> dict[str, Any]:
    """A finding; its GPUs by index and its processes by PID."""
    return {
        "rule": found.rule,
        "severity": found.severity,
        "healthy": found.healthy,
        "primary": found.primary,
        "causes": list(found.causes),
        "confidence": found.confidence,
        "grade": "profile" if found.grade == "job" else found.grade,  # of three values, since version 1
        "subject": subject(found.subject, frame),
        "headline": redact(found.headline),
        "evidence": [_evidence(item) for item in found.evidence],
        "steps": [_step_object(item) for item in found.steps],
        "verify": None if found.verify is None else _step_object(found.verify),
        "since_s": found.since_s,
        "lost_share": found.lost_share,
        "state": found.state,
    }


def abstained(silent: Abstained, frame: Frame) -> dict[str, Any]:
    """A rule that could not judge, and why."""
    return {
        "rule": silent.rule,
        "subject": subject(silent.subject, frame),
        "missing": [{"metric": missing.metric, "reason": missing.reason} for missing in silent.missing],
        "unlock": silent.unlock,
    }


def subject(about: Subject, frame: Frame) -> dict[str, Any]:
    """The subject; a GPU that left the frame keeps its uuid."""
    gpus = frame.by_uuid
    return {
        "kind": about.kind,
        "gpus": [gpus[uuid].index if uuid in gpus else uuid for uuid in about.gpus],
        "pids": [identity.pid for identity in about.processes],
        "job": about.job,
        **({"jobs": list(about.jobs)} if about.jobs else {}),
        "host": frame.hostname,
    }


def _evidence(item: Evidence) -> dict[str, Any]:
    return {
        "text": redact(item.text), "value": item.value, "unit": item.unit, "limit": item.limit, "sense": item.sense,
    }  # fmt: skip


def _step_object(step: Step) -> dict[str, Any]:
    return {
        "text": step.text,
        "command": step.command,
        "action": step.action,
        "needs_root": step.needs_root,
        "destroys": step.destroys,
    }


def job(one: JobState, frame: Frame) -> dict[str, Any]:
    """The state of a job, or of another GPU user; its GPUs by index."""
    gpus = frame.by_uuid
    return {
        "key": one.key,
        "name": redact(one.name),
        "user": one.user,
        "gpus": [gpus[uuid].index if uuid in gpus else uuid for uuid in one.gpus],
        "state": one.state,
        "judged_in_s": one.judged_in_s,
        "why": redact(one.why),
    }


def host(one: JobState | None) -> dict[str, Any] | None:
    """The state of the machine; None before the first evaluation."""
    return None if one is None else {"state": one.state, "judged_in_s": one.judged_in_s, "why": redact(one.why)}


def task(found: Class) -> dict[str, Any]:
    """The class of a process, and the questions that led there."""
    path = [{"question": question, "answer": answer} for question, answer in found.path]
    return {"pid": found.pid, "class": found.name, "margin": found.margin, "path": path}


VERSION = 1
BLIND = "blind-spots"  # it selects from the notes of all rules
_CODES: Mapping[Severity, int] = {"info": 0, "warn": 1, "crit": 2}


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedFinding:
    """A finding that has cleared: start and end in seconds after the first frame."""

    finding: Finding
    sentence: str
    from_s: float
    to_s: float


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The last update, and what preceded it."""

    update: Update
    seconds: float
    label: str = "live"
    pid: int | None = None  # restricts everything to this process
    slurm_job: str | None = None  # or to this Slurm job
    cleared: tuple[ResolvedFinding, ...] = ()
    fixes: tuple[tuple[Identity, Fix], ...] = ()  # measured fixes, and the processes that measured them

    @property
    def doubt(self) -> str:
        """Why it is not certain that everything is healthy; empty if it is."""
        if not self.measured:
            return "no GPU could be measured"
        if self.is_too_short:
            return f"{self.seconds:.0f} s are too short to judge"
        return (
            finding_text.state_counts([one for one in self.update.jobs if one in self.undecided])
            if self.undecided
            else ""
        )

    @property
    def is_too_short(self) -> bool:
        """Whether the time was too short; by the displayed seconds, as frames come early or late."""
        return round(self.seconds) < finding_text.LEAST_S

    @property
    def undecided(self) -> tuple[JobState, ...]:
        """Jobs with a verdict due but missing."""
        return tuple(one for one in self.update.jobs if one.open)

    @property
    def reasons(self) -> tuple[str, ...]:
        """The doubt in full: one sentence per reason."""
        if not self.measured:
            return (f"{self.doubt}; run `gputop doctor` for the reason",)
        short = (f"{self.doubt}: rules need 30 s of samples",) if self.is_too_short else ()
        return (*short, *(finding_text.state_line(one, self.update.frame) for one in self.undecided))

    @property
    def measured(self) -> bool:
        """Whether any GPU could be measured."""
        return any(gpu.condition == "ok" for gpu in self.update.frame.gpus)

    @property
    def code(self) -> int:
        """The exit code: the highest severity among findings that are at least possible."""
        return max((_CODES[found.severity] for found in _likely(self.update.findings)), default=0)


def as_json(found: Diagnosis) -> dict[str, Any]:
    """The stable JSON object of `gputop diagnose --json`."""
    frame = found.update.frame
    return {
        "version": VERSION,
        "gputop": __version__,
        "host": frame.hostname,
        "seconds": round(found.seconds),
        "findings": [finding(each, frame) for each in found.update.findings],
        "abstained": [abstained(each, frame) for each in found.update.abstained],
        "classes": [task(each) for each in found.update.classes],
        "jobs": [job(each, frame) for each in found.update.jobs],
        "host_state": host(found.update.host),
        "proven": [as_object(fix) for _, fix in found.fixes],
    }


def page(found: Diagnosis, commands: Sequence[str] = (), *, explain: bool = False) -> Page:
    """The same as a report, primary findings first. `commands`: gputop commands that a step may name.

    `explain` adds unlikely findings, every abstention, and the questions behind each process's class.
    """
    update, frame = found.update, found.update.frame
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(frame.wall_s))
    shown = [each for each in (update.findings if explain else _likely(update.findings)) if each.rule != BLIND]
    watched = f"watched for {units.ago_text(round(found.seconds))} until {when}{_restriction(found)}"
    return Page(
        title=f"{frame.hostname}: {_summary(shown, found)}",
        about=f"{labels.amount(len(frame.gpus), 'GPU')}, {found.label}, {watched}",
        before=(_states(found), *_steps(found), *_proven(found)),
        heading="Findings",
        words=tuple(_words(shown, found)),
        points=tuple(_point(each, found, commands) for each in shown),
        tables=tuple(_paths(found)) if explain else (),
        notes=(
            *_visibility_notes(frame),
            *_cleared_lines(found),
            *(_abstentions(found) if explain else _abstention_note(update.abstained)),
        ),
    )


def _restriction(found: Diagnosis) -> str:
    """What the report is restricted to."""
    if found.slurm_job is not None:
        return f", about Slurm job {found.slurm_job}"
    return f", about pid {found.pid}" if found.pid is not None else ""


def _words(shown: Sequence[Finding], found: Diagnosis) -> Iterator[str]:
    """Reasons for doubt beyond the table of states; or that nothing was found."""
    doubt = found.reasons[0] if not found.measured or found.is_too_short else ""
    if not shown:
        yield f"Nothing: {doubt}." if doubt else "Nothing found yet." if found.undecided else "Nothing."
    elif doubt:
        yield f"{doubt}."


def _states(found: Diagnosis) -> ReportTable:
    """A row for each job, each other GPU user, and the machine."""
    frame, of = found.update.frame, found.update.jobs
    rows = [(redact(finding_text.job_title(one, frame)), redact(f"{one.state}: {one.why}")) for one in of]
    if not of:
        about = f"PID {found.pid}" if found.slurm_job is None else f"Slurm job {found.slurm_job}"
        whole = found.pid is None and found.slurm_job is None
        rows.append(("GPUs", finding_text.NO_JOB if whole else f"{about} is in no job on a GPU"))
    if (machine := found.update.host) is not None:
        rows.append((f"host {redact(machine.name)}", redact(f"{machine.state}: {machine.why}")))
    return ReportTable("Jobs and host", ("job", "state"), tuple(rows), spoken=True)


def _steps(found: Diagnosis) -> Iterator[ReportTable]:
    """Measurements of jobs with step meters."""
    frame, least = found.update.frame, thresholds.shipped()["straggler"]["effect"]
    keys = {one.key for one in found.update.jobs}
    rows = []
    for job in frame.jobs:
        ranks = [rank for identity in job.ranks if (rank := frame.by_identity.get(identity)) is not None]
        said = step_report.of_job(job, ranks, frame.wall_s, least) if job.key in keys else ()
        rows += [(redact(job.name if not place else ""), redact(line)) for place, line in enumerate(said)]
    if rows:
        yield ReportTable("Steps", ("job", "measured inside"), tuple(rows), spoken=True)


def _proven(found: Diagnosis) -> Iterator[ReportTable]:
    """Effects of earlier runs' findings."""
    if found.fixes:
        rows = tuple((redact(fix.run.name), redact(sentence(fix))) for _, fix in found.fixes)
        yield ReportTable("Fixes: against an earlier run of the same script", ("script", "change"), rows, spoken=True)


def _visibility_notes(frame: Frame) -> Iterator[str]:
    """What the driver and /proc did not show, and which therefore cannot be judged."""
    for note in frame.notes:
        if note.subject in ("driver", "processes"):
            yield redact(note.text)


def _likely(findings: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.confidence >= POSSIBLE]


def _summary(shown: Sequence[Finding], found: Diagnosis) -> str:
    counts = {severity: sum(each.severity == severity for each in shown) for severity in ("crit", "warn")}
    bad = " and ".join(f"{count} {name}" for name, count in counts.items() if count)
    return ", ".join(part for part in (bad, found.doubt) if part) or finding_text.state_counts(found.update.jobs)


def _point(finding: Finding, found: Diagnosis, commands: Sequence[str]) -> Point:
    since = finding_text.duration_text(finding, units.ago_text(finding.since_s))
    cost = finding_text.cost(finding)
    said = finding_text.sentence(finding, found.update.frame)
    severity: Literal["crit", "warn", "info", "fine"] = "fine" if finding.healthy else finding.severity
    return Point(
        severity=severity,
        text=redact(" · ".join(part for part in (said, since, cost) if part)),
        facts=tuple(redact(_fact(item)) for item in finding.evidence),
        steps=(*(_step_text(step, finding, commands) for step in finding.steps), *_verify(finding)),
        source=f"{', '.join((finding.rule, *finding.causes))} · {finding_text.confidence(finding)}",
        choice=choice(finding),
        reading=tuple(guides(finding)),
    )


def _fact(item: Evidence) -> str:
    return "".join(part.text for part in finding_text.referenced(item))


def _step_text(step: Step, finding: Finding, commands: Sequence[str]) -> str | Do:
    warnings = finding_text.warnings(step)
    text = f"{step.text} ({warnings})" if warnings else step.text
    pids = [identity.pid for identity in finding.subject.processes]
    if step.command:
        return Do(text, step.command)
    return Do(text, f"gputop {step.action} {pids[0]}") if step.action in commands and pids else text


def _verify(finding: Finding) -> Iterator[Do]:
    if finding.verify and finding.verify.command:
        yield Do(f"To confirm: {finding.verify.text}", finding.verify.command)


def _cleared_lines(found: Diagnosis) -> Iterator[str]:
    for one in found.cleared:
        span = f"{units.clock(one.from_s)} to {units.clock(one.to_s)}"
        yield f"cleared: {one.finding.severity} {span}, {redact(one.sentence)} ({one.finding.rule})"


def _abstention_note(abstained: Sequence[Abstained]) -> Iterator[str]:
    """All abstentions in one line."""
    rules = list(dict.fromkeys(one.rule for one in abstained))
    if rules:
        reasons = sorted({missing.reason for one in abstained for missing in one.missing})
        why = f" ({', '.join(reasons)})" if reasons else ""
        verb = "rule skipped some checks" if len(rules) == 1 else "rules skipped some checks"
        yield f"{len(rules)} {verb}{why}: {labels.first(rules, 6)}. --explain lists the missing metrics."


def _abstentions(found: Diagnosis) -> Iterator[str]:
    """Every abstention with its reason, and what would unlock it."""
    said: dict[str, None] = {}
    for one in found.update.abstained:
        missing, about = finding_text.missing_text(one), finding_text.qualified_name(one.subject, found.update.frame)
        unlock = f"; {one.unlock}" if one.unlock else ""
        said[f"{one.rule} cannot judge {about}: {missing or 'too little is known'}{unlock}"] = None
    yield from said


def _paths(found: Diagnosis) -> Iterator[ReportTable]:
    """How each process was classified."""
    processes = {process.pid: process for process in found.update.frame.processes}
    for one in found.update.classes:
        name = redact(labels.line(processes[one.pid]))[:50] if one.pid in processes else ""
        sure = "" if one.margin is None or one.margin < 0 else f", confidence {confidence(one.margin):.2f}"
        title = f"Workload class of pid {one.pid} {name}: {class_text(one.name)}{sure}; no finding depends on it"
        yield ReportTable(title, ("question", "answer"), one.path, spoken=True)


def restricted_to(found: Diagnosis, *about: int) -> Diagnosis:
    """The part about these processes, their jobs, their GPUs, and the machine as far as it affects them."""
    frame = found.update.frame
    of = [process for process in frame.processes if process.pid in about]
    jobs = {process.job for process in of if process.job}
    ranks = {rank for job in frame.jobs if job.key in jobs for rank in job.ranks}
    mine = {process.identity for process in of} | ranks
    gpus = {share.uuid for process in frame.processes if process.identity in mine for share in process.gpus}

    def its(subject: Subject) -> bool:
        return applies_to(subject, mine, gpus, jobs)

    pids = {identity.pid for identity in mine}
    update = replace(
        found.update,
        findings=tuple(each for each in found.update.findings if its(each.subject)),
        abstained=tuple(each for each in found.update.abstained if its(each.subject)),
        classes=tuple(each for each in found.update.classes if each.pid in pids),
        jobs=tuple(each for each in found.update.jobs if each.key in jobs or mine.intersection(each.processes)),
    )
    gone = tuple(one for one in found.cleared if its(one.finding.subject))
    return replace(found, update=update, cleared=gone, fixes=tuple(one for one in found.fixes if one[0] in mine))

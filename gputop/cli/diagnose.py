"""gputop diagnose: the findings of the rules after sampling for some time."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gputop.cli.options import (
    FAILED,
    USAGE,
    CliCommand,
    Failure,
    ascii_only,
    duration,
    json_flag,
    no_commands,
    only_names,
    write_failure,
)
from gputop.cli.sources import follow, open_source

if TYPE_CHECKING:
    from gputop.config import Settings
    from gputop.diagnose import Finding
    from gputop.diagnose.state import JobState
    from gputop.export.diagnosis import Diagnosis, ResolvedFinding
    from gputop.model import Frame, Process
    from gputop.monitor import Update
    from gputop.proven import Proofs
    from gputop.source import Source

UNMEASURED = 3
LIVE_S = 60.0
LONGER_S = 90.0  # extra seconds while a job is being judged: as long as the rules need for a new one
DRIVER_S = 5.0  # seconds the first frame waits for a driver that opens slowly
ACTIONS = ("stack", "profile", "trace")  # of the steps of a command with the same name


@dataclass
class DiagnosisSink:
    """A sink that keeps the last update, and findings that have cleared."""

    updates: int = 0
    first_update_s: float = 0.0  # time of the first update
    first_s: float = 0.0  # time since which the rules judge: a source may provide earlier history
    judged: Callable[[], float | None] = lambda: None  # the same from a monitor
    last: Update | None = None
    seen: dict[Any, tuple[Finding, str, float, float]] = field(default_factory=dict)
    without_gpus: Callable[[], None] | None = None  # called once if there is no GPU: only the machine is judged
    pid: int | None = None  # restricts the report to this process
    slurm_jobs: tuple[str, ...] = ()  # or to these: one Slurm job by its number and its SLUID, while it runs
    extended: bool = False  # the extension has been announced
    compared: Callable[[], str] = lambda: ""  # a script with a run still being compared with an earlier one
    problem: str | None = None
    missed: int = 0

    def continues(self, over_s: float) -> bool:
        """Whether to continue after the requested time: while a job is still being judged or compared."""
        from gputop import finding_text

        jobs = self.last.jobs if self.last else ()
        waited = [one for one in jobs if one.due and one.state == "judging" and self._is_wanted(one)]
        compared = self.compared()
        if self.last is None or not (waited or compared) or over_s >= LONGER_S:
            return False
        if not self.extended:
            self.extended = True
            some = f", and {len(waited) - 1} more" if len(waited) > 1 else ""
            first = (
                finding_text.state_line(waited[0], self.last.frame)
                if waited
                else f"{compared}: measuring the gain of a fix"
            )
            sys.stderr.write(f"gputop: continues for up to {LONGER_S:.0f} s: {first}{some}\n")
        return True

    def _is_wanted(self, one: JobState) -> bool:
        if self.last is None or (self.pid is None and not self.slurm_jobs):
            return True
        of = {process.job for process in self.last.frame.processes if self.is_asked(process)}
        return one.key in of or any(identity.pid == self.pid for identity in one.processes)

    def is_asked(self, process: Process) -> bool:
        """Whether the report is restricted to this process, among others."""
        return process.pid == self.pid or process.slurm_job in self.slurm_jobs

    def _outlives_job(self, frame: Frame) -> bool:
        """Whether the Slurm job has ended: its last frame has what is to be reported."""
        if not self.slurm_jobs:
            return False
        before = self.last.frame.jobs if self.last else ()
        jobs = any(job.slurm_job in self.slurm_jobs for job in frame.jobs)
        had_jobs = any(job.slurm_job in self.slurm_jobs for job in before)
        return not jobs and (had_jobs or not any(map(self.is_asked, frame.processes)))

    def take(self, update: Update) -> None:
        """Take in an update."""
        if self._outlives_job(update.frame):
            return
        from gputop.diagnose.finding import POSSIBLE, subject_key
        from gputop.finding_text import sentence

        now_s = update.frame.mono_s
        if self.last is None or now_s < self.last.frame.mono_s:
            self.first_update_s = now_s
            begun_s = self.judged()
            self.first_s = now_s if begun_s is None else begun_s
        self.updates, self.last = self.updates + 1, update
        opening = update.frame.note("waiting") is not None  # without its daemon a driver may take half a minute
        if self.without_gpus and not (update.frame.gpus or opening):
            self.without_gpus()
            self.without_gpus = None
        for finding in update.findings:
            if finding.severity != "info" and finding.confidence >= POSSIBLE:
                key = finding.rule, subject_key(finding.subject)
                known = self.seen.get(key)
                # the rules' first evaluation covers the moment before it, too
                since_s = known[2] if known else max(0.0, now_s - self.first_s - finding.since_s)
                self.seen[key] = (finding, sentence(finding, update.frame), since_s, now_s - self.first_s)

    def cleared(self) -> tuple[ResolvedFinding, ...]:
        """Findings that have cleared, oldest first."""
        from gputop.diagnose.subject_overlap import persists
        from gputop.export.diagnosis import ResolvedFinding

        now = self.last.findings if self.last else ()
        return tuple(
            ResolvedFinding(finding=finding, sentence=said, from_s=from_s, to_s=to_s)
            for finding, said, from_s, to_s in self.seen.values()
            if not persists(finding, now)
        )


def diagnose(args: argparse.Namespace, settings: Settings) -> int:
    """Sample, then print the findings; the exit code is the severity, or says that nothing could be measured."""
    from gputop.collectives import watch
    from gputop.monitor import Monitor
    from gputop.proven import follow as follow_fixes
    from gputop.source import Interest

    spec = getattr(args, "source", "live")
    live = spec == "live"
    seconds = _sampling_time(args, live)
    source = _open_source(spec, settings)
    asked = frozenset(() if args.pid is None else (args.pid,))
    source.interest = Interest(pids=asked, families=asked)
    if live and sys.stderr.isatty():
        sys.stderr.write(f"gputop: sampling for {seconds:.0f} s; Ctrl+C stops early and reports\n")
    monitor = Monitor(source, settings.thresholds, through=only_names(args))
    without = (lambda: _announce_no_gpu(seconds)) if live else None
    proofs = follow_fixes(monitor, remember=settings.remember, readonly=settings.readonly)
    watch.follow(monitor)
    look = DiagnosisSink(judged=lambda: monitor.judged_s, without_gpus=without, pid=args.pid)
    look.slurm_jobs = tuple(args.slurm_jobs)
    look.compared = lambda: proofs.pending if proofs else ""
    try:
        ended = follow(monitor, look, seconds, longer=look.continues)
    except Failure as failure:
        raise Failure(str(failure), UNMEASURED) from None
    found = _diagnosis(look, source.label, proofs)
    try:
        _print(found, args, settings)
        sys.stdout.flush()
    except OSError as error:  # exit code 1 means a warning
        raise write_failure(error, UNMEASURED) from None
    return ended or _exit_code(found)


def _sampling_time(args: argparse.Namespace, live: bool) -> float | None:
    """Seconds to sample, None for all of a recording; Failure for options that cannot work."""
    from gputop.finding_text import LEAST_S

    if args.as_json and args.format == "md":
        raise Failure("--json and --format md exclude each other: use one", USAGE)
    if args.pid is not None and args.slurm_jobs:
        raise Failure("--pid and --slurm-job exclude each other: use one", USAGE)
    seconds: float | None = LIVE_S if live and args.seconds is None else args.seconds
    if seconds is not None and seconds < LEAST_S:
        raise Failure(f"--for {seconds:g} is too short: rules need 30 s of samples, use 40s or more", USAGE)
    if live and args.pid is not None and not Path(f"/proc/{args.pid}").is_dir():
        raise Failure(f"no process with PID {args.pid} is visible to you", UNMEASURED)
    return seconds


def _open_source(spec: str, settings: Settings) -> Source:
    try:
        return open_source(spec, settings, pace=False, patience_s=DRIVER_S)
    except Failure as failure:
        raise Failure(str(failure), UNMEASURED if failure.code == FAILED else failure.code) from None


def _announce_no_gpu(seconds: float | None) -> None:
    """Announce what can still be found without a GPU, before the user waits."""
    duration = "" if seconds is None else f" for {seconds:.0f} s"
    sys.stderr.write(f"gputop: no GPU found: only host rules are checked{duration}\n")


def _diagnosis(look: DiagnosisSink, label: str, proofs: Proofs | None) -> Diagnosis:
    """The diagnosis of everything, of one process or of one Slurm job."""
    from gputop.export.diagnosis import Diagnosis, restricted_to
    from gputop.export.format import redacted

    if proofs:
        proofs.finish()
    if proofs and proofs.problem:
        sys.stderr.write(f"gputop: {proofs.problem}\n")
    pid, slurm_job = look.pid, next(iter(look.slurm_jobs), None)
    if look.last is None and slurm_job is not None:
        raise Failure(f"no process of Slurm job {slurm_job} in {label}", UNMEASURED)
    if look.last is None:
        raise Failure("nothing was sampled: the source ended before its first frame", UNMEASURED)
    update = replace(look.last, frame=redacted(look.last.frame))
    # a frame stands for the time until the next one
    step_s = (update.frame.mono_s - look.first_update_s) / max(1, look.updates - 1)
    seconds = update.frame.mono_s - look.first_s + step_s
    found = Diagnosis(
        update=update,
        seconds=seconds,
        label=label,
        pid=pid,
        slurm_job=slurm_job,
        cleared=look.cleared(),
        fixes=proofs.running if proofs else (),
    )
    if slurm_job is not None:
        return restricted_to(found, *(process.pid for process in update.frame.processes if look.is_asked(process)))
    if pid is None:
        return found
    if all(process.pid != pid for process in update.frame.processes):
        raise Failure(f"no process with PID {pid} in {label}", UNMEASURED)
    return restricted_to(found, _job_process(update.frame, pid))


def _job_process(frame: Frame, pid: int) -> int:
    """The process to report on: for a script that started one job, the first process of that job."""
    from gputop.collect.jobs.family import jobs_of

    process = next(process for process in frame.processes if process.pid == pid)
    jobs = () if process.job is not None else jobs_of(frame, process)
    if len(jobs) != 1:
        return pid
    sys.stderr.write(f"gputop: {pid} started job {jobs[0].name}: reporting on that job\n")
    return jobs[0].members[0].pid


def _print(found: Diagnosis, args: argparse.Namespace, settings: Settings) -> None:
    from gputop.export.diagnosis import as_json, page
    from gputop.report import markdown, text

    if args.as_json or args.format == "json":
        print(json.dumps(as_json(found), allow_nan=False))
        return
    shown = page(found, ACTIONS, explain=args.explain)
    print(markdown(shown) if args.format == "md" else text(shown, ascii=ascii_only(settings)), end="")


def _exit_code(found: Diagnosis) -> int:
    """The severity as exit code; 0 requires a verdict on every visible job, and enough time for one."""
    if found.code:
        return found.code
    for reason in found.reasons:
        sys.stderr.write(f"gputop: {reason}\n")
    return UNMEASURED if found.reasons else 0


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--for",
        dest="seconds",
        type=duration,
        metavar="T",
        help="sampling time (60s live; a demo or a file: all of it)",
    )
    parser.add_argument("--pid", type=int, metavar="PID", help="report on this process, its job and its GPUs only")
    parser.add_argument(
        "--slurm-job",
        dest="slurm_jobs",
        action="append",
        default=[],
        metavar="ID",
        help="report on this Slurm job only, as it was before it ended",
    )
    parser.add_argument(
        "--format",
        choices=("text", "json", "md"),
        default="text",
        help="output format; md is Markdown for a ticket (text)",
    )
    json_flag(parser)
    no_commands(parser)
    parser.add_argument(
        "--explain",
        action="store_true",
        help="add unlikely findings, skipped checks and the rules' questions",
    )


COMMANDS = (
    CliCommand(
        name="diagnose",
        help="report what slows training down, and the fix",
        examples=(
            "gputop diagnose --for 2m",
            "gputop diagnose --source demo:straggler --format md > ticket.md",
        ),
        run=diagnose,
        arguments=_arguments,
    ),
)

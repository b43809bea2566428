"""Track each job: store its findings, and compare it with findings of earlier runs of its script."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from gputop.diagnose import Finding
from gputop.diagnose.finding import POSSIBLE
from gputop.diagnose.state import JobState, needs_action
from gputop.diagnose.subject_overlap import names
from gputop.model import Frame, Identity, Job, Process
from gputop.monitor import Update
from gputop.proven.fixes import Fix, FixOutcome, advised_values, other_batch, predicted_speedup
from gputop.proven.measured import JobTrack, Measured, sample
from gputop.proven.report import changes
from gputop.proven.runs import JobRun, differences, run_of

HELD_S = 15.0  # seconds a finding is shown before it counts: the rules have steadied it already
BEFORE_S, LEAST_BEFORE = 120.0, 2  # its window, and blocks of ten seconds
LOOKS_BACK_S = 20.0  # a verdict covers the time before it, too
AFTER_S, LEAST_AFTER = 30.0, 3  # seconds a run continues without the cause before it is compared
SHOWN_S = 3600.0  # seconds an outcome is shown
_EVERY_S = 2.0
_FLAPS_S = 8.0  # without a finding, after which it is another one
_RARE = 1.5  # or this many samples, if they are rare
_AGAIN = 2.0  # growth of a window that is worth another comparison
_GAP_S = 60.0


class FixStorage(Protocol):
    """Storage of fixes."""

    @property
    def fixes(self) -> dict[str, Fix]:
        """All of them by name."""

    def refresh(self) -> None:
        """Read what other processes have stored."""

    def put(self, fix: Fix) -> None:
        """Store one."""

    def finish(self) -> None:
        """Wait a moment until all is stored."""


@dataclass(slots=True)
class HeldFinding:
    """A finding shown for a job: first and last time, and the window length stored for it."""

    newest: Finding
    since_s: float
    last_s: float
    kept_s: float = 0.0


@dataclass(slots=True)
class WatchedJob:
    """One running job."""

    run: JobRun | None  # None if it is another user's, or cannot be recognized again
    size: tuple[int, int]  # ranks and GPUs: both may grow during its start
    track: JobTrack = field(default_factory=JobTrack)
    held: dict[str, HeldFinding] = field(default_factory=dict)  # by rule
    clear_s: float | None = None  # time since which the cause of the fix is gone
    compared_s: float = 0.0  # window length of the last comparison


class Watch:
    """Processes one update after the other. `folder` gives a process's start folder, None for other users'."""

    def __init__(self, memory: FixStorage, folder: Callable[[Process], str | None] | None = None) -> None:
        self.memory = memory
        self.proven: tuple[tuple[Identity, Fix], ...] = ()
        self._folder = folder or started_in
        self._followed: dict[Identity, WatchedJob] = {}
        self._fixes: Mapping[str, Fix] = {}  # as of the beginning of this update
        self._last_s = -math.inf
        self._step_s = _EVERY_S  # between the last two updates
        self._frame: Frame | None = None

    def take(self, update: Update) -> None:
        """Take in an update; fixes measured by current runs are in `proven`."""
        frame = update.frame
        since_s = frame.mono_s - self._last_s
        if 0 <= since_s < _EVERY_S - 0.1:
            return
        if not 0 <= since_s <= _GAP_S:
            self._followed = {}  # after a gap nothing is known about the time in between
        self._step_s = min(since_s, _GAP_S)
        self._last_s, self._frame = frame.mono_s, frame
        self._fixes = self.memory.fixes
        states = {one.key: one for one in update.jobs}
        for job in frame.jobs:
            ranks = [frame.by_identity[one] for one in job.ranks if one in frame.by_identity]
            if ranks and (one := self._watched(job, ranks, frame)).run is not None:
                one.track.add(sample(job, ranks, frame))
                about = [finding for finding in update.findings if _applies(finding, job, ranks)]
                self._keep(one, one.run, about, ranks[0].identity, frame)
                self._compare(one, one.run, about, states.get(job.key), ranks[0].identity, frame)
        self._followed = {identity: one for identity, one in self._followed.items() if identity in frame.by_identity}
        self.proven = tuple(self._proven(frame))

    def finish(self) -> None:
        """Store the final state, however briefly it was shown."""
        for process, one in self._followed.items():
            for held in one.held.values():
                if self._frame and one.run and not held.kept_s and held.last_s == self._frame.mono_s:
                    self._keep_window(one, one.run, held, process, self._frame)
        self.memory.finish()

    @property
    def pending(self) -> str:
        """The script of a run still being compared; empty if there is none."""
        waits = (one.run for one in self._followed.values() if one.clear_s is not None and not one.compared_s)
        return next((run.name for run in waits if run), "")

    def _watched(self, job: Job, ranks: Sequence[Process], frame: Frame) -> WatchedJob:
        """The tracked state of a job."""
        first, size = ranks[0], (len(ranks), sum(len(rank.gpus) for rank in ranks))
        known = self._followed.get(first.identity)
        if known is None:
            self.memory.refresh()
            known = self._followed[first.identity] = WatchedJob(None, (0, 0))
        if known.size != size:
            folder = self._folder(first) if size[1] else None
            known.run = run_of(job, ranks, frame, folder) if folder else None
            known.size = size
        return known

    def _keep(self, one: WatchedJob, run: JobRun, about: Sequence[Finding], process: Identity, frame: Frame) -> None:
        """Store a finding that was shown long enough, and again over longer windows."""
        now_s, leads = frame.mono_s, _leading(about)
        if leads is not None:
            held = one.held.get(leads.rule)
            if held is None or now_s - held.last_s > max(_FLAPS_S, _RARE * self._step_s):
                held = one.held[leads.rule] = HeldFinding(leads, now_s, now_s)
            held.newest, held.last_s = leads, now_s
            if now_s - held.since_s >= HELD_S:
                self._keep_window(one, run, held, process, frame)

    def _keep_window(self, one: WatchedJob, run: JobRun, held: HeldFinding, process: Identity, frame: Frame) -> None:
        """Store it if its window is long enough, and enough longer than before."""
        now_s, leads = frame.mono_s, held.newest
        length_s = min(BEFORE_S, max(leads.since_s, now_s - held.since_s))
        if length_s < _AGAIN * held.kept_s:
            return
        measured, blocks = one.track.measured(now_s - length_s)
        if blocks >= LEAST_BEFORE:
            held.kept_s = measured.seconds
            settings = one.track.settings(now_s - length_s)
            self.memory.put(_fix(leads, run, process, measured, settings, frame))

    def _compare(
        self,
        one: WatchedJob,
        run: JobRun,
        about: Sequence[Finding],
        state: JobState | None,
        process: Identity,
        frame: Frame,
    ) -> None:
        """Compare a run without the finding with the earlier run of its script that had it."""
        fix = self._open(run, process)
        if fix is None or state is None or not _is_gone(fix, about) or state.state == "judging":
            one.clear_s, one.compared_s = None, 0.0
            return
        now_s = frame.mono_s
        one.clear_s = now_s - LOOKS_BACK_S if one.clear_s is None else one.clear_s
        length_s = min(BEFORE_S, now_s - one.clear_s)
        if length_s < AFTER_S or length_s < _AGAIN * one.compared_s:
            return
        after, blocks = one.track.measured(now_s - length_s)
        if blocks < LEAST_AFTER:
            return
        one.compared_s = length_s
        settings = one.track.settings(now_s - length_s)
        others = [each.text for each in differences(fix.run, run) if not each.kind]
        differs = ", ".join(filter(None, (*others, other_batch(fix.before, after) if not others else "")))
        outcome = FixOutcome(
            at_s=frame.wall_s, process=process, run=run, after=after, settings=settings, differs=differs
        )
        found = replace(fix, outcome=outcome)
        # without a healthy verdict only a visible change shows that the run is different
        if state.state == "healthy" or changes(found):
            self.memory.put(found)

    def _open(self, run: JobRun, process: Identity) -> Fix | None:
        """The newest fix of this script that this run may measure; a comparable one if there is any."""
        found = [
            fix
            for fix in self._fixes.values()
            if fix.run.program == run.program
            and fix.process != process
            and (not fix.settled or (fix.outcome is not None and fix.outcome.process == process))
        ]
        return max(found, key=lambda fix: (_comparable(fix.run, run), fix.at_s), default=None)

    def _proven(self, frame: Frame) -> Iterator[tuple[Identity, Fix]]:
        for fix in sorted(self.memory.fixes.values(), key=lambda fix: -fix.at_s):
            of = fix.outcome
            if of and of.process in self._followed and frame.wall_s - of.at_s < SHOWN_S:
                yield of.process, fix


def started_in(process: Process) -> str | None:
    """The working folder of our own process, or any for root; None for other users': their activity is not stored."""
    own = os.geteuid()
    if not process.verified or process.uid is None or own not in (0, process.uid):
        return None
    try:
        return str(Path(f"/proc/{process.pid}/cwd").readlink())
    except OSError:
        return None


def _comparable(before: JobRun, now: JobRun) -> bool:
    return all(each.kind for each in differences(before, now))


def _applies(finding: Finding, job: Job, ranks: Sequence[Process]) -> bool:
    """Whether a finding is about a job, or about the machine and names it."""
    identities, gpus = {*job.ranks}, {share.uuid for rank in ranks for share in rank.gpus}
    if finding.subject.kind == "host" and not finding.subject.processes:
        return False
    return job.key in finding.subject.job_keys or names(finding.subject, identities, gpus)


def _leading(about: Sequence[Finding]) -> Finding | None:
    """The finding to store of all shown for a job."""
    shown = [one for one in about if needs_action(one)]
    return next((one for one in shown if one.primary), next(iter(shown), None))


def _is_gone(fix: Fix, about: Sequence[Finding]) -> bool:
    """Whether the finding is gone completely, even as a remark."""
    said = {rule for one in about if not one.healthy and one.confidence >= POSSIBLE for rule in (one.rule, *one.causes)}
    return fix.rule not in said and not said & {*fix.causes}


def _fix(
    finding: Finding, run: JobRun, process: Identity, before: Measured, settings: dict[str, float | str], frame: Frame
) -> Fix:
    return Fix(
        run=run,
        process=process,
        at_s=frame.wall_s,
        rule=finding.rule,
        causes=finding.causes,
        headline=finding.headline,
        settings=settings,
        advised=advised_values(finding),
        before=before,
        most=predicted_speedup(finding, settings),
    )

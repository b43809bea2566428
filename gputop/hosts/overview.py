"""One line per host: what the overview knows of each, made from its newest update or from recorded metrics."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Literal

from gputop import finding_text
from gputop.diagnose.finding import POSSIBLE, Finding
from gputop.diagnose.state import JobState, needs_action
from gputop.diagnose.steadying import RANKS
from gputop.frozen_dataclass import frozen_dataclass
from gputop.labels import amount
from gputop.model import Frame, Gpu, Note
from gputop.monitor import Update
from gputop.optional_sums import added, mean, total
from gputop.severity import Severity, share_percent

HostState = Literal["connecting", "live", "stale", "lost"]
Badge = Literal["crit", "warn", "info", "ok", "judging", "unknown", ""]
BUSY_PERCENT = 1.0  # from which a GPU counts as busy
_URGENCY: Mapping[str, int] = {"crit": 0, "warn": 1, "unknown": 2, "judging": 3, "info": 4, "ok": 5, "": 6}


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class HostRow:
    """What one line of the overview shows. An unknown number is None."""

    name: str  # as the user wrote it
    state: HostState = "connecting"
    why: str = ""  # why there are no new values
    age_s: float | None = None  # of the values
    retry_in_s: float | None = None
    gpus: int | None = None
    gpus_busy: int | None = None
    busy_percent: float | None = None  # mean of its GPUs
    vram_percent: float | None = None
    power_watts: float | None = None  # of its GPUs
    cpu_percent: float | None = None
    memory_percent: float | None = None
    jobs: int | None = None
    users: tuple[str, ...] = ()
    gpus_lost: float | None = None  # share of GPU time lost, summed over its GPUs: 0.5 of 8 GPUs is 4
    badge: Badge = ""  # how its worst finding is, or the state of its jobs
    finding: str = ""  # subject and headline of the worst finding, or the state of its jobs
    findings: int = 0  # that call for action
    trend: tuple[float | None, ...] = ()  # GPU busy in percent over the last hour, where that is recorded

    @property
    def urgency(self) -> tuple[int, float, str]:
        """What it is sorted by first: the worst finding, then the GPU time lost, then the name.

        A host without values is as urgent as a warning: it may be what stops a job.
        """
        silent = self.state in ("stale", "lost") or (self.state == "connecting" and bool(self.why))
        return min(_URGENCY[self.badge], 1 if silent else 9), -(self.gpus_lost or 0.0), self.name


def row(name: str, update: Update) -> HostRow:
    """The line of a host from its newest update. Where it stands in time, the caller adds."""
    frame = update.frame
    gpus = [gpu for gpu in frame.gpus if gpu.parent_uuid is None]
    host = frame.host
    badge, text = _verdict(update, _busy(gpus))
    return HostRow(
        name=name,
        gpus=len(gpus),
        gpus_busy=_busy(gpus),
        busy_percent=mean(gpu.busy_percent for gpu in gpus),
        vram_percent=share_percent(
            total(gpu.vram_used_bytes for gpu in gpus), total(gpu.vram_total_bytes for gpu in gpus)
        ),
        power_watts=total(gpu.power_watts for gpu in gpus) if gpus else None,
        cpu_percent=host.cpu_percent,
        memory_percent=share_percent(host.memory_used_bytes, host.memory_total_bytes),
        jobs=sum(one.due for one in update.jobs) if update.host is not None else len(frame.jobs),
        users=tuple(sorted({job.user for job in frame.jobs if job.user})),
        gpus_lost=_lost(update, gpus),
        badge=badge,
        finding=text,
        findings=sum(map(needs_action, update.findings)),
    )


def _busy(gpus: Sequence[Gpu]) -> int | None:
    known = [gpu.busy_percent for gpu in gpus if gpu.busy_percent is not None]
    return sum(percent >= BUSY_PERCENT for percent in known) if known or not gpus else None


def _lost(update: Update, gpus: Sequence[Gpu]) -> float | None:
    """GPU time lost, in GPUs; 0 only where every job is judged and none loses any."""
    lost = gpus_lost(update.findings, update.jobs, gpus)
    if lost is not None or not gpus:
        return lost
    states = [one.state for one in update.jobs if one.due]
    judged = update.host is not None and not unjudged(states) and (states or not _busy(gpus))
    return 0.0 if judged else None


def unjudged(states: Container[str]) -> Badge:
    """The state of jobs that have no verdict, the worse one first; empty if all have one."""
    return "unknown" if "unknown" in states else "judging" if "judging" in states else ""


def gpus_lost(findings: Iterable[Finding], jobs: Iterable[JobState], gpus: Iterable[Gpu]) -> float | None:
    """GPU time lost, in GPUs: of each the largest share that a finding gives it. None if none gives one."""
    of_job = {one.key: one.gpus for one in jobs}
    lost: dict[str, float] = {}
    for finding in findings:
        share = finding.lost_share
        if share is None or finding.healthy or finding.cost != "lost" or finding.confidence < POSSIBLE:
            continue
        subject = finding.subject
        hit = subject.gpus or tuple(uuid for key in subject.job_keys for uuid in of_job.get(key, ()))
        for uuid in hit:
            lost[uuid] = max(share, lost.get(uuid, 0.0))
    return added(lost.get(gpu.uuid) for gpu in gpus)


def _verdict(update: Update, busy: int | None) -> tuple[Badge, str]:
    """The worst finding; without one the state of the jobs."""
    shown = [one for one in update.findings if one.confidence >= POSSIBLE]
    bad = min((one for one in shown if not one.healthy), key=_weight, default=None)
    if bad is not None and (bad.severity != "info" or bad.primary):
        return bad.severity, _sentence(bad, update.frame)
    if not update.frame.gpus:
        return "unknown", no_gpu(update.frame.notes)
    states = [one.state for one in update.jobs if one.due]
    if not states and busy:  # as in a container, where the driver lists no process
        return "unknown", f"{amount(busy, 'GPU')} busy, no process listed"
    return unjudged(states) or ("ok" if states else ""), finding_text.state_counts(update.jobs)


def no_gpu(notes: Iterable[Note] = ()) -> str:
    """Why a host lists no GPU, as far as it says."""
    return next((note.text.rstrip(".") for note in notes if note.subject == "driver"), "no NVIDIA GPU listed")


def _weight(finding: Finding) -> tuple[int, bool, float]:
    return -RANKS[finding.severity], not finding.primary, -(finding.lost_share or 0.0)


def _sentence(finding: Finding, frame: Frame) -> str:
    headline = finding_text.headline(finding)
    if finding.subject.kind == "host":  # its name stands in the same line
        return headline
    return f"{finding_text.subject_name(finding.subject, frame)}: {headline}"


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """All hosts together."""

    hosts: int
    live: int
    gpus: int
    gpus_busy: int
    gpus_lost: float
    jobs: int
    worst: Severity | None


def totals(rows: Sequence[HostRow]) -> Totals:
    """Sums over the hosts that have values, be they old; of a lost one nothing is known now."""
    known = [row for row in rows if row.state in ("live", "stale")]
    badges = {row.badge for row in known}
    worst: Severity | None = "crit" if "crit" in badges else "warn" if "warn" in badges else None
    return Totals(
        hosts=len(rows),
        live=sum(row.state == "live" for row in rows),
        gpus=sum(row.gpus or 0 for row in known),
        gpus_busy=sum(row.gpus_busy or 0 for row in known),
        gpus_lost=sum(row.gpus_lost or 0.0 for row in known),
        jobs=sum(row.jobs or 0 for row in known),
        worst=worst,
    )

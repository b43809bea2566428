"""Samples of jobs and findings: states, totals, costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from gputop import finding_text, labels
from gputop.diagnose import Finding
from gputop.diagnose.finding import POSSIBLE
from gputop.diagnose.state import JobState
from gputop.model import Frame, Identity, Job
from gputop.monitor import Update
from gputop.optional_sums import added, mean
from gputop.process_totals import Figures
from gputop.prometheus import families as names
from gputop.prometheus.families import Family
from gputop.prometheus.samples import BoundedSamples, ExportLimits, Labels, Sample, gpu_labels, job_labels, label

SEVERITIES: Mapping[str, float] = {"info": 1.0, "warn": 2.0, "crit": 3.0}
STATES = finding_text.STATES


class GpuUser(NamedTuple):
    """A job, or a process on a GPU outside any job: as collected, and as judged."""

    key: str
    name: str
    user: str | None
    gpus: tuple[str, ...]  # uuids
    processes: tuple[Identity, ...]
    job: Job | None
    state: JobState | None


def gpu_users(update: Update) -> list[GpuUser]:
    """Jobs and other GPU users. Before the first verdict: jobs only, without a state."""
    frame = update.frame
    judged = {state.key: state for state in update.jobs}
    found = [
        GpuUser(job.key, job.name, job.user, _gpus(job.members, frame), job.members, job, judged.pop(job.key, None))
        for job in frame.jobs
    ]
    rest = (GpuUser(one.key, one.name, one.user, one.gpus, one.processes, None, one) for one in judged.values())
    return [*found, *rest]


def _gpus(members: Sequence[Identity], frame: Frame) -> tuple[str, ...]:
    known = (frame.by_identity[one] for one in members if one in frame.by_identity)
    return tuple(dict.fromkeys(share.uuid for process in known for share in process.gpus))


def add_jobs(found: BoundedSamples, update: Update, limits: ExportLimits) -> None:
    """Every job with its state and totals, and how many there are."""
    users = gpu_users(update)
    counts: Counter[str] = Counter(one.state.state for one in users if one.state)
    known = (*STATES,) if update.jobs or update.host else ()
    found.add("job", "count", [Sample(names.JOBS, {"state": state}, float(counts[state])) for state in known])
    if update.host:
        found.add("job", "host", [Sample(names.HOST_STATE, {"state": label(update.host.state)}, 1.0)])
    for one in sorted(users, key=lambda user: (user.job is None, -len(user.gpus), user.key)):
        found.add("job", one.key, [*_job(one, update.frame, limits)])


def _job(one: GpuUser, frame: Frame, limits: ExportLimits) -> Iterator[Sample]:
    of_job = job_labels(one.key, one.name)
    info = {
        "launcher": label(one.job.launcher) if one.job else "",
        "slurm_job": label(one.job.slurm_job) if one.job else "",
        "user": label(one.user) if limits.with_users else "",
    }
    yield Sample(names.JOB_INFO, {**of_job, **info}, 1.0)
    if one.state:
        yield Sample(names.JOB_STATE, {**of_job, "state": label(one.state.state)}, 1.0)
    gpus = [frame.by_uuid[uuid] for uuid in one.gpus if uuid in frame.by_uuid]
    for gpu in gpus:
        yield Sample(names.GPU_JOB, {**gpu_labels(gpu), **of_job}, 1.0)
    processes = [frame.by_identity[each] for each in one.processes if each in frame.by_identity]
    totals = Figures(processes, frame)
    values: dict[Family, float | None] = {
        names.JOB_GPUS: len(gpus),
        names.JOB_PROCESSES: len(processes),
        names.JOB_BUSY: _ratio(mean(gpu.busy_percent for gpu in gpus)),
        names.JOB_VRAM: totals.vram_bytes if processes else None,
        names.JOB_STEP: totals.most("step_s") if processes else None,
        names.JOB_SAMPLES: added(process.samples_per_s for process in processes),
        names.JOB_DATA_WAIT: _ratio(totals.mean("data_wait_percent")) if processes else None,
    }
    yield from (Sample(family, of_job, float(value)) for family, value in values.items() if value is not None)


def _ratio(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


def add_findings(found: BoundedSamples, update: Update) -> None:
    """Every finding that is shown, without verdicts that all is healthy; the most urgent come first."""
    job_names = {one.key: one.name for one in gpu_users(update)}
    shown = [one for one in update.findings if not one.healthy and one.confidence >= POSSIBLE]
    for one in shown:
        about = _about(one, update.frame, job_names)
        found.add("finding", (*about.values(),), [*_finding(one, about)])
    found.add("finding", "skipped", [Sample(names.SKIPPED_CHECKS, {}, float(len(update.abstained)))])


def _about(one: Finding, frame: Frame, job_names: Mapping[str, str]) -> Labels:
    """What identifies a finding, whatever its numbers are."""
    subject = one.subject
    processes = (frame.by_identity[each] for each in subject.processes if each in frame.by_identity)
    key = next((key for key in (*subject.job_keys, *(process.job for process in processes)) if key), None)
    found = frame.by_uuid
    indexes = [found[uuid].index if uuid in found else uuid for uuid in subject.gpus]
    return {
        "rule": one.rule,
        "severity": label(one.severity),
        "kind": label(subject.kind),
        "subject": label(finding_text.subject_name(subject, frame)),
        "gpus": label(labels.numbers(indexes)) if indexes else "",
        **job_labels(key, job_names.get(key or "")),
    }


def _finding(one: Finding, about: Labels) -> Iterator[Sample]:
    yield Sample(names.FINDING, {**about, "primary": str(one.primary).lower()}, SEVERITIES[one.severity])
    yield Sample(names.FINDING_AGE, about, one.since_s)
    yield Sample(names.FINDING_HEADLINE, {**about, "headline": label(finding_text.headline(one))}, 1.0)
    if one.lost_share is not None and one.cost != "none":
        yield Sample(names.FINDING_LOST, about, one.lost_share)

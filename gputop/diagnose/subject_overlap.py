"""Whether two findings are about the same subject, and whether a finding is resolved or reported in another form."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from gputop.diagnose.finding import Finding, Subject, subject_key
from gputop.model import Identity


def applies_to(
    subject: Subject, processes: Collection[Identity], gpus: Collection[str], jobs: Collection[str | None] = ()
) -> bool:
    """Whether a finding on the subject applies to any of these; on the machine, to those it names, else to all.

    `jobs`: keys of whole jobs, including ranks that have ended.
    """
    if subject.kind == "host" and not subject.processes:
        return True
    return any(key in jobs for key in subject.job_keys) or names(subject, processes, gpus)


def names(subject: Subject, processes: Collection[Identity], gpus: Collection[str]) -> bool:
    """Whether a subject names any of these: its GPUs count only if it names no process, as others may share them."""
    if subject.processes:
        return any(identity in processes for identity in subject.processes)
    return any(uuid in gpus for uuid in subject.gpus)


def persists(finding: Finding, findings: Iterable[Finding]) -> bool:
    """Whether it persists: itself, as a cause, with more or fewer subjects, or below a warning."""
    return any(_is_same_finding(finding, now) or _explains(finding, now) for now in findings)


def _is_same_finding(finding: Finding, now: Finding) -> bool:
    return finding.rule == now.rule and _same_subject(finding.subject, now.subject)


def _same_subject(one: Subject, other: Subject) -> bool:
    # either may be about GPUs alone: the other's processes do not matter then
    return (
        subject_key(one) == subject_key(other)
        or names(one, other.processes, other.gpus)
        or names(other, one.processes, one.gpus)
    )


def _explains(finding: Finding, now: Finding) -> bool:
    """Whether it is merged into this one: a rank may hold up another of its job."""
    whose = now.subject
    return finding.rule in now.causes and applies_to(finding.subject, whose.processes, whose.gpus, (whose.job,))

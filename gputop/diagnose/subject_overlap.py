"""Whether two findings are about the same subject, and whether one is resolved or only told otherwise."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from gputop.diagnose.finding import Finding, Subject, told_apart
from gputop.model import Identity


def concerns(
    subject: Subject, processes: Collection[Identity], gpus: Collection[str], jobs: Collection[str | None] = ()
) -> bool:
    """Whether what is so of a subject is so of any of these; of the machine it is so of whom it names, else of all.

    `jobs`: keys of those that are asked about as a whole, with ranks that have ended.
    """
    if subject.kind == "host" and not subject.processes:
        return True
    return any(key in jobs for key in subject.job_keys) or names(subject, processes, gpus)


def names(subject: Subject, processes: Collection[Identity], gpus: Collection[str]) -> bool:
    """Whether a subject names any of these: GPUs only where it names no process, as others may share them."""
    if subject.processes:
        return any(identity in processes for identity in subject.processes)
    return any(uuid in gpus for uuid in subject.gpus)


def goes_on(finding: Finding, findings: Iterable[Finding]) -> bool:
    """Whether it is among those of now: itself, as a cause, of more or fewer subjects, or as less than a warning."""
    return any(_is(finding, now) or _explains(finding, now) for now in findings)


def _is(finding: Finding, now: Finding) -> bool:
    return finding.rule == now.rule and _same(finding.subject, now.subject)


def _same(one: Subject, other: Subject) -> bool:
    # either may be of cards alone: then the processes of the other say nothing
    return (
        told_apart(one) == told_apart(other)
        or names(one, other.processes, other.gpus)
        or names(other, one.processes, one.gpus)
    )


def _explains(finding: Finding, now: Finding) -> bool:
    """Whether it is folded into this one: a rank may be what holds up another of its job."""
    whose = now.subject
    return finding.rule in now.causes and concerns(finding.subject, whose.processes, whose.gpus, (whose.job,))

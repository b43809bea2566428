"""Whether a finding is over, or only told otherwise."""

from __future__ import annotations

from collections.abc import Iterable

from gputop.diagnose.concerns import concerns, names
from gputop.diagnose.finding import Finding, Subject, told_apart


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

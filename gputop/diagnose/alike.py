"""Findings that are the same in several experiments: one finding about all of them, with its advice once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from gputop.diagnose.finding import Evidence, Finding, Subject
from gputop.diagnose.steady import RANKS
from gputop.model import Job

_NAMED = 4  # jobs in the evidence
_GAIN = re.compile(r"[\d.]+ times as fast|[\d.]+x faster|[\d.]+× faster")  # of the same step, as much as each can win


def alike(findings: Iterable[Finding], jobs: Mapping[str, Job]) -> list[Finding]:
    """The findings in their order, those of jobs of one user that say and advise the same as one.

    What was measured may differ between them: the one that loses most speaks for all. A finding that differs in what
    is to be done is another one.
    """
    groups: dict[object, list[Finding]] = {}
    for place, finding in enumerate(findings):
        job = finding.subject.job
        groups.setdefault(place if job is None or job not in jobs else _says(finding), []).append(finding)
    return [group[0] if len(group) == 1 else _joined(group, jobs) for group in groups.values()]


def _says(finding: Finding) -> object:
    """All that must be the same; a pid is the same step in another process."""
    pids = "|".join(str(identity.pid) for identity in finding.subject.processes)
    pid = re.compile(rf"\b(?:{pids})\b") if pids else None

    def general(text: str | None) -> str | None:
        return text and _GAIN.sub("", pid.sub("PID", text) if pid else text)

    steps = tuple((general(step.text), general(step.command), step.action) for step in finding.steps)
    said = finding.rule, finding.severity, finding.healthy, finding.primary, finding.causes, finding.state
    return *said, finding.subject.user, _GAIN.sub("", finding.headline), steps


def _joined(same: list[Finding], jobs: Mapping[str, Job]) -> Finding:
    worst = max(same, key=lambda one: (RANKS[one.severity], one.lost_share or 0.0, one.confidence))
    keys = tuple(dict.fromkeys(one.subject.job for one in same if one.subject.job is not None))
    if len(keys) < 2:
        return worst
    names = [jobs[key].name for key in keys]
    listed = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
    shares = [one.lost_share for one in same if one.lost_share is not None]
    return replace(
        worst,
        subject=Subject(
            kind="job",
            gpus=tuple(dict.fromkeys(uuid for one in same for uuid in one.subject.gpus)),
            processes=tuple(dict.fromkeys(identity for one in same for identity in one.subject.processes)),
            jobs=keys,
            user=worst.subject.user,
        ),
        evidence=(*worst.evidence, Evidence(text=f"the same in {len(keys)} jobs: {listed}", value=float(len(keys)))),
        since_s=max(one.since_s for one in same),
        lost_share=sum(shares) / len(shares) if shares else None,
    )

"""What the rules say live of the processes that a result is of."""

from __future__ import annotations

from gputop.diagnose import Finding
from gputop.monitor import Update
from gputop.ui.result.about import About

_INSIDE = "seen-inside"  # it rests on results as this one: beside one it says nothing


def live(about: About, update: Update | None) -> list[Finding]:
    """Findings that somebody should do something about, of its processes, job or GPUs."""
    if update is None:
        return []
    frame, mine = update.frame, set(about.processes)
    gpus = {share.uuid for one in mine if (process := frame.by_identity.get(one)) for share in process.gpus}

    def is_of_it(finding: Finding) -> bool:
        subject = finding.subject
        if mine.intersection(subject.processes) or about.job in subject.job_keys:
            return True
        return subject.kind == "gpu" and bool(gpus.intersection(subject.gpus))

    troubles = (one for one in update.findings if one.severity != "info" and not one.healthy and one.rule != _INSIDE)
    return [one for one in troubles if is_of_it(one)]

"""A rule on causes visible only inside a process, as seen by a profile or a trace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gputop import num_workers
from gputop.diagnose.finding import Evidence, Finding, Step
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.testimony import LOADS_IN_MAIN, claim
from gputop.diagnose.view import View
from gputop.model import Fact


class Remedy(NamedTuple):
    """The state label of a profiled cause, and the first step against it."""

    state: str
    step: str


_REMEDIES = {  # by its name in profile.parts or the trace signatures
    LOADS_IN_MAIN: Remedy("dataloader", num_workers.IN_WORKERS),
    "loads-in-main": Remedy("dataloader", num_workers.IN_WORKERS),
    "waits-for-data": Remedy("dataloader", num_workers.MORE),
    "input-bound": Remedy("dataloader", num_workers.MORE),
    "data-parallel": Remedy("dataparallel", "Use DistributedDataParallel with one process per GPU"),
    "saves": Remedy("checkpoint", "Save checkpoints less often, or asynchronously"),
    "sync": Remedy("host sync", "Read results back every 50 steps: each .item() waits for the GPU"),
    "logs": Remedy("host sync", "Log every 50 steps, images every few epochs"),
}
_HEALTHY = "healthy"  # a trace signature that is reported although it is no problem
# work that does not belong on a main thread, by its name in profile.parts
_TROUBLES = frozenset({LOADS_IN_MAIN, "waits-for-data", "data-parallel", "saves", "sync", "logs"})


@rule(
    "seen-inside",
    "Did a profile or trace show a cause inside the process?",
    level=Level.EFFICIENCY,
    instead_of=("starved-cause-unknown",),
    last=True,
    state="profiled",
    short="PROF",
    needs=(),
    alone=True,
    lasting=True,
)
def seen_inside(view: View) -> Iterator[Finding]:
    """The worst problem that stacks or a trace showed in a process, as long as gputop keeps the result."""
    for identity in dict.fromkeys(fact.process for fact in view.frame.facts):
        process = view.frame.by_identity.get(identity)
        troubles = [fact for fact in view.frame.facts if fact.process == identity and _is_trouble(view, fact)]
        if process is None or not troubles:
            continue
        troubles.sort(key=lambda fact: -(fact.share or 0.0))
        worst, *others = troubles
        remedies = [_REMEDIES[fact.name] for fact in troubles if fact.name in _REMEDIES]
        kind = "trace" if worst.witness == "trace" else "profile"
        yield view.found(
            process,
            "warn",
            f"{kind} shows {claim(worst)}",
            evidence=tuple(_as_evidence(view, fact) for fact in others),
            steps=(
                *(Step(text=step) for step in dict.fromkeys(one.step for one in remedies)),
                Step(text=f"Open the {kind} for the lines of code", command=f"gputop profile --list {identity.pid}"),
            ),
            state=_REMEDIES[worst.name].state if worst.name in _REMEDIES else None,
            confidence=0.9,
            grade="profile",
            lost_share=worst.share,
        )


def _as_evidence(view: View, fact: Fact) -> Evidence:
    if fact.share is None:
        return Evidence(text=fact.text)
    return Evidence(
        text=fact.text, value=100 * fact.share, unit="%", limit=100 * view.limit("share"), sense="flagged_from"
    )


def _is_trouble(view: View, fact: Fact) -> bool:
    if fact.witness == "trace":
        return fact.name not in (_HEALTHY, LOADS_IN_MAIN)  # the latter repeats another fact
    return fact.witness == "stack" and fact.name in _TROUBLES and view.above(fact.share, "share")

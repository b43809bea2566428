"""A rule about what only shows inside a process: a profile or a trace has seen it, and no other rule can."""

from __future__ import annotations

from collections.abc import Iterator

from gputop.diagnose.finding import Evidence, Finding, Step
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.told import LOADS_IN_MAIN, bare
from gputop.diagnose.view import View
from gputop.model import Fact

_HEALTHY = "healthy"  # a signature of traces, told though it is no trouble
# what a main thread should not spend its time on, as profile.parts names it
_TROUBLES = frozenset({LOADS_IN_MAIN, "waits-for-data", "data-parallel", "saves", "sync", "logs"})


@rule(
    "seen-inside",
    "Did a profile show what does not show from outside?",
    level=Level.EFFICIENCY,
    instead_of=("starved-cause-unknown",),
    last=True,
    state="see profile",
    short="PROF",
    number=None,
    rows=(31, 64, 65, 66, 67, 70),
    needs=(),
    alone=True,
    lasting=True,
)
def seen_inside(view: View) -> Iterator[Finding]:
    """The worst that stacks or a trace said of a process, for as long as that is remembered."""
    for identity in dict.fromkeys(fact.process for fact in view.frame.facts):
        process = view.frame.by_identity.get(identity)
        troubles = [fact for fact in view.frame.facts if fact.process == identity and _is_trouble(view, fact)]
        if process is None or not troubles:
            continue
        troubles.sort(key=lambda fact: -(fact.share or 0.0))
        worst, *others = troubles
        yield view.found(
            process,
            "warn",
            f"was looked into: {bare(worst)}",
            evidence=tuple(_as_evidence(view, fact) for fact in others),
            steps=(
                Step(
                    text="what to do about it stands with the profile", command=f"gputop profile --list {identity.pid}"
                ),
            ),
            confidence=0.9,
            grade="profile",
            lost_share=worst.share,
        )


def _as_evidence(view: View, fact: Fact) -> Evidence:
    if fact.share is None:
        return Evidence(text=fact.text)
    return Evidence(text=fact.text, value=100 * fact.share, unit="%", limit=100 * view.limit("share"))


def _is_trouble(view: View, fact: Fact) -> bool:
    if fact.witness == "trace":
        return fact.name not in (_HEALTHY, LOADS_IN_MAIN)  # the latter repeats what another fact says
    return fact.witness == "stack" and fact.name in _TROUBLES and view.above(fact.share, "share")

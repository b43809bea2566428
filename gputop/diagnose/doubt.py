"""Of which GPUs nothing is said though something may be wrong: nobody can judge them, or a rule was kept from it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gputop.diagnose.finding import Abstained, Finding
from gputop.diagnose.rule import Level
from gputop.diagnose.rules import RULES

BLIND = "blind-spots"  # it finds what the notes say of every rule; it cannot judge a GPU that nobody can
_PACE = (Level.CAUSE, Level.STARVED, Level.RANKS, Level.EFFICIENCY)


def doubtful(findings: Sequence[Finding], abstained: Sequence[Abstained]) -> tuple[Abstained, ...]:
    """GPUs in use of which no rule could say anything, or none of these findings does and a rule was not let."""
    spoken = {uuid for found in findings for uuid in found.subject.gpus}
    return tuple(one for one in abstained if one.rule == BLIND or _not_let(one, spoken))


def _not_let(one: Abstained, spoken: Collection[str]) -> bool:
    """Whether a rule about the pace of GPUs of which nothing is said lacks what this user may not read, or a trace."""
    lacks = any(missing.reason == "denied" or missing.metric == "facts" for missing in one.missing)
    return lacks and RULES[one.rule].level in _PACE and not any(uuid in spoken for uuid in one.subject.gpus)

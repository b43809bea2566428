"""Where to read on about a finding: the guides that cover what it is about. One place for all links."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gputop.diagnose.finding import Finding


class Guide(NamedTuple):
    """A page that others wrote."""

    title: str
    address: str


PYTORCH = Guide("PyTorch's tuning guide", "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html")
AUTODL = Guide("AutoDL on performance (Chinese)", "https://api.autodl.com/docs/perf/")
_BY_GROUP: Mapping[str, tuple[Guide, ...]] = {
    "usage": (AUTODL,),
    "feed": (PYTORCH, AUTODL),
    "efficiency": (PYTORCH,),
    "cpu": (AUTODL, PYTORCH),
    "storage": (AUTODL,),
    "ranks": (PYTORCH,),
}  # of the rules; nothing else is covered there: heat, memory, hardware


def guides(finding: Finding) -> list[Guide]:
    """Those that cover its rule and its causes, the causes' first; none for what needs nothing done."""
    from gputop.diagnose.rules import RULES  # late: they are loaded by who has found something

    if finding.healthy:
        return []
    known = [RULES[rule].group for rule in (*finding.causes, finding.rule) if rule in RULES]
    return list(dict.fromkeys(guide for group in known for guide in _BY_GROUP.get(group, ())))

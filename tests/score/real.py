"""Real processes: each workload and its healthy twin on a fake driver, as the rules see what `gputop record` wrote."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gputop.diagnose.rules import RULES
from tests.score import followed
from tests.score.marks import LOOKED_S, Result, Truth, marked
from tests.score.tools import TOOLS
from tests.workloads.cases import CASES, Case
from tests.workloads.confine import NotCovered
from tests.workloads.stage import Performance, Play, perform


def names() -> list[str]:
    """The workloads whose rule there is, and one whose advice is followed."""
    return [*(case.name for case in CASES if case.plants in RULES), followed.NAME]


def played(name: str) -> Iterator[tuple[str, dict[str, Result]]]:
    """The faulty one and its twin, by tool; nothing where this machine cannot play it."""
    if name == followed.NAME:
        yield "as it is", {"gputop": followed.played()}
        return
    (case,) = [case for case in CASES if case.name == name]
    for healthy in (False, True):
        try:
            (seen,) = perform(Play(case, healthy), seconds=case.seconds + LOOKED_S)
        except NotCovered:
            return
        yield "healthy twin" if healthy else "as it is", _judged(case, healthy, seen)


def _judged(case: Case, healthy: bool, seen: Performance) -> dict[str, Result]:
    never = (*case.must_not, case.plants) if healthy else case.must_not
    truth = Truth(rule=None if healthy else case.plants, due_s=float(case.seconds), never=never)
    frames = [(update.frame.wall_s - seen.since_s, update.frame) for update in seen.updates]
    return {tool: marked(list(judge(iter(frames))), truth) for tool, judge in TOOLS.items()}


def all_played(wanted: Iterable[str]) -> Iterator[tuple[tuple[str, str, str], Result]]:
    """One after the other: each needs the machine for itself."""
    for name in wanted:
        for variant, found in played(name):
            yield from (((name, variant, tool), result) for tool, result in found.items())

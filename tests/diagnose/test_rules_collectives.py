"""A hang in a collective that the ranks themselves have named: in the headline, as evidence, with more confidence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputop.diagnose import Finding
from gputop.model import Fact, Frame, Identity
from tests.diagnose.test_rules_ranks_hang import CALM, LONG_S, STUCK
from tests.diagnose.test_rules_ranks_wait import IDLE, SPINS
from tests.rank_teams import lines, of, team
from tests.rule_cases import after, found

MISSING = "rank 1 never entered all_reduce #4711 (train.py:88); it is in load_shard (data.py:12)"
CALLED = "rank 1 called all_gather #5 (train.py:40), rank 0 all_reduce #5 (train.py:88)"


def reported(*facts: tuple[str, str, int], seconds: int = LONG_S) -> Finding:
    """What is said of two ranks that hang, with these facts (name, text, rank)."""
    frames = team(of({1: IDLE}, SPINS), of({1: STUCK}, CALM), ranks=2)
    known = tuple(
        Fact(process=Identity(100 + rank, 1), witness="recorder", name=name, text=text) for name, text, rank in facts
    )

    def frame(t: float) -> Frame:
        return replace(frames(t), facts=known)

    finding = found(after(frame, seconds), "collective-wait")
    assert finding is not None
    return finding


@pytest.mark.parametrize(
    ("facts", "headline"),
    [
        ([], "hang, 1 of 2 ranks wait in a collective for rank 1 (GPU 1)"),
        ([("missing-collective", MISSING, 1)], "hang, rank 1 never entered all_reduce #4711"),
        ([("missing-collective", MISSING, 0)], "hang, rank 1 never entered all_reduce #4711"),
        ([("operation-collective", CALLED, 1)], "hang, rank 1 called all_gather #5, rank 0 all_reduce #5"),
        (
            [("sizes-collective", "sizes differ in all_reduce #5: rank 1 passed float32 [8], the others [4]", 1)],
            "hang, sizes differ in all_reduce #5",
        ),
        (
            [("missing-collective", f"rank 1 never entered {'x' * 60} #5", 1)],  # too long for a headline
            "hang, 1 of 2 ranks wait in a collective for rank 1 (GPU 1)",
        ),
        (
            [("stuck-collective", "all 2 recorded ranks wait in all_reduce #5", 0)],
            "hang, 1 of 2 ranks wait in a collective for rank 1 (GPU 1)",
        ),
    ],
)
def test_the_collective_is_in_the_headline(facts: list[tuple[str, str, int]], headline: str) -> None:
    assert reported(*facts).headline == headline


def test_before_it_is_a_hang_it_is_named_too() -> None:
    finding = reported(("missing-collective", MISSING, 1), seconds=100)
    assert (finding.severity, finding.headline) == ("warn", "rank 1 never entered all_reduce #4711")


def test_what_the_ranks_reported_is_evidence_and_raises_the_confidence() -> None:
    inferred, named = reported(), reported(("missing-collective", MISSING, 1))
    assert MISSING in lines(named)[:2]
    assert named.confidence > inferred.confidence
    assert named.grade == "job"


def test_it_comes_before_a_stack_that_only_shows_a_collective() -> None:
    named = reported(("missing-collective", MISSING, 1))
    stack = Fact(process=Identity(100, 1), witness="stack", name="collectives", text="main thread waits", share=1.0)
    frames = team(of({1: IDLE}, SPINS), of({1: STUCK}, CALM), ranks=2)
    recorder = Fact(process=Identity(101, 1), witness="recorder", name="missing-collective", text=MISSING)
    both = found(after(lambda t: replace(frames(t), facts=(stack, recorder)), LONG_S), "collective-wait")
    assert both is not None
    assert lines(both) == lines(named)


def test_a_fact_about_another_job_is_not_used() -> None:
    frames = team(of({1: IDLE}, SPINS), of({1: STUCK}, CALM), ranks=2)
    other = Fact(process=Identity(999, 1), witness="recorder", name="missing-collective", text=MISSING)
    finding = found(after(lambda t: replace(frames(t), facts=(other,)), LONG_S), "collective-wait")
    assert finding is not None
    assert "never entered" not in finding.headline

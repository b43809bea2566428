"""Collectives that the ranks of a job reported, on the screen of their stacks: first in words, and as a tab."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputop.actions.pyspy import StackResult
from gputop.collectives.report import conclude
from gputop.collectives.survey import RankAnswer, Survey
from gputop.model import Identity
from gputop.monitor import Monitor
from gputop.ui.profiling.results import testify as tell
from gputop.ui.result.stacks import of_stacks
from gputop.ui.theme import ASCII, PLAIN, Look
from tests.collectives.test_watch import Source
from tests.flight_dumps import entry, pickled, records, until
from tests.hostile import STRINGS
from tests.scripted_jobs import frame
from tests.ui.test_result import drawn, job, threads

WAITS, LATE = (*until(4), entry(5, state="started")), until(4)


def hangs(*ranks: tuple[dict[str, object], ...]) -> StackResult:
    """Stacks of ranks, with these collectives."""
    others = threads("all_reduce", "step", "main")
    result = job(*([others] * (len(ranks) - 1)), threads("load", "main"))
    found = records(*(pickled(*entries, ranks=range(len(ranks))) for entries in ranks))
    answers = tuple(
        RankAnswer(process=shown.process, label=one.label, record=one.record, source="debug server")
        for shown, one in zip(result.processes, found, strict=True)
    )
    return replace(result, collectives=conclude(Survey(answers=answers)))


def test_the_rank_that_never_entered_is_said_first() -> None:
    content = of_stacks(hangs(WAITS, WAITS, LATE))
    assert [tab.title for tab in content.tabs] == ["Ranks", "Side by side", "Collectives", "Stacks"]
    first = drawn(content, 0, (120, 24))
    assert "CRIT" in first
    assert "Rank 2 never entered all_reduce #5 (train.py:88)" in first
    tab = drawn(content, 2, (120, 24))
    (late,) = [line for line in tab.splitlines() if "▲  rank 2" in line]
    assert "all_reduce #4" in late
    assert "1 never entered the collective that the others wait in" in tab


def test_where_no_rank_reports_there_is_no_tab() -> None:
    content = of_stacks(replace(hangs(WAITS, LATE), collectives=None))
    assert [tab.title for tab in content.tabs] == ["Ranks", "Side by side", "Stacks"]


def test_the_rules_are_told_with_the_lines_of_the_stacks() -> None:
    result = hangs(WAITS, LATE)
    monitor = Monitor(Source())
    tell(monitor, result.processes[0].process, result)
    facts = [fact for fact in monitor._told.attach(frame()).facts if fact.witness == "recorder"]
    assert [(fact.process, fact.name) for fact in facts] == [(Identity(101, 1), "missing-collective")]


@pytest.mark.parametrize("look", [Look(), Look(PLAIN, ASCII)], ids=["colour", "plain"])
def test_any_size_and_any_name_is_drawn(look: Look) -> None:
    for name in STRINGS:
        waits = (*until(4), entry(5, name, state="started", group=("1", name)))
        content = of_stacks(hangs(waits, LATE))
        for size in ((40, 12), (80, 24), (300, 80), (1, 1), (7, 3)):
            for tab in range(len(content.tabs)):
                shown = drawn(content, tab, size, look)
                assert not [ch for ch in shown if ch != "\n" and not ch.isprintable()]
                assert look.glyphs is not ASCII or shown.isascii()

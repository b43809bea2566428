"""The glossary defines every state word and every column title that the code can show."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from gputop import docs
from gputop.diagnose.rules import RULES
from gputop.diagnose.rules.inside import _REMEDIES
from gputop.export.text import _GPUS
from gputop.glossary import TERMS, in_titles
from gputop.model.gpu import Condition
from gputop.ui.advice.experiments import MEASURES
from gputop.ui.result import builders, trace_tabs
from gputop.ui.widgets.tabs import Tab

PROGRAM = Path(docs.__file__).parents[1]
GPU_STATES = PROGRAM / "ui/gpus/state.py"
STATES = {
    *(term.name for group in ("gpu state", "verdict") for term in TERMS[group]),
    *(rule.state for rule in RULES.values()),  # the manual lists them by the questions of their rules
}


def patterns(node: ast.expr) -> Iterator[str]:
    """Literal words of an expression as patterns, anything where a value stands."""
    if isinstance(node, ast.IfExp):
        yield from patterns(node.body)
        yield from patterns(node.orelse)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value:
        yield re.escape(node.value)
    elif isinstance(node, ast.JoinedStr):
        parts = (re.escape(part.value.strip()) if isinstance(part, ast.Constant) else ".*" for part in node.values)
        yield "".join(map(str, parts))


def words() -> Iterator[tuple[str, str]]:
    """Every pattern of a state in the code, with its place."""
    for path in (*sorted((PROGRAM / "diagnose").rglob("*.py")), GPU_STATES, PROGRAM / "ui/advice/states.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            said = [each.value for each in node.keywords if each.arg == "state"]
            said += node.args[:1] if called in ("State", "RankState", "Remedy") else []
            for one in said:
                yield from ((pattern, f"{path.name}:{node.lineno}") for pattern in patterns(one))


def test_every_state_that_can_be_shown_is_defined() -> None:
    found = dict(words())
    assert {"hang", r"less\ busy", r"disk\ full", r".*old", "idle.*", "power\\ cap"} <= set(found)
    missing = {word: place for word, place in found.items() if not any(re.fullmatch(word, one) for one in STATES)}
    assert not missing
    assert {remedy.state for remedy in _REMEDIES.values()} <= STATES
    assert {*get_args(Condition)} - {"ok"} <= STATES


@pytest.mark.parametrize(("folder", "group"), [("details", "details"), ("result", "results")])
def test_every_column_of_the_other_tables_is_defined(folder: str, group: str) -> None:
    calls = [
        node
        for path in sorted((PROGRAM / "ui" / folder).glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "GridColumn"
    ]
    titles = {call.args[0].value for call in calls if isinstance(call.args[0], ast.Constant)} - {""}
    assert len(titles) > 9
    missing = {title for title in titles if not in_titles(str(title), group)}  # type: ignore[arg-type]
    assert not missing


def tabs(kind: type[Tab] = Tab) -> Iterator[type[Tab]]:
    """The tabs of a result."""
    for below in kind.__subclasses__():
        yield from tabs(below)
        if below.__module__.startswith("gputop.ui.result"):
            yield below


def test_every_tab_of_a_result_is_explained_by_its_columns_or_terms() -> None:
    assert builders, "with it and the next, all of them are imported"
    assert trace_tabs
    assert len(list(tabs())) > 10
    assert {name for tab in tabs() for name in tab.terms} <= {term.name for term in TERMS["results"]}
    # by their columns, or by the terms in their text
    named = {"ThreadsTab", "RanksTab", "CollectivesTab", "Operators", "ReportTab"}
    assert {tab.__name__ for tab in tabs() if not tab.terms} == named


def test_the_columns_of_the_experiments_and_of_once_are_defined() -> None:
    assert [measure.title for measure in MEASURES] == [term.name for term in TERMS["experiments"]][1:]
    assert {column.title for column in _GPUS} <= {term.name for group in ("once", "gpu") for term in TERMS[group]}

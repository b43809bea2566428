"""Every rule that was written down is there once, and every row of the mission that asks for a verdict has one."""

from __future__ import annotations

import pytest

from gputop import docs
from gputop.diagnose.rules import RULES
from gputop.docs.rules import rule_origin

WRITTEN = {f"R{number:02}" for number in range(1, 52)} | {"R11b", "M1", "M2"}
# came later: what a profile or a trace has seen, an evaluation as it looks from outside, GPUs in turns, a loss of NaN
UNWRITTEN = {"seen-inside", "evaluation-phase", "model-parallel", "non-finite"}
# what is diagnosed, of the 73 rows
ASKED = {
    *range(2, 9), *range(10, 20), *range(21, 27), *range(30, 34), 35, *range(44, 61), 62, *range(65, 69), 70,
}  # fmt: skip
LAST_ROW = 73
# rows that are no rule's: the page of the manual with what serves them, and its words
ELSEWHERE = {
    8: ("diagnosis", "large/complex (both)"),
    14: ("diagnosis", "PyTorch's tuning guide"),
    30: ("profilers", "Is the GPU kept busy, with work queued ahead?"),
    49: ("diagnosis", "the runtime of a step is compute, memory traffic and overhead together"),
    56: ("diagnosis", "three numbers in one line"),
}
# troubles that the mission does not name: others have met them
BEYOND = {
    "blind-spots", "clocks-low", "cpu-slow", "evaluation-phase", "hw-errors", "memory-pressure", "mig-visibility",
    "numa-misplacement", "pcie-degraded", "persistence-off", "self-overhead", "shm-nearly-full", "slowdown",
}  # fmt: skip


def test_every_number_is_that_of_one_rule() -> None:
    numbers = [number for rule in RULES.values() if rule.number for number in rule.number.split(" and ")]
    assert sorted(numbers) == sorted(WRITTEN)
    assert {rule.id for rule in RULES.values() if rule.number is None} == UNWRITTEN


def test_every_row_that_is_to_be_diagnosed_is() -> None:
    served = [row for rule in RULES.values() for row in rule.rows]
    assert ASKED - set(served) == set(ELSEWHERE)
    assert set(served) <= set(range(1, LAST_ROW + 1))
    assert {rule.id for rule in RULES.values() if not rule.rows} == BEYOND
    assert all(list(rule.rows) == sorted(set(rule.rows)) for rule in RULES.values())


@pytest.mark.parametrize("row", ELSEWHERE)
def test_a_row_without_a_rule_is_served_as_the_manual_says(row: int) -> None:
    page, words = ELSEWHERE[row]
    assert words in " ".join(docs.read(page).split())


@pytest.mark.parametrize(
    ("rule", "origin"),
    [
        ("starved-cpu-idle", "In the specification: R05; mission rows 4, 11, 33, 35, 45, 66."),
        ("small-job", "In the specification: R13; mission row 5."),
        ("seen-inside", "In the specification: no number; mission rows 31, 64, 65, 66, 67, 70."),
        ("hw-errors", "In the specification: R44; no row of the mission."),
    ],
)
def test_a_rule_is_shown_with_where_it_comes_from_and_the_manual_is_spared_that(rule: str, origin: str) -> None:
    assert rule_origin(rule) == origin
    assert "In the specification" not in docs.read("diagnosis")

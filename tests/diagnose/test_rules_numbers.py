"""Every rule that was written down is there once, and every row of the mission that asks for a verdict has one."""

from __future__ import annotations

import pytest

from gputop import docs
from gputop.diagnose.rules import RULES
from tests.rule_origins import ORIGINS

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
    8: ("diagnosis", "large model, complex data"),
    14: ("diagnosis", "PyTorch's tuning guide"),
    30: ("profilers", "Is the GPU busy, with work queued ahead?"),
    49: ("diagnosis", "the runtime of a step is compute, memory traffic and overhead together"),
    56: ("diagnosis", "It has three numbers: tensor cores"),
}
# troubles that the mission does not name: others have met them
BEYOND = {
    "blind-spots", "clocks-low", "cpu-slow", "evaluation-phase", "hw-errors", "memory-pressure", "mig-visibility",
    "numa-misplacement", "pcie-degraded", "persistence-off", "self-overhead", "shm-nearly-full", "slowdown",
}  # fmt: skip


def test_every_number_is_that_of_one_rule() -> None:
    assert list(ORIGINS) == list(RULES)
    numbers = [one for number, _ in ORIGINS.values() if number for one in number.split(" and ")]
    assert sorted(numbers) == sorted(WRITTEN)
    assert {id for id, (number, _) in ORIGINS.items() if number is None} == UNWRITTEN


def test_every_row_that_is_to_be_diagnosed_is() -> None:
    served = [row for _, rows in ORIGINS.values() for row in rows]
    assert ASKED - set(served) == set(ELSEWHERE)
    assert set(served) <= set(range(1, LAST_ROW + 1))
    assert {id for id, (_, rows) in ORIGINS.items() if not rows} == BEYOND
    assert all(list(rows) == sorted(set(rows)) for _, rows in ORIGINS.values())


@pytest.mark.parametrize("row", ELSEWHERE)
def test_a_row_without_a_rule_is_served_as_the_manual_says(row: int) -> None:
    page, words = ELSEWHERE[row]
    assert words in " ".join(docs.read(page).split())

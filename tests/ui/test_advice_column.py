"""The column of advice: the worst in full, the others in as many lines as there are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputop.diagnose import Evidence
from gputop.ui.advice import compact
from tests.advice_scenes import drawn, found, hot, update

WAITS = "waits for /data"


def below(lines: list[str], head: str) -> list[str]:
    """What stands below a headline, up to the next empty line."""
    at = next(number for number, line in enumerate(lines) if head in line) + 1
    return lines[at : lines.index("", at) if "" in lines[at:] else None]


@pytest.mark.parametrize("height", [44, 50, 56])
def test_what_has_no_room_for_all_of_it_still_says_why_and_what_to_do(height: int) -> None:
    lines = drawn(update(hot(), found(), found(rule="io-bound", headline=WAITS)), (200, height))
    assert any(line.strip() == "1 check the airflow" for line in lines), "the worst is told in full"
    for head in ("runs 256 compute threads", WAITS):
        said = "\n".join(below(lines, head))
        assert "GPU busy 58 %" in said
        assert "export OMP_NUM_THREADS=8" in said


def test_where_there_is_no_room_for_even_that_it_has_its_headline_and_cost() -> None:
    lines = drawn(replace(update(hot(), found(), found(rule="io-bound", headline=WAITS)), jobs=()), (200, 40))
    assert [line.strip() for line in below(lines, WAITS)] == ["42 % of GPU time lost · up to 1.7× faster if fixed"]


def test_a_number_keeps_its_limit_longer_than_what_is_said_after_it() -> None:
    item = Evidence(
        text="GPU busy 40 %, rising and falling every 1.3 s", value=40.2, unit="%", limit=80.0, sense="healthy_from"
    )
    shown = {room: "".join(run.text for run in compact.evidence(item, "…", room)) for room in (64, 40, 30)}
    assert shown == {
        64: "GPU busy 40 % (healthy ≥ 80 %), rising and falling every 1.3 s",
        40: "GPU busy 40 % (healthy ≥ 80 %)…",
        30: "GPU busy 40 %, rising and falling every 1.3 s",  # which the line then cuts
    }

"""The column of advice: the worst in full, the others in as many lines as there are."""

from __future__ import annotations

from dataclasses import replace

import pytest

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

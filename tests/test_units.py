"""Durations in a table and in a sentence, and numbers that no wrapping parts from their units."""

from __future__ import annotations

import pytest

from gputop import units
from gputop.ui.widgets.drawing import wrap


@pytest.mark.parametrize(
    ("seconds", "cell", "text"),
    [
        (None, "·", "·"), (0.00038, "380µs", "380 µs"), (0.0042, "4.2ms", "4.2 ms"), (0.045, "45ms", "45 ms"),
        (1.25, "1.25s", "1.25 s"), (45.2, "45.2s", "45.2 s"), (310, "310s", "310 s"),
    ],
)  # fmt: skip
def test_a_short_duration(seconds: float | None, cell: str, text: str) -> None:
    assert (units.took(seconds), units.took_text(seconds)) == (cell, text)


@pytest.mark.parametrize(
    ("seconds", "cell", "text"),
    [
        (None, "·", "·"), (0.4, "0s", "0 s"), (7, "7s", "7 s"), (60, "1m", "1 min"), (372, "6m 12s", "6 min 12 s"),
        (7860, "2h 11m", "2 h 11 min"), (273_600, "3d 4h", "3 d 4 h"),
    ],
)  # fmt: skip
def test_elapsed_time(seconds: float | None, cell: str, text: str) -> None:
    assert (units.ago(seconds), units.ago_text(seconds)) == (cell, text)


def test_elapsed_time_that_rarely_changes() -> None:
    assert [units.roughly(seconds) for seconds in (47, 372, 7860)] == ["40 s", "6 min", "2 h 10 min"]


@pytest.mark.parametrize(
    "number", ["57 %", "88 °C", "953 ms", "7 min 50 s", "2 h 11 min", "1.5 GB/s", "505 W", "≤ 1 %"]
)
def test_a_number_and_its_unit_stay_on_one_line(number: str) -> None:
    for width in range(len(number) + 1, 40):
        lines = wrap(f"one two three {number} of four five", width)
        assert any(number in line for line in lines), lines
        assert " ".join(lines) == f"one two three {number} of four five"

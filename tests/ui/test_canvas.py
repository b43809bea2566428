"""The canvas against a real terminal's rules: whatever is drawn, the difference leads there, and in few bytes."""

from __future__ import annotations

import re

import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style

from gputop.ui.terminal.canvas import Canvas

WIDTH, HEIGHT = 12, 3
STYLES = (
    None,
    Style(color="#ff0000", bgcolor="#10141a"),
    Style(color="#00ff00", bgcolor="#10141a"),
    Style(color="#00ff00", bgcolor="#1d2a3a", bold=True),
    Style(reverse=True),
    Style(bold=True),
    Style(dim=True),
)
TEXTS = st.text(alphabet=" ab─▇訓·é", max_size=8)
Draw = tuple[int, int, int, int, list[tuple[str, int]]]
DRAWS = st.lists(
    st.tuples(
        st.integers(0, WIDTH - 1), st.integers(0, HEIGHT - 1), st.integers(0, WIDTH), st.integers(0, WIDTH),
        st.lists(st.tuples(TEXTS, st.integers(0, len(STYLES) - 1)), max_size=4),
    ),
    max_size=12,
)  # fmt: skip


class Screen:
    """A terminal that is fed."""

    def __init__(self, width: int = WIDTH, height: int = HEIGHT) -> None:
        self.screen = pyte.Screen(width, height)
        self.stream = pyte.Stream(self.screen)
        self.screen.reset_mode(7)  # no line wrap, as the driver sets it

    def cells(self) -> list[list[tuple]]:
        return [[_cell(self.screen.buffer[y][x]) for x in range(self.screen.columns)] for y in range(self.screen.lines)]


def _cell(char: pyte.screens.Char) -> tuple:
    """What can be seen of a cell: of a blank only its ground."""
    ground = char.fg if char.reverse else char.bg
    if char.data == " ":
        return " ", ground, char.reverse
    return char.data, char.fg, char.bg, char.bold, char.reverse


def segments(texts: list[tuple[str, int]]) -> list[Segment]:
    return [Segment(text, STYLES[style]) for text, style in texts if text]


@settings(max_examples=200)
@given(st.lists(DRAWS, max_size=4))
def test_the_difference_leads_to_what_was_drawn(frames: list[list[Draw]]) -> None:
    kept, seen = Canvas(WIDTH, HEIGHT, ColorSystem.TRUECOLOR), Screen()
    drawn: list[Draw] = []
    for draws in frames:
        for x, y, start, end, texts in draws:
            kept.put(x, y, segments(texts), start, end)
        drawn += draws
        seen.stream.feed(kept.take())
    whole, fresh = Canvas(WIDTH, HEIGHT, ColorSystem.TRUECOLOR), Screen()
    for x, y, start, end, texts in drawn:
        whole.put(x, y, segments(texts), start, end)
    fresh.stream.feed(whole.take())
    lines = {y for _, y, *_ in drawn}
    for y in lines:
        assert seen.cells()[y] == fresh.cells()[y]


def line(canvas: Canvas, text: str, style: int = 1) -> str:
    canvas.put(0, 0, [Segment(text, STYLES[style])], 0, canvas.size[0])
    return canvas.take()


def test_nothing_that_is_there_is_written_again() -> None:
    canvas = Canvas(40, 1, ColorSystem.TRUECOLOR)
    assert "busy" in line(canvas, f"{'busy':40}")
    assert line(canvas, f"{'busy':40}") == ""
    assert line(canvas, f"{'bust':40}") == "\x1b[1;4H\x1b[38;2;255;0;0;48;2;16;20;26mt\x1b[0m"


def test_a_short_gap_is_written_and_a_long_one_jumped() -> None:
    canvas = Canvas(40, 1, ColorSystem.TRUECOLOR)
    line(canvas, f"{'0 123456 7':40}")
    assert line(canvas, f"{'9 123456 9':40}").count("H") == 2
    line(canvas, f"{'0 1 34':40}")
    assert "9 1 39" in line(canvas, f"{'9 1 39':40}")


def test_a_blank_needs_no_colour() -> None:
    canvas = Canvas(8, 1, ColorSystem.TRUECOLOR)
    line(canvas, "abcdefgh", style=1)
    canvas.put(0, 0, [Segment("a      ", STYLES[2])], 0, 8)
    out = canvas.take()
    assert re.findall(r"\x1b\[([\d;]+)m", out) == ["38;2;0;255;0;48;2;16;20;26", "0"]
    canvas.put(0, 0, [Segment("a      ", STYLES[1])], 1, 8)
    assert canvas.take() == "", "blanks of another colour look the same"


@pytest.mark.parametrize(
    ("system", "code"),
    [(ColorSystem.TRUECOLOR, "38;2;255;0;0"), (ColorSystem.EIGHT_BIT, "38;5;196"), (ColorSystem.STANDARD, "31")],
)
def test_colours_are_those_the_terminal_has(system: ColorSystem, code: str) -> None:
    assert f"\x1b[{code};" in line(Canvas(4, 1, system), "text")


def test_no_colour_is_written_without_colours() -> None:
    assert re.findall(r"\x1b\[([\d;]+)m", line(Canvas(4, 1, None), "text", style=3)) == ["1", "0"]


def test_what_lies_outside_is_left_out() -> None:
    canvas = Canvas(4, 1, ColorSystem.TRUECOLOR)
    canvas.put(-2, 0, [Segment("abcdefgh")], -2, 99)
    canvas.put(0, 7, [Segment("x")], 0, 4)
    assert canvas.take() == "\x1b[1;1Hcdef"

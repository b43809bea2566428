"""Lines, bars, sparklines and charts; glyphs of one cell, colours that can be read."""

from __future__ import annotations

import unicodedata
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from gputop.ui.theme import ASCII, DARK, LIGHT, PLAIN, TERMINAL, UNICODE, Glyphs, Look, Palette
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line, Run, span

LOOKS = [Look(), Look(LIGHT), Look(TERMINAL, ASCII), Look(PLAIN)]
TEXT = ("text", "bright", "dim", "busy", "memory", "good", "warn", "crit", "command", "owner")
GROUNDS = ("background", "raised", "selected")


def shown(runs: list[Run]) -> str:
    return "".join(run.text for run in runs)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("palette", [DARK, LIGHT], ids=lambda palette: palette.name)
@pytest.mark.parametrize("token", TEXT)
@pytest.mark.parametrize("ground", GROUNDS)
def test_text_can_be_read(palette: Palette, token: str, ground: str) -> None:
    bright, dark = sorted((luminance(getattr(palette, token)), luminance(getattr(palette, ground))), reverse=True)
    assert (bright + 0.05) / (dark + 0.05) >= 4.5


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=["unicode", "ascii"])
def test_every_glyph_is_one_cell_in_every_font(glyphs: Glyphs) -> None:
    for each in fields(Glyphs):
        for glyph in getattr(glyphs, each.name):
            assert cell_len(glyph) == 1
            assert unicodedata.east_asian_width(glyph) not in "WF"
            assert glyphs is UNICODE or glyph.isascii()


@pytest.mark.parametrize("look", LOOKS, ids=lambda look: look.palette.name)
def test_every_token_has_a_style_on_every_ground(look: Look) -> None:
    for token in (*TEXT, "faint", "track", "busy area", "memory area", "good area", "warn area", "crit area"):
        for ground in GROUNDS:
            style = look.style(token, on=ground)  # type: ignore[arg-type]
            assert look.palette is not PLAIN or (style.color is None and style.bgcolor is None)


@pytest.mark.parametrize(
    ("value", "top", "width", "bar"),
    [
        (0, 100, 4, "────"), (0.1, 100, 4, "▇───"), (50, 100, 4, "▇▇──"), (65, 100, 4, "▇▇▇─"), (100, 100, 4, "▇▇▇▇"),
        (250, 100, 4, "▇▇▇▇"), (-5, 100, 4, "────"), (None, 100, 4, "    "), (5, None, 4, "    "), (5, 0, 4, "    "),
        (5, 10, 0, ""), (5, 10, -1, ""),
    ],
)  # fmt: skip
def test_bar(value: float | None, top: float | None, width: int, bar: str) -> None:
    assert shown(drawing.bar(value, top, width, Look(PLAIN))) == bar


def test_bar_is_solid_on_its_track() -> None:
    assert drawing.bar(50, 100, 4, Look(), "memory") == [Run("▇▇", "memory"), Run("▇▇", "track")]
    assert shown(drawing.bar(50, 100, 4, Look(DARK, ASCII))) == "##.."


@pytest.mark.parametrize(
    ("values", "width", "unicode", "ascii"),
    [
        ([0, 15, 30, 50, 65, 80, 100], 7, "▁▂▃▄▅▆▇", "__.--^^"),
        ([50, None, 50], 3, "▄ ▄", "- -"),
        ([50], 4, "   ▄", "   -"),
        ([1, 2, 100, 100], 2, "▇▇", "^^"),
        ([400, -3], 2, "▇▁", "^_"),
        ([], 3, "   ", "   "),
        ([50], 0, "", ""),
    ],
)
def test_sparkline(values: list[float | None], width: int, unicode: str, ascii: str) -> None:
    assert drawing.sparkline(values, width, 100, Look()) == unicode
    assert drawing.sparkline(values, width, 100, Look(DARK, ASCII)) == ascii


def test_a_chart_stands_on_a_fixed_axis_with_gaps() -> None:
    rows = drawing.chart_lines([None, 0, 10, 50, 60, 100, 120, None], 9, 2, 100, Look())
    assert rows == ["     ▂██ ", "··▁▂████ "], "dots before the first value, nothing in a gap"
    assert drawing.chart_lines([50.0], 1, 0, 100, Look()) == []
    assert drawing.chart_lines([50.0], 0, 2, 100, Look()) == ["", ""]
    assert drawing.chart_lines([50.0], 2, 1, 0, Look()) == ["  "]


def test_a_history_says_how_long_it_is() -> None:
    assert span([1.0] * 36) == "last 36 s"
    assert span([None] * 24 + [1.0] * 12) == "since 12 s"
    assert span([None] * 60) == "last 1 min", "nothing is known of it"


@given(
    st.lists(st.none() | st.floats(-1e12, 1e12)), st.integers(0, 40), st.integers(0, 6),
    st.floats(0, 1e9, exclude_min=True),
)  # fmt: skip
def test_charts_fill_their_place_whatever_the_values(
    values: list[float | None], width: int, height: int, top: float
) -> None:
    rows = drawing.chart_lines(values, width, height, top, Look())
    assert [len(row) for row in rows] == [width] * height
    assert len(drawing.sparkline(values, width, top, Look())) == width
    assert sum(len(run.text) for run in drawing.bar(values[0] if values else None, top, width, Look())) == width


@pytest.mark.parametrize(
    ("text", "width", "cut"),
    [
        ("python", 6, "python"), ("python", 5, "pyth…"), ("python", 1, "…"), ("python", 0, ""), ("", 3, ""),
        ("数据集", 6, "数据集"), ("数据集", 5, "数据…"), ("数据集", 4, "数…"), ("a b c", 3, "a…"),
    ],
)  # fmt: skip
def test_cut(text: str, width: int, cut: str) -> None:
    assert drawing.cut(text, width) == cut


@given(st.text(), st.integers(0, 30))
def test_fitted_text_has_the_width(text: str, width: int) -> None:
    assert cell_len(drawing.fit(text, width)) == width
    assert cell_len(drawing.fit(text, width, right=True)) == width


@pytest.mark.parametrize(
    ("value", "top"), [(None, 1), (0, 1), (1.5, 2), (2.1, 5), (7, 10), (1.9e9, 2e9), (2e9, 2e9), (4.4e9, 5e9)]
)
def test_an_axis_moves_in_few_steps(value: float | None, top: float) -> None:
    assert drawing.ceiling(value) == top


def test_blanks_join_their_neighbours_so_that_runs_stay_few() -> None:
    line = Line(Look()).add("a").add("  ", "dim").add("  b", "dim").add("c", "dim").to(10).add("d", bold=True)
    strip = line.strip(12)
    assert [segment.text for segment in strip] == ["a    ", "bc   ", "d", " "]
    assert strip.cell_length == 12


@pytest.mark.parametrize("width", [0, 1, 2, 3, 5, 9, 30])
def test_a_line_has_the_width_it_is_given(width: int) -> None:
    line = (
        Line(Look(), on="raised").add("数据").add("ab", "warn", reverse=True).add("   ").add("end", "crit", bold=True)
    )
    assert line.strip(width).cell_length == cell_len(line.strip(width).text) == width


def test_ascii_takes_everything_else_away() -> None:
    line = Line(Look(PLAIN, ASCII)).add("64°C 8×H100 · 数据 cut… │─")
    assert line.strip(30).text.isascii()
    assert line.strip(30).text.startswith("64 C 8xH100 . ?? cut~ |-")


@pytest.mark.parametrize(
    ("width", "text"),
    [(24, "─ jobs ── tree · 3 jobs ─"[:24]), (12, "─ jobs ─────"), (4, "─ ja"[:4]), (0, "")],
)
def test_rule(width: int, text: str) -> None:
    strip = drawing.rule("jobs", width, Look(), right="tree · 3 jobs" if width > 20 else "")
    assert strip.cell_length == width
    if width > 5:
        assert strip.text.startswith("─ jobs ─")


def test_what_does_not_fit_is_cut_between_words_where_they_are_short() -> None:
    text = "see what holds the clock of GPU 2 down"
    assert [drawing.cut_words(text, width) for width in (38, 36, 33, 5)] == [
        text, "see what holds the clock of GPU 2…", "see what holds the clock of GPU…", "see…",
    ]  # fmt: skip
    assert drawing.cut_words("a " + "x" * 20, 12) == "a xxxxxxxxx…"
    assert drawing.cut_words("a 訓練訓練", 7) == "a 訓練…"

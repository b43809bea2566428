"""Drawing without a screen: lines of styled text, bars, sparklines, charts. Pure; every pane is made of these."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from textual.strip import Strip

from gputop import severity, units
from gputop.frozen_dataclass import frozen_dataclass
from gputop.safe.text import to_ascii
from gputop.severity import Levels
from gputop.ui.theme import ASCII, UNICODE, Ground, Look, Token

_TO_ASCII = str.maketrans(
    {getattr(UNICODE, name): getattr(ASCII, name) for name in ("unknown", "degree", "times", "more", "column", "rule")}
)


class Run(NamedTuple):
    """A piece of text with its meaning."""

    text: str
    token: Token = "text"
    bold: bool = False
    reverse: bool = False


class Line:
    """One line as it grows. Blanks join their left neighbour: few style runs are few bytes on a slow link."""

    __slots__ = ("_look", "_on", "_runs", "cells")

    def __init__(self, look: Look, on: Ground = "background") -> None:
        self._look = look
        self._on: Ground = on
        self._runs: list[list[object]] = []  # [text, token, bold, reverse]
        self.cells = 0

    def add(self, text: str, token: Token = "text", *, bold: bool = False, reverse: bool = False) -> Line:
        """Append text; in ASCII what it cannot show becomes `?`."""
        if not text:
            return self
        if not text.isascii() and self._look.glyphs is ASCII:
            text = to_ascii(text.translate(_TO_ASCII))
        self.cells += len(text) if text.isascii() else cell_len(text)
        last = self._runs[-1] if self._runs else None
        if last and not last[3] and not reverse:
            inked = text.lstrip(" ") if text[0] == " " else text
            if not inked or (last[1] == token and last[2] == bold):
                last[0] = f"{last[0]}{text}"
                return self
            if inked is not text:
                last[0] = f"{last[0]}{text[: len(text) - len(inked)]}"
                text = inked
        self._runs.append([text, token, bold, reverse])
        return self

    def runs(self, runs: Iterable[Run]) -> Line:
        """Append runs."""
        for run in runs:
            self.add(run.text, run.token, bold=run.bold, reverse=run.reverse)
        return self

    def to(self, column: int) -> Line:
        """Blanks up to a column; nothing where the line is past it."""
        return self.add(" " * (column - self.cells))

    def strip(self, width: int) -> Strip:
        """The line, cut or filled to a width."""
        ink, on = self._look.ink, self._on
        segments = [ink(text, token, on=on, bold=bold, reverse=reverse) for text, token, bold, reverse in self._runs]  # type: ignore[arg-type]
        if self.cells < width:
            segments.append(ink(" " * (width - self.cells), on=on))
        strip = Strip(segments, max(self.cells, width))
        return strip if self.cells <= width else strip.crop(0, max(0, width))


def blank(width: int, look: Look) -> Strip:
    """An empty line."""
    return Line(look).add(" " * width).strip(width)


def alarmed(text: str, value: float | None, levels: Levels, look: Look, token: Token = "text") -> list[Run]:
    """A value, with a sign and in amber or red where it has reached that level."""
    if not (reached := severity.level(value, levels)):
        return [Run(text, token)]
    sign = getattr(look.glyphs, reached)
    # blanks that align it make room for the sign
    return [Run(f"{sign}{text.lstrip()}".rjust(len(text)), reached, True)]


def cells(runs: Iterable[Run]) -> int:
    """Width of runs in cells."""
    return sum(cell_len(run.text) for run in runs)


def cut(text: str, width: int, more: str = "…") -> str:
    """Text in at most `width` cells; what does not fit ends in `…`. A wide character is never halved."""
    if len(text) <= width and text.isascii():
        return text
    if cell_len(text) <= width:
        return text
    return f"{set_cell_size(text, width - 1).rstrip(' ')}{more}" if width > 0 else ""


def cut_words(text: str, width: int, more: str = "…") -> str:
    """The same between two words, where that leaves the most of it."""
    short = cut(text, width, more)
    if short == text or text[len(short) - len(more) :].startswith(" "):
        return short
    whole = short.removesuffix(more).rpartition(" ")[0].rstrip(" ,:;")
    return f"{whole}{more}" if len(whole) * 2 > width else short


def tail(text: str, width: int, more: str = "…") -> str:
    """The end of a text in at most `width` cells; what is cut off before it is `…`."""
    if cell_len(text) <= width:
        return text
    cells = 1
    for start in range(len(text), 0, -1):
        cells += cell_len(text[start - 1])
        if cells > width:
            return f"{more}{text[start:]}" if width > 0 else ""
    return text


def fit(text: str, width: int, *, right: bool = False, more: str = "…") -> str:
    """Text in exactly `width` cells, cut or padded."""
    text = cut(text, width, more)
    pad = " " * (width - cell_len(text))
    return f"{pad}{text}" if right else f"{text}{pad}"


def wrap(text: str, width: int) -> list[str]:
    """Words in lines of at most `width` cells; a number and its unit are one word."""
    lines = [""]
    for word in units.unbroken(text).split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    return [*map(units.spaced, lines)]


def bar(value: float | None, top: float | None, width: int, look: Look, token: Token = "busy") -> list[Run]:
    """A solid bar on its track, in whole cells; something above zero is never invisible; blank when unknown."""
    if value is None or not top or width <= 0:
        return [Run(" " * max(0, width))]
    filled = round(_share(value, top) * width)
    filled = max(filled, 1) if value > 0 else filled
    return [Run(look.glyphs.bar * filled, token), Run(look.track * (width - filled), "track")]


def level(value: float | None, top: float, steps: str) -> str:
    """The glyph for a value on a fixed axis from 0 to `top`; a blank for a gap."""
    if value is None or not top > 0:
        return " "
    return steps[min(len(steps) - 1, int(_share(value, top) * len(steps)))]


def _share(value: float, top: float) -> float:
    return min(top, max(0.0, value)) / top


def sparkline(values: Sequence[float | None], width: int, top: float, look: Look) -> str:
    """The newest `width` values, newest at the right, on a fixed axis; gaps stay blank."""
    steps = look.glyphs.levels
    newest = values[-width:] if width > 0 else ()
    if not top > 0:
        return " " * max(0, width)
    count = len(steps)
    # `level` for each of them, without the price of a call: nothing is drawn more often
    glyphs = [
        " " if value is None else steps[min(count - 1, int(min(top, max(0.0, value)) / top * count))]
        for value in newest
    ]
    return "".join(glyphs).rjust(max(0, width))


def chart_lines(values: Sequence[float | None], width: int, height: int, top: float, look: Look) -> list[str]:
    """An area chart on a fixed axis, top row first; zero draws its lowest step, a gap nothing, and the time before the
    first value a line of dots."""
    steps, full = look.glyphs.levels, look.glyphs.full
    newest = [*([None] * (width - len(values))), *values[-width:]] if width > 0 else []
    before = next((place for place, value in enumerate(newest) if value is not None), len(newest))
    rows = []
    for row in range(height - 1, -1, -1):
        cells_of_row = []
        for value in newest:
            level_here = -1.0 if value is None or not top > 0 else _share(value, top) * height - row
            if level_here >= 1:
                cells_of_row.append(full)
            elif level_here > 0 or (row == 0 and level_here == 0):
                cells_of_row.append(level(level_here, 1.0, steps))
            else:
                cells_of_row.append(" ")
        rows.append("".join(cells_of_row))
    if rows and before and top > 0:
        rows[-1] = f"{look.glyphs.unknown * before}{rows[-1][before:]}"
    return rows


def ceiling(value: float | None, least: float = 1.0) -> float:
    """The next 1, 2 or 5 times a power of ten: a chart's top that moves seldom."""
    if value is None or value <= least:
        return least
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value * 0.999)


def rule(
    title: str, width: int, look: Look, *, right: str | Sequence[Run] = "", mark: str = "", way: Sequence[Run] = ()
) -> Strip:
    """A pane's first line: `─ title ─ mark · way ───── right ─`; the mark is what must not be overlooked.

    A text at the right is cut, runs are not; the way back from what is marked is there where it takes nothing away.
    """
    glyph = look.glyphs.rule
    title = cut(title, max(0, width - 4))
    line = Line(look).add(f"{glyph} ", "faint").add(title, "text", bold=True).add(" ")
    if mark:
        line.add(f"{glyph} ", "faint").add(cut(mark, max(0, width - line.cells - 8)), "busy", bold=True).add(" ")
        taken = len(right) + 5 if isinstance(right, str) else cells(right) + 5
        if way and line.cells + cells(way) + 3 + taken <= width:
            line.add(f"{look.glyphs.dot} ", "dim").runs(way).add(" ")
    if isinstance(right, str):
        right = [Run(right, "dim")] if (right := cut(right, max(0, width - line.cells - 5))) else []
    fill = width - line.cells - (cells(right) + 2 if right else 0)
    line.add(glyph * max(0, fill - bool(right)), "faint")
    if right:
        line.add(" ").runs(right).add(" ").add(glyph, "faint")
    return line.strip(width)


_GAP = 3  # cells between two charts


@frozen_dataclass(frozen=True, slots=True)
class Chart:
    """One chart: its title, what is said beside it, its values and its fixed top."""

    title: str
    said: str
    values: Sequence[float | None]
    top: float
    token: Token
    value: str = ""  # what it is now: the first thing to read
    tone: Token = "bright"  # of that value
    marks: Sequence[AxisMark] = ()  # on its top line


class AxisMark(NamedTuple):
    """An event: seconds ago, and what is written there: the first text that has room."""

    ago_s: float
    texts: Sequence[str]
    token: Token


def room(width: int, count: int) -> int:
    """How many values each of a number of charts shows."""
    return max(1, (width - 2) // max(1, count) - _GAP)


def beside(charts: Sequence[Chart], width: int, tall: int, look: Look, *, stale: bool = False) -> list[Strip]:
    """A line of titles, and the charts in `tall` lines below it."""
    each = (width - 2) // max(1, len(charts))
    titles = Line(look)
    for x, chart in enumerate(charts):
        titles.to(1 + x * each).add(chart.title, "text").add("  ")
        if chart.value:
            titles.add(chart.value, chart.tone, bold=chart.tone != "bright").add("  ")
        titles.add(cut(chart.said, max(0, 1 + (x + 1) * each - titles.cells - 1)), "dim")
    strips = [titles.strip(width)]
    drawn = [chart_lines(chart.values, each - _GAP, tall, chart.top, look) for chart in charts]
    for y in range(tall):
        line = Line(look)
        for x, chart in enumerate(charts):
            token: Token = "dim" if stale else chart.token
            line.to(1 + x * each)
            if chart.marks and not y:
                line.runs(_marked(drawn[x][y], token, chart.marks))
            else:
                line.add(drawn[x][y], token)
        strips.append(line.strip(width))
    return strips


def _marked(text: str, token: Token, marks: Sequence[AxisMark]) -> Iterator[Run]:
    """A line of a chart with what happened at its times, a second a cell."""
    cells: list[tuple[str, Token]] = [(cell, token) for cell in text]
    ordered = sorted(marks, key=lambda mark: -mark.ago_s)
    starts = [len(cells) - 1 - round(mark.ago_s) for mark in ordered]
    for mark, start, after in zip(ordered, starts, (*starts[1:], len(cells)), strict=False):
        if 0 <= start < len(cells):
            said = next((said for said in mark.texts if len(said) <= after - start), mark.texts[-1][: after - start])
            # a name may be anything: what is not one cell wide would move all that follows
            shown = "".join(each if cell_len(each) == 1 else "?" for each in said)
            cells[start : start + len(shown)] = [(cell, mark.token) for cell in shown]
    for of, run in groupby(cells, key=itemgetter(1)):
        yield Run("".join(cell for cell, _ in run), of)


def span(values: Sequence[float | None]) -> str:
    """The time that a history of a value a second shows: `last 36 s`, or `since 12 s` while it is younger."""
    before = next((place for place, value in enumerate(values) if value is not None), 0)
    if before:
        return f"since {units.ago_text(len(values) - before)}"
    number, unit, *_ = units.ago_text(len(values)).split()
    return f"last {number} {unit}"


def most(values: Sequence[float | None]) -> float | None:
    """The highest of what is known."""
    return max((value for value in values if value is not None), default=None)

"""Charts side by side, each under its title."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from rich.cells import cell_len
from textual.strip import Strip

from gputop import units
from gputop.frozen_dataclass import frozen_dataclass
from gputop.ui import draw
from gputop.ui.draw import Line, Run
from gputop.ui.look import Look, Token

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
    marks: Sequence[Mark] = ()  # on its top line


class Mark(NamedTuple):
    """Something that happened: so many seconds ago, and what is written there: the first text that has room."""

    ago_s: float
    texts: Sequence[str]
    token: Token


def room(width: int, count: int) -> int:
    """How many values each of so many charts shows."""
    return max(1, (width - 2) // max(1, count) - _GAP)


def beside(charts: Sequence[Chart], width: int, tall: int, look: Look, *, stale: bool = False) -> list[Strip]:
    """A line of titles, and the charts in `tall` lines below it."""
    each = (width - 2) // max(1, len(charts))
    titles = Line(look)
    for x, chart in enumerate(charts):
        titles.to(1 + x * each).add(chart.title, "text").add("  ")
        if chart.value:
            titles.add(chart.value, chart.tone, bold=chart.tone != "bright").add("  ")
        titles.add(draw.cut(chart.said, max(0, 1 + (x + 1) * each - titles.cells - 1)), "dim")
    strips = [titles.strip(width)]
    drawn = [draw.chart(chart.values, each - _GAP, tall, chart.top, look) for chart in charts]
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


def _marked(text: str, token: Token, marks: Sequence[Mark]) -> Iterator[Run]:
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
    """The time that a history of a value a second shows: `last 36s`, or `since 12s` while it is younger."""
    before = next((place for place, value in enumerate(values) if value is not None), 0)
    return f"since {units.ago(len(values) - before)}" if before else f"last {units.ago(len(values)).split()[0]}"


def most(values: Sequence[float | None]) -> float | None:
    """The highest of what is known."""
    return max((value for value in values if value is not None), default=None)

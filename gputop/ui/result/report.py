"""A page of words and tables as lines of the screen: what `gputop explain` prints."""

from __future__ import annotations

from collections.abc import Iterator

from gputop.report import Do, Page, ReportTable
from gputop.ui.result.verdicts import badge
from gputop.ui.theme import Look
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Run, wrap
from gputop.ui.widgets.tabs import Body, ListTab, text_entry

_INDENT = 11
_PROSE = 110  # cells: longer lines are hard to read


def lines(page: Page, width: int, look: Look) -> Iterator[list[Run]]:
    """The page, a list of runs a line."""
    prose = max(20, min(width - 2, _PROSE))
    yield [Run(page.title, "bright", True)]
    yield from ([Run(part, "dim")] for part in (wrap(page.about, prose) if page.about else ()))
    yield []
    yield from ([Run(part)] for sentence in page.words for part in wrap(sentence, prose))
    for point in page.points:
        head = badge(point.severity, look)
        for place, part in enumerate(wrap(point.text, prose - _INDENT)):
            first = [*head, Run(" " * (_INDENT - drawing.cells(head)))] if place == 0 else [Run(" " * _INDENT)]
            yield [*first, Run(part, "bright", True)]
        facts = " · ".join(point.facts) + (f"  ({point.source})" if point.source else "")
        yield from ([Run(" " * _INDENT), Run(part, "text")] for part in (wrap(facts, prose - _INDENT) if facts else ()))
        for step in point.steps:
            for place, part in enumerate(wrap(step if isinstance(step, str) else step.text, prose - _INDENT - 2)):
                yield [Run(" " * (_INDENT + (2 if place else 0))), Run("" if place else "→ ", "dim"), Run(part, "text")]
            if isinstance(step, Do):
                yield [Run(" " * (_INDENT + 2)), Run(step.command, "command")]
    for table in page.tables:
        yield []
        yield from _table(table, width, look)
    for note in page.notes:
        yield from ([Run(part, "dim")] for part in wrap(f"Note: {note}", prose))


def _table(table: ReportTable, width: int, look: Look) -> Iterator[list[Run]]:
    rest = [max(map(len, column)) for column in zip(table.head, *table.rows, strict=True)][1:]
    room = max(12, width - 4 - sum(rest) - 2 * len(rest))
    name = min(room, max(len(row[0]) for row in (*table.rows, (table.title,))) + 2)
    for place, row in enumerate(((table.title, *table.head[1:]), *table.rows)):
        first = drawing.fit(row[0] if place == 0 else f"  {row[0]}", name, more=look.glyphs.more)
        cells = "".join(f"  {cell:>{size}}" for cell, size in zip(row[1:], rest, strict=True))
        yield [Run(first, "text", place == 0), Run(cells, "dim" if place == 0 else "text")]


class ReportTab(ListTab):
    """The page, to scroll."""

    cursor = False

    def __init__(self, page: Page, title: str = "Report", id: str = "report") -> None:
        self.id, self.title, self.report = id, title, page

    def body(self, width: int, look: Look) -> Body:
        """All of it."""
        found = lines(self.report, width, look)
        return Body([text_entry(place, runs, width, look) for place, runs in enumerate(found)])

"""A report page: text first, then tables; rendered as text or Markdown."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

from gputop import units
from gputop.frozen_dataclass import frozen_dataclass
from gputop.safe.text import to_ascii

WIDTH = 100
_LONGEST = 58  # characters of the first cell of a row, as text
_SIGNS = {"crit": "▲ CRIT", "warn": "! WARN", "info": "- INFO", "fine": "- OK"}
_ACTIVE = re.compile(r"([\\`*_\[\]<>|#&~!])")  # characters that Markdown interprets
_LINKS = re.compile(r"@|(?<=\w):(?=//)|(?<=\bwww)\.", re.IGNORECASE)  # forges turn these into mentions and links


class Do(NamedTuple):
    """A step with a command or a line of code, to be copied verbatim."""

    text: str
    command: str


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One item: severity, the numbers it rests on, what to do about it."""

    severity: Literal["crit", "warn", "info", "fine"]
    text: str
    facts: tuple[str, ...] = ()
    steps: tuple[str | Do, ...] = ()
    source: str = ""  # the rule it comes from
    choice: str = ""  # why gputop differs from other advice, in Markdown only
    reading: tuple[tuple[str, str], ...] = ()  # external pages: title and address, in Markdown only


@frozen_dataclass(frozen=True, slots=True)
class ReportTable:
    """A table: the first column is a name, the others are short; `spoken`: a single further column of text."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    spoken: bool = False


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The contents of a report."""

    title: str
    about: str = ""
    before: tuple[ReportTable, ...] = ()  # above all text
    drawing: tuple[str, ...] = ()  # character graphics, below those
    heading: str = "Findings"  # above text and items
    words: tuple[str, ...] = ()  # complete sentences
    points: tuple[Point, ...] = ()
    tables: tuple[ReportTable, ...] = ()
    notes: tuple[str, ...] = ()


def text(page: Page, *, ascii: bool = False) -> str:
    """The page for a terminal, 100 columns wide; with `ascii` in ASCII only."""
    made = "\n".join(_text(page)) + "\n"
    if not ascii:
        return made
    return to_ascii(made.replace("▲ CRIT", "!! CRIT").replace("→", "->"))


def markdown(page: Page) -> str:
    """The page as Markdown, for an issue; names are escaped."""
    return "\n".join(_markdown(page)) + "\n"


FORMATS: dict[str, Callable[[Page], str]] = {"text": text, "md": markdown}


def _text(page: Page) -> Iterator[str]:
    yield page.title
    if page.about:
        yield from _wrapped(page.about, "")
    for table in page.before:
        yield from ("", *(_said(table) if table.spoken else _aligned(table)))
    if page.drawing:
        yield from ("", *page.drawing)
    if page.words or page.points:
        yield ""
        yield page.heading
    for words in page.words:
        yield from _wrapped(words, "  ")
    for point in page.points:
        yield from _wrapped(f"  {_SIGNS[point.severity]}  {point.text}", " " * 10)
        if point.facts:
            facts = " · ".join(point.facts) + (f"  ({point.source})" if point.source else "")
            yield from _wrapped(" " * 10 + facts, " " * 10)
        for step in point.steps:
            yield from _wrapped(" " * 10 + f"→ {step if isinstance(step, str) else step.text}", " " * 12)
            if isinstance(step, Do):
                yield " " * 12 + step.command  # unwrapped at any width: it is copied
    for table in page.tables:
        yield ""
        yield from _said(table) if table.spoken else _aligned(table)
    if page.notes:
        yield ""
        for note in page.notes:
            yield from _wrapped(f"Note: {note}", "  ")


def _wrapped(line: str, rest: str) -> list[str]:
    first = line[: len(line) - len(line.lstrip())] or rest
    lines = textwrap.wrap(
        units.unbroken(line.strip()), WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False
    )
    return [*map(units.spaced, lines)] or [""]


def _aligned(table: ReportTable) -> Iterator[str]:
    rows = [(row[0] if len(row[0]) <= _LONGEST else row[0][: _LONGEST - 1] + "…", *row[1:]) for row in table.rows]
    widths = [max(map(len, column)) for column in zip(table.head, *rows, strict=True)]
    name = max(widths[0], len(table.title))
    for cells in ((table.title, *table.head[1:]), *(("  " + row[0], *row[1:]) for row in rows)):
        numbers = "  ".join(cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))
        yield f"{cells[0]:{name + 2}}  {numbers}".rstrip()


def _said(table: ReportTable) -> Iterator[str]:
    """Each row begins with its name; its texts are below each other."""
    yield table.title
    name = max((len(row[0]) for row in table.rows), default=0)
    for first, words in table.rows:
        yield from _wrapped(f"  {first:{name}}  {words}", " " * (name + 4))


def _escaped(words: str) -> str:
    return _LINKS.sub(lambda found: f"&#{ord(found[0])};", _ACTIVE.sub(r"\\\1", words))


def _code(words: str) -> str:
    """As code, whatever it contains."""
    fence = "`" * (1 + max(map(len, re.findall("`+", words)), default=0))
    return f"{fence} {words} {fence}" if words[:1] == "`" or words[-1:] == "`" else f"{fence}{words}{fence}"


def _markdown(page: Page) -> Iterator[str]:
    yield f"# {_escaped(page.title)}"
    if page.about:
        yield from ("", _escaped(page.about))
    yield from _tables(page.before)
    if page.drawing:
        yield from ("", "```", *page.drawing, "```")
    if page.words or page.points:
        yield from ("", f"## {page.heading}", "")
    if page.words:
        yield from (_escaped(" ".join(page.words)), "")
    for point in page.points:
        yield f"* **{_SIGNS[point.severity]}** {_escaped(point.text)}"
        if point.facts:
            yield f"  {_escaped('; '.join(point.facts))}{f' ({point.source})' if point.source else ''}"
        for step in point.steps:
            yield (
                f"  * {_escaped(step)}"
                if isinstance(step, str)
                else f"  * {_escaped(step.text)}: {_code(step.command)}"
            )
        if point.choice:
            yield f"  * where the advice comes from: {_escaped(point.choice)}"
        if point.reading:
            yield f"  * read: {', '.join(f'[{_escaped(title)}]({address})' for title, address in point.reading)}"
    yield from _tables(page.tables)
    if page.notes:
        yield ""
        for note in page.notes:
            yield f"Note: {_escaped(note)}"


def _tables(tables: Sequence[ReportTable]) -> Iterator[str]:
    for table in tables:
        yield from ("", f"## {_escaped(table.title)}", "")
        yield f"| {' | '.join(map(_escaped, table.head))} |"
        yield f"| --- |{(' --- |' if table.spoken else ' ---: |') * (len(table.head) - 1)}"
        for row in table.rows:
            yield f"| {' | '.join(map(_escaped, row))} |"

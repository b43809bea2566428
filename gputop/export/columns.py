"""Rows of text in columns: as wide as their longest text, as many as fit."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from gputop.declare import record

_GAP = "  "


@record(frozen=True, slots=True)
class Column:
    """A column's title, its side, and how long it stays when room runs out: 0 for ever, then the highest goes first."""

    title: str
    right: bool = True
    yields: int = 0


def cells(text: str) -> int:
    """How many terminal cells a text takes."""
    if text.isascii():
        return len(text)
    return sum(_cells(ch) for ch in text)


def cut(text: str, width: int) -> str:
    """The text in at most that many cells, its end marked where something is left out."""
    if cells(text) <= width:
        return text
    room, kept = max(0, width - 1), []
    for ch in text:
        room -= _cells(ch)
        if room < 0:
            break
        kept.append(ch)
    return "".join(kept) + "…" if width > 0 else ""


def layout(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int, last: int = 20) -> list[str]:
    """Lines of at most `width` cells, titles first; the last column keeps at least `last` of them and is cut.

    A column in which nothing stands is not shown.
    """
    chosen = [i for i in range(len(columns)) if any(row[i] for row in rows)]
    sizes = [max(cells(text) for text in (column.title, *(row[i] for row in rows))) for i, column in enumerate(columns)]

    def used() -> int:
        return sum(sizes[i] + len(_GAP) for i in chosen[:-1])

    for i in sorted(chosen, key=lambda i: -columns[i].yields):
        if columns[i].yields and used() > width - min(last, sizes[chosen[-1]]):
            chosen.remove(i)
    room = max(1, width - used())
    return [_line(columns, chosen, sizes, row, room) for row in ([column.title for column in columns], *rows)]


def _line(columns: Sequence[Column], chosen: list[int], sizes: list[int], row: Sequence[str], room: int) -> str:
    parts = []
    for i in chosen[:-1]:
        blank = " " * (sizes[i] - cells(row[i]))
        parts.append(blank + row[i] if columns[i].right else row[i] + blank)
    return _GAP.join((*parts, cut(row[chosen[-1]], room))).rstrip()


def _cells(ch: str) -> int:
    if unicodedata.combining(ch) or unicodedata.category(ch) == "Me":
        return 0
    return 2 if unicodedata.east_asian_width(ch) in "WF" else 1

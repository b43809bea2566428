"""What to write where, and the sequences for it in the order that costs the fewest bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import compress
from operator import ne
from typing import NamedTuple

from gputop.ui.pens import Pens

Row = tuple[str, str]  # the characters of a line, and their pens
Place = tuple[int, int]  # line and column from 0

_BRIDGE = 5  # a move over more cells is never dearer than writing them again


class Span(NamedTuple):
    """Text of one look."""

    pen: str
    y: int
    x: int
    text: str


def spans(y: int, shown: Row, wanted: Row, pens: Pens) -> Iterator[Span]:
    """What brings one line from what it shows to what it should show, left to right."""
    text, inks = wanted
    pen, start, end = "", 0, 0
    for x in _differing(shown, wanted, pens):
        ink = inks[x]
        if x != end or ink != pen:
            if text[x] == " ":
                ink = pens.blank(ink)
            joined = pen if x == end else _bridge(pen, text[end:x], inks[end:x], pens)
            joined = joined and pens.join(joined, ink)
            if not joined:
                if pen:
                    yield Span(pen, y, start, text[start:end])
                start = x
            pen = joined or ink
        end = x + 1
    if pen:
        yield Span(pen, y, start, text[start:end])


def _bridge(pen: str, gap: str, inks: str, pens: Pens) -> str:
    """A pen for what was written and the unchanged cells after it, if they are cheaper than a move over them."""
    if not pen or len(gap) > _BRIDGE or len(gap.encode()) > len(_right(len(gap))):
        return ""
    for char, ink in zip(gap, inks, strict=True):
        pen = pen and pens.join(pen, pens.blank(ink) if char == " " else ink)
    return pen


def _differing(shown: Row, wanted: Row, pens: Pens) -> list[int]:
    """The columns whose cells differ in what can be seen."""
    columns = range(len(wanted[0]))
    found = list(compress(columns, map(ne, shown[0], wanted[0])))
    if shown[1] != wanted[1]:
        blank, text = pens.blank, wanted[0]
        known = set(found)
        found += [
            x
            for x in compress(columns, map(ne, shown[1], wanted[1]))
            if x not in known and (text[x] != " " or blank(shown[1][x]) != blank(wanted[1][x]))
        ]
        found.sort()
    return found


def written(parts: Iterable[Span], at: Place | None, pen: str, pens: Pens) -> tuple[str, Place | None, str]:
    """The sequences that write these, and the terminal's cursor and pen after them."""
    out: list[str] = []
    for wanted, y, x, text in parts:
        out.append(move(at, (y, x)))
        if wanted != pen:
            sequence, pen = pens.step(pen, wanted)
            out.append(sequence)
        out.append(text)
        at = y, x + len(text)
    return "".join(out), at, pen


def move(at: Place | None, to: Place) -> str:
    """The shortest sequence that moves the cursor."""
    if at == to:
        return ""
    if at is not None and at[0] == to[0] and at[1] < to[1]:
        return _right(to[1] - at[1])
    return f"\x1b[{to[0] + 1};{to[1] + 1}H"


def _right(columns: int) -> str:
    return f"\x1b[{columns}C" if columns > 1 else "\x1b[C"

"""The tail of a training log: its errors that have a known cause, the first of them first."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from gputop.page import Point, Table
from gputop.paste import log_memory, log_nan, log_ranks, log_workers
from gputop.paste.pasted import Kind, Pasted, lines
from gputop.safe.text import clean

_MOST_LINES = 200_000
_STACK = re.compile(r".*;.* \d{1,15}$")  # a line of collapsed stacks, whatever its names are
_FRAME = re.compile(r'\s*File "([^"\n]{1,300})", line (\d{1,7}), in (\S{1,80})')
_LIBRARY = re.compile(r"site-packages|dist-packages|/lib/python\d|<frozen|<string>|/torch/")
_STEP = re.compile(r"\b(?:step|iter(?:ation)?|global_step|it)\b['\"]?[\s:=#\[]{0,4}(\d{1,9})", re.IGNORECASE)
_MOST_FRAMES = 300  # lines of one traceback
_QUOTED = 160  # characters of a line that are quoted


class Trouble(NamedTuple):
    """One trouble of a log: the line where it begins, what is said of it, its numbers."""

    line: int
    name: str
    point: Point
    numbers: dict[str, Any]


Finder = Callable[[Sequence[str]], Iterator[Trouble]]


def _finders() -> tuple[Callable[[Sequence[str]], Iterator[tuple[int, str, Point, dict[str, Any]]]], ...]:
    return (log_memory.find, log_ranks.find, log_nan.find, log_workers.find)


def looks_like(text: str) -> bool:
    """Whether there is a known error in it."""
    return next(_troubles(_lines(text)), None) is not None


def _lines(text: str) -> list[str]:
    return [line for line in lines(text)[-_MOST_LINES:] if not _STACK.match(line)]


def _troubles(text: Sequence[str]) -> Iterator[Trouble]:
    for find in _finders():
        for found in find(text):
            yield Trouble(*found)


def read(text: str) -> Pasted:
    """What such a log says: one point for each kind of trouble, in the order of their first lines."""
    log = _lines(text)
    found = sorted(_troubles(log), key=lambda trouble: trouble.line)
    where = _where(log, found[0].line if found else 0)
    lines = sum(1 for line in log if line.strip())
    return Pasted(
        kind="log",
        about=f"The tail of a log: {lines} {'line' if lines == 1 else 'lines'}",
        problems=("It ends within a traceback: the error itself is missing.",) if _unfinished(log) else (),
        words=tuple(_words(log, found, where)),
        points=tuple(trouble.point for trouble in found),
        tables=(
            Table(
                "Where it is in the log",
                ("trouble", "line"),
                tuple((trouble.name, f"{trouble.line + 1}: {_quote(log[trouble.line])}") for trouble in found),
                True,
            ),
        ),
        notes=("a log has no times of the GPU: take gputop diagnose or a trace for why a step is slow",),
        numbers={
            "troubles": [{"name": one.name, "line": one.line + 1, **one.numbers} for one in found],
            "raised_at": where,
        },
    )


def _unfinished(log: Sequence[str]) -> bool:
    """Whether the last traceback has no error below it."""
    filled = [line for line in log[-_MOST_FRAMES:] if line.strip()]
    start = max((at for at, line in enumerate(filled) if line.startswith("Traceback (most")), default=None)
    return start is not None and all(line.startswith(" ") for line in filled[start + 1 :])


def _words(log: Sequence[str], found: Sequence[Trouble], where: str | None) -> Iterator[str]:
    if len(found) > 1:
        yield f"The first error is usually the cause of those after it: {found[0].name}."
    if where:
        yield f"Your own code is at {where} there."
    steps = [match[1] for line in log[: found[0].line + 1] if (match := _STEP.search(line))] if found else []
    if steps:
        yield f"The last step named before it is {steps[-1]}."


def _where(log: Sequence[str], line: int) -> str | None:
    """The innermost frame of the program's own code in the traceback around an error."""
    place = None
    for text in log[max(0, line - 120) : line + 1]:
        if text.startswith("Traceback"):
            place = None
        if (match := _FRAME.match(text)) and not _LIBRARY.search(match[1]):
            place = clean(f"{match[1].rpartition('/')[2]}:{match[2]} ({match[3]})", 160)
    return place


def _quote(line: str) -> str:
    return clean(" ".join(line.split()), _QUOTED)


KIND = Kind("log", "the tail of a log with a known error", looks_like, read)

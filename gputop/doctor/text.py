"""The report as text: groups, a word for each status, lines of at most 80 columns; commands are never broken."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from gputop import __version__
from gputop.doctor.check import GROUPS, STATUSES, Line, Status
from gputop.doctor.report import Report, Result
from gputop.safe.text import to_ascii

WIDTH = 80
_WORDS: dict[Status, str] = {"ok": "ok", "limited": "--", "missing": "!!", "unknown": "??"}


def render(report: Report, *, ascii: bool = False) -> str:
    """All of it, without colour."""
    text = "\n".join(_all(report)) + "\n"
    return to_ascii(text) if ascii else text


def _all(report: Report) -> Iterator[str]:
    about = f", about process {report.pid}" if report.pid is not None else ""
    yield f"gputop {__version__} on {report.host}{about}"
    width = max((len(result.check.name) for result in report.results), default=0)
    for group, title in GROUPS.items():
        if results := [result for result in report.results if result.check.group == group and result.lines]:
            yield ""
            yield title
            for result in results:
                yield from _result(result, width)
    yield ""
    yield "  ".join(f"{_WORDS[status]} {meaning}" for status, meaning in STATUSES.items()) + "  $ unlocks it"


def _result(result: Result, width: int) -> Iterator[str]:
    name = result.check.name
    for line in result.lines:
        yield from _line(line, name, width)
        name = ""


def _line(line: Line, name: str, width: int) -> Iterator[str]:
    first = f"  {_WORDS[line.status]}  {name:{width}}  "
    rest = " " * len(first)
    yield from textwrap.wrap(
        line.what, WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False
    ) or [first.rstrip()]
    if line.unlock:
        # a long command begins further left: one that is broken cannot be copied
        indent = rest if len(rest) + 2 + len(line.unlock) <= WIDTH else " " * 6
        yield f"{indent}$ {line.unlock}"

"""The result for a pasted text: its report and JSON object; and preparation of the text as plain lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from gputop.frozen_dataclass import frozen_dataclass
from gputop.report import Page, Point, ReportTable
from gputop.thresholds import Thresholds, shipped


class LimitTable:
    """A table of limits: `limits["dip"]`."""

    def __init__(self, table: str) -> None:
        self._table = table

    def __getitem__(self, name: str) -> float:
        return _tables()[self._table][name]


def adopt(site: Thresholds | None) -> None:
    """Use a site's limits from here on, with ours as defaults."""
    _site.clear()
    if site is not None:
        _site.append(site)


_site: list[Thresholds] = []
_shipped = cache(shipped)


def _tables() -> Thresholds:
    return _site[0] if _site else _shipped()


LONGEST_LINE = 4000  # characters read of a line
LONGEST_NAME = 120  # characters shown of a name

_COLOURS = re.compile(r"\x1b\[[0-9;?]{0,32}[@-~]")
_RANK = re.compile(r"\[(?:rank|default)?\d{1,5}\]:(?: |$)")  # torchrun's prefix of each line of a rank
_ORDER = ("crit", "warn", "info", "fine")
_TORCH = re.compile(r"(?:torch|pytorch)(?:[ _-]?version)?['\"]?[ :=v-]{1,4}(\d\.\d{1,2})", re.IGNORECASE)
_FENCE = re.compile(r"\s*```\w*\s*$")


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Pasted:
    """The report on one pasted text. `problems`: parts that were not read, shown first."""

    kind: str
    about: str
    problems: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    points: tuple[Point, ...] = ()
    tables: tuple[ReportTable, ...] = ()
    notes: tuple[str, ...] = ()
    numbers: Mapping[str, Any]

    def with_problems(self, problems: tuple[str, ...]) -> Pasted:
        """The same for a file that was not read completely."""
        return replace(self, problems=(*problems, *self.problems))

    def page(self, name: str) -> Page:
        """The page; `name` is the file's."""
        return Page(
            title=name,
            about=self.about,
            words=(*self.problems, *self.words),
            points=self.points,
            tables=tuple(table for table in self.tables if table.rows),
            notes=self.notes,
        )

    def as_json(self, name: str) -> dict[str, Any]:
        """The same as one object, with its numbers."""
        findings = [
            {
                "severity": "info" if point.severity == "fine" else point.severity,
                "healthy": point.severity == "fine",
                "headline": point.text,
                "evidence": [{"text": fact} for fact in point.facts],
                "steps": [
                    {"text": step, "command": None}
                    if isinstance(step, str)
                    else {"text": step.text, "command": step.command}
                    for step in point.steps
                ],
            }
            for point in self.points
        ]
        head = {"kind": self.kind, "file": name, "problems": list(self.problems), "findings": findings}
        return {**head, **self.numbers, "notes": list(self.notes)}


@frozen_dataclass(frozen=True, slots=True)
class TextKind:
    """One kind of text: display name, detection, and parser."""

    name: str
    called: str
    looks_like: Callable[[str], bool]
    read: Callable[[str], Pasted]


def lines(text: str) -> list[str]:
    """The lines of a text without colours, Markdown fences and torchrun's rank prefix."""
    found = []
    for raw in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):  # a progress bar rewrites its line
        line = _COLOURS.sub("", raw[:LONGEST_LINE]).replace("\xa0", " ").replace("\ufeff", "")
        line = _RANK.sub("", line, count=1) if line[:1] == "[" else line
        if not _FENCE.match(line):
            found.append(line)
    return found


def by_severity(points: Iterable[Point]) -> tuple[Point, ...]:
    """The worst first, otherwise in order; nothing is called fine beside a critical item."""
    found = sorted(points, key=lambda point: _ORDER.index(point.severity))
    crit = any(point.severity == "crit" for point in found)
    return tuple(point for point in found if not (crit and point.severity == "fine"))


def number(text: str) -> float | None:
    """A finite decimal number, whatever surrounds it; None if there is none."""
    found = re.match(r"\s*(-?\d{1,18}(?:\.\d{1,18})?)(?![\d.])", text)
    return float(found[1]) if found else None


def median(values: Iterable[float]) -> float | None:
    """The median; None if empty."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else None


def torch_version(text: Iterable[str]) -> str | None:
    """The torch version named in some lines, as 2.9."""
    return next((match[1] for line in text if (match := _TORCH.search(line))), None)

"""Every string a person may read, by kind: `python -m tests.visible_strings [KIND]` prints them with their places.

A string is visible if it reads like prose, is not a docstring, and is not matched against something: patterns,
formats of input and keys of data are not. What it is shown as is told by the call that it stands in.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "gputop/docs").glob("*.md")))
# callables by what their texts are shown as
KINDS = {
    "found": "headline", "healthy": "headline", "Evidence": "evidence", "Step": "step", "rule": "question",
    "TraceVerdict": "trace verdict", "VerdictNumber": "trace verdict", "Point": "report",
    "Column": "column", "GridColumn": "column", "GpuField": "column", "Command": "key", "CliCommand": "cli help",
    "add_argument": "cli help", "Setting": "setting", "metric": "metric", "Note": "note", "CheckLine": "doctor",
    "Failure": "error", "Refused": "error", "Refusal": "error", "Barred": "error", "NoAgent": "error",
    "AgentLost": "error", "ValueError": "error", "Missing": "missing", "Abstained": "missing",
    "Scenario": "scenario", "say": "message", "State": "label", "RankState": "label", "Measure": "column",
    "TextColumn": "column", "Term": "glossary",
}  # fmt: skip
_PROSE = re.compile(r"[A-Za-z]{2,}[,;:]? [A-Za-z{(0-9]|\} [a-z]{2,}|[a-z]{2,} \{")
_MATCHED = {
    "compile",
    "search",
    "match",
    "fullmatch",
    "sub",
    "findall",
    "finditer",
    "split",
    "partition",
    "rpartition",
    "startswith",
    "endswith",
    "removeprefix",
    "removesuffix",
    "index",
    "encode",
    "strptime",
    "getenv",
}

# calls whose texts are shown even where they are one word, and arguments that are
_LABELLED = {"Column", "GridColumn", "TextColumn", "Measure", "State", "Term", "GpuField"}
_LABELS = {"state", "short", "title"}
_WORD = re.compile(r"[A-Za-z]{2,}")


class Visible(NamedTuple):
    """A text with the places of its values as `{}`."""

    kind: str
    place: str  # file:line
    text: str


@cache
def visible() -> tuple[Visible, ...]:
    """All of the program and of its manual."""
    program = (found for path in sorted((ROOT / "gputop").rglob("*.py")) for found in _of_module(path))
    return (*program, *_thresholds())


def _thresholds() -> Iterator[Visible]:
    """The comments of the thresholds: the screen and the manual show them."""
    path = ROOT / "gputop/diagnose/thresholds.toml"
    for number, line in enumerate(path.read_text().splitlines(), 1):
        _, mark, text = line.partition("#")
        if mark and text.strip():
            yield Visible("threshold", f"{path.relative_to(ROOT)}:{number}", text.strip())


def pages() -> Iterator[Visible]:
    """The lines of README and of the manual."""
    for path in PAGES:
        for number, text in enumerate(path.read_text().splitlines(), 1):
            yield Visible("docs", f"{path.relative_to(ROOT)}:{number}", text)


def _of_module(path: Path) -> Iterator[Visible]:
    tree = ast.parse(path.read_text())
    name, labels = str(path.relative_to(ROOT)), set(_labels(tree))
    for node, kind in _strings(tree, _package(name), _package(name)):
        text = _text(node)
        if _PROSE.search(text) or (node in labels and _WORD.search(text)):
            yield Visible(kind, f"{name}:{node.lineno}", text)


def _labels(tree: ast.AST) -> Iterator[ast.expr]:
    """Titles, states and short states."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            yield from node.args[:2] if called in _LABELLED else ()
            yield from (each.value for each in node.keywords if each.arg in _LABELS)


def _package(name: str) -> str:
    parts = name.removesuffix(".py").split("/")
    if parts[1:3] == ["diagnose", "rules"]:
        return "/".join(parts[1:])
    return "/".join(parts[1 : -1 if len(parts) > 2 else None][:2])


def _strings(node: ast.AST, kind: str, package: str) -> Iterator[tuple[ast.Constant | ast.JoinedStr, str]]:
    if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        yield node, kind
        inner = [part for part in getattr(node, "values", ()) if isinstance(part, ast.FormattedValue)]
        for part in inner:
            yield from _strings(part.value, package, package)
        return
    if isinstance(node, ast.Call):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in _MATCHED:
            return
        kind = KINDS.get(called, package)
    if isinstance(node, ast.keyword) and node.arg == "command":
        kind = "command"
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)):  # a docstring
            yield from _strings(child, kind, package)


def _text(node: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)


def main() -> None:
    """Print how many there are of each kind, or all of one."""
    if len(sys.argv) > 1:
        print(*(f"{one.place}: {one.text}" for one in visible() if one.kind.startswith(sys.argv[1])), sep="\n")
        return
    for kind, count in Counter(one.kind for one in visible()).most_common():
        print(f"{count:6} {kind}")


if __name__ == "__main__":
    main()

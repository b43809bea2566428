"""The training script of `gputop scaffold`, and its parts as printed by `gputop recipe`.

Both come from one file, train.py beside this one. A comment `# [NAME] purpose` starts a part, which ends before a blank
line or another such comment at its own indentation. Parts of one name form one recipe; the text of the first is its
purpose.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from textwrap import dedent

from gputop.frozen_dataclass import frozen_dataclass

_SCRIPT = Path(__file__).with_name("train.py")
_MARK = re.compile(r"^(?P<indent> *)# \[(?P<name>\w+)\] (?P<text>.+)$")
_WORKERS = re.compile(r"^WORKERS = \d+", re.MULTILINE)


@frozen_dataclass(frozen=True, slots=True)
class Recipe:
    """One setting: its purpose, and its code with the imports it needs."""

    name: str
    text: str
    code: str


def script() -> str:
    """The whole script."""
    return _SCRIPT.read_text(encoding="utf-8")


def recipes() -> dict[str, Recipe]:
    """Every recipe by name, in the order of the script."""
    whole = script()
    texts: dict[str, str] = {}
    parts: dict[str, list[str]] = {}
    for name, text, code in _parts(whole.splitlines()):
        texts.setdefault(name, text)
        parts.setdefault(name, []).append(code)
    imports = [node for node in ast.parse(whole).body if isinstance(node, (ast.Import, ast.ImportFrom))]
    return {name: Recipe(name, text, _with_imports(parts[name], imports)) for name, text in texts.items()}


def with_workers(code: str, workers: Callable[[], int]) -> str:
    """Code with its default for DataLoader workers, if any, replaced by the number for this host."""
    return _WORKERS.sub(lambda _: f"WORKERS = {workers()}", code)


def _parts(lines: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Name, text and code of each part."""
    for number, line in enumerate(lines):
        if mark := _MARK.match(line):
            inside = _inside(lines[number + 1 :], mark["indent"])
            yield mark["name"], mark["text"], dedent("\n".join((line, *inside))).rstrip()


def _inside(lines: Sequence[str], indent: str) -> Iterator[str]:
    """The lines up to the end of the part."""
    blank = False
    for line in lines:
        outside = bool(line) and not line.startswith(indent)
        at_mark = not line.startswith(f"{indent} ") and bool(line)
        if outside or (at_mark and (blank or _MARK.match(line))):
            return
        blank = not line
        yield line


def _with_imports(parts: Sequence[str], imports: Sequence[ast.Import | ast.ImportFrom]) -> str:
    """The parts after the imports they use: the standard library's, then the others."""
    named = {node.id for part in parts for node in ast.walk(ast.parse(part)) if isinstance(node, ast.Name)}
    groups: tuple[list[str], list[str]] = ([], [])
    for node in imports:
        wanted = [each for each in node.names if (each.asname or each.name).partition(".")[0] in named]
        if not wanted:
            continue
        if isinstance(node, ast.Import):
            line, module = ast.unparse(ast.Import(names=wanted)), wanted[0].name
        else:
            module = node.module or ""
            line = ast.unparse(ast.ImportFrom(module=module, names=wanted, level=0))
        groups[module.partition(".")[0] not in sys.stdlib_module_names].append(line)
    needed = "\n\n".join("\n".join(group) for group in groups if group)
    text, defined = needed, False
    for part in parts:
        before, defined = defined, isinstance(ast.parse(part).body[0], (ast.FunctionDef, ast.ClassDef))
        between = "\n\n\n" if before or defined else "\n\n"
        text += f"{between if text else ''}{part}"
    return text

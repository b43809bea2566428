"""TOML: parsing, and changing one value while everything else, including comments, stays."""

from __future__ import annotations

import re
import sys

BEGIN = "# settings of gputop: `gputop docs configuration` says what there is\n"
_HEAD = re.compile(r"\s*\[")
_VALUE = r"""("[^"\n]*"|'[^'\n]*'|\[[^\[\]#\n]*\]|[^\s#"'\[{]+)"""


def parse(raw: bytes) -> dict[str, object]:
    """The contents of a file; ValueError in one line if it is invalid."""
    # imported only if there is a file to read
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return dict(tomllib.loads(raw.decode()))
    except UnicodeDecodeError:
        raise ValueError("it is not text in UTF-8") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def to_toml(value: object) -> str:
    """A plain value, or a list of such, in TOML syntax."""
    if isinstance(value, list):
        return f"[{', '.join(map(to_toml, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else f"{value:g}"


def set_value(raw: bytes, key: str, value: bool | float | str | list[str]) -> bytes:
    """The file with one top-level value set; ValueError if that takes more than changing one line."""
    before = parse(raw)
    lines = raw.decode().splitlines(keepends=True)
    top = next((place for place, line in enumerate(lines) if _HEAD.match(line)), len(lines))
    assignment = re.compile(rf"(\s*{re.escape(key)}\s*=\s*){_VALUE}(\s*(?:#.*)?)", re.DOTALL)
    for place, line in enumerate(lines[:top]):
        if found := assignment.fullmatch(line):
            lines[place] = f"{found[1]}{to_toml(value)}{found[3]}"
            break
    else:
        _insert(lines, top, f"{key} = {to_toml(value)}")
    after = "".join(lines).encode()
    if _parsed(after) != {**before, key: value}:
        raise ValueError(f"it says what {key} is in a way that only a person can change")
    return after


def _insert(lines: list[str], top: int, line: str) -> None:
    """Insert below the last value; comments and blank lines above a table belong to it."""
    end = "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
    while top and top < len(lines) and lines[top - 1].lstrip()[:1] in ("", "#"):
        top -= 1
    if top and not lines[top - 1].endswith("\n"):
        lines[top - 1] += end
    lines.insert(top, line + end)


def _parsed(raw: bytes) -> dict[str, object] | None:
    try:
        return parse(raw)
    except ValueError:
        return None

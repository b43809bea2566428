"""The numbers of the rules, as shipped and with a site's overrides."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from gputop import toml
from gputop.suggest import unknown_entry

Thresholds = Mapping[str, Mapping[str, float]]


class Threshold(NamedTuple):
    """One threshold as written, with its meaning and source from the comment."""

    name: str
    value: float
    help: str

    @property
    def measure(self) -> str:
        """What is measured, without the note and the source: `GPU busy, share of time`."""
        return _MEASURE.split(self.help, maxsplit=1)[0].strip() or self.name


_TIMES = ("on_s", "window_s")  # of every rule
_LONGEST_S = 4 * 3600  # the time span of the history
_MEASURE = re.compile(r"[;\[]")
_TABLE = re.compile(r"^\[([\w-]+)\]", re.MULTILINE)
_NUMBER = re.compile(r"^(\w+)\s*=\s*(\S+)[ \t]*(?:#[ \t]*(.*))?$", re.MULTILINE)


def written() -> dict[str, tuple[Threshold, ...]]:
    """The tables with their comments, for the manual."""
    _, *parts = _TABLE.split(_raw().decode())
    return {
        name: tuple(Threshold(found[1], float(found[2]), (found[3] or "").strip()) for found in _NUMBER.finditer(text))
        for name, text in zip(parts[::2], parts[1::2], strict=True)
    }


def shipped() -> dict[str, dict[str, float]]:
    """The tables of diagnose/thresholds.toml."""
    return {table: dict(values) for table, values in toml.parse(_raw()).items() if isinstance(values, dict)}


def _raw() -> bytes:
    return (resources.files("gputop") / "diagnose" / "thresholds.toml").read_bytes()


def merged(site: Mapping[str, object]) -> tuple[Thresholds, list[str]]:
    """The tables with a site's overrides, and a text for each unused entry."""
    tables, unused = shipped(), []
    for name, values in site.items():
        if name not in tables:
            unused.append(unknown_entry("rule", name, tables))
            continue
        if not isinstance(values, dict):
            unused.append(f"{name} must be a table: [{name}]")
            continue
        for key, value in values.items():
            if key not in tables[name] and key not in _TIMES:
                unused.append(unknown_entry("threshold", key, (*tables[name], *_TIMES), f"{name}."))
            elif isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                unused.append(f"{name}.{key} must be a number")
            elif key in _TIMES and not 1 <= value <= _LONGEST_S:
                unused.append(f"{name}.{key} must be 1 to {_LONGEST_S} seconds")
            elif value < 0 <= tables[name].get(key, 0.0):
                unused.append(f"{name}.{key} must not be below 0")
            else:
                _set(tables[name], key, float(value), values)
    return tables, unused


def _set(table: dict[str, float], key: str, value: float, values: Mapping[str, object]) -> None:
    """Apply a site's number; the limit for clearing keeps its distance, unless the site sets that, too."""
    leaving = f"{key}_exit"
    if leaving in table and leaving not in values:
        moved = table[leaving] + value - table[key]
        table[leaving] = moved if table[leaving] < 0 else max(0.0, moved)
    table[key] = value


def site(path: object, read: Callable[[str], bytes | None]) -> tuple[Thresholds | None, list[str]]:
    """The same for a site's file; None, and the reason, if it is unusable."""
    if not isinstance(path, str) or not Path(path).is_absolute():
        return None, ["thresholds must be an absolute path"]
    try:
        raw = read(path)
        if raw is None:
            return None, [f"thresholds: {path} does not exist"]
        tables, unused = merged(toml.parse(raw))
        return tables, [f"in {path}: {unused[0]}", *unused[1:]] if unused else []
    except Exception as error:  # a refusal of the reader, or a parser's error on invalid bytes
        return None, [f"thresholds in {path}: {' '.join(str(error).split()) or type(error).__name__}"]

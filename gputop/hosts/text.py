"""The overview of several hosts as a table of text, and as JSON."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from gputop.export.text import TextColumn, layout
from gputop.hosts.columns import TEXT_COLUMNS, ordered
from gputop.hosts.overview import HostRow
from gputop.safe.text import clean, redact, to_ascii

VERSION = 1
_SIGNS = {"crit": "▲ ", "warn": "! "}


def as_text(rows: Sequence[HostRow], *, ascii: bool = False, width: int | None = None) -> str:
    """A line per host, the worst first, as wide as the terminal."""
    width = width or max(60, shutil.get_terminal_size((120, 24)).columns)
    titles = [TextColumn(column.title, right=column.right, keep=column.keep) for column in TEXT_COLUMNS]
    cells = [
        [_cell(row, column.id, column.text(row)) for column in TEXT_COLUMNS] for row in ordered([*rows], "finding")
    ]
    text = "".join(f"{line.rstrip()}\n" for line in layout(titles, cells, width))
    return to_ascii(text.replace("▲", "!!")) if ascii else text


def _cell(row: HostRow, id: str, text: str) -> str:
    if id != "finding":
        return clean(text)
    if row.state not in ("live", "stale"):
        return clean(f"! no data: {row.why}" if row.why else row.state)
    return clean(redact(f"{_SIGNS.get(row.badge, '')}{text}"))


def as_json(rows: Sequence[HostRow], wall_s: float) -> str:
    """One object: version, time, and an object per host in the order given. Unknown values are null."""
    hosts = [_object(row) for row in rows]
    return f"{json.dumps({'version': VERSION, 'wall_s': wall_s, 'hosts': hosts})}\n"


def _object(row: HostRow) -> dict[str, Any]:
    found = asdict(row)
    found["finding"] = redact(row.finding)
    del found["retry_in_s"], found["trend"]
    return found

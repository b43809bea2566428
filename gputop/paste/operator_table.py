"""Parse the table of torch.profiler's `print(prof.key_averages().table(...))` into rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gputop.frozen_dataclass import frozen_dataclass
from gputop.paste.pasted import LONGEST_NAME, lines
from gputop.safe.text import clean

_MOST_ROWS = 20_000
_MOST_TABLES = 16
_RULE = re.compile(r"\s*-{4,}(?:\s+-{4,}){2,}\s*$")
_GAP = re.compile(r"\s{2,}")
_TIME = re.compile(r"(-?\d{1,15}(?:\.\d{1,9})?)(ns|us|ms|s)$")
_SIZE = re.compile(r"(-?\d{1,15}(?:\.\d{1,9})?) ?(b|[KMGT]b)$", re.IGNORECASE)
_TOTAL = re.compile(r"\s*Self (\w+) time total:\s*(\S+)\s*$")
_OWN = re.compile(r"Self (\w+)$")
_HEADER = re.compile(r"^\s*Name\s{2,}.*\bSelf CPU\b", re.MULTILINE)
_MICROSECONDS = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
_BYTES = {"b": 1, "kb": 1024, "mb": 1024**2, "gb": 1024**3, "tb": 1024**4}
_CALLS = ("# of Calls", "Number of Calls", "Calls")
_NOT_DEVICES = {"CPU"}


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRow:
    """One row; times in microseconds, None without such a column."""

    name: str
    self_cpu_us: float | None
    cpu_total_us: float | None
    self_device_us: float | None
    device_total_us: float | None
    calls: int | None


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTable:
    """The rows of one table, its totals over all rows, printed or not, and unparsed lines."""

    rows: tuple[OperatorRow, ...]
    device: str | None  # CUDA, XPU, …; None without device columns
    self_cpu_us: float | None
    self_device_us: float | None
    strange: int  # lines in it that are no rows
    ended: bool  # whether its last ruler is there
    others: int  # other tables in the text


def looks_like(text: str) -> bool:
    """Whether a text has the header of such a table."""
    return _HEADER.search(text) is not None


def parse(text: str) -> OperatorTable | None:
    """The first table with device columns, else the first; None if there is none."""
    found = []
    for table in _tables(lines(text)):
        found.append(table)
        if len(found) == _MOST_TABLES:
            break
    if not found:
        return None
    chosen = next((table for table in found if table.device), found[0])
    return OperatorTable(
        rows=chosen.rows,
        device=chosen.device,
        self_cpu_us=chosen.self_cpu_us,
        self_device_us=chosen.self_device_us,
        strange=chosen.strange,
        ended=chosen.ended,
        others=len(found) - 1,
    )


def _tables(text: Sequence[str]) -> Iterator[OperatorTable]:
    at = 0
    while at < len(text):
        head = [part.strip() for part in _GAP.split(text[at].strip())]
        at += 1
        if head[0] != "Name" or "Self CPU" not in head:
            continue
        rule = text[at - 2] if at >= 2 and _RULE.match(text[at - 2]) else ""
        rows: list[OperatorRow] = []
        strange, rules, begun = 0, 0, at
        while at < len(text) and len(rows) < _MOST_ROWS:
            line = text[at]
            if _RULE.match(line):
                rule, rules = line, rules + 1
                if rows or rules > 1 or at > begun:
                    at += 1
                    break
            elif line.strip():
                row = _row(_cells(line, head, rule), head)
                if row is not None:
                    rows.append(row)
                elif _TOTAL.match(line) or _HEADER.match(line):
                    break
                else:
                    strange += 1
            at += 1
        yield _table(rows, head, _totals(text[at : at + 6]), strange, ended=bool(rows) and rules > 1)


def _cells(line: str, head: Sequence[str], rule: str) -> list[str]:
    """The cells of a row: separated by two or more spaces, else by the columns of the ruler above."""
    cells = _GAP.split(line.strip())
    if len(cells) == len(head):
        return cells
    spans = [match.span() for match in re.finditer("-+", rule)]
    if len(spans) == len(head):
        return [line[0 if not at else start : end].strip() for at, (start, end) in enumerate(spans)]
    return []


def _row(cells: Sequence[str], head: Sequence[str]) -> OperatorRow | None:
    if len(cells) != len(head) or not cells[0]:
        return None
    by_title = dict(zip(head, cells, strict=True))
    device = _device(head)
    own = _us(by_title.get("Self CPU"))
    calls = next((by_title[name] for name in _CALLS if name in by_title), "")
    if own is None:
        return None
    return OperatorRow(
        name=clean(cells[0], LONGEST_NAME),
        self_cpu_us=own,
        cpu_total_us=_us(by_title.get("CPU total")),
        self_device_us=_us(by_title.get(f"Self {device}")) if device else None,
        device_total_us=_us(by_title.get(f"{device} total")) if device else None,
        calls=int(calls) if calls.isascii() and calls.isdigit() and len(calls) < 16 else None,
    )


def _device(head: Sequence[str]) -> str | None:
    names = (match[1] for title in head if (match := _OWN.fullmatch(title)))
    return next((name for name in names if name not in _NOT_DEVICES), None)


def _table(
    rows: Sequence[OperatorRow], head: Sequence[str], totals: dict[str, float], strange: int, *, ended: bool
) -> OperatorTable:
    device = _device(head)
    return OperatorTable(
        rows=tuple(rows),
        device=device,
        self_cpu_us=totals.get("CPU"),
        self_device_us=totals.get(device) if device else None,
        strange=strange,
        ended=ended,
        others=0,
    )


def _totals(text: Sequence[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for line in text:
        if (match := _TOTAL.match(line)) and (us := _us(match[2])) is not None:
            found.setdefault(match[1], us)
    return found


def _us(text: str | None) -> float | None:
    found = _TIME.fullmatch(text.strip()) if text else None
    return float(found[1]) * _MICROSECONDS[found[2]] if found else None


def _bytes(text: str | None) -> float | None:
    found = _SIZE.fullmatch(text.strip()) if text else None
    return float(found[1]) * _BYTES[found[2].lower()] if found else None

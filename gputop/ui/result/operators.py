"""The operators tab of a trace: by GPU time with the shapes of their inputs; without a GPU by their own CPU time."""

from __future__ import annotations

import re
from itertools import groupby

from gputop.frozen_dataclass import frozen_dataclass
from gputop.trace.operators import BETWEEN, operators
from gputop.trace.report import fact
from gputop.trace.verdict import View
from gputop.ui.details.grid import Column, Grid
from gputop.ui.details.tab import Body, Entry
from gputop.ui.look import Look, Token
from gputop.ui.result.tab import Listed

MOST = 300
_SHAPES = 4
_TYPES = (
    ("BFloat16", "bf16"),
    ("Half", "fp16"),
    ("float", "fp32"),
    ("double", "fp64"),
    ("long", "int64"),
    ("int", "int32"),
)


@frozen_dataclass(frozen=True, slots=True)
class Row:
    """One operator, with inputs of one shape where shapes are known."""

    name: str
    ms: float  # a step
    share: float
    calls: float | None  # a step
    shapes: str
    note: str


def rows(view: View) -> tuple[list[Row], str]:
    """The rows, most time first, and what that time is."""
    steps = view.steps
    notes = _notes(view)
    if view.shaped:
        total = sum(each.gpu_us for each in view.shaped) or 1.0
        found = [
            Row(
                each.name,
                each.gpu_us / steps / 1e3,
                each.gpu_us / total,
                None,
                shapes(each.dims, each.types),
                notes.get(each.name, ""),
            )
            for each in view.shaped[:MOST]
        ]
        return found, "by time of their kernels on the GPU"
    listed = [each for each in operators(view.trace, MOST) if each.name != BETWEEN]
    total = sum(each.self_us for each in listed) or 1.0
    return [
        Row(
            each.name,
            each.self_us / steps / 1e3,
            each.self_us / total,
            each.count / steps,
            "",
            notes.get(each.name, ""),
        )
        for each in listed
    ], "by their own time on the CPU"


def _notes(view: View) -> dict[str, str]:
    """What the signatures say beside an operator that they name."""
    found: dict[str, str] = {}
    for verdict in view.verdicts:
        for number in verdict.numbers:
            if number.text.startswith("aten::"):
                found.setdefault(number.text.partition(" ")[0], fact(number))
    return found


def shapes(dims: str, types: str) -> str:
    """`[[8, 128], [128, 64], []]` of halves as `8x128 · 128x64 fp16`; several in a row of one shape are counted."""
    found = ["x".join(re.findall(r"\d+", part)) for part in re.findall(r"\[([^\[\]]*)\]", dims)]
    runs = [(shape, len(list(same))) for shape, same in groupby(filter(None, found))]
    said = " · ".join(shape if count == 1 else f"{shape} ({count})" for shape, count in runs[:_SHAPES])
    more = " …" if len(runs) > _SHAPES else ""
    kind = next((short for name, short in _TYPES if name in types), "")
    return f"{said}{more} {kind}".strip()


class Operators(Listed):
    """The list."""

    def __init__(self, view: View) -> None:
        super().__init__("operators", "Operators", "Ops", self._lines)
        self._rows, self._by = rows(view)
        self._unit = "ms a step" if view.found.window.steps else "ms"
        self._counted = any(row.calls is not None for row in self._rows)
        self._shaped = any(row.shapes for row in self._rows)
        self._text = ""
        self.keys |= {"result-find"}

    @property
    def facts(self) -> str:
        """Of what their time is."""
        return super().facts or self._by

    def _lines(self, width: int, look: Look) -> Body:
        noted = any(row.note for row in self._rows)
        columns: list[Column[Row]] = [
            Column(self._unit.upper(), 9, lambda row: f"{row.ms:.3g}" if row.ms < 100 else f"{row.ms:.0f}"),
            Column("SHARE", 6, lambda row: f"{100 * row.share:.1f}%"),
        ]
        if self._counted:
            columns.append(Column("CALLS", 6, lambda row: "" if row.calls is None else f"{row.calls:.3g}", keep=2))
        last = not self._shaped and not noted
        columns.append(Column("OPERATOR", 20 if last else max(24, width // 4), lambda row: row.name, right=False))
        if self._shaped:
            columns.append(Column("SHAPES", 24 if noted else 16, lambda row: row.shapes, right=False, token="dim"))
        if noted:
            columns.append(Column("NOTE", 16, lambda row: row.note, right=False, keep=1, token="dim"))
        table = Grid(columns, width, look)
        found = [row for row in self._rows if self._text in f"{row.name} {row.shapes}".casefold()]

        def line(place: int, row: Row) -> Entry:
            token: Token = "text" if row.share >= 0.01 else "dim"
            return Entry((place, row.name), lambda on, shift: table.line(row, on, shift, token))

        return Body([line(place, row) for place, row in enumerate(found)], [table.titles()], self._by)

    def find(self, text: str) -> str:
        """Show those with this text."""
        self._text = text.strip().casefold()
        count = sum(self._text in f"{row.name} {row.shapes}".casefold() for row in self._rows)
        return f"{count} operators" if self._text else ""

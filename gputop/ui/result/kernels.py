"""Tabs of a trace: its operators with the shapes of their inputs, and its kernels, by GPU time."""

from __future__ import annotations

import re
from itertools import groupby

from gputop.frozen_dataclass import frozen_dataclass
from gputop.trace.breakdown import Named
from gputop.trace.names import GEMM, STREAMING, TENSOR, ActivityKind
from gputop.trace.operators import BETWEEN, operators
from gputop.trace.report import fact, short, took
from gputop.trace.verdict import TraceView
from gputop.ui.result import bars
from gputop.ui.result.bars import BarPart
from gputop.ui.theme import Look, Token
from gputop.ui.widgets.drawing import Run
from gputop.ui.widgets.grid import Grid, GridColumn
from gputop.ui.widgets.tabs import Body, Entry, ListTab, text_entry

MOST_KERNELS = 300
_KINDS = {
    ActivityKind.COMM: "collective", ActivityKind.TO_DEVICE: "copy to GPU", ActivityKind.TO_HOST: "copy to CPU",
    ActivityKind.COPY: "copy", ActivityKind.SET: "memset",
}  # fmt: skip


def kind(named: Named) -> str:
    """What a kernel is, in a word or two."""
    if named.kind is not ActivityKind.COMPUTE:
        return _KINDS[named.kind]
    if GEMM.search(named.name):
        return "tensor cores" if TENSOR.search(named.name) else "matrix"
    return "memory-bound" if STREAMING.search(named.name) else ""


def parts(view: TraceView) -> list[BarPart]:
    """Where the time of the GPU goes."""
    found = view.found
    rows: tuple[tuple[str, float, Token], ...] = (
        ("computes", found.compute.total, "busy"),
        ("exposed communication", found.comm.total - found.comm.shared(found.compute).total, "owner"),
        ("host-to-device copies", found.to_device.total, "command"),
        ("idle, next kernel not launched", found.idle.host_us, "warn"),
        ("idle, launched but not started", found.idle.other_us, "warn"),
        ("idle, launch not in the trace", found.idle.unknown_us, "warn"),
        ("idle, between two kernels", found.idle.kernel_us, "warn"),
    )
    return [
        BarPart(name, found.share(us), f"{took(us / view.steps)} per step", token) for name, us, token in rows if us
    ]


class KernelsTab(ListTab):
    """The bars of the GPU's time, and the list of the kernels."""

    id, title, short = "kernels", "Kernels", "Kern"
    keys = ListTab.keys | {"find"}
    terms = (
        "exposed communication",
        "host-to-device copies",
        "idle, next kernel not launched",
        "idle, launched but not started",
        "idle, launch not in the trace",
        "idle, between two kernels",
    )

    def __init__(self, view: TraceView) -> None:
        self._rows, self._parts, self._steps = view.found.kernels, parts(view), view.steps
        self._total = sum(each.took_us for each in self._rows) or 1.0
        self._gpu = view.found.of_gpu
        self._text = ""

    def body(self, width: int, look: Look) -> Body:
        """The bars stay, the kernels scroll."""
        if not self._gpu:
            text = "no GPU was traced: see CPU times under operators"
            return Body([text_entry("none", [Run(text, "dim")], width, look)])
        columns: tuple[GridColumn[Named], ...] = (
            GridColumn("MS/STEP", 9, lambda each: f"{each.took_us / self._steps / 1e3:.3g}"),
            GridColumn("SHARE", 6, lambda each: f"{100 * each.took_us / self._total:.1f}%"),
            GridColumn("CALLS", 6, lambda each: f"{each.count / self._steps:.3g}"),
            GridColumn("EACH", 8, lambda each: took(each.took_us / each.count), keep=2),
            GridColumn("KIND", 12, kind, right=False, keep=1, token="dim"),
            GridColumn("KERNEL", 20, lambda each: short(each.name), right=False),
        )
        table = Grid(columns, width, look)
        found = [each for each in self._rows if self._text in each.name.casefold()][:MOST_KERNELS]

        def line(each: Named) -> Entry:
            token: Token = "text" if each.took_us >= 0.01 * self._total else "dim"
            return Entry(each.name, lambda on, shift: table.line(each, on, shift, token))

        head = [*bars.strips(self._parts, width, look), table.titles()]
        return Body([line(each) for each in found], head, f"{len(found)} names, share of GPU kernel and copy time")

    def find(self, text: str) -> str:
        """Show those with this text."""
        self._text = text.strip().casefold()
        return f"{sum(self._text in each.name.casefold() for each in self._rows)} kernels" if self._text else ""


MOST_OPERATORS = 300
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
class OperatorRow:
    """One operator, with inputs of one shape where shapes are known."""

    name: str
    ms: float  # a step
    share: float
    calls: float | None  # a step
    shapes: str
    note: str


def rows(view: TraceView) -> tuple[list[OperatorRow], str]:
    """The rows, most time first, and what that time is."""
    steps = view.steps
    notes = _notes(view)
    if view.shaped:
        total = sum(each.gpu_us for each in view.shaped) or 1.0
        found = [
            OperatorRow(
                each.name,
                each.gpu_us / steps / 1e3,
                each.gpu_us / total,
                None,
                shapes(each.dims, each.types),
                notes.get(each.name, ""),
            )
            for each in view.shaped[:MOST_OPERATORS]
        ]
        return found, "share of GPU kernel time"
    listed = [each for each in operators(view.trace, MOST_OPERATORS) if each.name != BETWEEN]
    total = sum(each.self_us for each in listed) or 1.0
    return [
        OperatorRow(
            each.name,
            each.self_us / steps / 1e3,
            each.self_us / total,
            each.count / steps,
            "",
            notes.get(each.name, ""),
        )
        for each in listed
    ], "share of CPU self time"


def _notes(view: TraceView) -> dict[str, str]:
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


class Operators(ListTab):
    """The list."""

    id, title, short = "operators", "Operators", "Ops"
    keys = ListTab.keys | {"find"}

    def __init__(self, view: TraceView) -> None:
        self._rows, self._facts = rows(view)
        self._unit = "ms/step" if view.found.window.steps else "ms"
        self._counted = any(row.calls is not None for row in self._rows)
        self._shaped = any(row.shapes for row in self._rows)
        self._text = ""

    def body(self, width: int, look: Look) -> Body:
        """A line for each; of what the time is in its facts."""
        noted = any(row.note for row in self._rows)
        columns: list[GridColumn[OperatorRow]] = [
            GridColumn(self._unit.upper(), 9, lambda row: f"{row.ms:.3g}" if row.ms < 100 else f"{row.ms:.0f}"),
            GridColumn("SHARE", 6, lambda row: f"{100 * row.share:.1f}%"),
        ]
        if self._counted:
            columns.append(GridColumn("CALLS", 6, lambda row: "" if row.calls is None else f"{row.calls:.3g}", keep=2))
        last = not self._shaped and not noted
        columns.append(GridColumn("OPERATOR", 20 if last else max(24, width // 4), lambda row: row.name, right=False))
        if self._shaped:
            columns.append(GridColumn("SHAPES", 24 if noted else 16, lambda row: row.shapes, right=False, token="dim"))
        if noted:
            columns.append(GridColumn("NOTE", 16, lambda row: row.note, right=False, keep=1, token="dim"))
        table = Grid(columns, width, look)
        found = [row for row in self._rows if self._text in f"{row.name} {row.shapes}".casefold()]

        def line(place: int, row: OperatorRow) -> Entry:
            token: Token = "text" if row.share >= 0.01 else "dim"
            return Entry((place, row.name), lambda on, shift: table.line(row, on, shift, token))

        return Body([line(place, row) for place, row in enumerate(found)], [table.titles()], self._facts)

    def find(self, text: str) -> str:
        """Show those with this text."""
        self._text = text.strip().casefold()
        count = sum(self._text in f"{row.name} {row.shapes}".casefold() for row in self._rows)
        return f"{count} operators" if self._text else ""

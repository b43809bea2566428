"""The steps tab of a trace: what a step is made of, and one line a step; Enter shows a step in the timeline."""

from __future__ import annotations

from collections.abc import Callable

from gputop.trace.report import share, took
from gputop.trace.step_phases import StepRow
from gputop.trace.verdict import TraceView
from gputop.ui.result import bars
from gputop.ui.result.bars import BarPart
from gputop.ui.result.phases import PHASE_TERMS
from gputop.ui.theme import Look, Token
from gputop.ui.widgets.grid import Grid, GridColumn
from gputop.ui.widgets.tabs import Body, Entry, ListTab

_TOKENS: dict[str, Token] = {
    "waiting for data": "warn", "optimizer": "memory", "zero_grad": "memory", "communication": "owner",
    "host-to-device copies": "command",
}  # fmt: skip
_SLOW = 1.2  # times the median


def parts(view: TraceView) -> list[BarPart]:
    """The phases: shares of the time of the CPU, and beside them the time of the GPU in what they launched."""
    span = view.found.window.span_us or 1.0
    found = []
    for phase in view.phases:
        us = phase.host_us if phase.host_us is not None else phase.gpu_us
        gpu = f", GPU {took(phase.gpu_us / view.steps)}" if phase.gpu_us and phase.host_us is not None else ""
        where = "GPU " if phase.host_us is None else "CPU "
        said = f"{where}{took(us / view.steps)} per step{gpu}"
        found.append(BarPart(phase.name, us / span, said, _TOKENS.get(phase.name, "busy")))
    return found


class Steps(ListTab):
    """The bars of the phases, and the list of the steps."""

    id, title, short = "steps", "Steps", "Step"
    takes = "Its timeline"
    keys = ListTab.keys | {"take"}
    terms = (*PHASE_TERMS, "host-to-device copies")

    def __init__(self, view: TraceView, show: Callable[[int], None]) -> None:
        self._rows, self._parts, self._show = view.rows, parts(view), show
        times = sorted(row.took_us for row in view.rows)
        self._median = times[len(times) // 2] if times else 0.0
        self._gpu = view.found.of_gpu

    def body(self, width: int, look: Look) -> Body:
        """The bars stay, the steps scroll."""
        columns: list[GridColumn[tuple[int, StepRow]]] = [
            GridColumn("STEP", 6, lambda row: f"#{row[1].number}"),
            GridColumn("TIME", 9, lambda row: took(row[1].took_us)),
            GridColumn("TO MEDIAN", 9, self._ratio, keep=1),
            GridColumn("DATA WAIT", 14, lambda row: share(row[1].data)),
        ]
        if self._gpu:
            columns.append(GridColumn("GPU BUSY", 8, lambda row: share(row[1].busy)))
            columns.append(GridColumn("KERNELS", 7, lambda row: str(row[1].kernels), keep=2))
        table = Grid(columns, width, look)

        def line(place: int, row: StepRow) -> Entry:
            slow = self._median > 0 and row.took_us > _SLOW * self._median
            token: Token = "warn" if slow else "text"
            return Entry(place, lambda on, shift: table.line((place, row), on, shift, token))

        head = [*bars.strips(self._parts, width, look), *([table.titles()] if self._rows else [])]
        middle = f"median {took(self._median)}" if self._rows else "no steps marked"
        return Body([line(place, row) for place, row in enumerate(self._rows)], head, middle)

    def _ratio(self, row: tuple[int, StepRow]) -> str:
        ratio = row[1].took_us / self._median if self._median else 1.0
        return "" if abs(ratio - 1) < 0.03 else f"{ratio:.2f}×"

    def press(self, what: str, amount: int = 0) -> str:
        """That step in the timeline."""
        if what == "take" and isinstance(self.selected, int):
            self._show(self.selected)
            self.leads_to = "timeline"
            return ""
        return super().press(what, amount)

"""The memory tab of a trace: what PyTorch's allocator held over time, on an axis that ends where the device does."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from textual.strip import Strip

from gputop import units
from gputop.trace.memory import AllocatorMemory
from gputop.trace.report import took
from gputop.trace.verdict import TraceView, memory_peak
from gputop.ui.theme import Look
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line
from gputop.ui.widgets.tabs import Tab

_AXIS = 9  # cells
_TALLEST = 14
_NONE = "no memory of a GPU was recorded: tick memory in the dialog (t), or gputop trace --memory"


def curve(memory: AllocatorMemory, start: float, end: float, cells: int) -> list[float | None]:
    """The most that was allocated within each cell; what stood before it where nothing happened; None before any."""
    each, values, before = (end - start) / max(1, cells), list[float | None](), None
    for cell in range(cells):
        first = bisect_left(memory.at, start + cell * each)
        last = bisect_right(memory.at, start + (cell + 1) * each)
        if last > first:
            values.append(float(max(memory.allocated[first:last])))
            before = float(memory.allocated[last - 1])
        else:
            values.append(before)
    return values


class Curve(Tab):
    """The curve, and the peaks in words."""

    id, title, short = "memory", "Memory", "Mem"
    terms = ("in tensors", "reserved")

    def __init__(self, view: TraceView) -> None:
        self._memory, self._window, self._peak = view.trace.memory, view.found.window, memory_peak(view)
        devices = (device for device in view.trace.devices if device.index == self._memory.device)
        self._total = next((device.memory_bytes for device in devices), 0)

    def _said(self) -> str:
        """The highest values."""
        allocated, most_reserved = self._peak
        of = f" of the {units.size(self._total)}B of the GPU" if self._total else ""
        reserved = f"{units.size(most_reserved)}B reserved from the driver"
        return f"at most {units.size(allocated)}B in tensors, {reserved}{of}"

    def natural(self, width: int, look: Look) -> int:  # noqa: ARG002
        """A chart of some height, and an axis."""
        return _TALLEST + 3 if len(self._memory.at) else 1

    def draw(self, width: int, height: int, look: Look) -> list[Strip]:
        """The curve from the beginning of the window to its end."""
        memory, window = self._memory, self._window
        if not len(memory.at):
            return [Line(look).add(f"  {_NONE}", "dim").strip(width)][: max(0, height)]
        cells, tall = max(1, width - _AXIS - 2), max(1, min(_TALLEST, height - 3))
        values = curve(memory, window.start, window.end, cells)
        top = self._top(values)
        lines = [Line(look).add(f" {self._said()}", "text").strip(width)]
        for row, text in enumerate(drawing.chart_lines(values, cells, tall, top, look)):
            label = f"{units.size(top)}B" if row == 0 else "0" if row == tall - 1 else ""
            lines.append(Line(look).add(f"{label:>{_AXIS - 1}} ", "dim").add(text, "memory area").strip(width))
        axis = Line(look).to(_AXIS).add("0", "dim")
        end = took(window.span_us)
        lines.append(axis.to(width - len(end) - 2).add(end, "dim").strip(width))
        steps = Line(look)
        for step in window.steps:
            cell = _AXIS + int((step.start - window.start) / max(1.0, window.span_us) * cells)
            if cell >= steps.cells and cell + 8 < width:
                steps.to(cell).add(f"{look.glyphs.column}step {step.number} ", "dim")
        return [*lines, steps.strip(width)][: max(0, height)]

    def _top(self, values: list[float | None]) -> float:
        """The end of the axis: the device where it is nearly full, else a round number above the highest."""
        most = max((value for value in values if value is not None), default=1.0)
        if self._total and most > 0.4 * self._total:
            return float(self._total)
        power = 1.0
        while power < most:
            power *= 2
        return power

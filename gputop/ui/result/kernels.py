"""The kernels tab of a trace: what ran on the GPU by name, where its time goes above."""

from __future__ import annotations

from gputop.trace.breakdown import Named
from gputop.trace.names import GEMM, STREAMING, TENSOR, Kind
from gputop.trace.report import short, took
from gputop.trace.verdict import View
from gputop.ui.details.grid import Column, Grid
from gputop.ui.details.tab import Body, Entry
from gputop.ui.draw import Run
from gputop.ui.look import Look, Token
from gputop.ui.result import bars
from gputop.ui.result.bars import Part
from gputop.ui.result.tab import Listed, entry

MOST = 300
_KINDS = {
    Kind.COMM: "collective", Kind.TO_DEVICE: "copy to GPU", Kind.TO_HOST: "copy to CPU", Kind.COPY: "copy",
    Kind.SET: "memset",
}  # fmt: skip


def kind(entry: Named) -> str:
    """What a kernel is, in a word or two."""
    if entry.kind is not Kind.COMPUTE:
        return _KINDS[entry.kind]
    if GEMM.search(entry.name):
        return "tensor cores" if TENSOR.search(entry.name) else "matrix"
    return "memory-bound" if STREAMING.search(entry.name) else ""


def parts(view: View) -> list[Part]:
    """Where the time of the GPU goes."""
    found = view.found
    rows: tuple[tuple[str, float, Token], ...] = (
        ("computes", found.compute.total, "busy"),
        ("communicates, nothing hides it", found.comm.total - found.comm.shared(found.compute).total, "owner"),
        ("receives data from the CPU", found.to_device.total, "command"),
        ("idle, waits for a launch", found.idle.host_us, "warn"),
        ("idle, launched and not begun", found.idle.other_us, "warn"),
        ("idle, launch not in the trace", found.idle.unknown_us, "warn"),
        ("idle, between two kernels", found.idle.kernel_us, "warn"),
    )
    return [Part(name, found.share(us), f"{took(us / view.steps)} a step", token) for name, us, token in rows if us]


class Kernels(Listed):
    """The bars of the GPU's time, and the list of the kernels."""

    def __init__(self, view: View) -> None:
        super().__init__("kernels", "Kernels", "Kern", self._lines)
        self._rows, self._parts, self._steps = view.found.kernels, parts(view), view.steps
        self._total = sum(each.took_us for each in self._rows) or 1.0
        self._gpu = view.found.of_gpu
        self._text = ""
        self.keys |= {"result-find"}

    def _lines(self, width: int, look: Look) -> Body:
        if not self._gpu:
            text = "no GPU was traced: these are times of the CPU; the operators have them"
            return Body([entry("none", [Run(text, "dim")], width, look)])
        columns: tuple[Column[Named], ...] = (
            Column("MS A STEP", 9, lambda each: f"{each.took_us / self._steps / 1e3:.3g}"),
            Column("SHARE", 6, lambda each: f"{100 * each.took_us / self._total:.1f}%"),
            Column("CALLS", 6, lambda each: f"{each.count / self._steps:.3g}"),
            Column("EACH", 8, lambda each: took(each.took_us / each.count), keep=2),
            Column("KIND", 12, kind, right=False, keep=1, token="dim"),
            Column("KERNEL", 20, lambda each: short(each.name), right=False),
        )
        table = Grid(columns, width, look)
        found = [each for each in self._rows if self._text in each.name.casefold()][:MOST]

        def line(each: Named) -> Entry:
            token: Token = "text" if each.took_us >= 0.01 * self._total else "dim"
            return Entry(each.name, lambda on, shift: table.line(each, on, shift, token))

        head = [*bars.strips(self._parts, width, look), table.titles()]
        return Body([line(each) for each in found], head, f"{len(found)} names")

    def find(self, text: str) -> str:
        """Show those with this text."""
        self._text = text.strip().casefold()
        return f"{sum(self._text in each.name.casefold() for each in self._rows)} kernels" if self._text else ""

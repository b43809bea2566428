"""The I/O tab: what it reads and writes, now and since it started, and how long it was blocked on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gputop import units
from gputop.frozen_dataclass import frozen_dataclass
from gputop.labels import amount
from gputop.model import Io, Process
from gputop.optional_sums import mean
from gputop.process_totals import io_estimated, io_percent
from gputop.ui.details.lines import plain, said
from gputop.ui.details.process_view import ProcessView
from gputop.ui.widgets.drawing import Run, wrap
from gputop.ui.widgets.grid import Grid, GridColumn
from gputop.ui.widgets.tabs import Body, Entry

Value = float | None


def _rate(value: Value) -> str:
    return units.UNKNOWN if value is None else f"{units.rate(value)}/s" if value >= 1024 else "0"


def _count(value: Value) -> str:
    return units.UNKNOWN if value is None else f"{units.count(value)}/s" if value >= 0.5 else "0"


def _percent(value: Value) -> str:
    return units.UNKNOWN if value is None else f"{value:.0f}%" if value >= 0.5 else "0"


@frozen_dataclass(frozen=True, slots=True)
class Flow:
    """One kind of I/O: now, of the loaders now, since the start."""

    name: str
    now: Callable[[Process], Value]
    unit: Callable[[Value], str]
    note: str
    whole: Callable[[Io], Value] | None = None
    total: Callable[[Value], str] = units.size
    add: bool = True  # over the loaders; else the mean


FLOWS: tuple[Flow, ...] = (
    Flow("read from storage", lambda p: p.read_bytes_per_s, _rate, "cache excluded", lambda io: io.read_bytes),
    Flow("written to storage", lambda p: p.write_bytes_per_s, _rate, "", lambda io: io.written_bytes),
    Flow("time blocked on storage", io_percent, _percent, "", add=False),
    Flow(
        "read by syscalls", lambda p: p.read_chars_per_s, _rate, "cache and pipes included",
        lambda io: io.read_chars_bytes,
    ),
    Flow("written by syscalls", lambda p: p.write_chars_per_s, _rate, "", lambda io: io.written_chars_bytes),
    Flow("read calls", lambda p: p.read_calls_per_s, _count, "", lambda io: io.read_calls, units.count),
    Flow("write calls", lambda p: p.write_calls_per_s, _count, "", lambda io: io.write_calls, units.count),
    Flow("bytes per read call", lambda p: p.mean_read_bytes, units.size, "mean; small reads are slow", add=False),
    Flow("page faults from storage", lambda p: p.major_faults_per_s, units.count, ""),
)  # fmt: skip
Row = tuple[str, str, str, str, str]


def body(view: ProcessView, width: int) -> Body:
    """A line for each kind, the file it reads now, and what is missing."""
    columns: list[GridColumn[Row]] = [
        GridColumn("", 25, lambda row: row[0], right=False, token="dim"),
        GridColumn("NOW", 8, lambda row: row[1]),
        GridColumn("SINCE START", 11, lambda row: row[3], keep=3),
        GridColumn("", 10, lambda row: row[4], right=False, keep=1, token="dim"),
    ]
    if view.loaders:
        title = amount(len(view.loaders), "WORKER").upper()
        columns.insert(2, GridColumn(title, max(8, len(title)), lambda row: row[2], keep=2))
    grid = Grid(columns, width, view.look)
    entries = [_entry(grid, _row(flow, view)) for flow in FLOWS]
    lines = _below(view, width)
    return Body([*entries, *plain(view, width, lines)], [grid.titles()])


def _entry(grid: Grid[Row], row: Row) -> Entry:
    return Entry(row[0], lambda on, shift: grid.line(row, on, shift))


def _row(flow: Flow, view: ProcessView) -> Row:
    io = view.detail.io
    known = [value for one in view.loaders if (value := flow.now(one)) is not None]
    loading = (sum(known) if flow.add else mean(known)) if known else None
    whole = "" if flow.whole is None else flow.total(flow.whole(io)) if io else units.UNKNOWN
    note = "estimate" if flow.now is io_percent and _estimated(view) else flow.note
    return flow.name, flow.unit(flow.now(view.process)), flow.unit(loading), whole, note


def _estimated(view: ProcessView) -> Process | None:
    """The first whose time blocked on storage is shown but not measured."""
    return next(filter(io_estimated, (view.process, *view.loaders)), None)


def _below(view: ProcessView, width: int) -> list[Sequence[Run]]:
    lines: list[Sequence[Run]] = [[]]
    detail, why = view.detail, []
    if guessed := _estimated(view):
        unlock = next((one.unlock for one in guessed.missing if one.metric == "io_wait_percent" and one.unlock), None)
        measured = f"; to measure it: {unlock}" if unlock else ""
        why.append(f"time blocked on storage is estimated from the share of samples in state D{measured}")
    if detail.io is None:
        why.append(f"since it started: {said(view, 'io')}")
    lines += [[Run(line, "dim")] for text in why for line in wrap(text, max(20, width - 4))]
    if file := detail.file_now:
        lines.append([Run("reads now  ", "dim"), Run(file.path, "bright")])
        place = f"{units.size(file.position_bytes)} of {units.size(file.size_bytes)}"
        lines.append([Run("at         ", "dim"), Run(place), Run(f"  {units.rate(file.moved_bytes_per_s)}/s", "dim")])
    return lines

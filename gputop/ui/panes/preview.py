"""The selected line at a glance: its last minute, what it runs, its smaller facts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from textual.strip import Strip

from gputop import labels, units
from gputop.model import Frame, Process
from gputop.optional_sums import added, mean
from gputop.process_totals import Figures
from gputop.ui.gpus.state import GpuHistory
from gputop.ui.table.row import TableRow
from gputop.ui.theme import Look
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Chart, Line, beside, most, room

_AROUND = 7  # lines that are not chart: the rule, titles, a blank, the command, three of facts
_MOST = 256  # processes whose past is summed up
_NOTHING = frozenset({"0", "0%", "0/s", units.UNKNOWN})
Fact = tuple[str, str]


def preview(row: TableRow | None, frame: Frame, past: GpuHistory, width: int, height: int, look: Look) -> list[Strip]:
    """The pane in at most `height` lines."""
    if row is None:
        return [drawing.rule("selected", width, look), Line(look).add("  no process selected", "dim").strip(width)][
            :height
        ]
    strips = [drawing.rule(f"selected: {_title(row)}", width, look, right=_job(row, frame))]
    if height > _AROUND:
        strips += beside(_charts(row, frame, past, width), width, height - _AROUND, look)
    strips.append(drawing.blank(width, look))
    command = (
        Line(look).add(" command ", "dim").add(drawing.cut(row.text, max(0, width - 11), look.glyphs.more), "text")
    )
    strips.append(command.strip(width))
    figures = row.figures if row.figures.count else row.sums
    for facts in (_work(row, figures), _memory(figures), _threads(row.process, look)):
        strips.append(_line(facts, width, look))
    return strips[:height]


def _title(row: TableRow) -> str:
    user = row.user or (row.process.user if row.process else None) or ""
    name = f"job {row.label}" if row.kind == "job" else row.label
    rank = f"rank{row.process.rank} " if row.process and row.process.rank is not None else ""
    return f"{rank}{name} {user}".rstrip()


def _job(row: TableRow, frame: Frame) -> str:
    key = row.process.job if row.process else None
    name = next((job.name for job in frame.jobs if job.key == key), None)
    return f"job {name}" if name else ""


def _charts(row: TableRow, frame: Frame, past: GpuHistory, width: int) -> list[Chart]:
    processes = row.members if row.process is None or not row.open else [row.process]
    uuids = dict.fromkeys(share.uuid for process in processes for share in process.gpus)
    seconds = room(width, 3 if uuids else 2)

    def together(metric: str) -> list[float | None]:
        many = [past.values(process.identity, metric, seconds) for process in processes[:_MOST]]
        return [added(slot) for slot in zip(*many, strict=True)]

    charts = []
    if uuids:
        many = [past.values(uuid, "busy_percent", seconds) for uuid in uuids]
        busy = [mean(slot) for slot in zip(*many, strict=True)]
        said = f"now {units.percent(busy[-1])}  avg {units.percent(mean(busy))}"
        charts.append(Chart(f"GPU {_indexes(uuids, frame)} busy %", said, busy, 100, "busy area"))
    cpu, read = together("cpu_percent"), together("read_bytes_per_s")
    top = drawing.ceiling(most(cpu), 100.0)
    charts.append(
        Chart("cpu %", f"now {units.percent(cpu[-1])}  axis {top:.0f}; 100 % is one core", cpu, top, "busy area")
    )
    said = f"now {units.rate(read[-1])}/s  peak {units.rate(most(read))}/s"
    charts.append(Chart("read", said, read, drawing.ceiling(most(read), 1e6), "busy area"))
    return charts


def _indexes(uuids: Iterable[str], frame: Frame) -> str:
    return labels.numbers([frame.by_uuid[uuid].index for uuid in uuids if uuid in frame.by_uuid])


def _percent(value: float | None) -> str:
    return units.percent(value) + "%" * (value is not None)


def _per_s(value: float | None) -> str:
    return units.count(value) + "/s" * (value is not None)


def _work(row: TableRow, figures: Figures) -> Sequence[Fact]:
    busy = row.process.busy_threads if row.process else None
    return (
        ("state", f"{figures.state or units.UNKNOWN} {figures.same('waiting_in') or ''}".rstrip()),
        ("threads", units.count(figures.total("threads")) + (f", {busy} busy" if busy is not None else "")),
        ("run queue wait", _percent(figures.wait_percent)),
        ("blocked on storage", _percent(figures.io_percent)),
        ("voluntary switches", _per_s(figures.total("voluntary_switches_per_s"))),
        ("involuntary", _per_s(figures.total("involuntary_switches_per_s"))),
        ("CPUs allowed", figures.same("affinity") or units.UNKNOWN),
        ("age", units.ago(figures.most("age_s"))),
    )


def _memory(figures: Figures) -> Sequence[Fact]:
    written = figures.total("write_bytes_per_s")
    return (
        ("VRAM", units.size(figures.vram_bytes) if figures.gpus else "0"),
        ("RSS", units.size(figures.total("rss_bytes"))),
        ("PSS", units.size(figures.total("pss_bytes"))),
        ("shared", units.size(figures.total("shared_bytes"))),
        ("swap", units.size(figures.total("swap_bytes"))),
        ("major faults", _per_s(figures.total("major_faults_per_s"))),
        ("reads", _reads(figures)),
        ("written", units.rate(written) + "/s" * (written is not None)),
        ("open files", units.count(figures.total("open_files"))),
    )


def _reads(figures: Figures) -> str:
    size = f" of {units.size(figures.mean_read_bytes)}" if figures.mean_read_bytes else ""
    return f"{_per_s(figures.total('read_calls_per_s'))}{size}"


def _threads(process: Process | None, look: Look) -> Sequence[Fact]:
    names = process.thread_names if process else ()
    return [("threads by name", ""), *((name, f"{look.glyphs.times}{count}") for name, count in names)] if names else ()


def _line(facts: Sequence[Fact], width: int, look: Look) -> Strip:
    """As many as fit, each with its label."""
    line = Line(look).add(" ")
    for label, text in facts:
        if line.cells + len(label) + len(text) + 1 >= width:
            break
        line.add(label, "dim").add(" ").add(text, "dim" if text in _NOTHING else "text").add("   " if text else "")
    return line.strip(width)

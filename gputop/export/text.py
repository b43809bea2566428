"""An update as a text table: the host, a line per GPU, the jobs with ranks and loaders."""

from __future__ import annotations

import shutil
import time
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TextIO

from gputop import labels, units
from gputop.columns import of
from gputop.export.format import Write, redacted
from gputop.fit import fit
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Frame, Gpu, Host, Identity, Job, Process, Role
from gputop.monitor import Update
from gputop.process_totals import Figures, one
from gputop.safe.text import to_ascii

_GAP = "  "
_ALWAYS = 80  # a column that is kept so dearly is there whatever the room


@frozen_dataclass(frozen=True, slots=True)
class TextColumn:
    """Title and alignment of a column; when space is short, the lowest `keep` is dropped first."""

    title: str
    right: bool = True
    keep: int = _ALWAYS


def cells(text: str) -> int:
    """Width of a text in terminal cells."""
    if text.isascii():
        return len(text)
    return sum(_cells(ch) for ch in text)


def cut(text: str, width: int) -> str:
    """The text truncated to that many cells, with a mark at its end."""
    if cells(text) <= width:
        return text
    room, kept = max(0, width - 1), []
    for ch in text:
        room -= _cells(ch)
        if room < 0:
            break
        kept.append(ch)
    return "".join(kept) + "…" if width > 0 else ""


def layout(columns: Sequence[TextColumn], rows: Sequence[Sequence[str]], width: int, last: int = 20) -> list[str]:
    """Lines of at most `width` cells, titles first; the last column is truncated, but keeps at least `last` cells.

    Empty columns are omitted.
    """
    said = [i for i in range(len(columns)) if any(row[i] for row in rows)]
    sizes = [max(cells(text) for text in (column.title, *(row[i] for row in rows))) for i, column in enumerate(columns)]

    def size(i: int) -> int:
        return min(last, sizes[i]) if i == said[-1] else sizes[i] + len(_GAP)

    chosen = fit(said, width, size, keep=lambda i: columns[i].keep, always=_ALWAYS)
    room = max(1, width - sum(sizes[i] + len(_GAP) for i in chosen[:-1]))
    return [_line(columns, chosen, sizes, row, room) for row in ([column.title for column in columns], *rows)]


def _line(columns: Sequence[TextColumn], chosen: list[int], sizes: list[int], row: Sequence[str], room: int) -> str:
    parts = []
    for i in chosen[:-1]:
        blank = " " * (sizes[i] - cells(row[i]))
        parts.append(blank + row[i] if columns[i].right else row[i] + blank)
    return _GAP.join((*parts, cut(row[chosen[-1]], room))).rstrip()


def _cells(ch: str) -> int:
    if unicodedata.combining(ch) or unicodedata.category(ch) == "Me":
        return 0
    return 2 if unicodedata.east_asian_width(ch) in "WF" else 1


MOST_COLUMNS = 2000  # wider than any terminal; some report such sizes
_LEAST_NAME = 18  # cells of a GPU's name: NVIDIA H100 80GB, and all columns in 80
_ASCII = str.maketrans({"°": None})
_GPUS = (
    TextColumn("GPU"),
    TextColumn("BUSY"),
    TextColumn("VRAM"),
    TextColumn("TEMP"),
    TextColumn("POWER"),
    TextColumn("SM MHz", keep=2),
    TextColumn("PCIE RX/s", keep=1),
    TextColumn("CLOCK LIMIT", right=False),
    TextColumn("NAME", right=False, keep=3),
)
_SHOWN = of("main")
_PROCESSES = (
    TextColumn("JOB, PID", right=False),
    *(TextColumn(each.title, each.align == "right", each.text_keep or each.keep) for each in _SHOWN[1:]),
)


def table(out: TextIO, *, ascii: bool = False) -> Write:
    """Each update as a table as wide as the terminal; in a pipe as COLUMNS says, or 120."""

    def write(update: Update) -> None:
        text = render(update.frame, min(MOST_COLUMNS, shutil.get_terminal_size((120, 0)).columns))
        out.write(to_ascii(text.translate(_ASCII)) if ascii else text)

    return write


def render(frame: Frame, width: int) -> str:
    """The whole table, without colour; `·` is unknown."""
    frame, width = redacted(frame), max(60, width)
    lines = [*_wrapped(_head(frame), width), ""]
    lines += layout(_GPUS, [_gpu(gpu) for gpu in frame.gpus], width, _LEAST_NAME) if frame.gpus else ["no GPU"]
    if rows := [row for job in frame.jobs for row in _job(frame, job)] + _jobless_rows(frame):
        lines += ["", *layout(_PROCESSES, rows, width)]
    elif frame.gpus:
        lines += ["", _unlisted(frame) or "no process uses a GPU"]
    for note in frame.notes:
        if note.subject != "driver" and note.key != "recording-damaged":  # printed on standard error by the caller
            lines += ["", *_wrapped(note.text.split(), width, " ")]
    lines += ["", *_wrapped(_NEXT, width)]
    return "\n".join(lines) + "\n"


_NEXT = ("One sample cannot show a cause: run gputop diagnose.", "Columns: gputop docs columns.")
_UNLISTED_BYTES = 1 << 30  # more than a driver reserves


def _unlisted(frame: Frame) -> str:
    """Memory in use without a listed process: `no process is listed, but GPU 1 has 42.3G in use`."""
    silent = [gpu.index for gpu in frame.gpus if gpu.unlisted]
    if silent:
        return f"the driver does not list the processes of GPU {', '.join(silent)}"
    held = [
        f"GPU {gpu.index} has {units.size(gpu.vram_used_bytes)} in use"
        for gpu in frame.gpus
        if gpu.vram_used_bytes is not None and gpu.vram_used_bytes >= _UNLISTED_BYTES and not gpu.unified_memory
    ]
    return f"no process is listed on a GPU, but {', '.join(held)}" if held else ""


def _head(frame: Frame) -> list[str]:
    host = frame.host
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(frame.wall_s))
    pressures = (("cpu", host.cpu_pressure), ("io", host.io_pressure), ("mem", host.memory_pressure))
    known = " ".join(f"{name} {units.percent(of.some_avg10_percent)}" for name, of in pressures if of)
    return [
        frame.hostname,
        when,
        f"cpu {units.percent(host.cpu_percent)}% of {host.cpus_total or units.UNKNOWN}",
        f"mem {units.size(host.memory_used_bytes)}/{units.size(host.memory_total_bytes)}",
        f"io r {units.rate(host.read_bytes_per_s)} w {units.rate(host.write_bytes_per_s)}",
        f"net in {units.rate(host.receive_bytes_per_s)} out {units.rate(host.send_bytes_per_s)}",
        *([f"psi {known}"] if known else []),
        *_driver(host),
    ]


def _driver(host: Host) -> list[str]:
    return [f"driver {host.driver_version}"] if host.driver_version else []


def _wrapped(words: Iterable[str], width: int, gap: str = "  ") -> list[str]:
    lines: list[str] = []
    for word in words:
        if lines and cells(lines[-1]) + len(gap) + cells(word) <= width:
            lines[-1] += gap + word
        else:
            lines.append(word)
    return lines


def _gpu(gpu: Gpu) -> list[str]:
    slowed = sorted((gpu.throttle_reasons or frozenset()) - {"idle"})
    stale = [] if gpu.condition == "ok" else [f"{gpu.condition} {units.ago(gpu.condition_s)}"]
    return [
        gpu.index,
        f"{units.percent(gpu.busy_percent)}%",
        f"{units.size(gpu.vram_used_bytes)}/{units.size(gpu.vram_total_bytes)}",
        f"{units.percent(gpu.temperature_celsius)}°C",
        f"{units.percent(gpu.power_watts)}/{units.percent(gpu.power_limit_watts)}W",
        units.count(gpu.sm_clock_mhz),
        units.rate(gpu.pcie_rx_bytes_per_s),
        ", ".join((*stale, *slowed)),
        gpu.name,
    ]


def _job(frame: Frame, job: Job) -> list[list[str]]:
    members, ranks = _known(frame, job.members), _known(frame, job.ranks)
    loaders = [process for process in members if process.role is Role.LOADER]
    children = len(members) - len(ranks) if any(one.sampled for one in members) else 0
    made_of = labels.job(job, ranks, len(loaders), len(members) - len(ranks) - len(loaders), sampled=children)
    rows = [_row(job.name, Figures(members, frame, job.user), made_of)]
    for rank in ranks:
        rows.append(_row(f"  {rank.pid}", one(rank, frame), labels.command(rank)))
        if own := [loader for loader in loaders if _is_loader_of(loader, rank, ranks)]:
            title = f"    {labels.amount(len(own), 'worker')}"
            rows.append(_row(title, Figures(own, frame, job.user), own[0].name))
    return rows


def _jobless_rows(frame: Frame) -> list[list[str]]:
    loose = (process for process in frame.processes if process.gpus and process.job is None)
    return [_row(str(process.pid), one(process, frame), labels.command(process)) for process in loose]


def _known(frame: Frame, identities: Iterable[Identity]) -> list[Process]:
    return [frame.by_identity[identity] for identity in identities if identity in frame.by_identity]


def _is_loader_of(loader: Process, rank: Process, ranks: Sequence[Process]) -> bool:
    if any(loader.parent_pid == other.pid for other in ranks):
        return loader.parent_pid == rank.pid
    return loader.rank == rank.rank


def _row(title: str, figures: Figures, command: str) -> list[str]:
    return [title, *(column.text(figures, whole=True) for column in _SHOWN[1:-1]), command]

"""The columns of the table, declared once, and which of them fit a width."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from gputop import units
from gputop.figures import Figures

Value = float | str | None


@dataclass(frozen=True, slots=True)
class Column:
    """One column: what it says (`value` sorts, `text` is drawn), how wide it is with its gap, how long it stays."""

    id: str
    title: str
    width: int
    help: str
    value: Callable[[Figures], Value]
    text: Callable[[Figures], str]
    keep: int  # the lowest yields first when the screen is narrow
    align: Literal["left", "right"] = "right"
    ease: int = 0  # cells more where there is room
    noisy: bool = False  # sorted by two digits: what is nearly equal does not change places


@dataclass(frozen=True, slots=True)
class Place:
    """A column on the screen: the cells from `left` on, its gap included."""

    column: Column
    left: int
    width: int


def _gpus(figures: Figures) -> str:
    if not figures.gpus:
        return ""
    whole = all(index.isdecimal() for index in figures.gpus)
    text = units.ranges(tuple(map(int, figures.gpus))) if whole else ",".join(figures.gpus)
    return text if len(text) <= 4 else f"{len(figures.gpus)}x"


def _gpu_value(figures: Figures) -> Value:
    return figures.gpus[0].zfill(6) if figures.gpus else None


def _if_gpu(figures: Figures, text: str) -> str:
    return text if figures.gpus else ""


def _cpu(value: float | None) -> str:
    return units.percent(value) if value is None or value < 99_999.5 else units.count(value)


def _time(seconds: float | None) -> str:
    text = units.clock(seconds)
    return text if seconds is None or len(text) <= 8 else f"{int(seconds) // 86400}d"


COLUMNS: tuple[Column, ...] = (
    Column(
        "pid", "PID", 15, "process id; on a job's line its name",
        lambda f: f.pid, lambda f: "" if f.pid is None else str(f.pid), 100, "left", 2,
    ),
    Column("user", "USER", 7, "owner", lambda f: f.user, lambda f: f.user or units.UNKNOWN, 80, "left", 2),
    Column("gpu", "GPU", 5, "GPUs it has memory on, by index", _gpu_value, _gpus, 95),
    Column(
        "gpu-busy", "GPU%", 6,
        "time its kernels were resident on its GPUs, mean. 100 does not mean efficient: one tiny kernel, or a hung "
        "collective, also reads 100",
        lambda f: f.gpu_percent, lambda f: _if_gpu(f, units.percent(f.gpu_percent)), 88, noisy=True,
    ),
    Column(
        "vram", "VRAM", 6, "device memory it holds, all GPUs",
        lambda f: f.vram_bytes, lambda f: _if_gpu(f, units.size(f.vram_bytes)), 85, ease=1,
    ),
    Column(
        "cpu", "CPU%", 6, "CPU time; 100 is one core",
        lambda f: f.cpu_percent, lambda f: _cpu(f.cpu_percent), 90, noisy=True,
    ),
    Column("threads", "THR", 5, "threads", lambda f: f.threads, lambda f: units.count(f.threads), 60),
    Column(
        "rss", "RSS", 6, "resident memory; a sum counts the pages that forked loaders share more than once",
        lambda f: f.rss_bytes, lambda f: units.size(f.rss_bytes), 65, ease=1, noisy=True,
    ),
    Column(
        "wait", "WAIT%", 7, "time its threads waited for a free CPU, of waiting and running",
        lambda f: f.wait_percent, lambda f: units.percent(f.wait_percent), 55, noisy=True,
    ),
    Column(
        "read", "READ/s", 8, "bytes a second read from storage, page cache excluded",
        lambda f: f.read_bytes_per_s, lambda f: units.rate(f.read_bytes_per_s), 75, noisy=True,
    ),
    Column(
        "write", "WRITE/s", 9, "bytes a second written to storage, page cache excluded",
        lambda f: f.write_bytes_per_s, lambda f: units.rate(f.write_bytes_per_s), 50, noisy=True,
    ),
    Column(
        "io", "IO%", 5,
        "time blocked on storage: measured by delay accounting (sysctl kernel.task_delayacct=1), else the share of "
        "looks in which it was in state D. Of a job: its ranks or its loaders, whichever wait more",
        lambda f: f.io_percent, lambda f: units.percent(f.io_percent), 58, noisy=True,
    ),
    Column("time", "TIME", 9, "time since it started", lambda f: f.age_s, lambda f: _time(f.age_s), 30),
    Column(
        "command", "COMMAND", 1, "what it runs; its rank in the job; loaders by number",
        lambda _: None, lambda _: "", 100, "left",
    ),
)  # fmt: skip

BY_ID: dict[str, Column] = {column.id: column for column in COLUMNS}
SORTABLE: tuple[Column, ...] = tuple(column for column in COLUMNS if column.id != "command")


def beside(id: str, step: int) -> str:
    """The column left (-1) or right (1) of one, around the ends."""
    ids = [column.id for column in SORTABLE]
    return ids[(ids.index(id) + step) % len(ids)]


def fit(width: int) -> tuple[Place, ...]:
    """Which columns a table of this width shows, and where; the command gets what is left."""
    command = 32 if width >= 100 else 25  # besides its gap
    chosen = sorted(COLUMNS, key=lambda column: -column.keep)
    while len(chosen) > 2 and sum(column.width for column in chosen) + command > width:
        chosen.pop()
    spare = width - sum(column.width for column in chosen) - command
    sizes = {}
    for column in sorted(chosen, key=lambda column: column.ease):
        ease = column.ease if column.ease <= spare else 0
        sizes[column.id] = column.width + ease
        spare -= ease
    places: list[Place] = []
    left = 0
    for column in (column for column in COLUMNS if column in chosen):
        size = max(0, width - left) if column.id == "command" else sizes[column.id]
        places.append(Place(column, left, size))
        left += size
    return tuple(places)

"""The columns of the table, declared once, and which of them fit a width."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Literal

from gputop import labels, severity, units
from gputop.config import LAST
from gputop.frozen_dataclass import frozen_dataclass
from gputop.process_totals import Figures
from gputop.severity import Levels

Value = float | str | None
Preset = Literal["main", "steps", "io", "memory", "scheduling"]
Kind = Literal["number", "bytes", "seconds", "word"]
ALWAYS = 100
PRESETS: dict[Preset, str] = {
    "main": "main",
    "steps": "steps",
    "io": "I/O",
    "memory": "memory",
    "scheduling": "scheduling",
}


@frozen_dataclass(frozen=True, slots=True)
class Column:
    """One column: what it says (`value` sorts, `text` is drawn), how wide it is with its gap, how long it stays."""

    id: str
    title: str
    width: int
    help: str
    value: Callable[[Figures], Value]
    text: Callable[[Figures], str]
    keep: int  # the lowest yields first when the screen is narrow; never: ALWAYS
    align: Literal["left", "right"] = "right"
    ease: int = 0  # cells more where there is room
    presets: tuple[Preset, ...] = ("main",)
    kind: Kind = "number"  # how a person writes a value of it
    noisy: bool = False  # sorted by two digits: what is nearly equal does not change places
    levels: Levels | None = None  # from where on a value is amber or red


def _gpus(figures: Figures) -> str:
    if not figures.gpus:
        return ""
    text = labels.numbers(figures.gpus)
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


def _of_many(figures: Figures, value: object, text: str) -> str:
    """Nothing for processes that differ: only what is unknown of one process is unknown."""
    return "" if value is None and figures.count > 1 else text


def _affinity(figures: Figures) -> str:
    text = figures.affinity
    if text is None or len(text) <= _AFFINITY:
        return _of_many(figures, text, text or units.UNKNOWN)
    return f"{len(_cpus(text))} CPUs"


def _nodes(figures: Figures) -> str | None:
    """The NUMA nodes whose CPUs it may run on."""
    if figures.affinity is None or not figures.nodes:
        return None
    return _near(figures.affinity, tuple((node.number, node.cpus) for node in figures.nodes))


def _few(nodes: str | None) -> str:
    if nodes is None:
        return units.UNKNOWN
    return nodes if len(nodes) < 6 else f"{len(_cpus(nodes))}x"


@lru_cache(maxsize=256)
def _near(affinity: str, nodes: tuple[tuple[int, str], ...]) -> str | None:
    allowed = _cpus(affinity)
    return units.ranges(tuple(number for number, cpus in nodes if allowed & _cpus(cpus))) or None


@lru_cache(maxsize=256)
def _cpus(ranges: str) -> frozenset[int]:
    try:
        return frozenset(units.listed(ranges))
    except ValueError:
        return frozenset()


def _whole(value: float | None) -> str:
    return units.UNKNOWN if value is None else f"{value:.0f}"


_AFFINITY = 10  # cells
_ALL: tuple[Preset, ...] = ("main", "steps", "io", "memory", "scheduling")
_METER = "Measured inside: of jobs started with `gputop run`"
_LOOKED_AT = "Read only of processes that a preset shows or that have to do with a GPU"

COLUMNS: tuple[Column, ...] = (
    Column(
        "pid", "PID", 15, "process id; on a job's line its name",
        lambda f: f.pid, lambda f: "" if f.pid is None else str(f.pid), ALWAYS, "left", 2, _ALL,
    ),
    Column(
        "user", "USER", 7, "owner", lambda f: f.user, lambda f: f.user or units.UNKNOWN, 80, "left", 2,
        ("main", "steps", "io", "memory"), "word",
    ),
    Column(
        "gpu", "GPU", 5, "GPUs it has memory on, by index", _gpu_value, _gpus, 95,
        presets=("main", "steps"), kind="word",
    ),
    Column(
        "gpu-busy", "GPU%", 6,
        "time its kernels were resident on its GPUs, mean. 100 does not mean efficient: one tiny kernel, or a hung "
        "collective, also reads 100",
        lambda f: f.gpu_percent, lambda f: _if_gpu(f, units.percent(f.gpu_percent)), 88, noisy=True,
        presets=("main", "steps"),
    ),
    Column(
        "vram", "VRAM", 6, "device memory it holds, all GPUs",
        lambda f: f.vram_bytes, lambda f: _if_gpu(f, units.size(f.vram_bytes)), 85, ease=1,
        presets=("main", "memory"), kind="bytes",
    ),
    Column(
        "cpu", "CPU%", 6, "CPU time; 100 is one core",
        lambda f: f.cpu_percent, lambda f: _cpu(f.cpu_percent), 90, noisy=True, presets=("main", "steps"),
    ),
    Column(
        "step", "STEP", 7, f"from one optimizer step to the next, mean of half a minute; of ranks their mean. {_METER}",
        lambda f: f.step_s, lambda f: units.took(f.step_s), 87, noisy=True, presets=("steps",), kind="seconds",
    ),
    Column(
        "slowest", "SLOWEST", 9, f"the slowest of these steps. {_METER}",
        lambda f: f.step_longest_s, lambda f: units.took(f.step_longest_s), 66, noisy=True,
        presets=("steps",), kind="seconds",
    ),
    Column(
        "data-wait", "WAIT FOR DATA", 15,
        f"share of a step that the training thread waits for the next batch of a torch DataLoader, in %. {_METER}",
        lambda f: f.data_wait_percent, lambda f: units.percent(f.data_wait_percent), 86, noisy=True,
        presets=("steps",), levels=severity.WAIT,
    ),
    Column(
        "optimizer", "OPTIM%", 8, f"share of a step that its optimizers take on the CPU. {_METER}",
        lambda f: f.optimizer_percent, lambda f: units.percent(f.optimizer_percent), 62, noisy=True,
        presets=("steps",),
    ),
    Column(
        "samples", "SAMPLES/s", 11, f"samples a second that it trains on; of ranks their sum. {_METER}",
        lambda f: f.samples_per_s, lambda f: units.count(f.samples_per_s), 84, noisy=True, presets=("steps",),
    ),
    Column(
        "threads", "THR", 5, "threads", lambda f: f.threads, lambda f: units.count(f.threads), 60,
        presets=("main", "scheduling"),
    ),
    Column(
        "rss", "RSS", 6, "resident memory; a sum counts the pages that forked loaders share more than once",
        lambda f: f.rss_bytes, lambda f: units.size(f.rss_bytes), 65, ease=1, noisy=True,
        presets=("main", "memory"), kind="bytes",
    ),
    Column(
        "pss", "PSS", 6, f"resident memory, shared pages divided among their users: this adds up. {_LOOKED_AT}",
        lambda f: f.pss_bytes, lambda f: units.size(f.pss_bytes), 64, ease=1, noisy=True,
        presets=("memory",), kind="bytes",
    ),
    Column(
        "shm", "SHM", 6, f"resident memory of files and shared memory, among it batches on their way. {_LOOKED_AT}",
        lambda f: f.shared_bytes, lambda f: units.size(f.shared_bytes), 57, ease=1, noisy=True,
        presets=("memory",), kind="bytes",
    ),
    Column(
        "swap", "SWAP", 6, f"memory in swap. {_LOOKED_AT}",
        lambda f: f.swap_bytes, lambda f: units.size(f.swap_bytes), 70, ease=1,
        presets=("memory",), kind="bytes",
    ),
    Column(
        "faults", "MAJFLT/s", 9, "page faults a second that had to read from storage",
        lambda f: f.major_faults_per_s, lambda f: units.count(f.major_faults_per_s), 59, noisy=True,
        presets=("memory",),
    ),
    Column(
        "wait", "WAIT%", 7, "time its threads waited for a free CPU, of waiting and running",
        lambda f: f.wait_percent, lambda f: units.percent(f.wait_percent), 55, noisy=True,
        presets=("main", "scheduling"), levels=severity.WAIT,
    ),
    Column(
        "asked", "VOL/s", 7, f"context switches a second that it asked for: it waited for something. {_LOOKED_AT}",
        lambda f: f.voluntary_switches_per_s, lambda f: units.count(f.voluntary_switches_per_s), 52, noisy=True,
        presets=("scheduling",),
    ),
    Column(
        "forced", "INVOL/s", 9, f"context switches a second forced on it: others wanted its CPU. {_LOOKED_AT}",
        lambda f: f.involuntary_switches_per_s, lambda f: units.count(f.involuntary_switches_per_s), 56, noisy=True,
        presets=("scheduling",),
    ),
    Column(
        "last-cpu", "CPU", 5, "CPU its main thread last ran on",
        lambda f: f.last_cpu, lambda f: _of_many(f, f.last_cpu, _whole(f.last_cpu)), 40, presets=("scheduling",),
    ),
    Column(
        "affinity", "AFFINITY", 12, f"CPUs it may run on, by number, or how many. {_LOOKED_AT}",
        lambda f: f.affinity, _affinity, 48, "left", presets=("scheduling",), kind="word",
    ),
    Column(
        "numa", "NUMA", 6, f"NUMA nodes of these CPUs. {_LOOKED_AT}",
        _nodes, lambda f: _of_many(f, f.affinity, _few(_nodes(f))), 46,
        presets=("scheduling",), kind="word",
    ),
    Column(
        "nice", "NICE", 6, "scheduling niceness: the higher, the more it gives way",
        lambda f: f.nice, lambda f: _of_many(f, f.nice, _whole(f.nice)), 38, presets=("scheduling",),
    ),
    Column(
        "read", "READ/s", 8, "bytes a second read from storage, page cache excluded",
        lambda f: f.read_bytes_per_s, lambda f: units.rate(f.read_bytes_per_s), 75, noisy=True,
        presets=("main", "io"), kind="bytes",
    ),
    Column(
        "write", "WRITE/s", 9, "bytes a second written to storage, page cache excluded",
        lambda f: f.write_bytes_per_s, lambda f: units.rate(f.write_bytes_per_s), 50, noisy=True,
        presets=("main", "io"), kind="bytes",
    ),
    Column(
        "rchar", "RCHAR/s", 8, "bytes a second read through system calls: page cache, pipes and sockets included",
        lambda f: f.read_chars_per_s, lambda f: units.rate(f.read_chars_per_s), 49, noisy=True,
        presets=("io",), kind="bytes",
    ),
    Column(
        "syscr", "SYSCR/s", 8, "read system calls a second",
        lambda f: f.read_calls_per_s, lambda f: units.count(f.read_calls_per_s), 48, noisy=True, presets=("io",),
    ),
    Column(
        "mean-read", "MEAN-READ", 10, "bytes a read call, mean: a few K are many small files, or an unbuffered reader",
        lambda f: f.mean_read_bytes, lambda f: units.size(f.mean_read_bytes), 54, noisy=True,
        presets=("io",), kind="bytes",
    ),
    Column(
        "io", "IO%", 5,
        "time blocked on storage: measured by delay accounting (sysctl kernel.task_delayacct=1), else the share of "
        "looks in which it was in state D. Of a job: its ranks or its loaders, whichever wait more",
        lambda f: f.io_percent, lambda f: units.percent(f.io_percent), 58, noisy=True, presets=("main", "io"),
        levels=severity.IO_WAIT,
    ),
    Column(
        "state", "STATE", 7,
        "D blocked, R running, S asleep, I idle, T stopped, Z ended and not reaped. Of many: the first of D Z T R S I "
        "that one of them is in",
        lambda f: f.state, lambda f: f.state or units.UNKNOWN, 53, "left", presets=("io",), kind="word",
    ),
    Column(
        "wchan", "WCHAN", 12, f"kernel function its main thread sleeps in. {_LOOKED_AT}",
        lambda f: f.waiting_in, lambda f: _of_many(f, f.waiting_in, f.waiting_in or units.UNKNOWN), 47, "left", 12,
        presets=("io",), kind="word",
    ),
    Column(
        "files", "FILES", 6, "files, sockets and pipes it has open. Read only of processes that this preset shows",
        lambda f: f.open_files, lambda f: units.count(f.open_files), 45, presets=("io",),
    ),
    Column(
        "time", "TIME", 9, "time since it started", lambda f: f.age_s, lambda f: _time(f.age_s), 30, kind="seconds",
    ),
    Column(
        "command", "COMMAND", 1, "what it runs; its rank in the job; loaders by number",
        lambda _: None, lambda _: "", ALWAYS, "left", presets=_ALL, kind="word",
    ),
)  # fmt: skip

BY_ID: dict[str, Column] = {column.id: column for column in COLUMNS}
TITLE = 1 + max(len(column.title) for column in COLUMNS)  # cells of a list of them, with the gap
SORTABLE: tuple[Column, ...] = tuple(column for column in COLUMNS if column.id != "command")


def of(preset: Preset, chosen: Sequence[str] = ()) -> tuple[Column, ...]:
    """The columns of a preset, from the left; of the main one those that somebody has `chosen`, by id, if any."""
    if preset == "main" and chosen:
        return tuple(BY_ID[id] for id in (*chosen, LAST))
    return tuple(column for column in COLUMNS if preset in column.presets)


def beside(id: str, step: int, preset: Preset = "main", chosen: Sequence[str] = ()) -> str:
    """The column of a preset left (-1) or right (1) of one, around the ends; its first where it has not that one."""
    ids = [column.id for column in of(preset, chosen) if column in SORTABLE]
    return ids[(ids.index(id) + step) % len(ids)] if id in ids else ids[0]

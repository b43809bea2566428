"""The columns of the table, declared once, and which of them fit a width."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Literal

from gputop import labels, severity, units
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
    """One column: all that the screen, the text, sorting, the filter, the settings and the manual make of it."""

    id: str
    title: str
    width: int  # with its gap
    help: str  # what it is, without a full stop
    source: str  # where it is read
    value: Callable[[Figures], Value]  # what sorts, and what the filter compares
    form: Callable[[Any], str]  # how it is written
    keep: int  # the lowest yields first where the screen is narrow; never: ALWAYS
    align: Literal["left", "right"] = "right"
    ease: int = 0  # cells more where there is room
    presets: tuple[Preset, ...] = ("main",)
    kind: Kind = "number"  # how a person writes a value of it
    noisy: bool = False  # a change of less than 5 % moves no line of the table
    levels: Levels | None = None  # from where on a value is amber or red
    also: tuple[str, ...] = ()  # what others call it: ps, htop, nvitop, or the first word that comes to mind
    shown: Callable[[Figures], Any] | None = None  # what is written, where that is not what sorts
    whole: Callable[[Any], str] | None = None  # how it is written where there is room for more
    text_keep: int = 0  # how long it stays in the text, where no advice says the same; 0: as on the screen
    blank: Callable[[Figures], bool] | None = None  # where there is nothing to know: what is None is not unknown

    @property
    def definition(self) -> str:
        """Its entry in manual, help and glossary: meaning, normal values, source."""
        normal = f" Normal: below {self.levels.warn:.0f} %." if self.levels else ""
        return f"{self.help}.{normal} Source: {self.source}."

    def text(self, figures: Figures, *, whole: bool = False) -> str:
        """What stands in its cell."""
        value = (self.shown or self.value)(figures)
        if value is None and self.blank and self.blank(figures):
            return ""
        form = self.whole if whole and self.whole else self.form
        return form(value)


def _total(metric: str) -> Callable[[Figures], float | None]:
    """A metric of one process, the sum of many."""
    return lambda figures: figures.total(metric)


def _mean(metric: str) -> Callable[[Figures], float | None]:
    return lambda figures: figures.mean(metric)


def _most(metric: str) -> Callable[[Figures], float | None]:
    return lambda figures: figures.most(metric)


def _same(metric: str) -> Callable[[Figures], Any]:
    return lambda figures: figures.same(metric)


def _pid(figures: Figures) -> int | None:
    """Its own, or the first of those that it speaks for."""
    return min((process.pid for process in figures.processes), default=None) if figures.pid is None else figures.pid


def _always(_: Figures) -> bool:
    return True


def _no_gpu(figures: Figures) -> bool:
    return not figures.gpus


def _several(figures: Figures) -> bool:
    """Processes may differ: only what is unknown of one of them is unknown."""
    return figures.count > 1


def _gpus(indexes: tuple[str, ...]) -> str:
    text = labels.numbers(indexes)
    return text if len(text) <= 4 else f"{len(indexes)}x"


def _cpu(value: float | None) -> str:
    return units.percent(value) if value is None or value < 99_999.5 else units.count(value)


def _time(seconds: float | None) -> str:
    text = units.clock(seconds)
    return text if seconds is None or len(text) <= 8 else f"{int(seconds) // 86400}d"


def _word(text: str | None) -> str:
    return text or units.UNKNOWN


def _affinity(cpus: str | None) -> str:
    return _word(cpus) if cpus is None or len(cpus) <= _AFFINITY else f"{len(_cpus(cpus))} CPUs"


def _nodes(figures: Figures) -> str | None:
    """The NUMA nodes whose CPUs it may run on."""
    affinity, nodes = figures.same("affinity"), figures.frame.host.nodes
    return _near(affinity, tuple((node.number, node.cpus) for node in nodes)) if affinity and nodes else None


def _few(nodes: str | None) -> str:
    return _word(nodes) if nodes is None or len(nodes) < 6 else f"{len(_cpus(nodes))}x"


@lru_cache(maxsize=256)
def _near(affinity: str, nodes: tuple[tuple[int, str], ...]) -> str | None:
    allowed = _cpus(affinity)
    return units.ranges(tuple(number for number, cpus in nodes if allowed & _cpus(cpus))) or None


@lru_cache(maxsize=256)
def _cpus(ranges: str) -> frozenset[int]:
    try:
        return frozenset(units.parse_ranges(ranges))
    except ValueError:
        return frozenset()


def _whole(value: float | None) -> str:
    return units.UNKNOWN if value is None else f"{value:.0f}"


_AFFINITY = 10  # cells
_ALL: tuple[Preset, ...] = ("main", "steps", "io", "memory", "scheduling")
_METER = "step meter in the trainer; only jobs started with `gputop run`"
_ON_SCREEN = "only of processes on the screen or that use a GPU"
_SMAPS = f"/proc/PID/smaps_rollup, {_ON_SCREEN}"
_STATUS = f"/proc/PID/status, {_ON_SCREEN}"

COLUMNS: tuple[Column, ...] = (
    Column(
        "pid", "PID", 15, "process ID; in the row of a job, its name", "/proc",
        _pid, str, ALWAYS, "left", 2, _ALL, shown=lambda f: f.pid, blank=_always,
    ),
    Column(
        "user", "USER", 7, "user the process runs as", "/proc/PID", lambda f: f.user, _word, 80, "left", 2,
        ("main", "steps", "io", "memory"), "word", also=("owner", "username"),
    ),
    Column(
        "gpu", "GPU", 5, "indexes of the GPUs it has memory on", "NVML",
        lambda f: f.gpus[0].zfill(6) if f.gpus else None, _gpus, 95,
        presets=("main", "steps"), kind="word", shown=lambda f: f.gpus or None, whole=labels.numbers, blank=_no_gpu,
    ),
    Column(
        "gpu-busy", "GPU%", 6,
        "share of time in which its kernels were resident, averaged over its GPUs. 100 does not mean efficient: one "
        "small kernel, or a hung collective, also reads 100", "NVML",
        lambda f: f.gpu_percent, units.percent, 88, noisy=True,
        presets=("main", "steps"), also=("util", "sm"), blank=_no_gpu,
    ),
    Column(
        "vram", "VRAM", 6, "device memory it holds, sum of its GPUs", "NVML",
        lambda f: f.vram_bytes, units.size, 85, ease=1,
        presets=("main", "memory"), kind="bytes", also=("gpu-mem", "gpumem"), blank=_no_gpu,
    ),
    Column(
        "cpu", "CPU%", 6, "CPU time; 100 % is one core", "/proc/PID/stat",
        _total("cpu_percent"), _cpu, 90, noisy=True, presets=("main", "steps"), whole=units.percent,
    ),
    Column(
        "step", "STEP", 7, "time of an optimizer step, averaged over 30 s; of several ranks, their mean", _METER,
        _mean("step_s"), units.took, 87, noisy=True, presets=("steps",), kind="seconds",
    ),
    Column(
        "slowest", "MAX STEP", 10, "slowest optimizer step of the last 30 s", _METER,
        _most("step_longest_s"), units.took, 66, noisy=True,
        presets=("steps",), kind="seconds",
    ),
    Column(
        "data-wait", "DATA WAIT%", 11,
        "share of the step time in which the training thread waits for the next batch of its DataLoader", _METER,
        _mean("data_wait_percent"), units.percent, 86, noisy=True,
        presets=("steps",), levels=severity.WAIT,
    ),
    Column(
        "optimizer", "OPTIM%", 8, "share of the step time in optimizer.step(), on the CPU", _METER,
        _mean("optimizer_percent"), units.percent, 62, noisy=True,
        presets=("steps",),
    ),
    Column(
        "samples", "SAMPLES/s", 11, "training samples per second; of several ranks, their sum", _METER,
        _total("samples_per_s"), units.count, 84, noisy=True, presets=("steps",),
    ),
    Column(
        "threads", "THR", 5, "number of threads", "/proc/PID/stat", _total("threads"), units.count, 60,
        presets=("main", "scheduling"), also=("nlwp",),
    ),
    Column(
        "rss", "RSS", 6,
        "resident memory; a sum counts pages that forked workers share more than once", "/proc/PID/stat",
        _total("rss_bytes"), units.size, 65, ease=1, noisy=True,
        presets=("main", "memory"), kind="bytes", also=("mem", "memory", "res"),
    ),
    Column(
        "pss", "PSS", 6,
        "proportional set size: resident memory, shared pages divided among their users; sums are exact", _SMAPS,
        _total("pss_bytes"), units.size, 64, ease=1, noisy=True,
        presets=("memory",), kind="bytes",
    ),
    Column(
        "shm", "SHM", 6,
        "resident memory of mapped files and shared memory, including batches in flight from workers", _STATUS,
        _total("shared_bytes"), units.size, 57, ease=1, noisy=True,
        presets=("memory",), kind="bytes", also=("shr",),
    ),
    Column(
        "swap", "SWAP", 6, "memory in swap", _STATUS,
        _total("swap_bytes"), units.size, 70, ease=1,
        presets=("memory",), kind="bytes",
    ),
    Column(
        "faults", "MAJFLT/s", 9, "major page faults per second: those that read from storage", "/proc/PID/stat",
        _total("major_faults_per_s"), units.count, 59, noisy=True,
        presets=("memory",),
    ),
    Column(
        "wait", "CPU WAIT%", 10,
        "run queue wait: time its threads were runnable but had no CPU, as a share of waiting and running. It is not "
        "I/O wait", "/proc/PID/schedstat",
        lambda f: f.wait_percent, units.percent, 55, noisy=True,
        presets=("main", "scheduling"), levels=severity.WAIT, text_keep=70, also=("wait%", "run-queue"),
    ),
    Column(
        "asked", "VOL/s", 7, "voluntary context switches per second: it waited for I/O, a lock or a timer", _STATUS,
        _total("voluntary_switches_per_s"), units.count, 52, noisy=True,
        presets=("scheduling",),
    ),
    Column(
        "forced", "INVOL/s", 9,
        "involuntary context switches per second: the scheduler gave its CPU to another thread", _STATUS,
        _total("involuntary_switches_per_s"), units.count, 56, noisy=True,
        presets=("scheduling",),
    ),
    Column(
        "last-cpu", "CPU", 5, "CPU that its main thread last ran on", "/proc/PID/stat",
        _same("last_cpu"), _whole, 40, presets=("scheduling",), blank=_several,
    ),
    Column(
        "affinity", "AFFINITY", 12, "CPUs it may run on, as ranges or as their number", _STATUS,
        _same("affinity"), _affinity, 48, "left", presets=("scheduling",), kind="word", whole=_word, blank=_several,
    ),
    Column(
        "numa", "NUMA", 6, "NUMA nodes of the CPUs it may run on", f"{_STATUS}; /sys/devices/system/node",
        _nodes, _few, 46, presets=("scheduling",), kind="word",
        whole=_word, blank=lambda f: f.same("affinity") is None and _several(f),
    ),
    Column(
        "nice", "NICE", 6, "niceness, from -20 to 19: a higher value has lower priority", "/proc/PID/stat",
        _same("nice"), _whole, 38, presets=("scheduling",), also=("ni",), blank=_several,
    ),
    Column(
        "read", "READ/s", 8,
        "bytes per second read from storage; reads from the page cache are not counted", "/proc/PID/io",
        _total("read_bytes_per_s"), units.rate, 75, noisy=True,
        presets=("main", "io"), kind="bytes",
    ),
    Column(
        "write", "WRITE/s", 9, "bytes per second written to storage", "/proc/PID/io",
        _total("write_bytes_per_s"), units.rate, 50, noisy=True,
        presets=("main", "io"), kind="bytes",
    ),
    Column(
        "rchar", "RCHAR/s", 8,
        "bytes per second read by system calls, including the page cache, pipes and sockets", "/proc/PID/io",
        _total("read_chars_per_s"), units.rate, 49, noisy=True,
        presets=("io",), kind="bytes",
    ),
    Column(
        "syscr", "SYSCR/s", 8, "read system calls per second", "/proc/PID/io",
        _total("read_calls_per_s"), units.count, 48, noisy=True, presets=("io",),
    ),
    Column(
        "mean-read", "READ SIZE", 10,
        "average bytes per read call: a few KiB mean many small files, or unbuffered reads",
        "/proc/PID/io",
        lambda f: f.mean_read_bytes, units.size, 54, noisy=True,
        presets=("io",), kind="bytes",
    ),
    Column(
        "io", "IO%", 5,
        "share of time blocked on storage; without delay accounting (sysctl kernel.task_delayacct=1), the share of "
        "samples in state D. Of a job: its ranks or its workers, whichever wait more", "/proc/PID/stat",
        lambda f: f.io_percent, units.percent, 58, noisy=True, presets=("main", "io"),
        levels=severity.IO_WAIT,
    ),
    Column(
        "state", "STATE", 7,
        "D blocked on I/O (uninterruptible), R running or runnable, S sleeping, I idle kernel thread, T stopped, "
        "Z zombie. Of several processes: the first of D Z T R S I that occurs", "/proc/PID/stat",
        lambda f: f.state, _word, 53, "left", presets=("io",), kind="word", also=("s", "stat", "status"),
    ),
    Column(
        "wchan", "WCHAN", 12, "kernel function in which its main thread sleeps", f"/proc/PID/wchan, {_ON_SCREEN}",
        _same("waiting_in"), _word, 47, "left", 12,
        presets=("io",), kind="word", blank=_several,
    ),
    Column(
        "files", "FILES", 6,
        "open file descriptors: files, sockets and pipes", "/proc/PID/fd, only while this preset is shown",
        _total("open_files"), units.count, 45, presets=("io",),
    ),
    Column(
        "time", "TIME", 9, "time since it started", "/proc/PID/stat", _most("age_s"), _time, 30, kind="seconds",
        also=("age", "elapsed", "etime"), whole=units.clock,
    ),
    Column(
        "command", "COMMAND", 1, "command line; rank in the job; DataLoader workers by number", "/proc/PID/cmdline",
        lambda _: None, _word, ALWAYS, "left", presets=_ALL, kind="word", blank=_always,
    ),
)  # fmt: skip

BY_ID: dict[str, Column] = {column.id: column for column in COLUMNS}
TITLE = 1 + max(len(column.title) for column in COLUMNS)  # cells of a list of them, with the gap
SORTABLE: tuple[Column, ...] = tuple(column for column in COLUMNS if column.id != "command")


def of(preset: Preset, chosen: Sequence[str] = ()) -> tuple[Column, ...]:
    """The columns of a preset, from the left; of the main one those that somebody has `chosen`, by id, if any."""
    if preset == "main" and chosen:
        return tuple(BY_ID[id] for id in (*chosen, COLUMNS[-1].id))
    return tuple(column for column in COLUMNS if preset in column.presets)


def beside(id: str, step: int, preset: Preset = "main", chosen: Sequence[str] = ()) -> str:
    """The column of a preset left (-1) or right (1) of one, around the ends; its first where it has not that one."""
    ids = [column.id for column in of(preset, chosen) if column in SORTABLE]
    return ids[(ids.index(id) + step) % len(ids)] if id in ids else ids[0]

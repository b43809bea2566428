"""The end of a training log: errors with a known cause, in order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from gputop.paste import log_memory, log_nan, log_ranks
from gputop.paste.pasted import Pasted, TextKind, lines
from gputop.report import Do, Point, ReportTable
from gputop.safe.text import clean


class KnownError(NamedTuple):
    """A known error by its message, with the steps to take."""

    name: str
    pattern: re.Pattern[str]
    headline: str
    steps: tuple[str | Do, ...]


_KNOWN = (
    KnownError(
        "shared memory",
        re.compile(
            r"Unexpected bus error.*(?:worker|shm)|killed by signal: Bus error|out of shared memory|"
            r"unable to (?:write to|open|resize|allocate) .{0,20}(?:file|shared memory) ?.{0,4}</torch_|"
            r"No space left on device.*/dev/shm|/dev/shm.*No space left on device",
            re.IGNORECASE,
        ),
        "/dev/shm is full: a DataLoader worker could not pass on its batch.",
        (
            Do("Give the container more shared memory.", "docker run --shm-size=16g ..."),
            "Kubernetes: mount an emptyDir with medium Memory at /dev/shm.",
            "Until then, lower num_workers and prefetch_factor.",
            Do("See its size and use.", "df -h /dev/shm"),
        ),
    ),
    KnownError(
        "worker killed",
        re.compile(r"DataLoader worker \(pid.{0,80}?(?:killed by signal: Killed|exited unexpectedly)"),
        "A DataLoader worker was killed, usually because host memory ran out.",
        (
            Do("See whether the kernel killed it.", "dmesg -T | grep -i -E 'killed process|oom'"),
            "Lower num_workers or prefetch_factor: each worker holds a copy of what it touches.",
            "Keep large data in NumPy arrays or Arrow, not in lists of Python objects.",
            "Run once with num_workers=0: an exception of the dataset shows its traceback then.",
        ),
    ),
    KnownError(
        "rank killed",
        re.compile(r"exitcode {0,4}: {0,4}-9\b|Signal 9 \(SIGKILL\)|oom[-_]kill|Out of memory: Killed process"),
        "A process was killed with SIGKILL, usually because host memory ran out.",
        (
            Do("See whether the kernel killed it.", "dmesg -T | grep -i -E 'killed process|oom'"),
            "Raise the memory limit of the container or the Slurm job, or lower num_workers.",
        ),
    ),
    KnownError(
        "address in use",
        re.compile(r"EADDRINUSE|address already in use", re.IGNORECASE),
        "The rendezvous port is in use by another job, or by a process left from the last run.",
        (
            Do("Let torchrun choose a free port.", "torchrun --standalone --nproc-per-node=gpu train.py"),
            Do("Or choose another port.", "export MASTER_PORT=29501"),
            Do("See which process uses it.", "ss -ltnp | grep 29500"),
        ),
    ),
    KnownError(
        "open files",
        re.compile(r"Too many open files|received 0 items of ancdata"),
        "Too many open files: workers pass each tensor as a file descriptor.",
        (Do("Raise the limit.", "ulimit -n 65536"),),
    ),
    KnownError(
        "device assert",
        re.compile(r"device-side assert triggered|Assertion `[^`]{1,200}` failed"),
        "A kernel asserted: usually an index or a label out of range.",
        (
            Do(
                "Run again to see the line: calls then wait for their kernel.", "CUDA_LAUNCH_BLOCKING=1 python train.py"
            ),
            "Check labels against the number of classes, and token ids against the vocabulary.",
        ),
    ),
    KnownError(
        "illegal memory access",
        re.compile(r"illegal memory access was encountered|CUDA error: misaligned address"),
        "A kernel accessed memory out of bounds.",
        (
            Do(
                "Run again to see the line: calls then wait for their kernel.", "CUDA_LAUNCH_BLOCKING=1 python train.py"
            ),
            Do("Name the kernel.", "compute-sanitizer --tool memcheck python train.py"),
            "Suspect custom CUDA and Triton kernels first.",
        ),
    ),
    KnownError(
        "no kernel image",
        re.compile(r"no kernel image is available for execution|is not compatible with the current PyTorch"),
        "This PyTorch was built without kernels for this GPU.",
        (Do("See which build fits driver and GPU.", "gputop doctor"),),
    ),
    KnownError(
        "driver too old",
        re.compile(r"CUDA driver version is insufficient|The NVIDIA driver on your system is too old"),
        "The driver is older than this PyTorch's CUDA.",
        (Do("See which build fits the driver.", "gputop doctor"),),
    ),
    KnownError(
        "GPU lost",
        re.compile(r"GPU has fallen off the bus|Unable to determine the device handle|GPU is lost|Xid.{0,40}: 79\b"),
        "The GPU fell off the bus: a hardware fault.",
        (
            Do("Read the driver's messages.", "dmesg -T | grep -i -E 'xid|nvrm'"),
            "Drain the node, then power-cycle it; replace the GPU if the fault returns.",
        ),
    ),
    KnownError(
        "ECC error",
        re.compile(r"uncorrectable ECC error", re.IGNORECASE),
        "GPU memory has an uncorrectable ECC error.",
        (
            Do("See counts and pending repairs.", "nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT"),
            "Reset the GPU once it is idle; replace it if the errors return.",
        ),
    ),
)


def find(text: Sequence[str]) -> Iterator[tuple[int, str, Point, dict[str, Any]]]:
    """One item per error in the log, at its first line; workers killed by a full /dev/shm count once."""
    found: set[str] = set()
    for known in _KNOWN:
        at = [number for number, line in enumerate(text) if known.pattern.search(line)]
        if not at or (known.name == "worker killed" and "shared memory" in found):
            continue
        found.add(known.name)
        line = clean(" ".join(text[at[0]].split()), 160)
        facts = (line, f"{len(at)} times") if len(at) > 1 else (line,)
        point = Point(severity="crit", text=known.headline, facts=facts, steps=known.steps)
        yield at[0], known.name, point, {"count": len(at), "message": line}


_MOST_LINES = 200_000
_STACK = re.compile(r".*;.* \d{1,15}$")  # a line of collapsed stacks, whatever its names
_FRAME = re.compile(r'\s*File "([^"\n]{1,300})", line (\d{1,7}), in (\S{1,80})')
_LIBRARY = re.compile(r"site-packages|dist-packages|/lib/python\d|<frozen|<string>|/torch/")
_STEP = re.compile(r"\b(?:step|iter(?:ation)?|global_step|it)\b['\"]?[\s:=#\[]{0,4}(\d{1,9})", re.IGNORECASE)
_MOST_FRAMES = 300  # lines of one traceback
_QUOTED = 160  # characters quoted from a line


class LogError(NamedTuple):
    """One error of a log: first line, item, numbers."""

    line: int
    name: str
    point: Point
    numbers: dict[str, Any]


def _finders() -> tuple[Callable[[Sequence[str]], Iterator[tuple[int, str, Point, dict[str, Any]]]], ...]:
    return (log_memory.find, log_ranks.find, log_nan.find, find)


def looks_like(text: str) -> bool:
    """Whether it contains a known error."""
    return next(_troubles(_lines(text)), None) is not None


def _lines(text: str) -> list[str]:
    return [line for line in lines(text)[-_MOST_LINES:] if not _STACK.match(line)]


def _troubles(text: Sequence[str]) -> Iterator[LogError]:
    for find in _finders():
        for found in find(text):
            yield LogError(*found)


def read(text: str) -> Pasted:
    """The report on a log: one item per kind of error, in the order of their first lines."""
    log = _lines(text)
    found = sorted(_troubles(log), key=lambda trouble: trouble.line)
    where = _where(log, found[0].line if found else 0)
    lines = sum(1 for line in log if line.strip())
    return Pasted(
        kind="log",
        about=f"The tail of a log: {lines} {'line' if lines == 1 else 'lines'}",
        problems=("It ends within a traceback: the error itself is missing.",) if _unfinished(log) else (),
        words=tuple(_words(log, found, where)),
        points=tuple(trouble.point for trouble in found),
        tables=(
            ReportTable(
                "Where it is in the log",
                ("trouble", "line"),
                tuple((trouble.name, f"{trouble.line + 1}: {_quote(log[trouble.line])}") for trouble in found),
                True,
            ),
        ),
        notes=() if found else ("a log has no GPU times: use gputop diagnose or a trace to find slow steps",),
        numbers={
            "troubles": [{"name": one.name, "line": one.line + 1, **one.numbers} for one in found],
            "raised_at": where,
        },
    )


def _unfinished(log: Sequence[str]) -> bool:
    """Whether the last traceback lacks its error line."""
    filled = [line for line in log[-_MOST_FRAMES:] if line.strip()]
    start = max((at for at, line in enumerate(filled) if line.startswith("Traceback (most")), default=None)
    return start is not None and all(line.startswith(" ") for line in filled[start + 1 :])


def _words(log: Sequence[str], found: Sequence[LogError], where: str | None) -> Iterator[str]:
    if len(found) > 1:
        yield f"The first error is usually the cause of those after it: {found[0].name}."
    if where:
        yield f"Your code: {where}."
    steps = [match[1] for line in log[: found[0].line + 1] if (match := _STEP.search(line))] if found else []
    if steps:
        yield f"Last step in the log before it: {steps[-1]}."


def _where(log: Sequence[str], line: int) -> str | None:
    """The innermost frame of the program's own code in the traceback around an error."""
    place = None
    for text in log[max(0, line - 120) : line + 1]:
        if text.startswith("Traceback"):
            place = None
        if (match := _FRAME.match(text)) and not _LIBRARY.search(match[1]):
            place = clean(f"{match[1].rpartition('/')[2]}:{match[2]} ({match[3]})", 160)
    return place


def _quote(line: str) -> str:
    return clean(" ".join(line.split()), _QUOTED)


KIND = TextKind("log", "the tail of a log with a known error", looks_like, read)

"""Other errors of a training log with a known cause: killed workers, /dev/shm, ports, files, failed GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from gputop.page import Do, Point
from gputop.safe.text import clean


class Known(NamedTuple):
    """An error by its message, and what to do about it."""

    name: str
    pattern: re.Pattern[str]
    headline: str
    steps: tuple[str | Do, ...]


_KNOWN = (
    Known(
        "shared memory",
        re.compile(
            r"Unexpected bus error.*(?:worker|shm)|killed by signal: Bus error|out of shared memory|"
            r"unable to (?:write to|open|resize|allocate) .{0,20}(?:file|shared memory) ?.{0,4}</torch_|"
            r"No space left on device.*/dev/shm|/dev/shm.*No space left on device",
            re.IGNORECASE,
        ),
        "/dev/shm is full: a DataLoader worker could not pass its batch on.",
        (
            Do("Give the container more shared memory.", "docker run --shm-size=16g ..."),
            "Kubernetes: mount an emptyDir with medium Memory at /dev/shm.",
            "Until then, lower num_workers and prefetch_factor.",
            Do("See its size and use.", "df -h /dev/shm"),
        ),
    ),
    Known(
        "worker killed",
        re.compile(r"DataLoader worker \(pid.{0,80}?(?:killed by signal: Killed|exited unexpectedly)"),
        "A DataLoader worker was killed, usually since host memory ran out.",
        (
            Do("See whether the kernel killed it.", "dmesg -T | grep -i -E 'killed process|oom'"),
            "Lower num_workers or prefetch_factor: each worker holds a copy of what it touches.",
            "Keep large data in NumPy arrays or Arrow, not in lists of Python objects.",
            "Run once with num_workers=0: an exception of the dataset shows its traceback then.",
        ),
    ),
    Known(
        "rank killed",
        re.compile(r"exitcode {0,4}: {0,4}-9\b|Signal 9 \(SIGKILL\)|oom[-_]kill|Out of memory: Killed process"),
        "A process was killed with SIGKILL, usually since host memory ran out.",
        (
            Do("See whether the kernel killed it.", "dmesg -T | grep -i -E 'killed process|oom'"),
            "Raise the memory limit of the container or the Slurm job, or lower num_workers.",
        ),
    ),
    Known(
        "address in use",
        re.compile(r"EADDRINUSE|address already in use", re.IGNORECASE),
        "The rendezvous port is taken: another job, or a process left from the last run, listens there.",
        (
            Do("Let torchrun choose a free port.", "torchrun --standalone --nproc-per-node=gpu train.py"),
            Do("Or choose another port.", "export MASTER_PORT=29501"),
            Do("See which process holds it.", "ss -ltnp | grep 29500"),
        ),
    ),
    Known(
        "open files",
        re.compile(r"Too many open files|received 0 items of ancdata"),
        "Too many open files: workers pass each tensor as a file descriptor.",
        (Do("Raise the limit.", "ulimit -n 65536"),),
    ),
    Known(
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
    Known(
        "illegal memory access",
        re.compile(r"illegal memory access was encountered|CUDA error: misaligned address"),
        "A kernel accessed memory that is not its own.",
        (
            Do(
                "Run again to see the line: calls then wait for their kernel.", "CUDA_LAUNCH_BLOCKING=1 python train.py"
            ),
            Do("Name the kernel.", "compute-sanitizer --tool memcheck python train.py"),
            "Suspect custom CUDA and Triton kernels first.",
        ),
    ),
    Known(
        "no kernel image",
        re.compile(r"no kernel image is available for execution|is not compatible with the current PyTorch"),
        "This PyTorch was built without kernels for this GPU.",
        (Do("See which build fits driver and GPU.", "gputop doctor"),),
    ),
    Known(
        "driver too old",
        re.compile(r"CUDA driver version is insufficient|The NVIDIA driver on your system is too old"),
        "The driver is older than this PyTorch's CUDA.",
        (Do("See which build fits the driver.", "gputop doctor"),),
    ),
    Known(
        "GPU lost",
        re.compile(r"GPU has fallen off the bus|Unable to determine the device handle|GPU is lost|Xid.{0,40}: 79\b"),
        "The GPU fell off the bus: a hardware fault.",
        (
            Do("Read what the driver says.", "dmesg -T | grep -i -E 'xid|nvrm'"),
            "Drain the node, then power it off and on; replace the GPU if it comes back.",
        ),
    ),
    Known(
        "ECC error",
        re.compile(r"uncorrectable ECC error", re.IGNORECASE),
        "GPU memory has an uncorrectable ECC error.",
        (
            Do("See counts and pending repairs.", "nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT"),
            "Reset the GPU once it is idle; replace it if errors come back.",
        ),
    ),
)


def find(text: Sequence[str]) -> Iterator[tuple[int, str, Point, dict[str, Any]]]:
    """One trouble for each error that is in the log, at its first line; workers that /dev/shm ended count once."""
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

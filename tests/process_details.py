"""What the kernel tells of a process, written by hand: every part of it is one that a test can name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from math import inf
from typing import Any

from gputop.model import (
    PARTS,
    Detail,
    File,
    Frame,
    Io,
    Limit,
    Memory,
    Missing,
    Overview,
    Process,
    Relative,
    Thread,
    Variable,
)
from gputop.source import OTHERS_ENVIRONMENT, DetailWish
from tests.scripted_jobs import GIB, MIB, frame, training


def thread(tid: int, name: str = "python", **known: Any) -> Thread:
    """A thread that sleeps on a futex."""
    defaults: dict[str, Any] = {"state": "S", "cpu_percent": 0.0, "system_call": "futex", "last_cpu": 3}
    return Thread(tid=tid, name=name, **{**defaults, **known})


def full(process: Process, shown: Frame, **parts: Any) -> Detail:
    """Details in which nothing is missing; some parts may be given."""
    children = [one for one in shown.processes if one.parent_pid == process.pid]
    parents = [one for one in shown.processes if one.pid == process.parent_pid]
    shard = File(
        fd=17, path="/data/shard-0042.tar", kind="file", mode="r", position_bytes=96 * MIB, size_bytes=384 * MIB,
        moved_bytes_per_s=58.0 * MIB,
    )  # fmt: skip
    known: dict[str, Any] = {
        "threads": (
            thread(process.pid, cpu_percent=97.0, state="R", system_call=None),
            thread(process.pid + 1, "pt_autograd_0", cpu_percent=31.0),
            thread(process.pid + 2, "nfs-reader", state="D", waiting_in="nfs_wait_bit_killable"),
        ),
        "threads_count": 3,
        "files": (File(fd=0, path="/dev/null", kind="device", mode="r"), shard),
        "files_count": 2,
        "file_now": shard,
        "io": Io(read_bytes=7 * GIB, written_bytes=3 * MIB, read_calls=1_200_000),
        "memory": Memory(
            virtual_bytes=90 * GIB, peak_bytes=15 * GIB, pss_bytes=11 * GIB, nodes=((0, 9 * GIB), (1, GIB))
        ),
        "overview": Overview(
            exe="/opt/conda/bin/python3.12", folder="/home/alice/llama", policy="other", oom_score=667,
            io_priority="from its nice value",
            tracer_pid=4711, own_namespaces=("mnt", "pid"), capabilities="none", seccomp="filter",
            parents=tuple(Relative(identity=one.identity, name=one.name) for one in parents),
        ),
        "limits": (
            Limit(name="open files", unit="files", soft=1024, hard=inf, used=1000),
            Limit(name="stack size", unit="bytes", soft=8 * MIB, hard=inf),
        ),
        "environment": (
            Variable(name="HF_TOKEN", value="***", secret=True),
            Variable(name="OMP_NUM_THREADS", value="8"),
            Variable(name="PROXY", value="http://me:***@proxy.example", secret=True),
        ),
        "children": tuple(Relative(identity=one.identity, name=one.name, file=shard) for one in children),
    }  # fmt: skip
    return Detail(identity=process.identity, mono_s=shown.mono_s, **{**known, **parts})


def asked(detail: Detail, wishes: list[DetailWish] | None = None) -> Callable[[DetailWish], Detail]:
    """What a source says that has these details: only what is wished, and secrets only one by one."""

    def answer(wish: DetailWish) -> Detail:
        if wishes is not None:
            wishes.append(wish)
        hidden = {field.name: None for field in fields(Detail) if field.name in set(PARTS) - set(wish.parts)}
        found = replace(detail, **hidden)  # type: ignore[arg-type]
        shown = [
            replace(one, value=f"secret of {one.name}", revealed=True) if one.name in wish.revealed else one
            for one in found.environment or ()
        ]
        return replace(found, environment=tuple(shown)) if found.environment else found

    return answer


def of_another_user(detail: Detail) -> Callable[[DetailWish], Detail]:
    """The same for root, who has to ask for the environment."""

    def answer(wish: DetailWish) -> Detail:
        if wish.others_environment or "environment" not in wish.parts:
            return asked(detail)(wish)
        return replace(asked(detail)(wish), environment=None, missing=(OTHERS_ENVIRONMENT,))

    return answer


def unread(detail: Detail) -> Callable[[DetailWish], Detail]:
    """Details of which nothing has been read yet."""

    def answer(wish: DetailWish) -> Detail:
        missing = tuple(Missing(metric=part, reason="stale") for part in wish.parts)
        return Detail(identity=detail.identity, mono_s=detail.mono_s, missing=missing)

    return answer


LLAMA = training("llama", 41000, ranks=4, loaders=8)
RUNNING = frame(LLAMA, gpus=4)
RANK = next(process for process in RUNNING.processes if process.pid == 41100)


def later(seconds: float, without: int | None = None, *loose: Process) -> Frame:
    """The server after so long; without a process, and perhaps with others."""
    processes = tuple(one for one in RUNNING.processes if one.pid != without)
    return replace(RUNNING, mono_s=RUNNING.mono_s + seconds, processes=processes + loose)

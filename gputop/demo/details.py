"""The details of a simulated process: made from the frame, so that both agree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from math import inf
from typing import Any

from gputop.demo.generator import noise
from gputop.demo.programs import Cores, cores_so_far
from gputop.demo.server import MIB, DemoJob, DemoServer
from gputop.model import (
    Detail,
    File,
    Frame,
    Io,
    Limit,
    LimitUnit,
    Memory,
    Missing,
    Overview,
    Process,
    Relative,
    Role,
    Thread,
    Variable,
)
from gputop.source import OTHERS_ENVIRONMENT, DetailWish

_MASK = "***"
_INVENTED = "simulated server without secrets"
_SHARD_BYTES = 384 * MIB
_DENIED = ("files", "io", "environment", "system_call", "waiting_in", "exe", "folder", "own_namespaces", "pss_bytes")
_CALLS = {"futex_do_wait": "futex", "do_poll": "poll", "do_wait": "wait4"}
# share of the switches that the process asks for, and where it sleeps
_SLEEPERS = {
    "pt_autograd_0": (0.5, "futex_do_wait"),
    "pt_data_pin": (0.1, "do_poll"),
    "cuda-EvtHandlr": (0.01, "do_poll"),
    "pt_nccl_heartbt": (0.01, "futex_do_wait"),
    "pt_nccl_watchdg": (0.02, "futex_do_wait"),
}
_LIMITS: tuple[tuple[str, LimitUnit, float, float], ...] = (
    ("cpu time", "seconds", inf, inf),
    ("file size", "bytes", inf, inf),
    ("stack size", "bytes", 8 * MIB, inf),
    ("core file size", "bytes", 0, inf),
    ("processes", "processes", 4_125_000, 4_125_000),
    ("open files", "files", 1024, 1_048_576),
    ("locked memory", "bytes", inf, inf),
    ("address space", "bytes", inf, inf),
)


def detail(
    server: DemoServer, frame: Frame, process: Process, job: DemoJob | None, t: float, wish: DetailWish
) -> Detail:
    """The process at t seconds of the scenario, as the viewer may see it."""
    files = _files(process, job, t)
    children = tuple(sorted((one for one in frame.processes if one.parent_pid == process.pid), key=lambda one: one.pid))
    threads = tuple(_threads(process, _spent(job, process, t), t))
    parts: dict[str, Any] = {
        "threads": threads,
        "files": files,
        "io": _io(process, job, t),
        "memory": _memory(process, job),
        "overview": _overview(process, frame),
        "limits": tuple(_limits(process, frame, len(files))),
        "environment": tuple(_environment(process, job, wish)),
        "children": tuple(
            Relative(identity=child.identity, name=child.name, file=_now(_telling(child, job, t))) for child in children
        ),
    }
    values: dict[str, Any] = {part: parts[part] for part in wish.parts}
    if "threads" in values:
        values["threads_count"] = len(threads)
    if "files" in values:
        values |= {"files_count": len(files), "file_now": _now(files)}
    return _hidden(Detail(identity=process.identity, mono_s=frame.mono_s, **values), process, server, wish)


def _hidden(found: Detail, process: Process, server: DemoServer, wish: DetailWish) -> Detail:
    """What a user without rights on it sees; root has them, but opens the environment of others on purpose."""
    if server.viewer == process.uid:
        return found
    if server.viewer is None:
        if process.uid == 0 or wish.others_environment or "environment" not in wish.parts:
            return found
        return replace(found, environment=None, missing=(OTHERS_ENVIRONMENT,))
    missing = tuple(Missing(metric=name, reason="denied", unlock="sudo gputop") for name in _DENIED)
    threads = found.threads and tuple(replace(one, waiting_in=None, system_call=None) for one in found.threads)
    children = found.children and tuple(replace(one, file=None) for one in found.children)
    memory = found.memory and replace(found.memory, pss_bytes=None, uss_bytes=None, huge_bytes=None, nodes=None)
    overview = found.overview and replace(found.overview, exe=None, folder=None, own_namespaces=None)
    return replace(
        found, threads=threads, children=children, memory=memory, overview=overview, files=None, files_count=None,
        file_now=None, io=None, environment=None, missing=missing,
    )  # fmt: skip


def _spent(job: DemoJob | None, process: Process, t: float) -> list[Cores]:
    """CPU seconds of its threads; a process without a job works in its main thread alone."""
    if job is None or process.role not in (Role.TRAINER, Role.LOADER):
        return [Cores(process.cpu_time_s or 0.0)]
    return cores_so_far(job, process.role, process.pid, t - (process.age_s or 0.0), t)


def _threads(process: Process, spent: Sequence[Cores], t: float) -> Iterator[Thread]:
    """The main thread first, then its pool and the named ones: together they use what the process does, and did."""
    pool, cpu = spent[-1].others if spent else 0, process.cpu_percent or 0.0
    main = (process.main_thread_percent or 0.0) if pool else cpu
    each = (cpu - main) / pool if pool else 0.0
    names = [
        name for name, count in process.thread_names or ((process.name, process.threads or 1),) for _ in range(count)
    ]
    others = names[names.index(process.name) + 1 :] if process.name in names else names[1:]
    yield _thread(process, t, 0, process.name, main, sum(one.main for one in spent), process.waiting_in, 0.3)
    for place, name in enumerate(others, start=1):
        share, asleep_in = _SLEEPERS.get(name, (0.0, "futex_do_wait"))
        mine = each if place <= pool else 0.0
        time_s = sum(one.each for one in spent if place <= one.others)
        yield _thread(process, t, place, name, mine, time_s, None if mine > 60 else asleep_in, share)


def _thread(
    process: Process, t: float, place: int, name: str, cpu: float, time_s: float, waiting_in: str | None,
    switches: float,
) -> Thread:  # fmt: skip
    tid = process.pid + 48 * (place > 0) + place
    asked, forced = process.voluntary_switches_per_s or 0.0, process.involuntary_switches_per_s or 0.0
    running = waiting_in is None
    return Thread(
        tid=tid,
        name=name,
        state=process.state if place == 0 else "R" if running else "S",
        cpu_percent=cpu,
        run_wait_percent=process.run_wait_percent if cpu else 0.0,
        waiting_in=waiting_in,
        system_call=None if waiting_in is None else _CALLS.get(waiting_in, "read"),
        last_cpu=((process.last_cpu or 0) + 5 * place) % 56,
        voluntary_switches_per_s=asked * switches * (1 + 0.2 * noise(tid, t)),
        involuntary_switches_per_s=forced if place == 0 else 0.0,
        cpu_time_s=time_s,
    )


def _files(process: Process, job: DemoJob | None, t: float) -> tuple[File, ...]:
    """By descriptor, as many as the table counts."""
    files = {file.fd: file for file in _telling(process, job, t)}
    for fd in count():
        if len(files) >= (process.open_files or 0):
            break
        files.setdefault(fd, _besides(process, fd))
    return tuple(files[fd] for fd in sorted(files))


def _besides(process: Process, fd: int) -> File:
    """What every program has open: sockets, and events."""
    inode = 13 * process.pid + fd
    if inode % 3:
        return File(fd=fd, path=f"socket:[{inode}]", kind="socket")
    return File(fd=fd, path="anon_inode:[eventfd]", kind="other")


def _telling(process: Process, job: DemoJob | None, t: float) -> Iterator[File]:
    """Its standard streams, its devices, and the shard that it reads."""
    yield File(fd=0, path="/dev/null", kind="device", mode="r")
    log = f"/home/{process.user}/{process.folder}/train.log" if job else "/dev/null"
    for fd in (1, 2):
        yield File(fd=fd, path=log, kind="file" if job else "device", mode="wa")
    if job is None:
        return
    for number, share in enumerate(process.gpus):
        card = int(share.uuid.rpartition("-")[2], 16)
        yield File(fd=4 + number, path=f"/dev/nvidia{card}", kind="device", mode="rw")
    if process.role is Role.LOADER:
        yield File(fd=12, path=f"pipe:[{process.pid * 11}]", kind="pipe")
        yield File(fd=15, path=f"/dev/shm/torch_{process.pid}_{process.pid * 31}_0", kind="shared memory", mode="rw")
    if process.read_chars_per_s and process.role in (Role.LOADER, Role.TRAINER):
        read = (_io(process, job, t).read_chars_bytes or 0) + process.pid % 97 * 4 * MIB
        shard, position = divmod(read, _SHARD_BYTES)
        yield File(
            fd=17,
            path=f"{job.data}/{job.name}/train/shard-{shard % 9000 + 13 * (process.pid % 64):05d}.tar",
            kind="file",
            mode="r",
            position_bytes=position,
            size_bytes=_SHARD_BYTES,
            moved_bytes_per_s=process.read_chars_per_s,
        )


def _now(files: Iterable[File]) -> File | None:
    return next((file for file in files if file.moved_bytes_per_s), None)


def _io(process: Process, job: DemoJob | None, t: float) -> Io:
    """What it has read since it started, at the pace of each phase of its work."""
    age, loads = process.age_s or 0.0, process.role is Role.LOADER
    stored = chars = calls = 0.0
    works = job if process.role in (Role.LOADER, Role.TRAINER) else None
    for start_s, end_s, work in works.phases(t, works.card(process.pid)) if works else ():
        seconds = max(0.0, end_s - max(start_s, t - age))
        read = work.loader_read if loads else work.main_read
        every = read + (work.loader_cached if loads else work.main_chars)
        stored += seconds * read
        chars += seconds * every
        calls += seconds * every / work.read_size
    return Io(
        read_bytes=int(stored),
        written_bytes=int(age * 900),
        cancelled_bytes=0,
        read_chars_bytes=int(chars),
        written_chars_bytes=int(age * 1200),
        read_calls=int(calls),
        write_calls=int(age * 2),
    )


def _memory(process: Process, job: DemoJob | None) -> Memory:
    rss, shared = process.rss_bytes or 0, process.shared_bytes or 0
    return Memory(
        virtual_bytes=3 * rss,
        peak_bytes=int(1.04 * rss),
        anonymous_bytes=rss - shared,
        file_bytes=shared // 2,
        shared_bytes=shared - shared // 2,
        locked_bytes=0,
        pinned_bytes=64 * MIB if process.gpus else 0,
        swap_bytes=0,
        pss_bytes=process.pss_bytes,
        uss_bytes=rss - shared,
        huge_bytes=int(0.2 * rss),
        nodes=((0, int(0.93 * rss)), (1, rss - int(0.93 * rss))) if job else ((0, rss),),
    )


def _overview(process: Process, frame: Frame) -> Overview:
    by_pid = {one.pid: one for one in frame.processes}
    parents, parent = [], by_pid.get(process.parent_pid)
    while parent is not None:
        parents.append(Relative(identity=parent.identity, name=parent.name))
        parent = by_pid.get(parent.parent_pid)
    return Overview(
        exe="/opt/conda/bin/python3.12" if process.job else next(iter(process.command), None),
        folder=f"/home/{process.user}/{process.folder}" if process.job else "/",
        parents=tuple(parents),
        policy="other",
        io_priority="from its nice value",
        oom_score=667 if process.job else 0,
        oom_adjust=0,
        own_namespaces=("mnt", "pid") if process.container else (),
        capabilities="all" if process.uid == 0 else "none",
        seccomp="filter" if process.container else "off",
    )


def _limits(process: Process, frame: Frame, files: int) -> Iterator[Limit]:
    mine = sum(one.threads or 0 for one in frame.processes if one.uid == process.uid)
    used = {
        "cpu time": process.cpu_time_s,
        "processes": mine,
        "open files": files,
        "locked memory": 0,
        "address space": 3 * (process.rss_bytes or 0),
    }
    for name, unit, soft, hard in _LIMITS:
        yield Limit(name=name, unit=unit, soft=soft, hard=hard, used=used.get(name))


def _environment(process: Process, job: DemoJob | None, wish: DetailWish) -> Iterator[Variable]:
    """What launchers and people set, by name."""
    found: dict[str, object] = {"HOME": f"/home/{process.user}", "LANG": "C.UTF-8", "USER": process.user}
    secrets: tuple[str, ...] = ()
    if job is not None:
        secrets = ("HF_TOKEN", "WANDB_API_KEY")
        found |= {
            "CUDA_VISIBLE_DEVICES": process.visible_gpus,
            "OMP_NUM_THREADS": process.omp_threads,
            "PATH": "/opt/conda/bin:/usr/local/bin:/usr/bin:/bin",
            "SLURM_JOB_ID": process.slurm_job,
            "SLURM_JOB_NAME": process.slurm_name,
            "TOKENIZERS_PARALLELISM": "false",
        }
        if process.world_size:
            found |= {"RANK": process.rank, "LOCAL_RANK": process.local_rank, "WORLD_SIZE": process.world_size}
            found |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "NCCL_DEBUG": "WARN"}
    known = {name: str(value) for name, value in found.items() if value is not None}
    for name in sorted((*known, *secrets)):
        shown = name in wish.revealed
        value = known.get(name, _INVENTED if shown else _MASK)
        yield Variable(name=name, value=value, secret=name in secrets, revealed=shown)

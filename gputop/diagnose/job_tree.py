"""A trainer with all its loaders and children, summed up at one moment, as stored in the history for the rules."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from gputop.frozen_dataclass import frozen_dataclass
from gputop.history import MetricTrack
from gputop.model import Frame, Identity, Process, Role, Unit, metric
from gputop.optional_sums import mean, total

_P, _N, _R = Unit.PERCENT, Unit.COUNT, Unit.BYTES_PER_S
_TRAINER, _LOADER = Role.TRAINER, Role.LOADER  # constants: checked for every process at every frame
_COMPILERS = ("ptxas", "cicc", "nvcc", "cc1plus", "inductor", "triton")
_BRIEF = ("ptxas", "cicc", "nvcc")  # they are short-lived: one without a CPU time yet has just started
_WORKER = "compile_worker"  # of torch.compile: by name a Python like any other
_COMPILING_PERCENT = 20.0  # of one core
_WORDS = 4  # words of a command line that identify the program
DEEPEST = 32  # parents of a process: bounds a loop from inconsistent /proc data


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class TrainerTree:
    """One trainer's tree. Sums are None if any part is unknown; means are over known values."""

    busy_percent: float | None = metric(
        _P, "GPUs it works on busy, mean, or sum where in turns; its own share where not alone", history=True
    )
    worked: float | None = metric(_N, "1 where its GPUs did some work since the last sample, else 0", history=True)
    vram_bytes: float | None = metric(Unit.BYTES, "GPU memory it holds", history=True)
    cores: float | None = metric(_N, "CPU cores in use, all processes", history=True)
    main: float | None = metric(_N, "cores its main thread uses, with those it takes turns with", history=True)
    loaders: float | None = metric(_N, "DataLoader worker processes", history=True)
    loader_cpu: float | None = metric(_N, "cores a DataLoader worker uses, mean", history=True)
    loader_low: float | None = metric(_N, "cores the least busy worker uses", history=True)
    loader_blocked: float | None = metric(_N, "share of workers that wait for storage, 0-1", history=True)
    loader_delayed: float | None = metric(_N, "the same by the delay accounting of the kernel, 0-1", history=True)
    loader_wait: float | None = metric(_N, "share of their time that workers wait for a CPU, 0-1", history=True)
    main_wait: float | None = metric(_N, "the same of the main thread, 0-1", history=True)
    run_wait: float | None = metric(_N, "the same of all threads of the trainer, 0-1", history=True)
    compute_threads: float | None = metric(_N, "runnable threads outside DataLoader workers", history=True)
    own: float | None = metric(_N, "cores the trainer itself uses, without its children", history=True)
    switches: float | None = metric(Unit.PER_S, "voluntary switches of the trainer", history=True)
    throttled: float | None = metric(_N, "share of periods in which the CPU quota was exhausted, 0-1", history=True)
    read_bytes_per_s: float | None = metric(_R, "read from storage", history=True)
    write_bytes_per_s: float | None = metric(_R, "written to storage", history=True)
    read_chars_per_s: float | None = metric(_R, "read, page cache and pipes included", history=True)
    write_chars_per_s: float | None = metric(_R, "written, page cache and pipes included", history=True)
    read_calls_per_s: float | None = metric(Unit.PER_S, "read calls", history=True)
    major_faults_per_s: float | None = metric(Unit.PER_S, "page faults served from storage", history=True)
    pss_bytes: float | None = metric(Unit.BYTES, "memory, shared pages counted once", history=True)
    loader_pss_bytes: float | None = metric(Unit.BYTES, "of that, memory of its workers", history=True)


# sums over all processes, under the same name
_SUMMED = (
    "read_bytes_per_s", "write_bytes_per_s", "read_chars_per_s", "write_chars_per_s", "read_calls_per_s",
    "major_faults_per_s", "pss_bytes",
)  # fmt: skip
_summed = attrgetter(*_SUMMED)
_of_loader = attrgetter("cpu_percent", "blocked_percent", "io_wait_percent", "run_wait_percent", "pss_bytes")
TREE = MetricTrack(TrainerTree, coarse=True, mortal=True)


def key(trainer: Identity) -> str:
    """Key of a trainer's tree in the history."""
    return f"tree {trainer.pid} {trainer.started_ticks}"


def members(frame: Frame) -> dict[Identity, list[Process]]:
    """Trainers visible in /proc, each with itself and its descendants, itself first."""
    jobs = [process for process in frame.processes if process.job is not None and process.unseen is None]
    parents = {process.pid: process.parent_pid for process in jobs}
    trees = {process.pid: [process] for process in jobs if process.role is _TRAINER and process.verified}
    for process in jobs:
        above = None if process.pid in trees else process.parent_pid
        for _ in range(DEEPEST):
            if above is None or above in trees:
                break
            above = parents.get(above)
        if above is not None and above in trees:
            trees[above].append(process)
    return {tree[0].identity: tree for tree in trees.values()}


def tree_sums(processes: Sequence[Process], busy: float | None, worked: bool | None = None) -> TrainerTree:
    """The tree at this moment; `busy`: GPU busy in percent, `worked`: whether its GPUs did any work at all."""
    trainer = processes[0]
    loaders: list[Process] = []
    others: list[Process] = []
    for process in processes:
        (loaders if process.role is _LOADER else others).append(process)
    used, blocked, delayed, waits, held = zip(*map(_of_loader, loaders), strict=True) if loaders else ((),) * 5
    cpu = [percent for percent in used if percent is not None]
    return TrainerTree(
        busy_percent=busy,
        worked=None if worked is None else float(worked),
        vram_bytes=total([share.vram_bytes for share in trainer.gpus]),
        cores=_share(total([process.cpu_percent for process in processes])),
        main=_main_cores(trainer),
        loaders=float(len(loaders)),
        loader_cpu=sum(cpu) / len(cpu) / 100 if cpu else None,
        loader_low=min(cpu) / 100 if cpu else None,
        loader_blocked=_share(mean(blocked)),
        loader_delayed=_share(mean(delayed)),
        loader_wait=_share(mean(waits)),
        main_wait=_share(trainer.main_run_wait_percent),
        run_wait=_share(trainer.run_wait_percent),
        compute_threads=total([process.busy_threads for process in others]),
        own=_share(trainer.cpu_percent),
        switches=trainer.voluntary_switches_per_s,
        throttled=_share(trainer.throttled_percent),
        loader_pss_bytes=total(held),
        **dict(zip(_SUMMED, map(total, zip(*map(_summed, processes), strict=True)), strict=True)),
    )


def is_compiling(processes: Sequence[Process]) -> bool:
    """Whether torch.compile or a JIT runs for the trainer."""
    for one in processes:
        if one.cpu_percent is None:
            if one.name.startswith(_BRIEF):
                return True
        elif one.cpu_percent > _COMPILING_PERCENT and (one.name.startswith(_COMPILERS) or _is_worker(one)):
            return True
    return False


def _is_worker(process: Process) -> bool:
    # there may be many loaders, with the command line of their trainer
    return process.role is not _LOADER and any(_WORKER in word for word in process.command[:_WORDS])


def _main_cores(trainer: Process) -> float | None:
    """Cores used by its main thread and its backward threads: the main thread sleeps while those launch kernels."""
    percent = trainer.main_thread_percent
    return None if percent is None else min(1.0, (percent + (trainer.backward_percent or 0.0)) / 100)


def _share(percent: float | None) -> float | None:
    return None if percent is None else percent / 100

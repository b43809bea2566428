"""One process at one moment, and the job it belongs to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from enum import Enum
from operator import attrgetter
from typing import Annotated, Any, Literal, NamedTuple

from gputop.frozen_dataclass import frozen_dataclass
from gputop.model.metric import Missing, Unit, metric

_P, _B, _R, _N, _S = Unit.PERCENT, Unit.BYTES, Unit.BYTES_PER_S, Unit.PER_S, Unit.SECONDS

Kind = Literal["compute", "graphics", "mps"]
Unseen = Literal["foreign", "exited", "hidden"]

# threads of torch's process groups, and those of gloo and NCCL themselves, which older releases of torch leave unnamed
_TALKING = ("pt_nccl", "pt_gloo", "pt_ucc", "gloo_", "NCCL ")


class Identity(NamedTuple):
    """What tells a process from a later one with the same pid: field 22 of stat."""

    pid: int
    started_ticks: int


# of many processes, without a call into Python for each: what is equal to an Identity takes a third of the time
pid_of, identity_of = attrgetter("pid"), attrgetter(*Identity._fields)


Phase = Literal["data", "optimizer", "rest"]


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class SlowStep:
    """An optimizer step that took over twice the median of those around it."""

    wall_s: Annotated[float, "when it ended, in seconds since 1970-01-01 UTC"]
    took_s: Annotated[float, "how long it took, in seconds"]
    phase: Annotated[Phase, "what took longer than usual: the wait for data, the optimizer, or the rest"]


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """A number that a program has noted of its training: `gputop.note(loss=...)`, `gputop.mark("epoch", 3)`."""

    name: Annotated[str, "what it calls it"]
    wall_s: Annotated[float, "when it noted it, in seconds since 1970-01-01 UTC"]
    value: Annotated[float | None, "the number; none where it is not finite, or too large to be kept"] = None
    finite: Annotated[bool, "whether it is a finite number"] = True
    step: Annotated[int | None, "optimizer steps that were made by then"] = None
    moment: Annotated[bool, "true: a moment, by `gputop.mark`"] = False


class Role(str, Enum):
    """What a process does in its job."""

    LAUNCHER = "launcher"
    TRAINER = "trainer"
    LOADER = "loader"
    OTHER = "other"


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class GpuShare:
    """What one process has of one GPU."""

    uuid: Annotated[str, "uuid of the GPU"]
    kind: Annotated[Kind, "what it uses it for"] = "compute"
    busy_percent: float | None = metric(_P, "time its kernels were resident on this GPU", top=100, history=True)
    memory_busy_percent: float | None = metric(_P, "time its kernels used device memory", top=100)
    encoder_percent: float | None = metric(_P, "time it kept the video encoder busy", top=100)
    decoder_percent: float | None = metric(_P, "time it kept the video decoder busy", top=100)
    vram_bytes: int | None = metric(_B, "device memory it holds on this GPU", history=True)


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process. Of a process that /proc does not show, only pid, `unseen` and `gpus` are known."""

    pid: Annotated[int, "its number"]
    started_ticks: Annotated[int, "when it was started: field 22 of /proc/PID/stat"]
    parent_pid: Annotated[int, "pid of its parent"] = 0
    group: Annotated[int | None, "number of its process group: what one command of a shell started"] = None
    verified: Annotated[bool, "false: a host's pid seen from a container, of which no more is known"] = True
    unseen: Annotated[Unseen | None, "why /proc has nothing on it"] = None
    user: Annotated[str | None, "name of its user"] = None
    uid: Annotated[int | None, "number of its user"] = None
    name: Annotated[str, "its name, at most 15 bytes (comm)"] = ""
    command: Annotated[tuple[str, ...], "its arguments, the program first"] = ()
    state: Annotated[str | None, "R runs, S sleeps, D waits in the kernel, T is stopped, Z has ended, I is idle"] = None
    missing: Annotated[tuple[Missing, ...], "what is not known of it, and why"] = ()
    sampled: Annotated[bool, "one of too many to follow closely: only its stat record is read, every few seconds"] = (
        False
    )

    # CPU and scheduler
    cpu_percent: float | None = metric(_P, "CPU time, of one core", history=True)
    cpu_time_s: float | None = metric(_S, "CPU time since it started")
    age_s: float | None = metric(_S, "time since it started")
    main_thread_percent: float | None = metric(_P, "CPU time of its main thread, of one core", top=100)
    backward_percent: float | None = metric(_P, "CPU time of PyTorch's threads for backward passes, of one core")
    threads: int | None = metric(Unit.COUNT, "threads")
    busy_threads: int | None = metric(Unit.COUNT, "threads that run or want to run a tenth of the time", history=True)
    run_wait_percent: float | None = metric(
        _P, "time its threads waited for a CPU, of waiting and running", top=100, history=True
    )
    main_run_wait_percent: float | None = metric(_P, "the same, of its main thread", top=100)
    voluntary_switches_per_s: float | None = metric(_N, "context switches it asked for")
    involuntary_switches_per_s: float | None = metric(_N, "context switches forced on it")
    allowed_cpus: float | None = metric(Unit.COUNT, "CPUs it may use: affinity and cgroup quota, the smaller")
    affinity: str | None = metric(Unit.WORD, "CPUs it may run on, as a list of ranges")
    last_cpu: int | None = metric(Unit.COUNT, "CPU its main thread last ran on")
    nice: int | None = metric(Unit.COUNT, "scheduling niceness")
    throttled_percent: float | None = metric(_P, "periods in which its cgroup ran out of CPU quota", top=100)
    thread_names: Annotated[
        tuple[tuple[str, int], ...], "names of its threads and how many have each, the most first"
    ] = ()

    # optimizer steps, measured from inside it; of the last half minute
    step_s: float | None = metric(_S, "time from one optimizer step to the next, mean", history=True)
    step_p90_s: float | None = metric(_S, "the same, of the slowest tenth the fastest")
    step_longest_s: float | None = metric(_S, "the same, of the slowest one")
    data_wait_percent: float | None = metric(
        _P, "time of a step that its training thread waits for the next batch", top=100, history=True
    )
    optimizer_percent: float | None = metric(_P, "time of a step that its optimizers take", top=100)
    samples_per_s: float | None = metric(_N, "samples that it trains on", history=True)
    evaluated_percent: float | None = metric(_P, "time in steps with an evaluation in them", top=100)
    step_count: int | None = metric(Unit.COUNT, "optimizer steps since its meter began")
    step_window: int | None = metric(Unit.COUNT, "steps of the last half minute, without those with an evaluation")
    slow_step_count: int | None = metric(Unit.COUNT, "those of them that took over twice their median")
    late_step_count: int | None = metric(
        Unit.COUNT, "steps in which it had its data last of all ranks, by a tenth of a step or more"
    )
    common_step_count: int | None = metric(Unit.COUNT, "the newest steps that all ranks made, of which those are")
    steps_apart: Annotated[str | None, "why its steps are not compared with those of other ranks"] = None
    metered: Annotated[bool, "whether it has a step meter: it was started with `gputop run`"] = False
    slow_steps: Annotated[tuple[SlowStep, ...], "the newest slow ones of a quarter of an hour, oldest first"] = ()
    noted: Annotated[tuple[Noted, ...], "the newest number of each name that it has noted, and its newest moments"] = ()
    non_finite: Annotated[
        Noted | None, "the first loss or gradient norm it noted that is not finite: with `gputop run --watch-nan`"
    ] = None

    # storage
    read_bytes_per_s: float | None = metric(_R, "read from storage, page cache excluded", history=True)
    write_bytes_per_s: float | None = metric(_R, "written to storage, page cache excluded", history=True)
    read_chars_per_s: float | None = metric(_R, "read through system calls, cache and pipes included")
    write_chars_per_s: float | None = metric(_R, "written through system calls", history=True)
    read_calls_per_s: float | None = metric(_N, "read system calls")
    write_calls_per_s: float | None = metric(_N, "write system calls", history=True)
    mean_read_bytes: float | None = metric(_B, "bytes a read call, mean")
    io_wait_percent: float | None = metric(_P, "time blocked on storage (delay accounting)", top=100, history=True)
    blocked_percent: float | None = metric(_P, "looks at which a thread of it was in state D", top=100, history=True)
    major_faults_per_s: float | None = metric(_N, "page faults served from storage")
    waiting_in: str | None = metric(Unit.WORD, "kernel function its main thread sleeps in")
    open_files: int | None = metric(Unit.COUNT, "files, sockets and pipes it has open; only while somebody looks")

    # memory
    rss_bytes: int | None = metric(_B, "resident memory; forked loaders share much of it")
    pss_bytes: int | None = metric(_B, "resident memory, shared pages divided among their users")
    shared_bytes: int | None = metric(_B, "resident memory backed by files or shared memory")
    swap_bytes: int | None = metric(_B, "memory in swap")
    shm_total_bytes: int | None = metric(_B, "size of /dev/shm as it sees it: a container has its own")
    shm_used_bytes: int | None = metric(_B, "used in that /dev/shm, by all who share it", history=True)
    memory_nodes: str | None = metric(Unit.WORD, "NUMA nodes its memory may come from, as a list of ranges")

    # GPUs
    gpus: Annotated[tuple[GpuShare, ...], "what it has of which GPU"] = ()

    # place
    cgroup: Annotated[str | None, "path of its control group"] = None
    container: Annotated[str | None, "short id or name of its container"] = None
    slurm_job: Annotated[str | None, "number of its Slurm job; its SLUID where only that is known"] = None
    slurm_name: Annotated[str | None, "SLURM_JOB_NAME as it was started with"] = None
    folder: Annotated[str | None, "last part of its working folder"] = None
    role: Annotated[Role, "what it does in its job"] = Role.OTHER
    job: Annotated[str | None, "key of its job"] = None
    rank: Annotated[int | None, "its rank in the job"] = None
    local_rank: Annotated[int | None, "its rank on this machine"] = None
    world_size: Annotated[int | None, "ranks of the whole job, on all machines"] = None
    rendezvous: Annotated[str | None, "MASTER_ADDR:MASTER_PORT as it was started with: where its ranks meet"] = None
    omp_threads: Annotated[int | None, "OMP_NUM_THREADS as it was started with"] = None
    mkl_threads: Annotated[int | None, "MKL_NUM_THREADS as it was started with"] = None
    visible_gpus: Annotated[str | None, "CUDA_VISIBLE_DEVICES as it was started with"] = None
    libraries: Annotated[tuple[str, ...], "of torch, tensorflow, jax, cuda, openblas, mkl, gomp, iomp5: mapped"] = ()
    torch_version: Annotated[str | None, "version of the PyTorch it has mapped: 2.7.0+cu126"] = None
    torch_cuda: Annotated[str | None, "what that is built for: 12.6; none for a build for CPUs"] = None

    @property
    def identity(self) -> Identity:
        """Pid and start time: stable for the life of the process, never reused."""
        return Identity(self.pid, self.started_ticks)

    @property
    def talks(self) -> bool:
        """Whether it has threads with which torch talks to other ranks."""
        return any(name.startswith(_TALKING) for name, _ in self.thread_names)


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Processes that train one model: a launcher, its ranks, their loaders."""

    key: Annotated[str, "what identifies the job in this recording"]
    name: Annotated[str, "what people call it: llama-7b"]
    user: Annotated[str | None, "name of its user"] = None
    launcher: Annotated[
        str | None, "what started it: torchrun, accelerate, deepspeed, slurm, ray, notebook, python"
    ] = None
    container: Annotated[str | None, "short id or name of its container"] = None
    slurm_job: Annotated[str | None, "number of its Slurm job; its SLUID where only that is known"] = None
    ranks: Annotated[tuple[Identity, ...], "its trainers by rank"] = ()
    members: Annotated[tuple[Identity, ...], "all of its processes, the root first, each before its children"] = ()

    @property
    def steps(self) -> bool:
        """Whether its launcher is one of ranks that step together, and of nothing else."""
        return self.launcher in ("torchrun", "accelerate", "deepspeed", "composer", "horovod")


_NAMES = frozenset(field.name for field in fields(Process))


def _copier() -> Callable[[Process], Process]:
    # a line for each field, as dataclasses write their own methods: a seventh of what a loop over them costs
    lines = (f"    copy.{name} = process.{name}" for name in sorted(_NAMES))
    scope: dict[str, Any] = {"new": object.__new__, "kind": Process}
    exec("\n".join(("def copied(process):", "    copy = new(kind)", *lines, "    return copy")), scope)
    copied: Callable[[Process], Process] = scope["copied"]
    return copied


_copied = _copier()


def changed(process: Process, **changes: Any) -> Process:
    """A copy with these fields; TypeError for one that there is not."""
    copy = _copied(process)
    for name, value in changes.items():
        if name not in _NAMES:
            raise TypeError(f"a process has no {name}")
        setattr(copy, name, value)
    return copy

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
    """What distinguishes a process from a later one with the same PID: its start time, field 22 of stat."""

    pid: int
    started_ticks: int


# of many processes, without a call into Python for each: what is equal to an Identity takes a third of the time
pid_of, identity_of = attrgetter("pid"), attrgetter(*Identity._fields)


Phase = Literal["data", "optimizer", "rest"]


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class SlowStep:
    """An optimizer step that took over twice the median of those around it."""

    wall_s: Annotated[float, "when it ended, in seconds since 1970-01-01 UTC"]
    took_s: Annotated[float, "duration, in seconds"]
    phase: Annotated[Phase, "phase that took longer than usual: data wait, optimizer or the rest"]


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """A number logged by the training program: `gputop.note(loss=...)`, `gputop.mark("epoch", 3)`."""

    name: Annotated[str, "name given by the program"]
    wall_s: Annotated[float, "when it was logged, in seconds since 1970-01-01 UTC"]
    value: Annotated[float | None, "the number; null if it is not finite or too large"] = None
    finite: Annotated[bool, "whether it is a finite number"] = True
    step: Annotated[int | None, "optimizer steps completed by then"] = None
    moment: Annotated[bool, "true for a marker from `gputop.mark`"] = False


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
    kind: Annotated[Kind, "type of use"] = "compute"
    busy_percent: float | None = metric(
        _P, "time in which its kernels were resident on this GPU", top=100, history=True
    )
    memory_busy_percent: float | None = metric(_P, "time in which its kernels read or wrote device memory", top=100)
    encoder_percent: float | None = metric(_P, "video encoder utilization by this process", top=100)
    decoder_percent: float | None = metric(_P, "video decoder utilization by this process", top=100)
    vram_bytes: int | None = metric(_B, "device memory it holds on this GPU", history=True)


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process. If /proc does not show it, only pid, `unseen` and `gpus` are known."""

    pid: Annotated[int, "process ID"]
    started_ticks: Annotated[int, "start time in clock ticks since boot: field 22 of /proc/PID/stat"]
    parent_pid: Annotated[int, "PID of its parent"] = 0
    group: Annotated[int | None, "process group ID: the processes of one shell command"] = None
    verified: Annotated[bool, "false for a host PID seen from inside a container, of which nothing else is known"] = (
        True
    )
    unseen: Annotated[Unseen | None, "why /proc does not show it"] = None
    user: Annotated[str | None, "user name"] = None
    uid: Annotated[int | None, "user ID"] = None
    name: Annotated[str, "command name (comm), at most 15 bytes"] = ""
    command: Annotated[tuple[str, ...], "command line"] = ()
    state: Annotated[
        str | None,
        "R running or runnable, S sleeping, D uninterruptible sleep, T stopped, Z zombie, I idle kernel thread",
    ] = None
    missing: Annotated[tuple[Missing, ...], "unavailable metrics, and why"] = ()
    sampled: Annotated[bool, "one of too many processes: only its stat record is read, every few seconds"] = False

    # CPU and scheduler
    cpu_percent: float | None = metric(_P, "CPU time; 100 % is one core", history=True)
    cpu_time_s: float | None = metric(_S, "CPU time since it started", counter=True)
    age_s: float | None = metric(_S, "time since it started")
    main_thread_percent: float | None = metric(_P, "CPU time of its main thread; 100 % is one core", top=100)
    backward_percent: float | None = metric(_P, "CPU time of PyTorch's autograd threads; 100 % is one core")
    threads: int | None = metric(Unit.COUNT, "number of threads")
    busy_threads: int | None = metric(
        Unit.COUNT, "threads that run or are runnable at least 10 % of the time", history=True
    )
    run_wait_percent: float | None = metric(
        _P,
        "run queue wait: time its threads were runnable without a CPU, of waiting and running",
        top=100,
        history=True,
    )
    main_run_wait_percent: float | None = metric(_P, "run queue wait of its main thread", top=100)
    voluntary_switches_per_s: float | None = metric(_N, "voluntary context switches")
    involuntary_switches_per_s: float | None = metric(_N, "involuntary context switches")
    allowed_cpus: float | None = metric(Unit.COUNT, "CPUs it may use: the smaller of affinity and cgroup quota")
    affinity: str | None = metric(Unit.WORD, "CPUs it may run on, as ranges")
    last_cpu: int | None = metric(Unit.COUNT, "CPU that its main thread last ran on")
    nice: int | None = metric(Unit.COUNT, "niceness")
    throttled_percent: float | None = metric(_P, "periods in which the CPU quota of its cgroup was exhausted", top=100)
    thread_names: Annotated[tuple[tuple[str, int], ...], "thread names with their counts, most frequent first"] = ()

    # optimizer steps of the last 30 s, from its step meter
    step_s: float | None = metric(_S, "average time of an optimizer step", history=True)
    step_p90_s: float | None = metric(_S, "90th percentile of the step time")
    step_longest_s: float | None = metric(_S, "longest step time")
    data_wait_percent: float | None = metric(
        _P, "share of the step time in which the training thread waits for the next batch", top=100, history=True
    )
    optimizer_percent: float | None = metric(_P, "share of the step time in optimizer.step()", top=100)
    samples_per_s: float | None = metric(_N, "training samples", history=True)
    evaluated_percent: float | None = metric(_P, "share of the time in steps that include an evaluation", top=100)
    step_count: int | None = metric(Unit.COUNT, "optimizer steps since its step meter started", counter=True)
    step_window: int | None = metric(Unit.COUNT, "steps of the last 30 s, without those that include an evaluation")
    slow_step_count: int | None = metric(Unit.COUNT, "of these, steps that took more than twice their median")
    late_step_count: int | None = metric(
        Unit.COUNT, "steps in which it was the last rank to get its batch, by at least 10 % of a step"
    )
    common_step_count: int | None = metric(
        Unit.COUNT, "number of recent steps common to all ranks, on which late_step_count is based"
    )
    steps_apart: Annotated[str | None, "why its steps cannot be compared with those of other ranks"] = None
    metered: Annotated[bool, "has a step meter: started with `gputop run`"] = False
    slow_steps: Annotated[tuple[SlowStep, ...], "most recent slow steps of the last 15 min, oldest first"] = ()
    noted: Annotated[
        tuple[Noted, ...], "most recent number of each name logged with `gputop.note`, and most recent markers"
    ] = ()
    non_finite: Annotated[
        Noted | None, "first logged loss or gradient norm that is not finite; needs `gputop run --watch-nan`"
    ] = None

    # storage
    read_bytes_per_s: float | None = metric(_R, "read from storage, page cache excluded", history=True)
    write_bytes_per_s: float | None = metric(_R, "written to storage, page cache excluded", history=True)
    read_chars_per_s: float | None = metric(_R, "read by system calls, including page cache and pipes")
    write_chars_per_s: float | None = metric(_R, "written by system calls", history=True)
    read_calls_per_s: float | None = metric(_N, "read system calls")
    write_calls_per_s: float | None = metric(_N, "write system calls", history=True)
    mean_read_bytes: float | None = metric(_B, "average bytes per read call")
    io_wait_percent: float | None = metric(_P, "time blocked on storage (delay accounting)", top=100, history=True)
    blocked_percent: float | None = metric(
        _P, "share of samples in which one of its threads was in state D", top=100, history=True
    )
    major_faults_per_s: float | None = metric(_N, "major page faults: those that read from storage")
    waiting_in: str | None = metric(Unit.WORD, "kernel function in which its main thread sleeps")
    open_files: int | None = metric(Unit.COUNT, "open file descriptors; read only while they are on the screen")

    # memory
    rss_bytes: int | None = metric(_B, "resident memory; forked workers share much of it")
    pss_bytes: int | None = metric(_B, "resident memory, shared pages divided among their users")
    shared_bytes: int | None = metric(_B, "resident memory backed by files or shared memory")
    swap_bytes: int | None = metric(_B, "memory in swap")
    shm_total_bytes: int | None = metric(_B, "size of its /dev/shm; a container has its own")
    shm_used_bytes: int | None = metric(_B, "used in its /dev/shm, by all processes that share it", history=True)
    memory_nodes: str | None = metric(Unit.WORD, "NUMA nodes it may allocate from, as ranges")

    # GPUs
    gpus: Annotated[tuple[GpuShare, ...], "its use of each GPU"] = ()

    # place
    cgroup: Annotated[str | None, "path of its cgroup"] = None
    container: Annotated[str | None, "short id or name of its container"] = None
    pod: Annotated[str | None, "UID of its Kubernetes pod"] = None
    slurm_job: Annotated[str | None, "Slurm job ID; the SLUID if only that is known"] = None
    slurm_step: Annotated[str | None, "Slurm step: 0, batch, extern, interactive"] = None
    slurm_name: Annotated[str | None, "SLURM_JOB_NAME in its environment at start"] = None
    folder: Annotated[str | None, "last component of its working directory"] = None
    role: Annotated[Role, "role in its job"] = Role.OTHER
    job: Annotated[str | None, "key of its job"] = None
    rank: Annotated[int | None, "its rank in the job"] = None
    local_rank: Annotated[int | None, "its rank on this machine"] = None
    world_size: Annotated[int | None, "ranks of the whole job, on all machines"] = None
    rendezvous: Annotated[
        str | None, "MASTER_ADDR:MASTER_PORT in its environment at start: the rendezvous of its ranks"
    ] = None
    omp_threads: Annotated[int | None, "OMP_NUM_THREADS in its environment at start"] = None
    mkl_threads: Annotated[int | None, "MKL_NUM_THREADS in its environment at start"] = None
    visible_gpus: Annotated[str | None, "CUDA_VISIBLE_DEVICES in its environment at start"] = None
    libraries: Annotated[
        tuple[str, ...], "mapped libraries among torch, tensorflow, jax, cuda, openblas, mkl, gomp, iomp5"
    ] = ()
    torch_version: Annotated[str | None, "version of the PyTorch it has loaded: 2.7.0+cu126"] = None
    torch_cuda: Annotated[str | None, "CUDA version of that build: 12.6; null for a CPU build"] = None

    @property
    def identity(self) -> Identity:
        """Pid and start time: stable for the life of the process, never reused."""
        return Identity(self.pid, self.started_ticks)

    @property
    def talks(self) -> bool:
        """Whether it has threads for communication between ranks."""
        return any(name.startswith(_TALKING) for name, _ in self.thread_names)


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Processes that train one model: launcher, ranks, DataLoader workers."""

    key: Annotated[str, "identifier of the job in this recording"]
    name: Annotated[str, "display name: llama-7b"]
    user: Annotated[str | None, "user name"] = None
    launcher: Annotated[str | None, "launcher: torchrun, accelerate, deepspeed, slurm, ray, notebook, python"] = None
    container: Annotated[str | None, "short id or name of its container"] = None
    pod: Annotated[str | None, "UID of its Kubernetes pod"] = None
    slurm_job: Annotated[str | None, "Slurm job ID; the SLUID if only that is known"] = None
    ranks: Annotated[tuple[Identity, ...], "its trainers by rank"] = ()
    members: Annotated[tuple[Identity, ...], "all its processes, parents before children"] = ()

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
            raise TypeError(f"a process has no field {name}")
        setattr(copy, name, value)
    return copy

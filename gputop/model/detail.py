"""Details of one process on the screen: its threads, files, limits, environment, place and children."""

from __future__ import annotations

from typing import Literal

from gputop.frozen_dataclass import frozen_dataclass
from gputop.model.metric import Missing, Unit, metric
from gputop.model.process import Identity

_P, _B, _R, _N, _S = Unit.PERCENT, Unit.BYTES, Unit.BYTES_PER_S, Unit.PER_S, Unit.SECONDS

Part = Literal["threads", "files", "io", "memory", "overview", "limits", "environment", "children"]
PARTS: tuple[Part, ...] = ("threads", "files", "io", "memory", "overview", "limits", "environment", "children")

FileKind = Literal["file", "folder", "socket", "pipe", "device", "shared memory", "other"]
LimitUnit = Literal["seconds", "bytes", "processes", "files", "locks", "signals", "microseconds", "priority"]


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """One thread; the main one has the pid as its tid."""

    tid: int
    name: str = ""
    state: str | None = None  # R S D T Z I
    cpu_percent: float | None = metric(_P, "CPU time; 100 % is one core", top=100)
    run_wait_percent: float | None = metric(_P, "run queue wait, of waiting and running", top=100)
    waiting_in: str | None = metric(Unit.WORD, "kernel function in which it sleeps")
    system_call: str | None = metric(Unit.WORD, "system call it is in")
    last_cpu: int | None = metric(Unit.COUNT, "CPU it last ran on")
    voluntary_switches_per_s: float | None = metric(_N, "voluntary context switches")
    involuntary_switches_per_s: float | None = metric(_N, "involuntary context switches")
    cpu_time_s: float | None = metric(_S, "CPU time since it started")

    @property
    def blocked_on(self) -> str | None:
        """What it waits for: of a thread in state D the kernel's function says more, of a sleeper the system call."""
        if self.state == "R":
            return None
        first, second = self.system_call, self.waiting_in
        return second or first if self.state == "D" else first or second


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One open file descriptor."""

    fd: int
    path: str  # as the kernel shows it: a path in its mount namespace, or such as socket:[4711]
    kind: FileKind
    mode: str | None = None  # r, w, rw; with a where it appends
    deleted: bool = False
    position_bytes: int | None = metric(_B, "file offset of the next read or write")
    size_bytes: int | None = metric(_B, "size of the file")
    moved_bytes_per_s: float | None = metric(_R, "growth of the file offset; pread and pwrite do not change it")


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One resource limit. A limit of math.inf is none."""

    name: str  # as the kernel calls it: open files
    unit: LimitUnit
    soft: float
    hard: float
    used: float | None = None  # in the same unit, if it is known


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One variable of the environment the process was started with; what it has set since does not show."""

    name: str
    value: str  # safe to show: what looks like a secret is masked in it, unless `revealed`
    secret: bool = False  # something in it is masked, or would be
    revealed: bool = False  # its value is shown whole, on request


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Relative:
    """A parent or a child; what it does now is in the frame, by its identity."""

    identity: Identity
    name: str = ""
    file: File | None = None  # of a child: the file it reads now


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Io:
    """What it has read and written since it started; the rates are the Process's."""

    read_bytes: int | None = metric(_B, "read from storage, page cache excluded")
    written_bytes: int | None = metric(_B, "written to storage")
    cancelled_bytes: int | None = metric(_B, "written data discarded before it reached storage (truncated page cache)")
    read_chars_bytes: int | None = metric(_B, "read by system calls, including page cache and pipes")
    written_chars_bytes: int | None = metric(_B, "written by system calls")
    read_calls: int | None = metric(Unit.COUNT, "read system calls")
    write_calls: int | None = metric(Unit.COUNT, "write system calls")


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Where its memory is; pss, uss and nodes are asked rarely, as the kernel walks every page for them."""

    virtual_bytes: int | None = metric(_B, "address space")
    peak_bytes: int | None = metric(_B, "peak resident memory")
    anonymous_bytes: int | None = metric(_B, "anonymous resident memory")
    file_bytes: int | None = metric(_B, "resident memory backed by files")
    shared_bytes: int | None = metric(_B, "resident shared memory")
    locked_bytes: int | None = metric(_B, "locked memory (mlock), without memory pinned by the driver")
    pinned_bytes: int | None = metric(_B, "memory pinned for device access")
    swap_bytes: int | None = metric(_B, "memory in swap")
    pss_bytes: int | None = metric(_B, "resident memory, shared pages divided among their users")
    uss_bytes: int | None = metric(_B, "unique set size: memory freed on exit")
    huge_bytes: int | None = metric(_B, "anonymous memory in huge pages")
    nodes: tuple[tuple[int, int], ...] | None = None  # (NUMA node, bytes)


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Where it runs and with which rights, beyond what the Process of a frame says."""

    exe: str | None = None
    folder: str | None = None  # its working folder, in its mount namespace
    parents: tuple[Relative, ...] = ()  # the nearest first
    policy: str | None = metric(Unit.WORD, "scheduling policy")
    io_priority: str | None = metric(Unit.WORD, "I/O priority, for schedulers that use it")
    oom_score: int | None = metric(Unit.COUNT, "OOM score; 1000 is killed first")
    oom_adjust: int | None = metric(Unit.COUNT, "OOM score adjustment, -1000 to 1000")
    tracer_pid: int | None = None  # of a debugger or profiler that holds it; None if there is none
    own_namespaces: tuple[str, ...] | None = None  # of mnt, pid, net, user: those that are not ours
    capabilities: str | None = metric(Unit.WORD, "capabilities: none, some, all")
    seccomp: str | None = metric(Unit.WORD, "seccomp mode: off, strict, filter")


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """What is known of one process. A part that is None has its reason in `missing`, under the part's name."""

    identity: Identity
    mono_s: float  # when this was put together; a part may be some seconds older, never stale
    threads: tuple[Thread, ...] | None = None  # by tid
    threads_count: int | None = None  # there are more than are read of a process with very many
    files: tuple[File, ...] | None = None  # by descriptor
    files_count: int | None = None  # likewise
    file_now: File | None = None  # the data file it reads now, as far as its descriptors tell
    io: Io | None = None
    memory: Memory | None = None
    overview: Overview | None = None
    limits: tuple[Limit, ...] | None = None
    environment: tuple[Variable, ...] | None = None  # never recorded, never exported
    children: tuple[Relative, ...] | None = None  # by pid
    missing: tuple[Missing, ...] = ()  # under the name of a part, or of one field of it

"""What the driver says about processes, joined with what /proc says: which process has a pid, and which are hidden."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import ClassVar

from gputop import units
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Cgroup, GpuShare, Note, Process, Unseen
from gputop.model.process import changed, pid_of
from gputop.safe import ptrace_access


def denied_io(count: int) -> Note:
    """The I/O of this number of followed processes is not readable."""
    return Note(
        subject="processes",
        key="denied-io",
        text=f"I/O of {count} {'process' if count == 1 else 'processes'} of other users is hidden "
        "(/proc/PID/io is readable by the owner only).",
        help=(
            "Their READ/s, WRITE/s, PSS and files show '·', not 0; their environment is closed too.",
            f"{_shown()}.",
        ),
    )


def unlisted() -> Note:
    """Whole processes are not for us to see."""
    return Note(
        subject="processes",
        key="hidden-pids",
        text="Processes of other users are not listed: /proc is mounted with hidepid.",
        help=(f"{_shown()}; membership in the group of the mount option gid= also shows them.",),
    )


def _shown() -> str:
    """What shows them, or why nothing does."""
    why = ptrace_access.hidden()
    return f"`{why.unlock}` shows them" if why.unlock else f"They {why.text}"


def lost(problem: str) -> Note:
    """Something kept us from reading, other than the processes themselves."""
    return Note(
        subject="processes",
        key="processes-lost",
        text=f"Some processes could not be read: {problem}. Their last known values are shown.",
        help=("With too many open files: `ulimit -n 1024`",),
    )


LIST_AGE_S = 2.5  # the driver's list is read every two seconds: a process that ended since is listed rightly


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTable:
    """One sample of all processes. A None without a Missing was not read in it, or is a rate of one sample.

    `absent` are pids the driver named that are not in /proc, and since when (of the monotonic clock).
    """

    EMPTY: ClassVar[ProcessTable]

    taken_s: float = 0.0
    processes: tuple[Process, ...] = ()
    count: int = 0
    cgroups: tuple[Cgroup, ...] = ()  # of trainers
    notes: tuple[Note, ...] = ()
    absent: Mapping[int, float] = field(default_factory=dict)
    private: bool = False  # in a private pid namespace: the driver's pids are those of another
    hidden: bool = False  # /proc does not show the processes of others


ProcessTable.EMPTY = ProcessTable()


def with_shares(
    table: ProcessTable, shares: Mapping[int, tuple[GpuShare, ...]], listed_s: float | None = None
) -> ProcessTable:
    """The table with each process's GPU shares, and a process for each pid that has some and cannot be seen.

    `listed_s` is when the driver was asked: one that ended shortly before is not yet one that it wrongly lists.
    """
    if not shares:
        return table
    left = {pid: _once(found) for pid, found in shares.items() if found}
    processes = list(table.processes)
    for place, pid in enumerate(map(pid_of, table.processes)):
        if pid in left and (not table.private or "cuda" in processes[place].libraries):
            processes[place] = changed(processes[place], gpus=left.pop(pid))
    unseen = [_unseen(pid, found, table, listed_s) for pid, found in sorted(left.items())]
    shown = [process for process in unseen if process is not None]
    notes = _notes(shown, len(shares), table.private)
    kept = [note for note in table.notes if note.key not in {sharper.key for sharper in notes}]
    return replace(table, processes=(*processes, *shown), notes=(*kept, *notes))


def _once(shares: tuple[GpuShare, ...]) -> tuple[GpuShare, ...]:
    """One share for each GPU and kind: a driver may list a process twice."""
    return tuple({(share.uuid, share.kind): share for share in shares}.values())


def _unseen(pid: int, shares: tuple[GpuShare, ...], table: ProcessTable, listed_s: float | None) -> Process | None:
    """The process of a pid that is not in /proc, or is another process there; None before that is certain."""
    why: Unseen
    if table.private or pid <= 0:
        why = "foreign"
    elif pid not in table.absent:
        return None  # the driver was asked after the last sample of /proc
    elif table.hidden:
        why = "hidden"
    elif listed_s is not None and listed_s - table.absent[pid] < LIST_AGE_S:
        return None
    else:
        why = "exited"
    return Process(pid=pid, started_ticks=0, verified=why != "foreign", unseen=why, gpus=shares)


def _notes(unseen: list[Process], known: int, private: bool) -> list[Note]:
    notes = []
    foreign = [process for process in unseen if process.unseen == "foreign"]
    if foreign and private:
        one = foreign[0]
        held = sum(share.vram_bytes or 0 for share in one.gpus)
        notes.append(
            Note(
                subject="processes",
                key="foreign-pids",
                text=f"{len(foreign)} of {known} GPU processes are outside this container: the driver reports host "
                "pids, and this container has its own.",
                help=(
                    f"vram and GPU% by process are known (host pid {one.pid}, {units.size(held)}), names and CPU are "
                    "not.",
                    "To see them: run gputop on the host, or start the container with `--pid=host` (add `--cap-add "
                    "SYS_PTRACE` for py-spy).",
                ),
            )
        )
    hidden = sum(process.unseen == "hidden" for process in unseen)
    if hidden:
        notes.append(
            Note(
                subject="processes",
                key="hidden-pids",
                text=f"{hidden} of {known} GPU processes belong to other users, and /proc is mounted with hidepid.",
                help=("vram and GPU% by process are known, names and CPU are not.", *unlisted().help),
            )
        )
    return notes

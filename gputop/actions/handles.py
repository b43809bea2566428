"""The subject of a dialog, frozen when it opens: a process, its loaders, its job, each with its own handle.

Re-sorting, ended processes and reused PIDs do not change it. Loaders started later are not included; they end with
their trainer.
"""

from __future__ import annotations

import resource
from collections.abc import Sequence
from enum import Enum
from threading import Lock

from gputop import labels
from gputop.actions.target import Refusal, Rights, TargetProcess, open_target, own_processes
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Frame, Identity, Job, Process, Role

FREE_DESCRIPTORS = 256  # file descriptors kept free for the rest of gputop


class Scope(str, Enum):
    """The processes that an action applies to."""

    PROCESS = "process"
    LOADERS = "loaders"  # the process and its loaders
    JOB = "job"  # all processes of its job, the launcher first, each before its children
    TAGGED = "tagged"  # the processes the user has tagged instead


_NO_PROCESSES = {
    Scope.LOADERS: "it has no DataLoader workers",
    Scope.JOB: "it is the only process of its job, or in no job",
    Scope.TAGGED: "no process is tagged",
}


@frozen_dataclass(frozen=True, slots=True)
class Reach:
    """One scope: what it adds, as text (`its 8 workers`), and its processes. `why_not`: why it is unavailable."""

    scope: Scope
    title: str
    processes: tuple[Process, ...]
    why_not: str | None = None


class Handles:
    """The frozen subject of one dialog.

    `frame` and `process` are as they were; `tagged` are alternatives. `reaches` has the scopes that differ from the
    process alone; `refusal` says why the process itself cannot be held. Close it with the dialog; a run keeps it open
    as long as it needs.
    """

    def __init__(self, frame: Frame, process: Process, rights: Rights, tagged: Sequence[Process] = ()) -> None:
        self.frame, self.process = frame, process
        self.leader: Process | None = None  # the chosen process, if `process` is a rank that it only launches
        self._held: dict[Identity, TargetProcess | Refusal] = {}
        self._carriers = own_processes()
        self._keepers, self._lock = 1, Lock()
        first = self._held[process.identity] = open_target(process, rights, self._carriers)
        self.refusal = first.text if isinstance(first, Refusal) else None
        self.reaches = tuple(self._take(reach, rights) for reach in (*reaches(frame, process), *_tagged(tagged)))

    def processes(self, scope: Scope) -> tuple[Process, ...]:
        """The processes of a scope, the launcher first; empty if it is unavailable."""
        if scope is Scope.PROCESS:
            return (self.process,)
        return next((reach.processes for reach in self.reaches if reach.scope is scope and not reach.why_not), ())

    def why_not(self, scope: Scope) -> str | None:
        """Why a scope is unavailable; None if it is available."""
        if self.processes(scope):
            return None
        why = (reach.why_not for reach in self.reaches if reach.scope is scope)
        return next(why, _NO_PROCESSES.get(scope))

    def held(self, scope: Scope) -> list[TargetProcess | Refusal]:
        """The handle of each process of a scope, or why there is none."""
        return [self._held[process.identity] for process in self.processes(scope)]

    def spared(self, scope: Scope) -> dict[int, str]:
        """Processes of a scope that cannot be acted on, by PID, with the reason. Queries the kernel; sends nothing."""
        found: dict[int, str] = {}
        for held in self.held(scope):
            why = held.text if isinstance(held, Refusal) else "it exited" if held.ended() else held.denied()
            if why:
                found[held.pid] = why
        return found

    def cautions(self, scope: Scope) -> tuple[str, ...]:
        """Why the user must type the PID to confirm: one line per process that runs gputop, and for missing pidfds."""
        targets = [held for held in self.held(scope) if isinstance(held, TargetProcess) and held.caution]
        return tuple(dict.fromkeys(f"{target.pid}: {target.caution}" for target in targets))

    def keep(self) -> None:
        """Add one more owner that must close it before the handles are released."""
        with self._lock:
            self._keepers += 1

    def close(self) -> None:
        """Release all handles once every owner has closed it."""
        with self._lock:
            self._keepers -= 1
            if self._keepers:
                return
        for held in self._held.values():
            if isinstance(held, TargetProcess):
                held.close()

    def _take(self, reach: Reach, rights: Rights) -> Reach:
        new = [process for process in reach.processes if process.identity not in self._held]
        most = max(0, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - FREE_DESCRIPTORS) - len(self._held)
        if len(new) > most:
            amount = labels.amount(len(reach.processes), "process")
            return Reach(
                reach.scope, reach.title, reach.processes, f"{amount} exceed the file descriptor limit (ulimit -n)"
            )
        for process in new:
            self._held[process.identity] = open_target(process, rights, self._carriers)
        return reach


def reaches(frame: Frame, process: Process) -> tuple[Reach, ...]:
    """The scopes beyond the process itself, the smaller first. Pure."""
    job = next((job for job in frame.jobs if job.key == process.job), None)
    if job is None:
        return ()
    known = (frame.by_identity.get(identity) for identity in job.members)
    members = tuple(member for member in known if member is not None)
    found = []
    loaders = loaders_of(process, members)
    if loaders:
        found.append(Reach(Scope.LOADERS, f"its {labels.amount(len(loaders), 'worker')}", (process, *loaders)))
    if len(members) > 1 + len(loaders) or process not in members[:1]:
        found.append(Reach(Scope.JOB, f"the whole job: {_member_counts(job, members)}", members))
    return tuple(found)


def led(frame: Frame, process: Process) -> tuple[Process, ...]:
    """The ranks that a process only launches, as a launcher, script or `uv run` does; empty if it leads several jobs.

    A rank, its helpers and processes beside it lead none. Pure.
    """
    if process.role in (Role.TRAINER, Role.LOADER) or process.unseen is not None:
        return ()
    children: dict[int, list[Process]] = {}
    for one in frame.processes:
        children.setdefault(one.parent_pid, []).append(one)
    below, left = set[Identity](), [process.pid]
    while left:
        new = [one for one in children.get(left.pop(), ()) if one.identity not in below and one.unseen is None]
        below.update(one.identity for one in new)
        left += [one.pid for one in new]
    launches = process.role is Role.LAUNCHER
    jobs = [
        job
        for job in frame.jobs
        if (job.key == process.job if process.job else True) and (launches or not below.isdisjoint(job.ranks))
    ]
    ranks = jobs[0].ranks if len(jobs) == 1 else ()
    known = (frame.by_identity.get(identity) for identity in ranks if launches or identity in below)
    return tuple(rank for rank in known if rank is not None)


def _tagged(processes: Sequence[Process]) -> tuple[Reach, ...]:
    return (Reach(Scope.TAGGED, f"the {len(processes)} tagged", tuple(processes)),) if processes else ()


def loaders_of(process: Process, members: tuple[Process, ...]) -> tuple[Process, ...]:
    """Its loaders among the members of its job, including those forked for it by a multiprocessing fork server."""
    if process.role is not Role.TRAINER:
        return ()
    below, found = {process.pid}, []
    for member in members:  # each comes before its children
        if member.parent_pid in below and member.role is not Role.TRAINER:
            below.add(member.pid)
            if member.role is Role.LOADER:
                found.append(member)
    return tuple(found)


def _member_counts(job: Job, members: tuple[Process, ...]) -> str:
    """`4 ranks, 32 workers, torchrun`."""
    loaders = sum(member.role is Role.LOADER for member in members)
    launchers = sum(member.role is Role.LAUNCHER for member in members)
    others = len(members) - loaders - launchers - len(job.ranks)
    parts = [labels.amount(len(job.ranks), "rank" if len(job.ranks) > 1 else "trainer")]
    parts += [labels.amount(loaders, "worker")] if loaders else []
    parts += [job.launcher or "its launcher"] if launchers else []
    parts += [labels.amount(others, "other")] if others else []
    return ", ".join(parts)

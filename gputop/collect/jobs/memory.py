"""Jobs rarely change: who belongs to which is worked out anew only when something that tells it has."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any

from gputop.collect.jobs.groups import jobs
from gputop.collect.jobs.kin import Tree
from gputop.collect.jobs.trainers import at_work, hints
from gputop.model import Identity, Job, Process, Role
from gputop.model.changed import changed
from gputop.model.process import pid_of

_PASSING = {"state", "missing", "sampled", "thread_names", "gpus"}  # changes without telling anything about jobs
_lasting = attrgetter(*(f.name for f in fields(Process) if "unit" not in f.metadata and f.name not in _PASSING))

Part = tuple[Role, str | None, int | None]
Key = tuple[int, int]  # pid and start: an Identity, without the cost of making one


class Jobs:
    """Gives processes their part in a job, as `jobs` does; remembers its last answer."""

    def __init__(self) -> None:
        self._gpus: tuple[str, ...] = ()
        self._stepping: Collection[Identity] = ()
        self._parts: dict[Key, Part] = {}
        self._pids: set[int] = set()  # of members and of who might become one: their new children matter
        self._kin: set[int] = set()  # these and their ancestors
        self._lost: set[int] = set()  # parents of kin that are not there, or not to be seen yet
        self._signs: dict[Key, Any] = {}  # of the kin
        self._found: tuple[Job, ...] = ()
        self._placed: dict[int, tuple[Process, Process]] = {}  # by the id of what came: that, and what it became

    def of(
        self, processes: Sequence[Process], gpus: tuple[str, ...], stepping: Collection[Identity] = ()
    ) -> tuple[tuple[Process, ...], tuple[Job, ...]]:
        """The processes with role, job and rank, and the jobs; the arguments are those of `jobs`."""
        ids = list(map(id, processes))
        known = list(map(self._placed.get, ids))  # of a thousand nearly all are the same as before
        if (gpus, stepping) != (self._gpus, self._stepping) or not self._as_before(processes, known):
            self._learn(processes, gpus, stepping)
            known = [None] * len(ids)
        placed = [before or (process, self._place(process)) for process, before in zip(processes, known, strict=True)]
        self._placed = dict(zip(ids, placed, strict=True))
        return tuple([after for _, after in placed]), self._found

    def _place(self, process: Process) -> Process:
        part = self._parts.get((process.pid, process.started_ticks))
        if part is None:
            return process
        role, job, rank = part
        return changed(process, role=role, job=job, rank=rank)

    def _learn(self, processes: Sequence[Process], gpus: tuple[str, ...], stepping: Collection[Identity]) -> None:
        told, self._found = jobs(processes, gpus, stepping)
        self._gpus, self._stepping = gpus, stepping
        self._parts = {(p.pid, p.started_ticks): (p.role, p.job, p.rank) for p in told if p.job}
        matter = hints(processes, stepping)
        parents = {process.pid: process.parent_pid for process in processes}
        tree = Tree(parents)
        self._pids = {process.pid for process in matter} | {pid for pid, _ in self._parts}
        self._kin = self._pids | {above for pid in self._pids for above in tree.above(pid)}
        self._lost = {parents[pid] for pid in self._kin if pid in parents} - parents.keys()
        self._signs = {(p.pid, p.started_ticks): _sign(p) for p in processes if p.pid in self._kin}

    def _as_before(self, processes: Sequence[Process], known: Sequence[object]) -> bool:
        """Whether all that matter are there as they were, and nobody came who might; `known` are the same as before."""
        signs, pids = self._signs, self._pids
        for process in [process for process, before in zip(processes, known, strict=True) if not before]:
            sign = signs.get((process.pid, process.started_ticks))
            if sign is None:
                awaited = process.pid in self._kin or process.pid in self._lost
                if awaited or process.parent_pid in pids or hints((process,)):
                    return False
            elif sign != _sign(process):
                return False
        return self._kin.issubset(map(pid_of, processes))


def _sign(process: Process) -> tuple[Any, ...]:
    shares = tuple([(share.uuid, share.kind) for share in process.gpus])
    return (_lasting(process), shares, at_work(process), bool(process.thread_names), process.talks)

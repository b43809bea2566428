"""Which processes belong to which job: launcher, ranks, their loaders, other children."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any

from gputop.collect.jobs.ancestry import LOADER, Parentage
from gputop.collect.jobs.launchers import is_notebook, is_python, is_ray, is_service, is_spawned, launcher, stem
from gputop.collect.jobs.trainers import ProcessTree, at_work, candidates, computes, starts
from gputop.collect.jobs.worlds import TrainerGroup, number, numbered, of_several, rest, united
from gputop.model import Identity, Job, Process, Role
from gputop.model.process import changed, pid_of
from gputop.pytorch import names_loaders

_UNNAMED = {"interactive", "bash", "sh", "wrap"}  # what Slurm calls a job without a name
_SHORT_ID = re.compile(r"[0-9a-f]{12}")

Ranked = Sequence[tuple[int | None, Process]]


def jobs(
    processes: Sequence[Process], gpus: Sequence[str] = (), stepping: Collection[Identity] = ()
) -> tuple[tuple[Process, ...], tuple[Job, ...]]:
    """The processes with their role, job and rank, and the jobs; `gpus` are uuids in the order people count them.

    `stepping`: processes whose step meters have seen optimizer steps.
    """
    hinted = candidates(processes, stepping)
    if not hinted:
        return tuple(processes), ()
    people = ProcessTree(processes)
    groups = _groups(people, people.trainers(hinted, stepping))
    heads = {root.pid for group in groups for root in group.roots}
    cast = list(processes)
    found = []
    for group in groups:
        ranked = _ranked(group, gpus)
        first, root = ranked[0][1], group.roots[0]
        key = f"{root.pid}.{root.started_ticks}"
        members = []
        for process, role, rank in _members(people, group, {process.pid: rank for rank, process in ranked}, heads):
            members.append(process.identity)
            if (process.role, process.job, process.rank) != (role, key, rank):
                cast[people.places[process.pid]] = changed(process, role=role, job=key, rank=rank)
        found.append(
            Job(
                key=key,
                name=_name(people, first, group.launcher),
                user=first.user,
                launcher=group.launcher,
                container=first.container,
                pod=first.pod,
                slurm_job=first.slurm_job,
                ranks=tuple(process.identity for _, process in ranked),
                members=tuple(members),
            )
        )
    return tuple(cast), tuple(found)


def _groups(people: ProcessTree, trainers: dict[int, Process]) -> list[TrainerGroup]:
    """Trainers of one launcher, of one Slurm step, or started as ranks of one world one by one."""
    groups: dict[object, TrainerGroup] = {}
    taken: set[Identity] = set()  # steps that are the root of a job: of no other, too
    for trainer in sorted(trainers.values(), key=lambda process: process.identity):
        root, label, step = people.origin(trainer, trainers)
        key: object = root.identity
        by_hand = label is None and root is trainer
        if by_hand and step is not None:
            ranked = trainer.rank is not None and (trainer.world_size or 0) > 1
            task = ranked and trainer.parent_pid == step.pid  # srun starts a program for each, not always the same
            of_step = (step.identity, None if task else rest(trainer), trainer.world_size)
            # what a shell of a step starts has the number of the shell: a number seen twice is another job
            twice = of_step in groups and trainer.rank in {other.rank for other in groups[of_step].trainers}
            if (of_step in groups or step.identity not in taken) and not (ranked and twice):
                key, root, label, by_hand = of_step, step, "slurm", False
                taken.add(step.identity)
        group = groups.setdefault(key, TrainerGroup([], label or _label(trainer), by_hand))
        if root not in group.roots:
            group.roots.append(root)
        group.trainers.append(trainer)
    return united(groups.values())


def _label(trainer: Process) -> str | None:
    if is_notebook(trainer):
        return "notebook"
    if is_ray(trainer):
        return "ray"
    return "python" if is_python(trainer) or trainer.talks else None


def _ranked(group: TrainerGroup, gpus: Sequence[str]) -> Ranked:
    """Trainers in order of rank: RANK, else what a shell gave them, else LOCAL_RANK, else the order of their GPUs.

    One rank of several that stands alone has no number where nothing says which it is.
    """
    if group.launcher in ("notebook", None):
        return [(None, trainer) for trainer in group.trainers]
    if group.by_hand and len(group.trainers) == 1 and of_several(group.trainers[0]):
        alone = group.trainers[0]
        given = numbered(alone)
        return [(alone.local_rank if given is None else given, alone)]
    for numbers in (
        [trainer.rank for trainer in group.trainers],
        [number(trainer) for trainer in group.trainers] if len(group.roots) > 1 else [],
        [trainer.local_rank for trainer in group.trainers],
    ):
        known = _completed(numbers)
        if known is not None:
            pairs: list[tuple[int, Process]] = list(zip(known, group.trainers, strict=True))
            return sorted(pairs, key=lambda pair: pair[0])
    places = {uuid: place for place, uuid in enumerate(gpus)}

    def order(trainer: Process) -> tuple[int, Identity]:
        return min((places.get(share.uuid, len(gpus)) for share in trainer.gpus), default=len(gpus)), trainer.identity

    return list(enumerate(sorted(group.trainers, key=order)))


def _completed(numbers: Sequence[int | None]) -> list[int] | None:
    """Numbers that distinguish all ranks; the one that is missing is the first, which started the others."""
    known = [0 if number is None else number for number in numbers]
    return known if len(set(known)) == len(known) and any(number is not None for number in numbers) else None


def _members(
    people: ProcessTree, group: TrainerGroup, ranks: Mapping[int, int | None], heads: set[int]
) -> Iterator[tuple[Process, Role, int | None]]:
    """Every process of the job with its part in it and its rank, roots first, each before its children."""
    left: list[tuple[Process, Process | None]] = [(root, None) for root in reversed(group.roots)]
    named: dict[int, bool] = {}  # by the pid of a rank: asked once, not for each of thousands of children
    roots = {root.pid for root in group.roots}
    while left:
        process, owner = left.pop()
        owner = process if process.pid in ranks else owner
        launches = process.pid in roots or _launches(people, process, ranks)
        if owner is not None and owner.pid not in named:
            named[owner.pid] = _named(people, owner)
        loaders_named = owner is not None and named[owner.pid]
        yield process, _role(process, owner, launches, loaders_named), ranks[owner.pid] if owner else None
        children = [child for child in people.children(process) if child.pid not in heads]
        left.extend((child, owner) for child in reversed(children))


def _launches(people: ProcessTree, process: Process, ranks: Mapping[int, int | None]) -> bool:
    """Whether it is a known launcher, or a program that started ranks to run its own functions."""
    if launcher(process) is not None:
        return True
    return not is_service(process) and any(
        child.pid in ranks and starts(process, child) for child in people.children(process)
    )


def _named(people: ProcessTree, owner: Process) -> bool:
    """Whether the loaders of a rank have names: before torch named them, they were forks like any other."""
    return names_loaders(owner.torch_version) or any(child.name.startswith(LOADER) for child in people.children(owner))


def _role(process: Process, owner: Process | None, launches: bool, loaders_named: bool) -> Role:
    if process is owner:
        return Role.TRAINER
    if owner is None:
        return Role.LAUNCHER if launches else Role.OTHER
    if process.name.startswith(LOADER):
        return Role.LOADER
    if process.parent_pid != owner.pid or not process.command or process.command != owner.command:
        return Role.OTHER
    return Role.OTHER if loaders_named or computes(process) or not is_python(owner) else Role.LOADER


def _name(people: ProcessTree, first: Process, label: str | None) -> str:
    """What people call the job: by Slurm, by its container, else by script and working folder."""
    if first.slurm_name and first.slurm_name not in _UNNAMED:
        return first.slurm_name
    if first.container and not _SHORT_ID.fullmatch(first.container):
        return first.container
    if label == "notebook":
        return "jupyter"
    if is_ray(first):
        return first.command[0].removeprefix("ray::").partition(".")[0] or "ray"
    line = (one for one in (first, *people.above(first)) if not (is_spawned(one) or is_service(one)))
    script = stem(next(line, first))  # a process spawned for a function has no script
    return f"{first.folder}/{script}" if first.folder else script


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
        self._pids: set[int] = set()  # of members and of candidates: their new children matter
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
        assigned, self._found = jobs(processes, gpus, stepping)
        self._gpus, self._stepping = gpus, stepping
        self._parts = {(p.pid, p.started_ticks): (p.role, p.job, p.rank) for p in assigned if p.job}
        matter = candidates(processes, stepping)
        parents = {process.pid: process.parent_pid for process in processes}
        tree = Parentage(parents)
        self._pids = {process.pid for process in matter} | {pid for pid, _ in self._parts}
        self._kin = self._pids | {above for pid in self._pids for above in tree.above(pid)}
        self._lost = {parents[pid] for pid in self._kin if pid in parents} - parents.keys()
        self._signs = {(p.pid, p.started_ticks): _sign(p) for p in processes if p.pid in self._kin}

    def _as_before(self, processes: Sequence[Process], known: Sequence[object]) -> bool:
        """Whether all that matter are there as they were, and no candidate is new; `known` are the same as before."""
        signs, pids = self._signs, self._pids
        for process in [process for process, before in zip(processes, known, strict=True) if not before]:
            sign = signs.get((process.pid, process.started_ticks))
            if sign is None:
                awaited = process.pid in self._kin or process.pid in self._lost
                if awaited or process.parent_pid in pids or candidates((process,)):
                    return False
            elif sign != _sign(process):
                return False
        return self._kin.issubset(map(pid_of, processes))


def _sign(process: Process) -> tuple[Any, ...]:
    shares = tuple([(share.uuid, share.kind) for share in process.gpus])
    return (_lasting(process), shares, at_work(process), bool(process.thread_names), process.talks)

"""Who belongs to which job: launcher, ranks, their loaders, other children; told from processes alone. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gputop.collect.jobs.kin import LOADER
from gputop.collect.jobs.launchers import is_notebook, is_python, is_ray, is_service, is_spawned, launcher, stem
from gputop.collect.jobs.trainers import People, computes, hints, starts
from gputop.collect.pytorch import names_loaders
from gputop.model import Identity, Job, Process, Role
from gputop.model.changed import changed

_UNNAMED = {"interactive", "bash", "sh", "wrap"}  # what Slurm calls a job that nobody named
# how scripts that are started once for each rank are told which one they are
_RANK = re.compile(
    r"(--?|)((?:local|global|node|machine|process)?[_-]?rank|process[_-]?id)(?:=(\d{1,5}))?", re.IGNORECASE
)
_SHORT_ID = re.compile(r"[0-9a-f]{12}")

Ranked = Sequence[tuple[int | None, Process]]


@dataclass
class _Group:
    """The trainers of one job; it has several roots when a shell started its ranks."""

    roots: list[Process]
    launcher: str | None
    trainers: list[Process] = field(default_factory=list)


def jobs(processes: Sequence[Process], gpus: Sequence[str] = ()) -> tuple[tuple[Process, ...], tuple[Job, ...]]:
    """The processes with their role, job and rank, and the jobs; `gpus` are uuids in the order people count them."""
    hinted = hints(processes)
    if not hinted:
        return tuple(processes), ()
    people = People(processes)
    groups = _groups(people, people.trainers(hinted))
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
                slurm_job=first.slurm_job,
                ranks=tuple(process.identity for _, process in ranked),
                members=tuple(members),
            )
        )
    return tuple(cast), tuple(found)


def _groups(people: People, trainers: dict[int, Process]) -> list[_Group]:
    """Trainers of one launcher, of one Slurm step, or started as ranks of one world by one shell."""
    groups: dict[object, _Group] = {}
    together = _by_argument(trainers.values())
    for trainer in sorted(trainers.values(), key=lambda process: process.identity):
        root, label, step = people.origin(trainer, trainers)
        key: object = root.identity
        ranked = trainer.rank is not None and (trainer.world_size or 0) > 1
        if label is None and root is trainer and (step is not None or ranked):
            # what a shell of a step starts has the number of the shell: a number seen twice is another job
            key = (step.identity if step else trainer.parent_pid, trainer.command, trainer.world_size)
            if key in groups and ranked and trainer.rank in {other.rank for other in groups[key].trainers}:
                key = root.identity
            elif step is not None:
                root, label = step, "slurm"
        elif label is None and root is trainer and trainer.pid in together:
            key = together[trainer.pid]
        group = groups.setdefault(key, _Group([], label or _label(trainer)))
        if root not in group.roots:
            group.roots.append(root)
        group.trainers.append(trainer)
    return list(groups.values())


def _by_argument(trainers: Iterable[Process]) -> dict[int, object]:
    """Those that one shell started with the same command but for their rank, by pid, and what they have in common.

    They talk to each other, and their numbers follow one another: the rank of an adapter is another thing.
    """
    found: dict[object, dict[int, int]] = {}
    for trainer in trainers:
        place, number = argument(trainer)
        if trainer.talks and number is not None:
            rest = tuple(word for index, word in enumerate(trainer.command) if index != place)
            found.setdefault((trainer.parent_pid, trainer.folder, place, rest), {})[trainer.pid] = number
    return {
        pid: key
        for key, numbers in found.items()
        if len(numbers) > 1 and _follow(sorted(numbers.values()))
        for pid in numbers
    }


def _follow(numbers: Sequence[int]) -> bool:
    """Whether these are the ranks of one machine: without a gap, from 0 or from what other machines of as many left."""
    return numbers[0] % len(numbers) == 0 and list(numbers) == list(range(numbers[0], numbers[0] + len(numbers)))


def argument(process: Process) -> tuple[int, int | None]:
    """The number of its rank by its arguments, and the place of that word: `--rank 1`, `--local_rank=1`, `rank=1`."""
    words = process.command
    for place, word in enumerate(words):
        found = _RANK.fullmatch(word)
        if found and found[3]:
            return place, int(found[3])
        if found and found[1] and words[place + 1 : place + 2] and words[place + 1].isdecimal():
            return place + 1, int(words[place + 1][:5])
    return 0, None


def _label(trainer: Process) -> str | None:
    if is_notebook(trainer):
        return "notebook"
    if is_ray(trainer):
        return "ray"
    return "python" if is_python(trainer) or trainer.talks else None


def _ranked(group: _Group, gpus: Sequence[str]) -> Ranked:
    """Trainers in order of rank: RANK, else LOCAL_RANK, else what a shell gave them, else the order of their GPUs."""
    if group.launcher in ("notebook", None):
        return [(None, trainer) for trainer in group.trainers]
    for numbers in (
        [trainer.rank for trainer in group.trainers],
        [trainer.local_rank for trainer in group.trainers],
        [argument(trainer)[1] for trainer in group.trainers] if len(group.roots) > 1 else [],
    ):
        known = _completed(numbers)
        if known is not None:
            numbered: list[tuple[int, Process]] = list(zip(known, group.trainers, strict=True))
            return sorted(numbered, key=lambda pair: pair[0])
    places = {uuid: place for place, uuid in enumerate(gpus)}

    def order(trainer: Process) -> tuple[int, Identity]:
        return min((places.get(share.uuid, len(gpus)) for share in trainer.gpus), default=len(gpus)), trainer.identity

    return list(enumerate(sorted(group.trainers, key=order)))


def _completed(numbers: Sequence[int | None]) -> list[int] | None:
    """Numbers that tell all ranks apart; the one that is missing is the first, which started the others."""
    known = [0 if number is None else number for number in numbers]
    return known if len(set(known)) == len(known) and any(number is not None for number in numbers) else None


def _members(
    people: People, group: _Group, ranks: Mapping[int, int | None], heads: set[int]
) -> Iterator[tuple[Process, Role, int | None]]:
    """Every process of the job with its part in it and its rank, roots first, each before its children."""
    left: list[tuple[Process, Process | None]] = [(root, None) for root in reversed(group.roots)]
    roots = {root.pid for root in group.roots}
    while left:
        process, owner = left.pop()
        owner = process if process.pid in ranks else owner
        launches = process.pid in roots or _launches(people, process, ranks)
        yield process, _role(people, process, owner, launches), ranks[owner.pid] if owner else None
        children = [child for child in people.children(process) if child.pid not in heads]
        left.extend((child, owner) for child in reversed(children))


def _launches(people: People, process: Process, ranks: Mapping[int, int | None]) -> bool:
    """Whether it is a known launcher, or a program that started ranks to run functions of its own."""
    if launcher(process) is not None:
        return True
    return not is_service(process) and any(
        child.pid in ranks and starts(process, child) for child in people.children(process)
    )


def _role(people: People, process: Process, owner: Process | None, launches: bool) -> Role:
    if process is owner:
        return Role.TRAINER
    if owner is None:
        return Role.LAUNCHER if launches else Role.OTHER
    if process.name.startswith(LOADER):
        return Role.LOADER
    if process.parent_pid != owner.pid or not process.command or process.command != owner.command:
        return Role.OTHER
    # before torch named them, loaders were forks like any other
    named = names_loaders(owner.torch_version) or any(child.name.startswith(LOADER) for child in people.children(owner))
    return Role.OTHER if named or computes(process) or not is_python(owner) else Role.LOADER


def _name(people: People, first: Process, label: str | None) -> str:
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
    script = stem(next(line, first))  # what is spawned for a function has no script of its own
    return f"{first.folder}/{script}" if first.folder else script

"""Ranks that were started one by one, by a shell or by several launchers: which of them are one job. Pure.

They are one job where something says so: the same MASTER_ADDR, MASTER_PORT and WORLD_SIZE, or the same command of the
same shell but for the rank. A rank that occurs twice says that they are two.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from gputop.model import Process

# how scripts that are started once for each rank learn which one they are, the most specific word first
_RANKS = tuple(
    re.compile(rf"(--?|)(?:{names})(?:=(\d{{1,5}}))?", re.IGNORECASE)
    for names in (
        r"(?:global[_-]?|process[_-]?|world[_-]?|dist[_-]?)?rank|process[_-]?id",
        r"local[_-]?rank",
        r"(?:node|machine)[_-]?rank",
    )
)
_WORLD = re.compile(r"(--?|)(?:world[_-]?size|num[_-]?processes)(?:=(\d{1,5}))?", re.IGNORECASE)
# which GPU each takes differs as the rank does
_DEVICE = re.compile(r"(--?|)(?:gpu|device|cuda)(?:[_-]?(?:ids?|index))?(?:=(?:cuda:)?(\d{1,3}))?", re.IGNORECASE)
# words of a command line that has to do with several processes: beside them `--rank` is none of an adapter
_DISTRIBUTED = re.compile(
    r"--?(?:world[_-]?size|dist(?:ributed)?(?:[_-].*)?|init[_-]method|master[_-].*|nnodes|nproc.*)(?:=.*)?",
    re.IGNORECASE,
)


@dataclass
class TrainerGroup:
    """The trainers of one job; it has several roots when a shell started its ranks."""

    roots: list[Process]
    launcher: str | None
    by_hand: bool = False  # its one trainer is what a person, or a script, started
    trainers: list[Process] = field(default_factory=list)


def united(groups: Iterable[TrainerGroup]) -> list[TrainerGroup]:
    """The groups, those that are one job as one."""
    found = list(groups)
    for evidence, complete in ((_meets, True), (_started_alike, True), (_talks_alike, False)):
        found = _joined(found, evidence, complete)
    return found


def number(process: Process) -> int | None:
    """Its rank: as its environment says, else as its arguments say."""
    return process.rank if process.rank is not None else argument(process)


def numbered(process: Process) -> int | None:
    """The same of one that stands alone: arguments count only where they speak of several processes."""
    if process.rank is not None:
        return process.rank
    found, world = argument(process), _world(process)
    if found is None or (world is not None and found >= world):
        return None
    asked = any(map(_DISTRIBUTED.fullmatch, process.command))
    distributed = asked or world is not None or process.rendezvous is not None
    return found if distributed or _places(process.command, _RANKS[1]) else None


def argument(process: Process) -> int | None:
    """The number of its rank by its arguments: `--rank 1`, `--local_rank=1`, `rank=1`."""
    return next((value for word in _RANKS for value, _ in _places(process.command, word)), None)


def of_several(process: Process) -> bool:
    """Whether it is, or may be, one of several ranks."""
    return process.talks or (_world(process) or 0) > 1 or argument(process) is not None


def rest(process: Process) -> tuple[str, ...]:
    """Its command without the words that differ from rank to rank."""
    words = process.command
    left_out = {place for word in (*_RANKS, _DEVICE) for _, places in _places(words, word) for place in places}
    return tuple(word for place, word in enumerate(words) if place not in left_out)


def _places(words: Sequence[str], option: re.Pattern[str]) -> list[tuple[int, tuple[int, ...]]]:
    """Each number that an option has, and the places of the words that say it."""
    found: list[tuple[int, tuple[int, ...]]] = []
    for place, word in enumerate(words):
        match = option.fullmatch(word)
        if match and match[2]:
            found.append((int(match[2]), (place,)))
        elif match and match[1]:
            following = words[place + 1].removeprefix("cuda:") if place + 1 < len(words) else ""
            if following.isdecimal() and len(following) < 6:
                found.append((int(following), (place, place + 1)))
    return found


def _world(process: Process) -> int | None:
    """How many ranks its job has, as its environment says, else as its arguments say."""
    if process.world_size is not None:
        return process.world_size
    return next((value for value, _ in _places(process.command, _WORLD)), None)


def _meets(group: TrainerGroup) -> object:
    """Where its ranks meet those of the same world; a port can be that of one job at a time."""
    first = group.trainers[0]
    one = {(trainer.rendezvous, _world(trainer)) for trainer in group.trainers}
    if len(one) > 1 or first.rendezvous is None or (_world(first) or 0) < 2:
        return None
    return (first.user, first.container, first.slurm_job, *one)


def _started_alike(group: TrainerGroup) -> object:
    """The shell and the command of a rank that says of how many it is."""
    first = group.trainers[0]
    return _start(first) if group.by_hand and len(group.trainers) == 1 and (_world(first) or 0) > 1 else None


def _talks_alike(group: TrainerGroup) -> object:
    """The same of one that does not say it, but has threads that talk to other ranks."""
    first = group.trainers[0]
    alone = group.by_hand and len(group.trainers) == 1
    return _start(first) if alone and first.talks and _world(first) is None else None


def _start(process: Process) -> object:
    place = (process.user, process.parent_pid, process.container, process.folder)
    return (*place, rest(process), _world(process), process.rendezvous)


def _joined(
    groups: Sequence[TrainerGroup], evidence: Callable[[TrainerGroup], object], sized: bool
) -> list[TrainerGroup]:
    """The groups, those of the same evidence joined; `sized`: they say how many ranks there are."""
    alike: dict[object, list[TrainerGroup]] = {}
    for place, group in enumerate(groups):
        ranks = [number(trainer) for trainer in group.trainers]
        key = evidence(group) if None not in ranks and len(set(ranks)) == len(ranks) else None
        alike.setdefault(("alone", place) if key is None else (key,), []).append(group)
    return [joined for many in alike.values() for joined in _worlds(many, sized)]


def _worlds(groups: list[TrainerGroup], sized: bool) -> Iterator[TrainerGroup]:
    """Groups of the same evidence, joined where their ranks show that they are one."""
    if len(groups) == 1 or _are_one(groups, sized):
        yield _join(groups)
        return
    parents: dict[int, list[TrainerGroup]] = {}
    for group in groups:
        parents.setdefault(group.roots[0].parent_pid, []).append(group)
    if len(parents) > 1:
        for many in parents.values():
            yield from _worlds(many, sized)
        return
    runs = _in_turn(groups) if sized else []
    # one job after another, each with all its ranks; else it is unknown which rank belongs to which job
    whole = all(len(_ranks(run)) == _world(run[0].trainers[0]) and _are_one(run, sized) for run in runs)
    yield from map(_join, runs) if runs and whole else groups


def _in_turn(groups: Sequence[TrainerGroup]) -> list[list[TrainerGroup]]:
    """The groups in the order of their start, with a new run at each rank that was there before."""
    runs: list[list[TrainerGroup]] = [[]]
    for group in sorted(groups, key=lambda group: (group.roots[0].started_ticks, group.roots[0].pid)):
        if not set(_ranks(runs[-1])).isdisjoint(_ranks([group])):
            runs.append([])
        runs[-1].append(group)
    return runs


def _ranks(groups: Sequence[TrainerGroup]) -> list[int]:
    return [found for group in groups for trainer in group.trainers if (found := number(trainer)) is not None]


def _are_one(groups: Sequence[TrainerGroup], sized: bool) -> bool:
    """Whether no rank occurs twice; where nothing says how many there are, none may be missing on this machine."""
    ranks = sorted(_ranks(groups))
    if len(set(ranks)) < len(ranks):
        return False
    if sized:
        return ranks[-1] < (_world(groups[0].trainers[0]) or 0)
    # from 0, or from what other machines of as many have before them
    return ranks[0] % len(ranks) == 0 and ranks == list(range(ranks[0], ranks[0] + len(ranks)))


def _join(groups: Sequence[TrainerGroup]) -> TrainerGroup:
    """One of several."""
    if len(groups) == 1:
        return groups[0]
    trainers = [trainer for group in groups for trainer in group.trainers]
    roots = [root for group in groups for root in group.roots]
    return TrainerGroup(roots, groups[0].launcher, by_hand=False, trainers=trainers)

"""The members of a job: ranks, the workers of each, and the others; of any process all below it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from gputop.model import Identity, Process, Role

Numbered = tuple[int, Process]  # a loader by its number in its rank


@dataclass(slots=True)
class Members:
    """The processes of one job by what they do; loaders and others by the rank they belong to."""

    ranks: list[Process] = field(default_factory=list)
    loaders: dict[Identity | None, list[Numbered]] = field(default_factory=dict)
    others: dict[Identity | None, list[Process]] = field(default_factory=dict)


def members(processes: Collection[Process]) -> Members:
    """Sort the processes of one job."""
    found = Members()
    found.ranks = sorted((p for p in processes if p.role is Role.TRAINER), key=lambda p: (_rank(p), p.pid))
    owners = {rank.pid: rank.identity for rank in found.ranks}
    parents = {process.pid: process.parent_pid for process in processes}
    for process in sorted(processes, key=lambda process: process.pid):
        owner = _owner(process, owners, parents)
        if process.role is Role.LOADER:
            loaders = found.loaders.setdefault(owner, [])
            loaders.append((len(loaders), process))
        elif process.role is not Role.TRAINER:
            found.others.setdefault(owner, []).append(process)
    return found


def _rank(process: Process) -> int:
    return 1 << 30 if process.rank is None else process.rank


def _owner(process: Process, owners: Mapping[int, Identity], parents: Mapping[int, int]) -> Identity | None:
    """The rank above a process, through its members; none for launchers and strays."""
    pid, steps = process.parent_pid, len(parents)
    while pid not in owners and pid in parents and steps:
        pid, steps = parents[pid], steps - 1
    return owners.get(pid)


def below(process: Process, processes: Iterable[Process]) -> list[Process]:
    """Its children, theirs, and so on: none older than its parent, whose pid then was another's."""
    children: dict[int, list[Process]] = {}
    for one in processes:
        children.setdefault(one.parent_pid, []).append(one)
    found = [process]
    for parent in found:  # grows; each pid is taken once, so that no circle goes on for ever
        if parent.verified and parent.pid:
            born = children.pop(parent.pid, ())
            found += (child for child in born if child.started_ticks >= parent.started_ticks)
    return [one for one in found if one.identity != process.identity]

"""How many CPUs a trainer may count on beside all others of the machine, and what fits into those.

What takes plain values is for the page of experiments too, which has no view: both are to say the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from gputop import num_workers
from gputop.diagnose.starvation import fed, used
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.model import Process, Role
from gputop.units import cpus_of


def affinity(process: Process) -> frozenset[int]:
    """CPUs a process may run on; none where that is not known."""
    return cpus_of(process.affinity)


def reach(trainer: Trainer) -> frozenset[int]:
    """CPUs that a trainer or its loaders may run on: either may be pinned where the other is not."""
    own = trainer.process.affinity
    if own is None:
        return frozenset()
    others = (one.affinity for one in trainer.tree if one.role is Role.LOADER and one.affinity != own)
    return affinity(trainer.process).union(*map(cpus_of, others))


class Part(NamedTuple):
    """CPUs that somebody may run on, none where that is not known; how many it may use; whose quota that is."""

    cpus: frozenset[int]
    allowed: float | None
    group: Hashable


def part(process: Process) -> Part:
    """What a process has of the CPUs; those of a container or of a control group have one quota together."""
    return Part(affinity(process), process.allowed_cpus, process.container or process.cgroup or process.identity)


def united_cpus(parts: Sequence[Part], total: int | None) -> float | None:
    """CPUs that some share, of a machine of `total`: all that one of them may run on, or what their quotas leave."""
    sets = [one.cpus for one in parts]
    union = len(frozenset().union(*sets)) if all(sets) else total
    if not union:
        return None
    quotas: dict[Hashable, float] = {}
    for one in parts:
        if one.allowed is None or one.allowed >= (len(one.cpus) or union):
            return float(union)
        quotas[one.group] = max(one.allowed, quotas.get(one.group, 0.0))
    return min(float(union), sum(quotas.values()))


class Share(NamedTuple):
    """What a trainer has of the CPUs where all who have them together get as many: how many, of how many, with whom."""

    cpus: float
    total: float
    who: Sequence[Trainer]


def share(view: View, trainer: Trainer) -> Share:
    """The smaller one: beside the ranks of its job on this machine, or beside all that train on the same CPUs."""
    allowed, mates = trainer.allowed or 1.0, sharing(view, trainer)
    total = len(reach(trainer)) or view.frame.host.cpus_total
    beside = _beside(view, trainer)
    cpus = least_share(allowed, len(mates), total, len(beside))
    return Share(cpus, total, beside) if total and cpus < allowed / len(mates) else Share(cpus, allowed, mates)


def least_share(allowed: float, sharers: int, total: int | None, beside: int) -> float:
    """CPUs for each of those who share what is allowed, or for each of those on all of them: the smaller number."""
    own = allowed / sharers
    return min(own, total / beside) if total else own


def share_of_cpus(view: View, trainer: Trainer) -> float:
    """CPUs for each rank of its job on this machine, and for it where all that train on the same ones get as many."""
    return share(view, trainer).cpus


def has_room(view: View, trainer: Trainer) -> bool:
    """Whether one more loader fits into what it has of the CPUs; who has them for itself gives it what it leaves."""
    mine = share(view, trainer)
    if len(mine.who) > 1:
        return num_workers.most(mine.cpus) > trainer.loaders
    return view.above(mine.total - (trainer.cores or 0.0), "starved-cpu-idle.spare")


def unused(view: View, trainer: Trainer) -> float | None:
    """CPUs of those it may use that nobody uses: of the machine, and of its quota. None: not known."""
    free = idle(view)
    return None if free is None else max(0.0, min(free, _left(view, trainer)))


def idle_cpus(view: View, trainer: Trainer) -> float | None:
    """The part of the unused ones that it gets where all that train on the same ones and wait get as many."""
    free = idle(view)
    if free is None:
        return None
    rivals, sharers = (
        sum(one is trainer or not fed(view, one) for one in some)
        for some in (_beside(view, trainer), sharing(view, trainer))
    )
    return least_idle(free, rivals, _left(view, trainer), sharers)


def least_idle(free: float, rivals: int, left: float, sharers: int) -> float:
    """Of the idle CPUs of the machine, or of those that are left of a quota, the part for each: the smaller one."""
    return max(0.0, min(free / rivals, left / sharers))


def idle(view: View) -> float | None:
    """CPUs of the machine that nobody uses. None: not known."""
    return idle_of(view.frame.host.cpus_total, view.mean("host", "cpu_percent"))


def idle_of(total: int | None, used_percent: float | None) -> float | None:
    """The same of so many CPUs."""
    return None if not total or used_percent is None else max(0.0, 1 - used_percent / 100) * total


def _left(view: View, trainer: Trainer) -> float:
    """What those that have its CPUs together leave of them; where nobody knows how many these are, no limit."""
    if trainer.allowed is None:
        return math.inf
    return trainer.allowed - sum(one.cores or 0.0 for one in sharing(view, trainer))


def full(view: View) -> bool:
    """Whether all CPUs of the machine are busy, whoever it is that uses them."""
    return view.above(view.mean("host", "cpu_percent"), "starved-cpu-saturated.host_percent")


def fitting_threads(cpus: float) -> int:
    """Compute threads for so many CPUs: one for each, and one where there is less than that."""
    return max(1, math.floor(cpus))


def rests(view: View, trainer: Trainer) -> bool:
    """Whether its GPUs have nothing to do, as those of a notebook that nobody uses: then it needs no CPUs."""
    return trainer.duty is not None and not used(view, trainer)


def _beside(view: View, trainer: Trainer) -> Sequence[Trainer]:
    """Who trains on the same CPUs, itself among them."""
    own = reach(trainer)
    return [one for one in view.vectors() if one is trainer or (not rests(view, one) and meet(own, reach(one)))]


def sharing(view: View, trainer: Trainer) -> Sequence[Trainer]:
    """Who has its CPUs together with it, itself among them."""
    mates = {mate.key for mate in view.mates(trainer)}
    return [one for one in _beside(view, trainer) if shares_quota(trainer.process, one.process, one.key in mates)]


def shares_quota(some: Process, other: Process, mates: bool) -> bool:
    """Whether they have their CPUs together: the ranks of a job do, its `mates`, and who is under the same quota.

    Ranks in containers of their own have quotas of their own.
    """
    return (mates and some.container == other.container) or part(some).group == part(other).group


def meet(some: frozenset[int], others: frozenset[int]) -> bool:
    """Whether some CPUs are in both; where they are not known they may be."""
    return not some or not others or not some.isdisjoint(others)

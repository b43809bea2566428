"""How many CPUs a trainer may count on beside all others of the machine, and how many loaders fit into those."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import NamedTuple

from gputop import units
from gputop.diagnose.starved import fed
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.model import Process


@lru_cache(maxsize=256)
def parsed(listed: str | None) -> frozenset[int]:
    """CPUs of a list such as 0-7,64-71; none where there is none, or it makes no sense."""
    try:
        return frozenset(units.listed(listed)) if listed else frozenset()
    except ValueError:
        return frozenset()


def affinity(process: Process) -> frozenset[int]:
    """CPUs a process may run on; none where that is not known."""
    return parsed(process.affinity)


class Part(NamedTuple):
    """CPUs that somebody may run on, none where that is not known; how many it may use; whose quota that is."""

    cpus: frozenset[int]
    allowed: float | None
    group: Hashable


def part(process: Process) -> Part:
    """What a process has of the CPUs; those of a container or of a control group have one quota together."""
    return Part(affinity(process), process.allowed_cpus, process.container or process.cgroup or process.identity)


def together(parts: Sequence[Part], total: int | None) -> float | None:
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
    own = Share(allowed / len(mates), allowed, mates)
    total = len(affinity(trainer.process)) or view.frame.host.cpus_total
    beside = _beside(view, trainer)
    return Share(total / len(beside), total, beside) if total and total / len(beside) < own.cpus else own


def share_of_cpus(view: View, trainer: Trainer) -> float:
    """CPUs for each rank of its job on this machine, and for it where all that train on the same ones get as many."""
    return share(view, trainer).cpus


def has_room(view: View, trainer: Trainer) -> bool:
    """Whether one more loader fits into what it has of the CPUs; who has them for itself gives it what it leaves."""
    mine = share(view, trainer)
    if len(mine.who) > 1:
        return most_loaders(mine.cpus) > trainer.loaders
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
    return max(0.0, min(free / rivals, _left(view, trainer) / sharers))


def idle(view: View) -> float | None:
    """CPUs of the machine that nobody uses. None: not known."""
    total, used = view.frame.host.cpus_total, view.mean("host", "cpu_percent")
    return None if not total or used is None else max(0.0, 1 - used / 100) * total


def _left(view: View, trainer: Trainer) -> float:
    """What those that have its CPUs together leave of them; where nobody knows how many these are, no limit."""
    if trainer.allowed is None:
        return math.inf
    return trainer.allowed - sum(one.cores or 0.0 for one in sharing(view, trainer))


def full(view: View) -> bool:
    """Whether all CPUs of the machine are busy, whoever it is that uses them."""
    return view.above(view.mean("host", "cpu_percent"), "starved-cpu-saturated.host_percent")


def fitting_loaders(wanted: float, cpus: float) -> int:
    """As many as are wanted, but a CPU for each, and one that is left for who trains."""
    return min(math.ceil(wanted), most_loaders(cpus))


def most_loaders(cpus: float) -> int:
    """Loaders that so many CPUs have room for."""
    return max(1, math.floor(cpus) - 1)


def rests(view: View, trainer: Trainer) -> bool:
    """Whether its GPUs have nothing to do, as those of a notebook that nobody uses: then it needs no CPUs."""
    return trainer.duty is not None and trainer.duty < view.limit("starved.least")


def _beside(view: View, trainer: Trainer) -> Sequence[Trainer]:
    """Who trains on the same CPUs, itself among them."""
    own = affinity(trainer.process)
    return [
        one for one in view.vectors() if one is trainer or (not rests(view, one) and _meet(own, affinity(one.process)))
    ]


def sharing(view: View, trainer: Trainer) -> Sequence[Trainer]:
    """Who has its CPUs together with it, itself among them: the ranks of its job, and who is under the same quota.

    Ranks in containers of their own have quotas of their own.
    """
    own, group = trainer.process.container, part(trainer.process).group
    mates = {mate.key for mate in view.mates(trainer) if mate.process.container == own}
    return [one for one in _beside(view, trainer) if one.key in mates or part(one.process).group == group]


def _meet(some: frozenset[int], others: frozenset[int]) -> bool:
    """Whether some CPUs are in both; where they are not known they may be."""
    return not some or not others or not some.isdisjoint(others)

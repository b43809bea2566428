"""The CPUs that a trainer can count on beside everything else on the machine, and the threads that fit.

Functions of plain values serve the experiments page too, which has no view: both must show the same numbers.
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
    """CPUs a process may run on; empty if unknown."""
    return cpus_of(process.affinity)


def reach(trainer: Trainer) -> frozenset[int]:
    """CPUs that a trainer or its loaders may run on: either may be pinned while the other is not."""
    own = trainer.process.affinity
    if own is None:
        return frozenset()
    others = (one.affinity for one in trainer.tree if one.role is Role.LOADER and one.affinity != own)
    return affinity(trainer.process).union(*map(cpus_of, others))


class Part(NamedTuple):
    """CPUs a process may run on (empty if unknown), how many it may use, and the owner of that quota."""

    cpus: frozenset[int]
    allowed: float | None
    group: Hashable


def part(process: Process) -> Part:
    """The CPUs of one process. Processes of one container or control group share one quota."""
    return Part(affinity(process), process.allowed_cpus, process.container or process.cgroup or process.identity)


def united_cpus(parts: Sequence[Part], total: int | None) -> float | None:
    """CPUs that processes share on a machine of `total`: the union of their CPUs, or the sum of their quotas."""
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
    """A trainer's CPUs if they are divided equally: how many, of how many, and shared with which trainers."""

    cpus: float
    total: float
    who: Sequence[Trainer]


def share(view: View, trainer: Trainer) -> Share:
    """The smaller of two shares: among the ranks of its job on this machine, or among all that train on its CPUs."""
    allowed, mates = trainer.allowed or 1.0, sharing(view, trainer)
    total = len(reach(trainer)) or view.frame.host.cpus_total
    beside = _beside(view, trainer)
    cpus = least_share(allowed, len(mates), total, len(beside))
    return Share(cpus, total, beside) if total and cpus < allowed / len(mates) else Share(cpus, allowed, mates)


def least_share(allowed: float, sharers: int, total: int | None, beside: int) -> float:
    """CPUs per trainer: the smaller of what is allowed for the sharers, and of the total for all beside them."""
    own = allowed / sharers
    return min(own, total / beside) if total else own


def share_of_cpus(view: View, trainer: Trainer) -> float:
    """CPUs per rank of its job on this machine, if all that train on the same CPUs get as many."""
    return share(view, trainer).cpus


def has_room(view: View, trainer: Trainer) -> bool:
    """Whether one more loader fits into its CPUs; a trainer with CPUs of its own has what it leaves unused."""
    mine = share(view, trainer)
    if len(mine.who) > 1:
        return num_workers.most(mine.cpus) > trainer.loaders
    return view.above(mine.total - (trainer.cores or 0.0), "starved-cpu-idle.spare")


def unused(view: View, trainer: Trainer) -> float | None:
    """Idle CPUs among those it may use, of the machine and of its quota; None if unknown."""
    free = idle(view)
    return None if free is None else max(0.0, min(free, _left(view, trainer)))


def idle_cpus(view: View, trainer: Trainer) -> float | None:
    """Idle CPUs for this trainer, if all waiting trainers on the same CPUs get as many."""
    free = idle(view)
    if free is None:
        return None
    rivals, sharers = (
        sum(one is trainer or not fed(view, one) for one in some)
        for some in (_beside(view, trainer), sharing(view, trainer))
    )
    return least_idle(free, rivals, _left(view, trainer), sharers)


def least_idle(free: float, rivals: int, left: float, sharers: int) -> float:
    """The smaller of two shares: of the machine's idle CPUs, or of the unused part of a quota."""
    return max(0.0, min(free / rivals, left / sharers))


def idle(view: View) -> float | None:
    """Idle CPUs of the machine; None if unknown."""
    return idle_of(view.frame.host.cpus_total, view.mean("host", "cpu_percent"))


def idle_of(total: int | None, used_percent: float | None) -> float | None:
    """Idle CPUs for a CPU count and a utilization."""
    return None if not total or used_percent is None else max(0.0, 1 - used_percent / 100) * total


def _left(view: View, trainer: Trainer) -> float:
    """CPUs that its sharers leave unused; infinite if their number is unknown."""
    if trainer.allowed is None:
        return math.inf
    return trainer.allowed - sum(one.cores or 0.0 for one in sharing(view, trainer))


def full(view: View) -> bool:
    """Whether all CPUs of the machine are busy, whichever process uses them."""
    return view.above(view.mean("host", "cpu_percent"), "starved-cpu-saturated.host_percent")


def fitting_threads(cpus: float) -> int:
    """Compute threads that fit: one per CPU, and at least one."""
    return max(1, math.floor(cpus))


def rests(view: View, trainer: Trainer) -> bool:
    """Whether its GPUs have no work, as those of an idle notebook: it needs no CPUs then."""
    return trainer.duty is not None and not used(view, trainer)


def _beside(view: View, trainer: Trainer) -> Sequence[Trainer]:
    """Trainers on the same CPUs, itself included."""
    own = reach(trainer)
    return [one for one in view.vectors() if one is trainer or (not rests(view, one) and meet(own, reach(one)))]


def sharing(view: View, trainer: Trainer) -> Sequence[Trainer]:
    """Trainers that share its CPUs or quota, itself included."""
    mates = {mate.key for mate in view.mates(trainer)}
    return [one for one in _beside(view, trainer) if shares_quota(trainer.process, one.process, one.key in mates)]


def shares_quota(some: Process, other: Process, mates: bool) -> bool:
    """Whether two processes share their CPUs: ranks of one job (`mates`) do, and processes under one quota.

    Ranks in separate containers have separate quotas.
    """
    return (mates and some.container == other.container) or part(some).group == part(other).group


def meet(some: frozenset[int], others: frozenset[int]) -> bool:
    """Whether two sets of CPUs overlap; True if either is unknown."""
    return not some or not others or not some.isdisjoint(others)

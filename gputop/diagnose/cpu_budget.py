"""The CPUs that a trainer can count on beside everything else on the machine, and the threads that fit.

Functions of plain values serve the experiments page too, which has no view: both must show the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from gputop import num_workers
from gputop.diagnose.starvation import has_work, is_fed
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.model import Process, Role
from gputop.units import cpus_of


def affinity(process: Process) -> frozenset[int]:
    """CPUs a process may run on; empty if unknown."""
    return cpus_of(process.affinity)


def reachable_cpus(trainer: Trainer) -> frozenset[int]:
    """CPUs that a trainer or its loaders may run on: either may be pinned while the other is not."""
    own = trainer.process.affinity
    if own is None:
        return frozenset()
    others = (one.affinity for one in trainer.tree if one.role is Role.LOADER and one.affinity != own)
    return affinity(trainer.process).union(*map(cpus_of, others))


class CpuLimit(NamedTuple):
    """CPUs a process may run on (empty if unknown), how many it may use, and the owner of that quota."""

    cpus: frozenset[int]
    allowed: float | None
    group: Hashable


def cpu_limit(process: Process) -> CpuLimit:
    """The CPUs of one process. Processes of one container or control group share one quota."""
    return CpuLimit(affinity(process), process.allowed_cpus, process.container or process.cgroup or process.identity)


def united_cpus(parts: Sequence[CpuLimit], total: int | None) -> float | None:
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


class CpuShare(NamedTuple):
    """A trainer's CPUs if they are divided equally: how many, of how many, and shared with which trainers."""

    cpus: float
    total: float
    sharers: Sequence[Trainer]


def cpu_share(view: View, trainer: Trainer) -> CpuShare:
    """The smaller of two shares: among the ranks of its job on this machine, or among all that train on its CPUs."""
    allowed, mates = trainer.allowed or 1.0, sharers(view, trainer)
    total = len(reachable_cpus(trainer)) or view.frame.host.cpus_total
    beside = _trainers_on_cpus(view, trainer)
    cpus = least_share(allowed, len(mates), total, len(beside))
    return CpuShare(cpus, total, beside) if total and cpus < allowed / len(mates) else CpuShare(cpus, allowed, mates)


def least_share(allowed: float, sharers: int, total: int | None, beside: int) -> float:
    """CPUs per trainer: the smaller of what is allowed for the sharers, and of the total for all beside them."""
    own = allowed / sharers
    return min(own, total / beside) if total else own


def equal_share(view: View, trainer: Trainer) -> float:
    """CPUs per rank of its job on this machine, if all that train on the same CPUs get as many."""
    return cpu_share(view, trainer).cpus


def fits_another_loader(view: View, trainer: Trainer) -> bool:
    """Whether one more loader fits into its CPUs; a trainer with CPUs of its own has what it leaves unused."""
    mine = cpu_share(view, trainer)
    if len(mine.sharers) > 1:
        return num_workers.maximum(mine.cpus) > trainer.loaders
    return view.above(mine.total - (trainer.cores or 0.0), "starved-cpu-idle.spare")


def unused_cpus(view: View, trainer: Trainer) -> float | None:
    """Idle CPUs among those it may use, of the machine and of its quota; None if unknown."""
    free = idle_host_cpus(view)
    return None if free is None else max(0.0, min(free, _unused_by_sharers(view, trainer)))


def idle_cpus(view: View, trainer: Trainer) -> float | None:
    """Idle CPUs for this trainer, if all waiting trainers on the same CPUs get as many."""
    free = idle_host_cpus(view)
    if free is None:
        return None
    rivals, sharing = (
        sum(one is trainer or not is_fed(view, one) for one in some)
        for some in (_trainers_on_cpus(view, trainer), sharers(view, trainer))
    )
    return least_idle(free, rivals, _unused_by_sharers(view, trainer), sharing)


def least_idle(free: float, rivals: int, left: float, sharers: int) -> float:
    """The smaller of two shares: of the machine's idle CPUs, or of the unused part of a quota."""
    return max(0.0, min(free / rivals, left / sharers))


def idle_host_cpus(view: View) -> float | None:
    """Idle CPUs of the machine; None if unknown."""
    return idle_count(view.frame.host.cpus_total, view.mean("host", "cpu_percent"))


def idle_count(total: int | None, used_percent: float | None) -> float | None:
    """Idle CPUs for a CPU count and a utilization."""
    return None if not total or used_percent is None else max(0.0, 1 - used_percent / 100) * total


def _unused_by_sharers(view: View, trainer: Trainer) -> float:
    """CPUs that its sharers leave unused; infinite if their number is unknown."""
    if trainer.allowed is None:
        return math.inf
    return trainer.allowed - sum(one.cores or 0.0 for one in sharers(view, trainer))


def cpus_saturated(view: View) -> bool:
    """Whether all CPUs of the machine are busy, whichever process uses them."""
    return view.above(view.mean("host", "cpu_percent"), "starved-cpu-saturated.host_percent")


def fitting_threads(cpus: float) -> int:
    """Compute threads that fit: one per CPU, and at least one."""
    return max(1, math.floor(cpus))


def gpus_idle(view: View, trainer: Trainer) -> bool:
    """Whether its GPUs have no work, as those of an idle notebook: it needs no CPUs then."""
    return trainer.duty is not None and not has_work(view, trainer)


def _trainers_on_cpus(view: View, trainer: Trainer) -> Sequence[Trainer]:
    """Trainers on the same CPUs, itself included."""
    own = reachable_cpus(trainer)
    return [
        one
        for one in view.vectors()
        if one is trainer or (not gpus_idle(view, one) and overlap(own, reachable_cpus(one)))
    ]


def sharers(view: View, trainer: Trainer) -> Sequence[Trainer]:
    """Trainers that share its CPUs or quota, itself included."""
    mates = {mate.key for mate in view.mates(trainer)}
    return [
        one for one in _trainers_on_cpus(view, trainer) if shares_quota(trainer.process, one.process, one.key in mates)
    ]


def shares_quota(some: Process, other: Process, mates: bool) -> bool:
    """Whether two processes share their CPUs: ranks of one job (`mates`) do, and processes under one quota.

    Ranks in separate containers have separate quotas.
    """
    return (mates and some.container == other.container) or cpu_limit(some).group == cpu_limit(other).group


def overlap(some: frozenset[int], others: frozenset[int]) -> bool:
    """Whether two sets of CPUs overlap; True if either is unknown."""
    return not some or not others or not some.isdisjoint(others)

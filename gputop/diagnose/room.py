"""How many CPUs a trainer may count on beside all others of the machine, and how many loaders fit into those."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

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


def share_of_cpus(view: View, trainer: Trainer) -> float:
    """CPUs for each rank of its job on this machine, and for it where all that train on the same ones get as many."""
    each = (trainer.allowed or 1.0) / max(1, len(view.mates(trainer)))
    total = len(affinity(trainer.process)) or view.frame.host.cpus_total
    return min(each, total / len(_beside(view, trainer))) if total else each


def idle_cpus(view: View, trainer: Trainer) -> float | None:
    """CPUs that nobody uses: its part, where all that train on the same ones and wait get as many. None: not known."""
    total, used = view.frame.host.cpus_total, view.mean("host", "cpu_percent")
    if not total or used is None:
        return None
    waiting = sum(one is trainer or not fed(view, one) for one in _beside(view, trainer))
    return max(0.0, 1 - used / 100) * total / waiting


def full(view: View) -> bool:
    """Whether all CPUs of the machine are busy, whoever it is that uses them."""
    return view.above(view.mean("host", "cpu_percent"), "starved-cpu-saturated.host_percent")


def fitting_loaders(wanted: float, cpus: float) -> int:
    """As many as are wanted, but a CPU for each, and one that is left for who trains."""
    return min(math.ceil(wanted), max(1, math.floor(cpus) - 1))


def _beside(view: View, trainer: Trainer) -> Sequence[Trainer]:
    """Who trains on the same CPUs, itself among them; a notebook that rests needs none."""
    least, own = view.limit("starved.least"), affinity(trainer.process)
    return [
        one
        for one in view.vectors()
        if one is trainer or ((one.duty is None or one.duty >= least) and _meet(own, affinity(one.process)))
    ]


def _meet(some: frozenset[int], others: frozenset[int]) -> bool:
    """Whether some CPUs are in both; where they are not known they may be."""
    return not some or not others or not some.isdisjoint(others)

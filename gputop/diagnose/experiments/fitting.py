"""Values with which experiments fit on one machine: CPUs of its own for each, threads and loaders that fill those."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from gputop import units
from gputop.diagnose.experiments.loads import Load
from gputop.diagnose.experiments.types import Fit
from gputop.diagnose.limits import Limits
from gputop.diagnose.room import fitting_loaders, part, together
from gputop.model import Frame


def room(frame: Frame, loads: Sequence[Load]) -> int | None:
    """How many CPUs the experiments share: those they run on, or what their quotas leave; None where nobody knows."""
    total = frame.host.cpus_total
    cpus = together([part(one) for load in loads for one in load.trainers], total) if loads else total
    return None if not cpus else max(1, math.floor(cpus))


def _numbers(frame: Frame, loads: Sequence[Load]) -> frozenset[int]:
    """The CPUs that the experiments run on; none where that is not known."""
    every = frozenset(range(frame.host.cpus_total or 0))
    sets = [load.cpus for load in loads]
    return frozenset[int]().union(*sets) if sets and all(sets) else every


def fits(frame: Frame, limits: Limits, loads: Sequence[Load], programs: int) -> Mapping[str, Fit]:
    """By the key of the job; `programs`: how many others need CPUs too. Nothing where the CPUs are not known."""
    count = room(frame, loads)
    if count is None:
        return {}
    counts = _counts(loads, count, programs)
    own = _own(loads, _numbers(frame, loads), counts)
    return {load.job.key: _fit(limits, load, own[load.job.key], counts[load.job.key]) for load in loads}


def _counts(loads: Sequence[Load], cpus: int, programs: int) -> dict[str, int]:
    """CPUs for each, by its trainers; what one may not use goes to the others."""
    left, weight, found = cpus, sum(len(load.trees) for load in loads) + programs, {}
    for load in sorted(loads, key=lambda load: (load.allowed or math.inf) / len(load.trees)):
        trainers = len(load.trees)
        most = math.floor(load.allowed) if load.allowed else cpus
        found[load.job.key] = min(most, left * trainers // weight)
        left, weight = left - found[load.job.key], weight - trainers
    return found


def _own(loads: Sequence[Load], cpus: frozenset[int], counts: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Which CPUs: those near its GPUs first."""
    free, found = set(cpus), {}
    for load in loads:
        near, usable = _near(load), free & (load.cpus or free)
        chosen = sorted(sorted(usable, key=lambda cpu: (cpu not in near, cpu))[: counts[load.job.key]])
        free -= set(chosen)
        found[load.job.key] = tuple(chosen)
    return found


def _near(load: Load) -> frozenset[int]:
    found: Iterable[int] = ()
    for gpu in load.gpus:
        try:
            found = (*found, *units.listed(gpu.local_cpus or ""))
        except ValueError:
            continue
    return frozenset(found)


def _fit(limits: Limits, load: Load, cpus: tuple[int, ...], count: int) -> Fit:
    each = max(1, count // len(load.trees))
    names = f"OMP_NUM_THREADS={each} MKL_NUM_THREADS={each}"
    return Fit(
        cpus=units.ranges(cpus) if cpus else None,
        cpus_count=len(cpus),
        threads=each,
        loaders=_loaders(limits, load, each),
        prefix=f"{names} taskset -c {units.ranges(cpus)}" if cpus else names,
    )


def _loaders(limits: Limits, load: Load, cpus: int) -> int | None:
    """As many as would feed the GPU where all it has work as fast as they can, and no more than there are CPUs."""
    have = load.loaders // len(load.trees)
    if not have:
        return None
    table, duty = limits["starved-cpu-idle"], (load.busy_percent or 0.0) / 100
    short = (load.loader_cores or 0.0) >= table["loader_cpu"] and 0 < duty < limits["starved"]["duty"]
    wanted = fitting_loaders(have * table["more"] / duty if short else have, cpus)
    return None if wanted == have else wanted

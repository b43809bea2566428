"""Values with which experiments fit on one machine: CPUs of its own for each, loaders and threads that share those.

Of the CPUs of a trainer its loaders come first, with what they use; compute threads get what those leave, rounded, and
at least one: threads + loaders x CPUs of a loader <= CPUs. 8 CPUs and 2 loaders that rest: 8 threads; 8 CPUs and 5
loaders at work: 3 threads. Nobody is told of more threads than it asks for now, and fewer loaders are for who has
them to spare, or whose CPUs are short: a GPU that waits for its loaders needs all of them.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence

from gputop import units
from gputop.diagnose.experiments.loads import Load
from gputop.diagnose.experiments.types import Fit
from gputop.diagnose.limits import Limits
from gputop.diagnose.room import part, together
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


def fits(
    frame: Frame, limits: Limits, loads: Sequence[Load], programs: int, hindered: Container[str]
) -> Mapping[str, Fit]:
    """By the key of the job; nothing where the CPUs are not known.

    `programs`: how many others need CPUs too; `hindered`: keys of those who should get CPUs of their own.
    """
    count = room(frame, loads)
    if count is None:
        return {}
    counts, numbers = _counts(loads, count, programs), _numbers(frame, loads)
    own = _own(loads, numbers, counts)
    found = {}
    for load in loads:
        key = load.job.key
        pinned = own[key] if key in hindered and {*own[key]} != (load.cpus or numbers) else ()
        found[key] = _fit(limits, load, own[key], counts[key], pinned, key in hindered)
    return found


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


def _fit(limits: Limits, load: Load, cpus: tuple[int, ...], count: int, pinned: tuple[int, ...], hindered: bool) -> Fit:
    trainers = len(load.trees)
    each = max(1, count // trainers)
    loaders = _loaders(limits, load, each)
    threads = _threads(load, each, loaders)
    fewer = max(load.asked or 0, load.wanting or 0.0) > threads * trainers
    names = [f"OMP_NUM_THREADS={threads} MKL_NUM_THREADS={threads}"] if fewer and (hindered or loaders) else []
    return Fit(
        cpus=units.ranges(cpus) if cpus else None,
        cpus_count=len(cpus),
        threads=threads,
        loaders=loaders,
        prefix=" ".join([*names, *([f"taskset -c {units.ranges(pinned)}"] if pinned else [])]),
    )


def _threads(load: Load, cpus: int, loaders: int | None) -> int:
    """What so many loaders leave of the CPUs, and no more than it has now, where that is known."""
    rest = max(1, cpus - round(_busy(load, loaders)))
    if load.asked is None:
        return rest
    return max(1, min(rest, math.ceil(max(load.asked, load.wanting or 0.0) / len(load.trees))))


def _busy(load: Load, loaders: int | None = None) -> float:
    """CPUs that the loaders of a trainer use, or so many would: fewer have to do the work of all."""
    have, each = load.loaders // len(load.trees), _cores(load)
    if loaders is None or loaders >= have:
        return (loaders or have) * each
    return min(have * each, loaders * max(1.0, each))


def _cores(load: Load) -> float:
    """CPUs that one loader uses; one where nobody knows."""
    return 1.0 if load.loader_cores is None else load.loader_cores


def _loaders(limits: Limits, load: Load, cpus: int) -> int | None:
    """As many as would feed the GPU where all it has work as fast as they can, and no more than there are CPUs.

    None where that is as many as it has, or fewer while its GPU waits for them and the CPUs have room for all.
    """
    have = load.loaders // len(load.trees)
    if not have:
        return None
    table, duty = limits["starved-cpu-idle"], (load.busy_percent or 0.0) / 100
    waits = 0 < duty < limits["starved"]["duty"]
    short = waits and (load.loader_cores or 0.0) >= table["loader_cpu"]
    most = max(1, math.floor((cpus - 1) / max(1.0, _cores(load))))  # and a CPU that is left for who trains
    wanted = min(math.ceil(have * table["more"] / duty) if short else have, most)
    if wanted < have and waits and not _crowded(limits, load, cpus):
        return None
    return None if wanted == have else wanted


def _crowded(limits: Limits, load: Load, cpus: int) -> bool:
    """Whether its loaders and its threads are in each other's way on that many CPUs."""
    wanting = (load.wanting or 0.0) / len(load.trees)
    return _busy(load) + wanting > limits["starved"]["threads"] * cpus

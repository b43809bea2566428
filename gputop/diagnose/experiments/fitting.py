"""Values with which experiments fit on one machine: CPUs of its own for each, and threads and loaders for those.

They are the values of the rules, by the functions of `diagnose.room`: what is read on one page holds on the other. Only
what is to be changed is said: fewer threads where it has more and somebody is hindered; more loaders where the GPU
waits for loaders that work as fast as they can; fewer where there are more than CPUs, or a quota runs out.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence

from gputop import num_workers, units
from gputop.diagnose.cpu.quota import held
from gputop.diagnose.experiments.loads import Load, Past
from gputop.diagnose.experiments.shares import Own, owned
from gputop.diagnose.experiments.types import Fit
from gputop.diagnose.limits import Limits
from gputop.diagnose.room import fitting_threads, part, together
from gputop.model import Frame
from gputop.units import cpus_of


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
    frame: Frame, past: Past, limits: Limits, loads: Sequence[Load], programs: int, hindered: Container[str]
) -> Mapping[str, Fit]:
    """By the key of the job; nothing where the CPUs are not known.

    `programs`: how many others need CPUs too; `hindered`: keys of those who should get CPUs of their own.
    """
    if room(frame, loads) is None:
        return {}
    numbers, found = _numbers(frame, loads), {}
    free = set(numbers)
    for load, own in owned(frame, past, limits, loads, programs):
        key = load.job.key
        chosen = _chosen(load, free, math.floor(own.cpus) * len(load.trees))
        free -= {*chosen}
        pinned = chosen if key in hindered and {*chosen} != (load.cpus or numbers) else ()
        found[key] = _fit(limits, load, own, pinned, key in hindered)
    return found


def _chosen(load: Load, free: set[int], count: int) -> tuple[int, ...]:
    """Which CPUs: those near its GPUs first."""
    near = frozenset[int]().union(*(cpus_of(gpu.local_cpus) for gpu in load.gpus))
    usable = free & (load.cpus or free)
    return tuple(sorted(sorted(usable, key=lambda cpu: (cpu not in near, cpu))[:count]))


def _fit(limits: Limits, load: Load, own: Own, pinned: tuple[int, ...], hindered: bool) -> Fit:
    stopped = _held(limits, load)
    loaders, threads = _loaders(limits, load, own, stopped), fitting_threads(own.cpus)
    fewer = max(load.asked or 0, load.wanting or 0.0) > threads * len(load.trees)
    said = fewer and (hindered or stopped or loaders is not None)
    names = [f"OMP_NUM_THREADS={threads} MKL_NUM_THREADS={threads}"] if said else []
    return Fit(
        threads=threads,
        loaders=loaders,
        prefix=" ".join([*names, *([f"taskset -c {units.ranges(pinned)}"] if pinned else [])]),
    )


def _held(limits: Limits, load: Load) -> bool:
    """Whether its quota holds it back."""
    table = limits["cpu-quota"]

    def above(value: float | None, name: str) -> bool:
        return value is not None and value >= table[name]

    return held(load.throttled, load.stopped, table["least_waiting"], above)


def _loaders(limits: Limits, load: Load, own: Own, stopped: bool) -> int | None:
    """How many to change to; None where it has none, or all it has are fine."""
    have = load.loaders // len(load.trees)
    most = num_workers.most(own.cpus)
    if have > most:
        return most if stopped or _in_the_way(limits, load, own) else None
    table, duty = limits["starved-cpu-idle"], (load.busy_percent or 0.0) / 100
    short = 0 < duty < limits["starved"]["duty"] and (load.loader_cores or 0.0) >= table["loader_cpu"]
    if not have or not short or stopped or (own.idle is not None and own.idle < table["spare"]):
        return None
    wanted = num_workers.fitting(have * table["more"] / duty, own.cpus)
    if own.idle is not None:
        wanted = min(wanted, have + max(1, math.floor(own.idle)))
    # what is left of CPUs that nobody else has is room for one, though it would be the trainer's
    wanted = max(wanted, have + 1) if own.alone else wanted
    return None if wanted == have else wanted


def _in_the_way(limits: Limits, load: Load, own: Own) -> bool:
    """Whether there are more than CPUs; not where they sleep and may be there for the sake of what they wait for."""
    fed = (load.busy_percent or 0.0) >= limits["gpu-bound-healthy"]["busy_percent"]
    asleep = load.loader_cores is not None and load.loader_cores < limits["workers-oversized"]["asleep"]
    return own.crowded and (fed or not asleep)

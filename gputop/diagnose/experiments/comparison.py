"""Compare experiments: which one slows which, and settings with which all of them fit on the machine."""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping, Sequence

from gputop import num_workers, units
from gputop.diagnose.contention import Contention
from gputop.diagnose.cpu_budget import cpu_limit, fitting_threads, united_cpus
from gputop.diagnose.experiments.loads import (
    Experiment,
    Fit,
    Load,
    LoadHistory,
    OwnShare,
    Resource,
    Slower,
    Together,
    loads,
    mean,
    own_shares,
)
from gputop.diagnose.limits import Limits
from gputop.diagnose.rules.cpu.limits import held
from gputop.diagnose.rules.cpu.threads import thread_variables
from gputop.frozen_dataclass import frozen_dataclass
from gputop.labels import amount
from gputop.model import Frame
from gputop.units import cpus_of


@frozen_dataclass(frozen=True, slots=True)
class Neighbourhood:
    """The machine, the experiments on it, and the numbers of the rules."""

    frame: Frame
    past: LoadHistory
    limits: Limits
    loads: Sequence[Load]
    contention: Contention

    @property
    def moved(self) -> float | None:
        """Storage I/O of the machine in bytes/s."""
        read, write = mean(self.past, "host", "read_bytes_per_s"), mean(self.past, "host", "write_bytes_per_s")
        return None if read is None and write is None else (read or 0.0) + (write or 0.0)


def slowed(scene: Neighbourhood, load: Load) -> tuple[Slower, ...]:
    """Consumers of what this experiment waits for, largest first; none while its GPUs are busy anyway."""
    found = [*_on_gpus(scene, load), *_found_consumers(scene, load)]
    return tuple(sorted(found, key=lambda one: -one.share))


def _found_consumers(scene: Neighbourhood, load: Load) -> Iterator[Slower]:
    """Consumers found by the rules, over all its trainers, each once."""
    worst: dict[tuple[Resource, str], Slower] = {}
    for trainer in load.trainers:
        for one in scene.contention.shortages_of(trainer.identity):
            least = scene.limits["neighbour"]["named"]
            small = [taker for taker in one.consumers if taker.share < least]
            rows = [
                (taker.name, taker.command.user, taker.job, taker.share)
                for taker in one.consumers[: -len(small) or None]
            ]
            if small:
                rows.append((amount(len(small), "smaller program"), None, None, sum(taker.share for taker in small)))
            for name, user, job, share in rows:
                if share >= least:
                    said = name if job is not None or not user else f"{name} of user {user}"
                    slower = Slower(name=said, experiment=job, resource=one.resource, share=min(1.0, share))
                    before = worst.get((one.resource, said + (job or "")))
                    if before is None or before.share < slower.share:
                        worst[one.resource, said + (job or "")] = slower
    yield from worst.values()


def _on_gpus(scene: Neighbourhood, load: Load) -> Iterator[Slower]:
    """Other experiments on a fully used GPU."""
    full = scene.limits["experiments"]["gpu_percent"]
    mine = {gpu.uuid for gpu in load.gpus if (mean(scene.past, gpu.uuid, "busy_percent") or 0.0) >= full}
    for other in scene.loads:
        shares = (
            [share for one in other.trainers for share in one.gpus if share.uuid in mine] if other is not load else []
        )
        taken = max((share.busy_percent or 0.0 for share in shares if share.kind != "graphics"), default=0.0)
        yield from _consumers(scene, other.job.name, other.job.key, "gpu", taken, 100.0)


def _consumers(
    scene: Neighbourhood, name: str, key: str | None, resource: Resource, taken: float, total: float
) -> Iterator[Slower]:
    share = min(1.0, taken / total)
    if share >= scene.limits["experiments"]["share"]:
        yield Slower(name=name, experiment=key, resource=resource, share=share)


def room(frame: Frame, loads: Sequence[Load]) -> int | None:
    """Number of CPUs the experiments share, by affinity and quota; None if unknown."""
    total = frame.host.cpus_total
    cpus = united_cpus([cpu_limit(one) for load in loads for one in load.trainers], total) if loads else total
    return None if not cpus else max(1, math.floor(cpus))


def _numbers(frame: Frame, loads: Sequence[Load]) -> frozenset[int]:
    """CPUs the experiments run on; empty if unknown."""
    every = frozenset(range(frame.host.cpus_total or 0))
    sets = [load.cpus for load in loads]
    return frozenset[int]().union(*sets) if sets and all(sets) else every


def fits(
    frame: Frame, past: LoadHistory, limits: Limits, loads: Sequence[Load], programs: int, hindered: Container[str]
) -> Mapping[str, Fit]:
    """Fitting settings by job key; empty if the CPUs are unknown.

    `programs`: number of other programs that need CPUs; `hindered`: keys of the jobs that should get separate CPUs.
    """
    if room(frame, loads) is None:
        return {}
    numbers, found = _numbers(frame, loads), {}
    free = set(numbers)
    for load, own in own_shares(frame, past, limits, loads, programs):
        key = load.job.key
        chosen = _chosen_cpus(load, free, math.floor(own.cpus) * len(load.trees))
        free -= {*chosen}
        pinned = chosen if key in hindered and {*chosen} != (load.cpus or numbers) else ()
        found[key] = _fit(limits, load, own, pinned, key in hindered)
    return found


def _chosen_cpus(load: Load, free: set[int], count: int) -> tuple[int, ...]:
    """The CPUs to use, those near its GPUs first."""
    near = frozenset[int]().union(*(cpus_of(gpu.local_cpus) for gpu in load.gpus))
    usable = free & (load.cpus or free)
    return tuple(sorted(sorted(usable, key=lambda cpu: (cpu not in near, cpu))[:count]))


def _fit(limits: Limits, load: Load, own: OwnShare, pinned: tuple[int, ...], hindered: bool) -> Fit:
    stopped = _is_throttled(limits, load)
    loaders, threads = _loaders(limits, load, own, stopped), fitting_threads(own.cpus)
    fewer = max(load.asked or 0, load.wanting or 0.0) > threads * len(load.trees)
    said = fewer and (hindered or stopped or loaders is not None)
    names = [thread_variables(threads)] if said else []
    return Fit(
        threads=threads,
        loaders=loaders,
        prefix=" ".join([*names, *([f"taskset -c {units.ranges(pinned)}"] if pinned else [])]),
    )


def _is_throttled(limits: Limits, load: Load) -> bool:
    """Whether its CPU quota slows it down."""
    table = limits["cpu-quota"]

    def above(value: float | None, name: str) -> bool:
        return value is not None and value >= table[name]

    return held(load.throttled, load.stopped, table["least_waiting"], above)


def _loaders(limits: Limits, load: Load, own: OwnShare, stopped: bool) -> int | None:
    """The advised number of loaders; None if it has none, or if the present number is fine."""
    have = load.loaders // len(load.trees)
    most = num_workers.maximum(own.cpus)
    if have > most:
        return most if stopped or _too_many_loaders(limits, load, own) else None
    table, duty = limits["starved-cpu-idle"], (load.busy_percent or 0.0) / 100
    short = 0 < duty < limits["starved"]["duty"] and (load.loader_cores or 0.0) >= table["loader_cpu"]
    if not have or not short or stopped or (own.idle is not None and own.idle < table["spare"]):
        return None
    wanted = num_workers.fitting(have * table["more"] / duty, own.cpus)
    if own.idle is not None:
        wanted = min(wanted, have + max(1, math.floor(own.idle)))
    # a fraction of an exclusive CPU is room for one loader, although the trainer may need it
    wanted = max(wanted, have + 1) if own.alone else wanted
    return None if wanted == have else wanted


def _too_many_loaders(limits: Limits, load: Load, own: OwnShare) -> bool:
    """Whether it has more loaders than CPUs; not if they sleep, as they may wait for data."""
    fed = (load.busy_percent or 0.0) >= limits["gpu-bound-healthy"]["busy_percent"]
    asleep = load.loader_cores is not None and load.loader_cores < limits["workers-oversized"]["asleep"]
    return own.crowded and (fed or not asleep)


def together(frame: Frame, past: LoadHistory, limits: Limits, now: Contention | None = None) -> Together:
    """All experiments of a frame; `past` is the history that the engine has fed, `limits` the numbers of the rules.

    `now` is the engine's contention result, which the page shows so that both agree.
    """
    now = now or Contention()
    scene = Neighbourhood(frame, past, limits, loads(frame, past), now)
    slowers = {load.job.key: slowed(scene, load) for load in scene.loads}
    programs = {one.name for many in slowers.values() for one in many if one.resource == "cpu" and not one.experiment}
    cpus = room(frame, scene.loads)
    wanting = [load.wanting for load in scene.loads if load.wanting is not None]
    # the rule on a process's threads covers a single experiment
    alone = cpus is not None and len(scene.loads) == 1 and sum(wanting) > limits["threads-host"]["threads"] * cpus
    crowded = now.crowded or alone
    hindered = {key for key, many in slowers.items() if crowded or any(one.resource == "cpu" for one in many)}
    fitting = fits(frame, past, limits, scene.loads, len(programs), hindered)
    loading = {one.process.job for one in now.loaders}
    asked = [load.asked for load in scene.loads if load.asked is not None]
    return Together(
        experiments=tuple(
            _experiment(scene, load, slowers[load.job.key], fitting.get(load.job.key)) for load in scene.loads
        ),
        cpus=cpus,
        cpu_percent=mean(past, "host", "cpu_percent"),
        threads_asked=sum(asked) if asked else None,
        threads_wanting=sum(wanting) if wanting else None,
        moved_bytes_per_s=scene.moved,
        crowded=crowded,
        full=not crowded and len(loading) > 1,
    )


def _experiment(scene: Neighbourhood, load: Load, slowers: tuple[Slower, ...], fit: Fit | None) -> Experiment:
    moved = scene.moved
    return Experiment(
        key=load.job.key,
        name=load.job.name,
        trainers=tuple(one.identity for one in load.trainers),
        gpus=tuple(gpu.uuid for gpu in load.gpus),
        gpu_busy_percent=load.busy_percent,
        threads_asked=load.asked,
        threads_wanting=load.wanting,
        loaders=load.loaders,
        cpus_allowed=load.allowed,
        cores=load.cores,
        cpu_wait_percent=None if load.wait is None else 100 * load.wait,
        read_bytes_per_s=load.read,
        write_bytes_per_s=load.write,
        io_share=None if load.moved is None or moved is None else min(1.0, load.moved / moved) if moved else 0.0,
        io_wait_percent=None if load.blocked is None else 100 * load.blocked,
        slowed_by=slowers,
        fit=fit,
    )

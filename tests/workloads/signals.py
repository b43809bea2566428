"""The signals of a workload, worked out from frames anew and simply: what the rules must be able to see."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields

from gputop.model import Frame, Process, Role
from tests.workloads.cases import Bounds
from tests.workloads.stage import Performance

SETTLED_S = 4.0  # rates and rings of the driver begin before this


@dataclass(frozen=True, kw_only=True)
class Signals:
    """Means over the time watched; shares are 0-1, CPU in cores. None: nobody measured it."""

    duty: float | None  # of all GPUs
    duty_low: float | None  # of the one that had least to do
    duty_high: float | None
    idle: float | None  # driver's samples below 5 %
    full: float | None  # and from 95 % on
    longest_idle_s: float | None
    idle_writes: float | None  # most bytes written by the tree around one idle stretch
    watts_low: float | None  # of the GPU that used least
    watts_high: float | None
    trainers: float
    allowed: float | None
    cores: float | None  # of the whole tree
    main: float | None  # main threads, mean of a trainer
    threads: float | None  # that compute, of all trainers
    run_wait: float | None  # of trainers
    switches: float | None  # voluntary, per second of CPU
    loaders: float
    loader_cpu: float | None
    loader_low: float | None
    loader_wait: float | None
    loader_threads: float | None  # of one loader, all that it has
    blocked: float | None  # loaders in state D
    births: float  # loaders that came later
    throttled: float | None
    read_chars: float | None  # bytes a second, tree
    read_bytes: float | None
    read_calls: float | None
    mean_read: float | None  # bytes
    write_chars: float | None
    pressure_cpu: float | None  # PSI some
    pressure_io: float | None
    shm: float | None  # used of total, as the trainer sees it
    vram: float | None  # bytes
    vram_growth: float | None  # bytes a second
    host_growth: float | None  # of the trainers' resident memory


def signals(seen: Performance) -> Signals:
    """All of them."""
    first_s = seen.updates[0].frame.mono_s
    frames = [update.frame for update in seen.updates if update.frame.mono_s - first_s >= SETTLED_S]
    trees = [_tree(frame, seen.roots) for frame in frames]
    trainers = [_trainers(tree, seen.roots) for tree in trees]
    loaders = [[process for process in tree if process.role is Role.LOADER] for tree in trees]
    samples = _samples(frames, seen.gpus)
    duties = {uuid: _mean(value for _, value in ring) / 100 for uuid, ring in samples.items()}
    every = [value for ring in samples.values() for _, value in ring]
    watts = [_mean(gpu.power_watts for frame in frames for gpu in frame.gpus if gpu.uuid == uuid) for uuid in samples]
    idle_s, idle_writes = _idle(frames, trees, samples)
    chars, calls = _rate(trees, "read_chars_per_s"), _rate(trees, "read_calls_per_s")
    return Signals(
        duty=_mean(duties.values()), duty_low=min(duties.values()), duty_high=max(duties.values()),
        idle=_mean(value < 5 for value in every), full=_mean(value >= 95 for value in every),
        longest_idle_s=idle_s, idle_writes=idle_writes, watts_low=min(watts), watts_high=max(watts),
        trainers=max(map(len, trainers)), allowed=_of(trainers, "allowed_cpus"),
        cores=_rate(trees, "cpu_percent", 100), main=_of(trainers, "main_thread_percent", 100),
        threads=_rate(trainers, "busy_threads"), run_wait=_of(trainers, "run_wait_percent", 100),
        switches=_ratio(_rate(trainers, "voluntary_switches_per_s"), _rate(trainers, "cpu_percent", 100)),
        loaders=max(map(len, loaders)), loader_cpu=_of(loaders, "cpu_percent", 100),
        loader_low=_mean(min(known) / 100 for some in loaders if (known := _known(some, "cpu_percent"))),
        loader_wait=_of(loaders, "run_wait_percent", 100), loader_threads=_of(loaders, "threads"),
        blocked=_of(loaders, "blocked_percent", 100), births=_births(loaders),
        throttled=_of(trainers, "throttled_percent", 100),
        read_chars=chars, read_bytes=_rate(trees, "read_bytes_per_s"), read_calls=calls, mean_read=_ratio(chars, calls),
        write_chars=_rate(trees, "write_chars_per_s"),
        pressure_cpu=_pressure(frames, "cpu_pressure"), pressure_io=_pressure(frames, "io_pressure"),
        shm=_ratio(_of(trainers, "shm_used_bytes"), _of(trainers, "shm_total_bytes")),
        vram=_mean(_vram(some) for some in trainers), vram_growth=_slope(frames, trainers, _vram),
        host_growth=_slope(frames, trainers, lambda some: sum(_known(some, "rss_bytes"))),
    )  # fmt: skip


def shown(of: Signals) -> dict[str, float | None]:
    """By name."""
    return {one.name: getattr(of, one.name) for one in fields(of)}


def outside(of: dict[str, float | None], bounds: Bounds) -> list[str]:
    """The signals that are not where they should be."""
    return [
        f"{name} {short(of[name])}, not {short(low)} to {short(high)}"
        for name, (low, high) in bounds.items()
        if (value := of[name]) is None or not low <= value <= high
    ]


def short(value: float | None) -> str:
    """Three digits of it."""
    if value is None:
        return "unknown"
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def _pressure(frames: list[Frame], kind: str) -> float | None:
    found = [pressure.some_percent for frame in frames if (pressure := getattr(frame.host, kind))]
    return _mean(None if percent is None else percent / 100 for percent in found)


def _tree(frame: Frame, roots: list[int]) -> list[Process]:
    """The programs and all below them."""
    ours, size = set(roots), 0
    while size != len(ours):
        size = len(ours)
        ours |= {process.pid for process in frame.processes if process.parent_pid in ours}
    return [process for process in frame.processes if process.pid in ours]


def _trainers(tree: list[Process], roots: list[int]) -> list[Process]:
    found = [process for process in tree if process.gpus and process.role is not Role.LOADER]
    return found or [process for process in tree if process.pid in roots]


def _samples(frames: list[Frame], wanted: list[str]) -> dict[str, list[tuple[float, float]]]:
    """What the driver sampled of each GPU while it was watched: (time, percent)."""
    found: dict[str, dict[float, float]] = {}
    for frame in frames:
        for gpu in (gpu for gpu in frame.gpus if gpu.index in wanted):
            ring = found.setdefault(gpu.uuid, {})
            for before_s, value in gpu.busy_samples:
                at_s = round((frame.mono_s - gpu.age_s - before_s) * 20) / 20
                if at_s > frames[0].mono_s:
                    ring[at_s] = value
    return {uuid: sorted(ring.items()) for uuid, ring in found.items()}


def _idle(
    frames: list[Frame], trees: list[list[Process]], samples: dict[str, list[tuple[float, float]]]
) -> tuple[float, float]:
    """The longest time that a GPU did nothing, and the most that was written around such a time."""
    longest, most = 0.0, 0.0
    for ring in samples.values():
        for idle, run in itertools.groupby(ring, lambda sample: sample[1] < 10):
            times = [at for at, _ in run]
            if idle and times[-1] - times[0] >= 1.0:
                longest = max(longest, times[-1] - times[0])
                near = [
                    _sum(tree, "write_chars_per_s")
                    for frame, tree in zip(frames, trees, strict=True)
                    if times[0] - 1 <= frame.mono_s <= times[-1] + 1
                ]
                most = max(most, sum(near))
    return longest, most


def _births(loaders: list[list[Process]]) -> int:
    pids = [{process.pid for process in some} for some in loaders]
    return len(set().union(*pids) - pids[0])


def _vram(trainers: list[Process]) -> float:
    return sum(share.vram_bytes or 0 for process in trainers for share in process.gpus)


def _slope(frames: list[Frame], trainers: list[list[Process]], of: Callable[[list[Process]], float]) -> float:
    """By least squares, a second."""
    times, values = [frame.mono_s for frame in frames], [of(some) for some in trainers]
    at, mean = sum(times) / len(times), sum(values) / len(values)
    spread = sum((time - at) ** 2 for time in times)
    return sum((time - at) * (value - mean) for time, value in zip(times, values, strict=True)) / spread


def _known(processes: list[Process], name: str) -> list[float]:
    return [value for process in processes if (value := getattr(process, name)) is not None]


def _sum(processes: list[Process], name: str) -> float:
    return sum(_known(processes, name))


def _rate(groups: list[list[Process]], name: str, unit: float = 1.0) -> float | None:
    """The sum over a group, mean over time."""
    return _mean(_sum(group, name) / unit for group in groups if _known(group, name))


def _of(groups: list[list[Process]], name: str, unit: float = 1.0) -> float | None:
    """The mean of one process of a group, mean over time."""
    return _mean(_mean(known) / unit for group in groups if (known := _known(group, name)))


def _ratio(above: float | None, below: float | None) -> float | None:
    return None if above is None or not below else above / below


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None

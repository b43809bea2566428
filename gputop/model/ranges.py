"""Between what each value of the model must lie: of the driver, of the kernel, and of a recording made by anybody.

A value outside is no measurement of anything that is built: it is unknown, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

from gputop.model.frame import Fact, Frame
from gputop.model.gpu import Engine, Gpu, NvLink, PcieErrors, Series
from gputop.model.host import Cgroup, Disk, Host, Mount, Network, Node, Pressure
from gputop.model.metric import Missing, Unit, metrics
from gputop.model.process import GpuShare, Process

T = TypeVar("T", Gpu, Host, Process, Disk, Mount, Network, GpuShare, Cgroup, Node, Pressure, NvLink, PcieErrors, Engine)
Doubts = dict[str, str]  # by metric, why its value cannot be

MOST_BYTES_PER_S = 1e13
COUNTED = 1.2  # of a share of time that is counted: over a second, which is a little longer or shorter
_CELSIUS = (-30.0, 130.0)
_MOST: dict[Unit, float] = {
    Unit.WATTS: 2e4,
    Unit.MHZ: 2e4,
    Unit.BYTES: 2.0**60,
    Unit.BYTES_PER_S: MOST_BYTES_PER_S,
    Unit.PER_S: 1e12,
    Unit.SECONDS: 1e10,  # three hundred years
}
_EXACT = {"busy_percent", "memory_busy_percent"}  # the driver reports these as they are
_GENERATIONS, _LANES, _CPUS = (0.0, 8.0), (0.0, 64.0), (0.0, 1e6)  # PCIe 7 is the newest that is specified
_NAMED: dict[str, tuple[float, float]] = {
    "pcie_generation": _GENERATIONS,
    "pcie_generation_max": _GENERATIONS,
    "pcie_generation_device_max": _GENERATIONS,
    "pcie_slot_generation": _GENERATIONS,
    "pcie_width": _LANES,
    "pcie_width_max": _LANES,
    "pcie_slot_width": _LANES,
    "nvlinks_active": (0.0, 1024.0),
    "performance_state": (0.0, 32.0),  # 32 is the driver's word for unknown
    "numa_node": (0.0, 65_535.0),
    "cpus_total": _CPUS,
    "cpus_allowed": _CPUS,
    "allowed_cpus": _CPUS,
    "cpu_quota": _CPUS,
    "throttled_cpus": _CPUS,
    "last_cpu": _CPUS,
    "threads": (0.0, 2.0**22),
    "busy_threads": (0.0, 2.0**22),
    "nice": (-20.0, 19.0),
    "effective_error_rate": (0.0, 1.0),
    "symbol_error_rate": (0.0, 1.0),
    "main_thread_percent": (0.0, 200.0),
    "io_wait_percent": (0.0, 1e4),  # the kernel adds up what threads waited
}


@cache
def bounds(owner: type) -> tuple[tuple[str, ...], tuple[float, ...], tuple[float, ...]]:
    """The numbers of a class, and between what each must lie."""
    found = []
    for one in metrics(owner):
        if one.name in _NAMED:
            found.append((one.name, *_NAMED[one.name]))
        elif one.unit is Unit.CELSIUS and "margin" not in one.name:
            found.append((one.name, *_CELSIUS))
        elif one.unit is Unit.CELSIUS:
            found.append((one.name, -_CELSIUS[1], _CELSIUS[1]))
        elif one.unit is Unit.PERCENT and one.top == 100 and one.name != "fan_percent":
            found.append((one.name, 0.0, 100 * (1.0 if one.name in _EXACT else COUNTED)))  # fans may be overdriven
        elif one.unit is Unit.PERCENT:
            found.append((one.name, 0.0, 1e9))
        elif one.unit not in (Unit.WORD, Unit.FLAG):
            found.append((one.name, 0.0, _MOST.get(one.unit, float("inf"))))
    names, low, high = zip(*found, strict=True)
    return names, low, high


@cache
def _reader(owner: type) -> Callable[[Any], tuple[Any, ...]]:
    names = bounds(owner)[0]
    values: Callable[[Any], Any] = attrgetter(*names)
    return values if len(names) > 1 else lambda thing: (values(thing),)


def out_of_bounds(thing: object) -> Doubts:
    """Values that cannot be whatever the others are: negative, NaN, a share above 100 %."""
    owner: type = type(thing)
    names, low, high = bounds(owner)
    values = _reader(owner)(thing)
    # nearly always all is well: one pass in which nothing is named
    for value, least, most in zip(values, low, high, strict=True):
        if value is not None and not least <= value <= most:
            break
    else:
        return {}
    return {
        name: f"{value:g} is outside {least:g} to {most:g}"
        for name, value, least, most in zip(names, values, low, high, strict=True)
        if value is not None and not least <= value <= most
    }


def without(thing: T, doubts: Doubts) -> T:
    """The thing without the values that are doubted; where it has a list of reasons, they stand in it."""
    if not doubts:
        return thing
    changes: dict[str, Any] = dict.fromkeys(doubts)
    before: tuple[Missing, ...] | None = getattr(thing, "missing", None)
    if before is not None:
        changes["missing"] = _with_reasons(before, doubts)
    return replace(thing, **changes)


def _with_reasons(before: tuple[Missing, ...], doubts: Doubts) -> tuple[Missing, ...]:
    said = [Missing(metric=name, reason="implausible", unlock=why) for name, why in doubts.items()]
    return (*(one for one in before if one.metric not in doubts), *said)


def held(frame: Frame) -> Frame:
    """A frame of a recording, with every number of it held to these ranges; ValueError where it names what cannot be.

    The driver's and the kernel's own readers make none of what is only looked at here: identities, words, lists.
    """
    return replace(
        frame,
        host=_host(frame.host),
        gpus=tuple(_gpu(gpu) for gpu in frame.gpus),
        processes=tuple(_process(process) for process in frame.processes),
        cgroups=tuple(_cgroup(group) for group in frame.cgroups),
        facts=tuple(_fact(fact) for fact in frame.facts),
        late_s=_within(frame.late_s, 1e10),
        cost_percent=_known(frame.cost_percent, 1e6),
        driver_percent=_known(frame.driver_percent, 1e6),
    )


UNKNOWN_INDEX = "?"
_INDEX = re.compile(r"[0-9]{1,5}(?::[0-9]{1,5}){0,2}")  # of a MIG instance its card's too
_MOST_PID = 2**22  # of Linux on 64 bits
_MOST_RANK = 2**24
_LONGEST_SAMPLE_S = 86_400.0
_SERIES = ("memory_busy_series", "power_series", "power_module_series", "sm_clock_series", "memory_clock_series")


def _held(thing: T) -> T:
    return without(thing, out_of_bounds(thing))


def _each(parts: Sequence[T]) -> tuple[T, ...]:
    return tuple(_held(one) for one in parts)


def _known(value: float | None, most: float, least: float = 0.0) -> float | None:
    return value if value is not None and least <= value <= most else None


def _whole(value: int | None, most: int, least: int = 0) -> int | None:
    return value if value is not None and least <= value <= most else None


def _within(value: float, most: float) -> float:
    """An age or a length that has to be known: never below zero, never longer than there is time."""
    return max(0.0, min(value, most))


def _gpu(gpu: Gpu) -> Gpu:
    doubts = out_of_bounds(gpu)
    changes: dict[str, Any] = {}
    if not _INDEX.fullmatch(gpu.index):
        changes["index"] = UNKNOWN_INDEX
        changes["missing"] = _with_reasons(gpu.missing, {"index": f"{gpu.index[:20]!r} is not a GPU index"})
    if gpu.compute_capability and not all(0 <= part < 100 for part in gpu.compute_capability):
        changes["compute_capability"] = None
    for name in _SERIES:
        series = getattr(gpu, name)
        if series is not None and not _sound(series, name):
            changes[name] = None
    changed = replace(
        gpu,
        condition_s=_within(gpu.condition_s, 1e10),
        age_s=_within(gpu.age_s, 1e10),
        busy_samples=tuple(one for one in gpu.busy_samples if 0 <= one[0] <= _LONGEST_SAMPLE_S),
        xids=tuple(one for one in gpu.xids if 0 <= one.number < 1_000_000),
        engines=_each(gpu.engines),
        nvlinks=_each(gpu.nvlinks),
        nvlink_bytes_per_s=tuple(
            (_known(sent, MOST_BYTES_PER_S), _known(received, MOST_BYTES_PER_S))
            for sent, received in gpu.nvlink_bytes_per_s
        ),
        pcie_errors=None if gpu.pcie_errors is None else _held(gpu.pcie_errors),
        **changes,
    )
    return without(changed, doubts)


def _sound(series: Series, name: str) -> bool:
    """Whether values at an even step can be those of their metric."""
    most = 100.0 if "busy" in name else _MOST[Unit.WATTS] if "power" in name else _MOST[Unit.MHZ]
    return 0 < series.step_s <= _LONGEST_SAMPLE_S and all(0 <= value <= most for value in series.values)


def _host(host: Host) -> Host:
    changed = replace(
        host,
        load=host.load if host.load is None or all(0 <= one <= 1e7 for one in host.load) else None,
        cpu_cores_percent=tuple(_known(one, 100 * COUNTED) for one in host.cpu_cores_percent),
        disks=_each(host.disks),
        mounts=_each(host.mounts),
        networks=_each(host.networks),
        nodes=tuple(_held(node) for node in host.nodes if 0 <= node.number <= 65_535),
        cgroup=None if host.cgroup is None else _cgroup(host.cgroup),
        **_pressures(host),
    )
    return without(changed, out_of_bounds(changed))


def _cgroup(group: Cgroup) -> Cgroup:
    return _held(replace(group, **_pressures(group)))


def _pressures(thing: Host | Cgroup) -> dict[str, Any]:
    found = ((name, getattr(thing, name)) for name in ("cpu_pressure", "memory_pressure", "io_pressure"))
    return {name: one if one is None else _held(one) for name, one in found}


def _process(process: Process) -> Process:
    if not 0 <= process.pid <= _MOST_PID or process.started_ticks < 0:
        raise ValueError(f"invalid process: PID {process.pid}, start {process.started_ticks}")
    changed = replace(
        process,
        parent_pid=_whole(process.parent_pid, _MOST_PID) or 0,
        group=_whole(process.group, _MOST_PID),
        uid=_whole(process.uid, 2**32),
        rank=_whole(process.rank, _MOST_RANK),
        local_rank=_whole(process.local_rank, _MOST_RANK),
        world_size=_whole(process.world_size, _MOST_RANK, 1),
        omp_threads=_whole(process.omp_threads, _MOST_RANK),
        mkl_threads=_whole(process.mkl_threads, _MOST_RANK),
        thread_names=tuple((name, count) for name, count in process.thread_names if 0 <= count <= 2**22),
        gpus=_each(process.gpus),
    )
    return without(changed, out_of_bounds(changed))


def _fact(fact: Fact) -> Fact:
    return replace(fact, share=_known(fact.share, 1.0), age_s=_within(fact.age_s, 1e10))

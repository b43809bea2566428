"""The history: one table per kind of subject at 1 s, and for some kinds another at 15 s."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from gputop.history.table import HistoryTable, HistoryWindow, Values
from gputop.model import (
    Cgroup,
    Disk,
    Frame,
    Gpu,
    GpuShare,
    Host,
    Identity,
    Mount,
    Network,
    Pressure,
    Process,
    Unit,
    metrics,
)
from gputop.model.plausible import plausible
from gputop.model.process import identity_of
from gputop.optional_sums import added, mean

Key = str | Identity  # a GPU's uuid, a process, "host", "disk NAME", "mount PATH", "net NAME", "cgroup PATH"


class MetricTrack:
    """One kind of subject; `values` are its metrics in the order of `names`."""

    __slots__ = ("coarse", "mortal", "names", "values")

    def __init__(
        self,
        owner: type,
        *,
        coarse: bool = False,
        mortal: bool = False,
        several: bool = False,
        also: dict[str, Callable[[Any], float | None]] | None = None,
    ):
        """`coarse`: also kept for hours; `mortal`: forgotten soon after it is gone.

        `several`: a subject is one or more objects, in percent their mean, otherwise their sum.
        """
        kept = [metric.name for metric in metrics(owner) if metric.history]
        folds = [mean if metric.unit is Unit.PERCENT else added for metric in metrics(owner) if metric.history]
        take: Callable[[Any], Values] = attrgetter(*kept)
        extra = tuple((also or {}).values())
        self.coarse, self.mortal = coarse, mortal
        self.names = {name: index for index, name in enumerate([*kept, *(also or {})])}

        def values(subject: Any) -> Values:
            return (*take(subject), *[get(subject) for get in extra])

        def together(subjects: Any) -> Values:
            if len(subjects) == 1:
                return take(subjects[0])
            return [fold(column) for fold, column in zip(folds, zip(*map(take, subjects), strict=True), strict=True)]

        self.values = together if several else values if extra else take


def _stalled(name: str, kind: str = "some_percent") -> Callable[[Any], float | None]:
    def get(subject: Any) -> float | None:
        pressure: Pressure | None = getattr(subject, name)
        return getattr(pressure, kind) if pressure else None

    return get


_SHORT_OF_MEMORY = {
    "memory_pressure": _stalled("memory_pressure"),
    "memory_pressure_full": _stalled("memory_pressure", "full_percent"),
}
GPU = MetricTrack(Gpu, coarse=True)
PROCESS = MetricTrack(Process, mortal=True)
SHARES = MetricTrack(GpuShare, mortal=True, several=True)  # a process's values on its GPUs
HOST = MetricTrack(
    Host,
    coarse=True,
    also={name: _stalled(name) for name in ("cpu_pressure", "io_pressure")}
    | {"io_pressure_full": _stalled("io_pressure", "full_percent")}
    | _SHORT_OF_MEMORY,
)
CGROUP = MetricTrack(Cgroup, coarse=True, mortal=True, also=_SHORT_OF_MEMORY)
DISK, MOUNT, NETWORK = MetricTrack(Disk), MetricTrack(Mount), MetricTrack(Network)


FINE_S, FINE_SLOTS = 1.0, 900
COARSE_S, COARSE_SLOTS = 15.0, 960
STALE_S = 3.0  # an older value is a gap: a GPU that does not respond draws no line
FORGET_S = 60.0  # after the end of a process
_EACH = int(COARSE_S / FINE_S)
Keys = Sequence[Hashable]


class _Tables(NamedTuple):
    """The tables of one kind of subject."""

    track: MetricTrack
    fine: HistoryTable
    coarse: HistoryTable | None

    @classmethod
    def of(cls, track: MetricTrack) -> _Tables:
        """Empty tables."""

        def table(slots: int, step_s: float) -> HistoryTable:
            return HistoryTable(len(track.names), slots, int(FORGET_S / step_s) if track.mortal else slots)

        return cls(track, table(FINE_SLOTS, FINE_S), table(COARSE_SLOTS, COARSE_S) if track.coarse else None)


class _MetricPlace(NamedTuple):
    """The location of one metric."""

    table: HistoryTable
    place: int
    step_s: float

    def last(self, key: Key, count: int, now_s: float) -> list[float]:
        """Its newest `count` slots, oldest first, NaN for a gap."""
        return self.table.column(key, self.place, int(now_s / self.step_s), count)

    def known(self, key: Key, seconds: float, now_s: float) -> list[float]:
        """The last `seconds` without gaps."""
        count = max(1, round(seconds / self.step_s))
        return [value for value in self.last(key, count, now_s) if value == value]


class History:
    """The data behind charts and rules. Written by the monitor, readable by all."""

    def __init__(self) -> None:
        self._tables: dict[MetricTrack, _Tables] = {}
        self._now_s = -math.inf
        self._hold = 1

    def add(self, frame: Frame, interval_s: float = 1.0, opened: Collection[int] = ()) -> None:
        """Add a frame. `interval_s`: planned time between frames; a value stands for at most twice that.

        Processes outside jobs and GPUs are kept only if `opened`, by PID.
        """
        frame = plausible(frame)
        gap_s, self._now_s = frame.mono_s - self._now_s, frame.mono_s
        self._hold = max(1, round(gap_s / FINE_S)) if gap_s <= 2 * interval_s + FINE_S else 1
        for track, keys, subjects in _subjects(frame, opened):
            if subjects or track in self._tables:
                self.put(track, keys, map(track.values, subjects))

    def put(self, track: MetricTrack, keys: Keys, values: Iterable[Values]) -> None:
        """Add the newest values of all subjects of a kind."""
        tables = self._tables.get(track)
        if tables is None:
            tables = self._tables[track] = _Tables.of(track)
        slot = int(self._now_s / FINE_S)
        tables.fine.put(slot, keys, values, self._hold)
        if tables.coarse:
            _thin(tables.fine, tables.coarse, slot)

    @property
    def newest_s(self) -> float:
        """Monotonic time of the newest frame; minus infinity before the first."""
        return self._now_s

    def rewind(self, mono_s: float) -> None:
        """Forget everything after this time: a recording was rewound."""
        self._now_s = mono_s
        for tables in list(self._tables.values()):
            tables.fine.rewind(int(mono_s / FINE_S))
            if tables.coarse:
                tables.coarse.rewind(int(mono_s / COARSE_S) - 1)

    def values(self, key: Key, metric: str, seconds: float, step_s: float = FINE_S) -> list[float | None]:
        """The last `seconds` of a metric, one mean per `step_s`, oldest first, None for a gap."""
        count = max(1, round(seconds / step_s))
        found = self._found(key, metric, seconds)
        if found is None:
            return [None] * count
        each = max(1, round(step_s / found.step_s))
        values = [None if value != value else value for value in found.last(key, count * each, self._now_s)]
        return (
            values if each == 1 else [HistoryWindow(values[i : i + each]).mean() for i in range(0, count * each, each)]
        )

    def known(self, key: Key, metric: str, seconds: float) -> Sequence[float]:
        """The last `seconds` of a metric without gaps, oldest first, at most a quarter of an hour."""
        found = self._found(key, metric, 0.0)
        return found.known(key, seconds, self._now_s) if found else ()

    def mean(self, key: Key, metric: str, seconds: float, least_s: float = 0.0) -> float | None:
        """The mean of the last `seconds`; None if less than `least_s` of them is known."""
        found = self._found(key, metric, seconds)
        if found is None:
            return None
        values = found.known(key, seconds, self._now_s)
        return sum(values) / len(values) if values and len(values) * found.step_s >= least_s else None

    def window(self, key: Key, metric: str, seconds: float) -> HistoryWindow:
        """The last `seconds` of a metric, for summaries."""
        return HistoryWindow(self.values(key, metric, seconds))

    def _found(self, key: Key, metric: str, seconds: float) -> _MetricPlace | None:
        for track, fine, coarse in list(self._tables.values()):
            index = track.names.get(metric)
            if index is not None and (key in fine or (coarse and key in coarse)):
                if coarse and seconds > FINE_S * FINE_SLOTS:
                    return _MetricPlace(coarse, index, COARSE_S)
                return _MetricPlace(fine, index, FINE_S)
        return None


def _subjects(frame: Frame, opened: Collection[int]) -> Iterable[tuple[MetricTrack, Keys, Sequence[object]]]:
    host, gpus = frame.host, [gpu for gpu in frame.gpus if gpu.age_s <= STALE_S]
    stale = {gpu.uuid for gpu in frame.gpus if gpu.age_s > STALE_S}
    processes = [one for one in frame.processes if one.job or one.gpus or one.pid in opened]
    users = [one for one in processes if one.gpus]
    if stale:  # such a GPU's process values are as old, and without them a sum would drop
        users = [one for one in users if stale.isdisjoint(share.uuid for share in one.gpus)]
    mounts = [mount for mount in host.mounts if mount.network]
    yield HOST, ["host"], (host,)
    yield GPU, [gpu.uuid for gpu in gpus], gpus
    yield PROCESS, list(map(identity_of, processes)), processes
    yield SHARES, list(map(identity_of, users)), [one.gpus for one in users]
    yield CGROUP, [f"cgroup {group.path}" for group in frame.cgroups], frame.cgroups
    yield DISK, [f"disk {disk.name}" for disk in host.disks], host.disks
    yield MOUNT, [f"mount {mount.path}" for mount in mounts], mounts
    yield NETWORK, [f"net {network.name}" for network in host.networks], host.networks


def _thin(fine: HistoryTable, coarse: HistoryTable, slot: int) -> None:
    """Add the means of every complete coarse slot to the coarse table."""
    done = slot // _EACH - 1
    for each in range(max(coarse.newest + 1, done - FINE_SLOTS // _EACH), done + 1):
        last = each * _EACH + _EACH - 1
        keys = fine.keys(last, _EACH)
        coarse.put(each, keys, [tuple(_means(fine.block(key, last, _EACH))) for key in keys])


def _means(rows: Sequence[Sequence[float]]) -> Iterator[float | None]:
    """Column means, ignoring gaps."""
    for column in zip(*rows, strict=True):
        mean: float | None = sum(column) / len(column)
        if mean != mean:  # it contains a gap
            known = [value for value in column if value == value]
            mean = sum(known) / len(known) if known else None
        yield mean

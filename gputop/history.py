"""The recent past: fixed rings of numbers with gaps, one for each GPU, tracked process, disk, network and the host."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Collection, Iterable, Sequence
from operator import attrgetter
from typing import Any

from gputop.model import Cgroup, Disk, Frame, Gpu, Host, Identity, Mount, Network, Pressure, Process, metrics

Key = str | Identity  # a GPU's uuid, a process, "host", "disk NAME", "mount PATH", "net NAME", "cgroup PATH"

FINE_S, FINE_SLOTS = 1.0, 900
COARSE_S, COARSE_SLOTS = 15.0, 960
STALE_S = 3.0  # an older value is a gap: a GPU that does not answer draws no line
FORGET_S = 60.0  # after a process is gone
_NAN = math.nan


class Window:
    """The values of one metric over some time, gaps left out."""

    __slots__ = ("covered", "values")

    def __init__(self, values: Sequence[float | None]) -> None:
        self.values = [value for value in values if value is not None]
        self.covered = len(self.values) / len(values) if values else 0.0  # share of the window that is known

    def mean(self) -> float | None:
        """Arithmetic mean."""
        return sum(self.values) / len(self.values) if self.values else None

    def percentile(self, share: float) -> float | None:
        """The value that `share` (0-1) of the values do not exceed, nearest rank."""
        if not self.values:
            return None
        return sorted(self.values)[max(0, math.ceil(share * len(self.values)) - 1)]

    def share_above(self, bound: float) -> float | None:
        """Share (0-1) of the values above a bound."""
        return sum(value > bound for value in self.values) / len(self.values) if self.values else None


class Ring:
    """Rows of numbers, one row a time slot; a slot that was never written is a gap.

    One thread writes while others read: a reader takes `state` once, and `state` is swapped, never changed in place.
    """

    __slots__ = ("limit", "state", "width")

    def __init__(self, width: int, limit: int) -> None:
        self.width = width
        self.limit = limit
        rows = min(64, limit)  # most processes die young: begin small
        self.state = (array("f", [_NAN]) * (rows * width), rows, 0, -1)  # data, rows, oldest slot, newest slot

    def put(self, slot: int, row: Sequence[float], hold: int = 1) -> None:
        """Write a row of its width at a slot and at up to `hold - 1` unwritten slots before it.

        A slot that is written already keeps its row: a chart that is frozen there must not change.
        """
        data, rows, oldest, newest = self.state
        if newest < 0:
            oldest, newest = slot, slot - 1
        if slot <= newest:
            return
        if slot - oldest >= rows and rows < self.limit:
            data, rows = self._grow(slot - oldest + 1)
        width, first = self.width, slot - rows + 1
        cells = array("f", row)
        for index in range(newest + 1 if newest >= first else first, slot + 1):
            place = index % rows * width
            data[place : place + width] = cells if index > slot - hold else array("f", [_NAN]) * width
        self.state = (data, rows, oldest if oldest > first else first, slot)

    def rewind(self, slot: int) -> None:
        """Forget everything after a slot."""
        data, rows, oldest, newest = self.state
        self.state = (data, rows, oldest, min(newest, slot)) if oldest <= slot else (data, rows, 0, -1)

    def known(self, index: int, last: int, count: int) -> array[float]:
        """The same column without its gaps, as fast as Python goes."""
        data, rows, oldest, newest = self.state
        low, high, width = max(oldest, last - count + 1), min(newest, last), self.width
        if high < low:
            return array("f")
        first, end = low % rows * width, (high % rows + 1) * width
        block = data[first:end] if first < end else data[first:] + data[:end]
        return array("f", [value for value in block[index::width] if value == value])

    def rows(self, last: int, count: int) -> list[array[float]]:
        """The newest `count` slots up to `last`, oldest first, without those in which nothing is known."""
        data, rows, oldest, newest = self.state
        width = self.width
        gap = (array("f", [_NAN]) * width).tobytes()
        places = (slot % rows * width for slot in range(max(oldest, last - count + 1), min(newest, last) + 1))
        found = (data[place : place + width] for place in places)
        return [row for row in found if row.tobytes() != gap]

    def _grow(self, needed: int) -> tuple[array[float], int]:
        old, old_rows, oldest, newest = self.state
        rows = min(self.limit, max(needed, old_rows * 4))
        width = self.width
        data = array("f", [_NAN]) * (rows * width)
        for slot in range(max(oldest, newest - old_rows + 1), newest + 1):
            source, target = slot % old_rows * width, slot % rows * width
            data[target : target + width] = old[source : source + width]
        return data, rows

    def column(self, index: int, last: int, count: int) -> list[float | None]:
        """The newest `count` slots up to `last` of one column, oldest first; None where there is a gap."""
        data, rows, oldest, newest = self.state
        width, values = self.width, []
        for slot in range(last - count + 1, last + 1):
            value = data[slot % rows * width + index] if oldest <= slot <= newest else _NAN
            values.append(None if value != value else value)
        return values


class Track:
    """One kind of subject: which of its metrics are kept, and how a row is taken from it."""

    __slots__ = ("coarse", "mortal", "names", "values")

    def __init__(
        self,
        owner: type,
        *,
        coarse: bool = False,
        mortal: bool = False,
        also: dict[str, Callable[[Any], float | None]] | None = None,
    ):
        """`coarse`: kept for hours too; `mortal`: forgotten soon after it is gone."""
        kept = [metric.name for metric in metrics(owner) if metric.history]
        take = attrgetter(*kept)
        extra = tuple((also or {}).values())
        self.names = {name: index for index, name in enumerate([*kept, *(also or {})])}
        self.coarse, self.mortal = coarse, mortal

        def values(subject: Any) -> tuple[float | None, ...]:
            return (*take(subject), *[get(subject) for get in extra])

        self.values: Callable[[Any], tuple[float | None, ...]] = values if extra else take

    def row(self, subject: object) -> list[float]:
        """The same as numbers, NaN where unknown."""
        return [_NAN if value is None else value for value in self.values(subject)]


def _stalled(name: str, kind: str = "some_percent") -> Callable[[Any], float | None]:
    def get(subject: Any) -> float | None:
        pressure: Pressure | None = getattr(subject, name)
        return getattr(pressure, kind) if pressure else None

    return get


_SHORT_OF_MEMORY = {
    "memory_pressure": _stalled("memory_pressure"),
    "memory_pressure_full": _stalled("memory_pressure", "full_percent"),
}
GPU = Track(Gpu, coarse=True)
PROCESS = Track(Process, mortal=True)
HOST = Track(
    Host,
    coarse=True,
    also={name: _stalled(name) for name in ("cpu_pressure", "io_pressure")}
    | {"io_pressure_full": _stalled("io_pressure", "full_percent")}
    | _SHORT_OF_MEMORY,
)
CGROUP = Track(Cgroup, coarse=True, mortal=True, also=_SHORT_OF_MEMORY)
DISK, MOUNT, NETWORK = Track(Disk), Track(Mount), Track(Network)


class History:
    """What the charts and the rules look back on. Fed by the monitor, read by anybody."""

    def __init__(self) -> None:
        self._rings: dict[Key, tuple[Track, Ring, Ring | None]] = {}
        self._now_s = -math.inf
        self._hold = 1

    def add(self, frame: Frame, interval_s: float = 1.0, opened: Collection[int] = ()) -> None:
        """Take in a frame. `interval_s` is the planned time between frames: a value stands for at most twice that.

        Of processes that are neither a job's nor on a GPU only those that are `opened`, by pid, are kept.
        """
        gap_s, self._now_s = frame.mono_s - self._now_s, frame.mono_s
        slot = int(frame.mono_s / FINE_S)
        self._hold = max(1, round(gap_s / FINE_S)) if gap_s <= 2 * interval_s + FINE_S else 1
        for key, track, subject in _subjects(frame, opened):
            self.put(key, track, subject)
        if slot % 60 == 0:
            self._forget(slot)

    def put(self, key: Key, track: Track, subject: object) -> None:
        """Take in something that follows from the newest frame."""
        slot = int(self._now_s / FINE_S)
        entry = self._rings.get(key)
        if entry is None:
            coarse = Ring(len(track.names), COARSE_SLOTS) if track.coarse else None
            entry = self._rings[key] = (track, Ring(len(track.names), FINE_SLOTS), coarse)
        entry[1].put(slot, track.row(subject), self._hold)
        if entry[2]:
            _thin(entry[1], entry[2], slot)

    @property
    def newest_s(self) -> float:
        """The monotonic time of the newest frame; minus infinity before the first."""
        return self._now_s

    def rewind(self, mono_s: float) -> None:
        """Forget everything after this time: a recording was taken back."""
        self._now_s = mono_s
        for _, fine, coarse in list(self._rings.values()):
            fine.rewind(int(mono_s / FINE_S))
            if coarse:
                coarse.rewind(int(mono_s / COARSE_S) - 1)

    def _forget(self, slot: int) -> None:
        keep_process, keep_device = FORGET_S / FINE_S, COARSE_SLOTS * COARSE_S / FINE_S
        for key, (track, ring, _) in list(self._rings.items()):
            if slot - ring.state[3] > (keep_process if track.mortal else keep_device):
                del self._rings[key]

    def values(self, key: Key, metric: str, seconds: float, step_s: float = FINE_S) -> list[float | None]:
        """The last `seconds` of a metric, a value each `step_s` (the mean there), oldest first, None for a gap."""
        entry = self._rings.get(key)
        count = max(1, round(seconds / step_s))
        if entry is None or metric not in entry[0].names:
            return [None] * count
        track, fine, coarse = entry
        ring, base_s = (coarse, COARSE_S) if coarse and seconds > FINE_S * FINE_SLOTS else (fine, FINE_S)
        each = max(1, round(step_s / base_s))
        last = int(self._now_s / base_s)
        values = ring.column(track.names[metric], last, count * each)
        return values if each == 1 else [Window(values[i : i + each]).mean() for i in range(0, count * each, each)]

    def mean(self, key: Key, metric: str, seconds: float, least_s: float = 0.0) -> float | None:
        """The mean of the last `seconds`; None where less than `least_s` of them, or nothing, is known."""
        entry = self._rings.get(key)
        if entry is None or metric not in entry[0].names:
            return None
        track, fine, coarse = entry
        ring, base_s = (coarse, COARSE_S) if coarse and seconds > FINE_S * FINE_SLOTS else (fine, FINE_S)
        values = ring.known(track.names[metric], int(self._now_s / base_s), max(1, round(seconds / base_s)))
        return sum(values) / len(values) if values and len(values) * base_s >= least_s else None

    def known(self, key: Key, metric: str, seconds: float) -> Sequence[float]:
        """The last `seconds` of a metric without its gaps, oldest first: the quick way to its extremes."""
        entry = self._rings.get(key)
        if entry is None or metric not in entry[0].names:
            return ()
        return entry[1].known(entry[0].names[metric], int(self._now_s / FINE_S), max(1, round(seconds / FINE_S)))

    def window(self, key: Key, metric: str, seconds: float) -> Window:
        """The last `seconds` of a metric, to be summed up."""
        return Window(self.values(key, metric, seconds))


def _subjects(frame: Frame, opened: Collection[int]) -> Iterable[tuple[Key, Track, object]]:
    yield "host", HOST, frame.host
    for gpu in frame.gpus:
        if gpu.age_s <= STALE_S:
            yield gpu.uuid, GPU, gpu
    for process in frame.processes:
        if process.job or process.gpus or process.pid in opened:
            yield process.identity, PROCESS, process
    for group in frame.cgroups:
        yield f"cgroup {group.path}", CGROUP, group
    for disk in frame.host.disks:
        yield f"disk {disk.name}", DISK, disk
    for mount in frame.host.mounts:
        if mount.network:
            yield f"mount {mount.path}", MOUNT, mount
    for network in frame.host.networks:
        yield f"net {network.name}", NETWORK, network


def _thin(fine: Ring, coarse: Ring, slot: int) -> None:
    """When a coarse slot is complete, its mean goes into the coarse ring."""
    each = int(COARSE_S / FINE_S)
    done = slot // each - 1
    if done <= coarse.state[3]:
        return
    rows = fine.rows(done * each + each - 1, each)
    if len(rows) < 2:
        coarse.put(done, rows[0] if rows else [_NAN] * fine.width)
        return
    means = []
    for column in zip(*rows, strict=True):
        mean = sum(column) / len(column)
        if mean != mean:  # there is a gap in it
            known = [value for value in column if value == value]
            mean = sum(known) / len(known) if known else _NAN
        means.append(mean)
    coarse.put(done, means)

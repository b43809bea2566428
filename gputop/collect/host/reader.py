"""The host reader: the machine around the GPUs, put together from readers that each know a part of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from itertools import chain
from math import inf
from typing import Any, NamedTuple, Protocol, TypeVar

from gputop.collect.blocking_reads import ReaderPool, RepeatedRead
from gputop.collect.host.cpu import Cpu, Pressures, Speeds
from gputop.collect.host.disks import Disks
from gputop.collect.host.machine import Hardware, MachineLimits, Uptime
from gputop.collect.host.memory import HostMemory, HugePages, Nodes, Paging, SharedMemory
from gputop.collect.host.mounts import NFS, Lustre, Mounts
from gputop.collect.host.networks import Links, Networks, Ports, Tcp, TcpTimeouts
from gputop.collect.host.thermal import CpuTemperature, Throttles, Zones
from gputop.collect.kernel_files import Kernel, Read, read_file, reason
from gputop.collect.rates import total
from gputop.model import Cgroup, Disk, Host, Missing, Mount, Network, Node, Pressure, Reason, metrics
from gputop.model.metric import check_filled
from gputop.safe.text import clean


class PartReader(Protocol):
    """One part: a Host on which only the fields it fills are set. It raises when it has nothing to read from."""

    @property
    def fills(self) -> tuple[str, ...]:
        """Fields of Host; with a dot, metrics of what such a field holds."""

    @property
    def every_s(self) -> float:
        """How often it has something new; 0 is every time it is asked."""

    def read(self, now_s: float) -> Host:
        """Read now."""


# those of /proc first: they hardly ever hang, and depend on nothing; readers beside another one before that
READERS = (
    Cpu, HostMemory, Paging, Pressures, Tcp, TcpTimeouts, Uptime, Hardware, Ports, Links, Networks, Disks,
    MachineLimits, HugePages, SharedMemory, Nodes, Lustre, Mounts, Speeds, Throttles, CpuTemperature, Zones,
)  # fmt: skip
COMPUTED = ("read_bytes_per_s", "write_bytes_per_s")  # here, from disks and mounts
ELSEWHERE = ("driver_version", "cuda_version", "process_count", "own_pids")  # by lanes of the driver and of processes
_PARTS = (Pressure, Disk, Mount, Network, Node, Cgroup)

check_filled(
    wanted=chain(
        (field.name for field in fields(Host) if field.name != "missing"),
        (f"{metric.owner}.{metric.name}" for part in _PARTS for metric in metrics(part)),
    ),
    filled=chain(COMPUTED, ELSEWHERE, *(reader.fills for reader in READERS)),
)
_METRICS = frozenset(metric.name for metric in metrics(Host))
_FIELDS = frozenset(field.name for field in fields(Host))
_BESIDE: Mapping[type, tuple[type, ...]] = {Networks: (Links, Ports), Mounts: (Lustre,)}
HANG_S = 2.0  # a read that takes longer counts as one that does not return,
STALE_S = 3.0  # and what is so much older than it should be is then unknown
T = TypeVar("T")


class _Said(NamedTuple):
    """What a reader said, and when."""

    taken_s: float | None = None
    values: Mapping[str, Any] = {}
    missing: tuple[Missing, ...] = ()
    hangs: tuple[tuple[str, float], ...] = ()  # what of it does not answer, and since when
    broken: str | None = None  # an unforeseen error, in one line


class _Part:
    """A reader, and what it said last."""

    def __init__(self, reader: Callable[[Kernel], PartReader], kernel: Kernel, clock: Callable[[], float]) -> None:
        watched = replace(kernel, read=self._watched(kernel.read), listed=self._watched(kernel.listed))
        self.reader = reader(watched)
        self._clock = clock
        self._names = tuple(name for name in self.reader.fills if "." not in name and name in _FIELDS)
        self._next_s = -inf
        self._at: str | None = None  # the file it reads
        self._said = _Said()  # swapped whole: another thread reads it
        self.job = RepeatedRead(self._read)

    def due(self, now_s: float) -> bool:
        """Whether it is time to read again."""
        if now_s < self._next_s:
            return False
        self._next_s = now_s + self.reader.every_s
        return True

    def said(self, now_s: float) -> _Said:
        """What is known now. What is too old, while the reader does not come back, is unknown and has its reason."""
        asked_s, said = self.job.asked_s, self._said
        if asked_s is None or now_s - asked_s < HANG_S:
            return said
        place = self._at or str(getattr(self.reader, "place", type(self.reader).__name__.lower()))
        hangs = ((place, asked_s),)
        if said.taken_s is not None and now_s - said.taken_s < self.reader.every_s + STALE_S:
            return said._replace(hangs=hangs)
        values = {name: unknown(value) for name, value in said.values.items()}
        missing = tuple(self._missing("stale", f"{clean(place)} does not answer"))
        return _Said(said.taken_s, values, missing, hangs)

    def _watched(self, call: Callable[[str], T]) -> Callable[[str], T]:
        """The same, and what it was called with is known as long as it does not return."""

        def watched(path: str) -> T:
            self._at = path
            try:
                return call(path)
            finally:
                self._at = None

        return watched

    def _read(self) -> None:
        """Read; a part that cannot be read is unknown, with the reason."""
        now_s = self._clock()
        unlock = getattr(self.reader, "unlock", None)
        try:
            host = self.reader.read(now_s)
        except (OSError, ValueError, LookupError) as error:
            self._said = _Said(now_s, {}, tuple(self._missing(reason(error), unlock)))
        except Exception as error:  # an unforeseen error costs its own part only; the frame's notes carry it
            broken = f"{type(self.reader).__name__.lower()}: {type(error).__name__}: {error}"
            self._said = _Said(now_s, {}, tuple(self._missing("stale", unlock)), broken=broken)
        else:
            hang = getattr(self.reader, "hang", None)
            hangs = tuple(hang(now_s)) if hang else ()
            self._said = _Said(now_s, {name: getattr(host, name) for name in self._names}, host.missing, hangs)

    def _missing(self, why: Reason, unlock: str | None) -> Iterator[Missing]:
        """One for each metric of the host; for disks, mounts, pressure and the like one for all of theirs."""
        owners = dict.fromkeys(name.partition(".")[0] for name in self.reader.fills if "." in name)
        if not self._names:
            return  # the reader that reports it says so
        for name in (*(name for name in self._names if name in _METRICS), *owners):
            yield Missing(metric=name, reason=why, unlock=unlock)


class HostReader:
    """Reads the machine. `missing` names metrics of Host, a kind of part (`pressure`), or one part (`mount:/data`).

    Each reader is a separate job: one that does not return costs what it fills, and nothing else.
    """

    def __init__(
        self,
        proc: str = "/proc",
        sys: str = "/sys",
        clock: Callable[[], float] = time.monotonic,
        *,
        shm: str = "/dev/shm",
        read: Read = read_file,
    ) -> None:
        kernel = Kernel(proc, sys, shm, read)
        self._clock = clock
        made: dict[type, PartReader] = {}

        def beside(reader: type) -> Callable[[Kernel], PartReader]:
            """How a reader is made: with those beside it."""

            def make(kernel: Kernel) -> PartReader:
                made[reader] = reader(kernel, *(made[other] for other in _BESIDE.get(reader, ())))
                return made[reader]

            return make

        self._parts = [_Part(beside(reader), kernel, clock) for reader in READERS]
        self._crew = ReaderPool("host", clock)

    def ask(self) -> None:
        """Have everything read that is due; what has not returned from the last time is not asked again."""
        now_s = self._clock()
        self._crew.ask(part.job for part in self._parts if part.due(now_s))

    def settled(self, until_s: float) -> bool:
        """Wait for what was asked, no longer than until this time of the monotonic clock, nor for what is late."""
        return self._crew.settled(until_s)

    def stop(self) -> None:
        """Let the threads end when they come back."""
        self._crew.stop()

    @property
    def broken(self) -> str | None:
        """The unforeseen error of the last read of each part, in one line."""
        now_s = self._clock()
        return "; ".join(broken for part in self._parts if (broken := part.said(now_s).broken)) or None

    def hangs(self) -> list[tuple[str, float]]:
        """Files and mounts that do not answer, and for how long."""
        now_s = self._clock()
        found = (hang for part in self._parts for hang in part.said(now_s).hangs)
        return [(clean(place), now_s - since_s) for place, since_s in found]

    def latest(self) -> Host:
        """The machine as it was read last. Rates are of the time between two reads; after the first, unknown."""
        now_s = self._clock()
        said = [part.said(now_s) for part in self._parts]
        values: dict[str, Any] = {}
        for part in said:
            values.update(part.values)
        return Host(
            **values,
            read_bytes_per_s=_storage("read_bytes_per_s", values),
            write_bytes_per_s=_storage("write_bytes_per_s", values),
            missing=tuple(chain.from_iterable(part.missing for part in said)),
        )

    def read(self, patience_s: float = 10.0) -> Host:
        """All of it now; only what hangs is not waited for."""
        self.ask()
        self.settled(time.monotonic() + patience_s)
        self.stop()
        return self.latest()


def unknown(value: Any) -> Any:
    """The same without numbers: disks, mounts, CPUs and so on are still there."""
    return tuple(map(_bare, value)) if isinstance(value, tuple) else None


def _bare(part: Any) -> Any:
    if not isinstance(part, _PARTS):
        return None
    owner: Any = type(part)
    nothing: Any = {metric.name: None for metric in metrics(owner)}
    return replace(part, **nothing)


def _storage(name: str, values: Mapping[str, Any]) -> float | None:
    """A rate of all physical disks, and of NFS and Lustre mounts: none is part of another."""
    disks, mounts = values.get("disks", ()), values.get("mounts", ())
    served = [mount for mount in mounts if mount.file_system in NFS]
    # its counters may be for root only, and then the disks are better than nothing
    lustre = [mount for mount in mounts if mount.file_system == "lustre" and getattr(mount, name) is not None]
    return total(getattr(source, name) for source in (*disks, *served, *lustre))

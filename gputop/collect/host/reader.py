"""The host reader: the machine around the GPUs, put together from readers that each know a part of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from itertools import chain
from math import inf
from typing import Any, Protocol

from gputop.collect import fills
from gputop.collect.growth import total
from gputop.collect.host.cpu import Cpu
from gputop.collect.host.disks import Disks
from gputop.collect.host.heat import Heat
from gputop.collect.host.limits import Limits
from gputop.collect.host.machine import Machine, Uptime
from gputop.collect.host.memory import HugePages, Memory, Paging, SharedMemory
from gputop.collect.host.mounts import Mounts
from gputop.collect.host.networks import Networks, Tcp, TcpTimeouts
from gputop.collect.host.nfs import NFS
from gputop.collect.host.nodes import Nodes
from gputop.collect.host.pressure import Pressures
from gputop.collect.host.speeds import Speeds
from gputop.collect.kernel import Kernel, Read, read_file, reason
from gputop.model import Cgroup, Disk, Host, Missing, Mount, Network, Node, Pressure, Reason, metrics


class Reader(Protocol):
    """One part: a Host on which only the fields it fills are set. It raises when it has nothing to read from."""

    @property
    def fills(self) -> tuple[str, ...]:
        """Fields of Host; with a dot, metrics of what such a field holds."""

    @property
    def every_s(self) -> float:
        """How often it has something new; 0 is every time it is asked."""

    def read(self, now_s: float) -> Host:
        """Read now."""


READERS = (
    Cpu, Limits, Memory, HugePages, Paging, SharedMemory, Nodes, Pressures, Disks, Mounts, Networks, Tcp, TcpTimeouts,
    Speeds, Heat, Machine, Uptime,
)  # fmt: skip
COMPUTED = ("read_bytes_per_s", "write_bytes_per_s")  # here, from disks and mounts
ELSEWHERE = ("driver_version", "cuda_version", "process_count")  # by the lanes of the driver and of the processes
_PARTS = (Pressure, Disk, Mount, Network, Node, Cgroup)

fills.check(
    wanted=chain(
        (field.name for field in fields(Host) if field.name != "missing"),
        (f"{metric.owner}.{metric.name}" for part in _PARTS for metric in metrics(part)),
    ),
    filled=chain(COMPUTED, ELSEWHERE, *(reader.fills for reader in READERS)),
)
_METRICS = frozenset(metric.name for metric in metrics(Host))


class _Part:
    """A reader, and what it said last."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._names = tuple(name for name in reader.fills if "." not in name)
        self._next_s = -inf
        self.values: dict[str, Any] = {}
        self.missing: tuple[Missing, ...] = ()
        self.broken: str | None = None  # what nobody foresaw, in one line

    def refresh(self, now_s: float) -> None:
        """Read again if it is time; a part that cannot be read is unknown, with the reason."""
        if now_s < self._next_s:
            return
        self._next_s = now_s + self._reader.every_s
        self.broken = None
        try:
            host = self._reader.read(now_s)
        except (OSError, ValueError, LookupError) as error:
            self.values, self.missing = {}, tuple(self._unknown(reason(error)))
        except Exception as error:  # what nobody foresaw costs its own part only; the frame's notes carry it
            self.values, self.missing = {}, tuple(self._unknown("stale"))
            self.broken = f"{type(self._reader).__name__.lower()}: {type(error).__name__}: {error}"
        else:
            self.values, self.missing = {name: getattr(host, name) for name in self._names}, host.missing

    def _unknown(self, why: Reason) -> Iterator[Missing]:
        """One for each metric of the host; for disks, mounts, pressure and the like one for all of theirs."""
        unlock = getattr(self._reader, "unlock", None)
        owners = dict.fromkeys(name.partition(".")[0] for name in self._reader.fills if "." in name)
        for name in (*(name for name in self._names if name in _METRICS), *owners):
            yield Missing(metric=name, reason=why, unlock=unlock)


class HostReader:
    """Reads the machine. `missing` names metrics of Host, a kind of part (`pressure`), or one part (`mount:/data`)."""

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
        self._parts = [_Part(reader(kernel)) for reader in READERS]

    @property
    def broken(self) -> str | None:
        """What the last read of each part raised that nobody foresaw, in one line."""
        return "; ".join(part.broken for part in self._parts if part.broken) or None

    def read(self) -> Host:
        """The machine now. Rates are of the time since the last read; on the first one they are unknown."""
        now_s = self._clock()
        values: dict[str, Any] = {}
        for part in self._parts:
            part.refresh(now_s)
            values.update(part.values)
        return Host(
            **values,
            read_bytes_per_s=_storage("read_bytes_per_s", values),
            write_bytes_per_s=_storage("write_bytes_per_s", values),
            missing=tuple(chain.from_iterable(part.missing for part in self._parts)),
        )


def _storage(name: str, values: Mapping[str, Any]) -> float | None:
    """A rate of all physical disks, and of NFS and Lustre mounts: none is part of another."""
    disks, mounts = values.get("disks", ()), values.get("mounts", ())
    served = [mount for mount in mounts if mount.file_system in NFS]
    # its counters may be for root only, and then the disks are better than nothing
    lustre = [mount for mount in mounts if mount.file_system == "lustre" and getattr(mount, name) is not None]
    return total(getattr(source, name) for source in (*disks, *served, *lustre))

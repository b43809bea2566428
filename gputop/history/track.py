"""What is kept of each kind of subject: which of its metrics, under which name, and for how long."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from gputop.history.table import Values
from gputop.known import added, mean
from gputop.model import Cgroup, Disk, Gpu, GpuShare, Host, Identity, Mount, Network, Pressure, Process, Unit, metrics

Key = str | Identity  # a GPU's uuid, a process, "host", "disk NAME", "mount PATH", "net NAME", "cgroup PATH"


class Track:
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
        """`coarse`: kept for hours too; `mortal`: forgotten soon after it is gone.

        `several`: a subject is one or more of them together, in percent their mean, in all else their sum.
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
GPU = Track(Gpu, coarse=True)
PROCESS = Track(Process, mortal=True)
SHARES = Track(GpuShare, mortal=True, several=True)  # what one process has of its GPUs
HOST = Track(
    Host,
    coarse=True,
    also={name: _stalled(name) for name in ("cpu_pressure", "io_pressure")}
    | {"io_pressure_full": _stalled("io_pressure", "full_percent")}
    | _SHORT_OF_MEMORY,
)
CGROUP = Track(Cgroup, coarse=True, mortal=True, also=_SHORT_OF_MEMORY)
DISK, MOUNT, NETWORK = Track(Disk), Track(Mount), Track(Network)

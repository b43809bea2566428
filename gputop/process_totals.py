"""The values of one table row, for one process or several together, each computed on first access."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, TypeVar

from gputop.model import Frame, GpuShare, Process, Role
from gputop.optional_sums import added, mean

Plain = TypeVar("Plain", int, str)
Found = TypeVar("Found")
_URGENT = "DZtTRXSI"  # blocked, zombie, stopped, running, ... sleeping


@dataclass(slots=True)
class Figures:
    """The values of the columns for some processes. None is unknown; without `gpus` GPU values do not apply."""

    processes: Sequence[Process]
    frame: Frame
    user: str | None = None
    pid: int | None = None  # for a row of one process
    _known: dict[object, Any] = field(default_factory=dict, repr=False, compare=False)  # thousands are summed once

    @property
    def count(self) -> int:
        """Number of processes."""
        return len(self.processes)

    def total(self, metric: str) -> float | None:
        """The rounded sum of known values; None if there are none."""
        return self._metric(metric, add)

    def mean(self, metric: str) -> float | None:
        """The mean of known values; None if there are none."""
        return self._metric(metric, mean)

    def most(self, metric: str) -> float | None:
        """The maximum; None if none is known."""
        return self._metric(metric, _highest)

    def same(self, metric: str) -> Any:
        """The common value; None if they differ, or one is unknown."""
        return self._metric(metric, same)

    def _metric(self, metric: str, together: Callable[[list[Any]], Found]) -> Found:
        if self.count == 1:
            read: Found = getattr(self.processes[0], metric)
            return read
        ask = attrgetter(metric)
        return self._once((together, metric), lambda: together([*map(ask, self.processes)]))

    def _once(self, asked: object, work_out: Callable[[], Found]) -> Found:
        if asked not in self._known:
            self._known[asked] = work_out()
        found: Found = self._known[asked]
        return found

    def _shares(self) -> list[GpuShare]:
        return [share for process in self.processes for share in process.gpus]

    @property
    def gpus(self) -> tuple[str, ...]:
        """Indexes of their GPUs."""
        return self._once("gpus", lambda: _indexes(self._shares(), self.frame))

    @property
    def gpu_percent(self) -> float | None:
        """Mean utilization of these GPUs by them."""
        return self._once("gpu_percent", lambda: mean(share.busy_percent for share in self._shares()))

    @property
    def vram_bytes(self) -> int | None:
        """Their memory on these GPUs."""
        return self._once("vram_bytes", lambda: add(share.vram_bytes for share in self._shares()))

    @property
    def wait_percent(self) -> float | None:
        """Run-queue wait of their threads, relative to waiting and running."""
        if self.count == 1:
            return self.processes[0].run_wait_percent
        return self._once("wait_percent", lambda: waited(self.processes))

    @property
    def io_percent(self) -> float | None:
        """Time blocked on storage: the highest mean by role."""
        return self._once("io_percent", lambda: _worst_io(self.processes))

    @property
    def mean_read_bytes(self) -> float | None:
        """Bytes per read call."""
        if self.count == 1:
            return self.processes[0].mean_read_bytes
        chars, calls = self.total("read_chars_per_s"), self.total("read_calls_per_s")
        return chars / calls if calls and chars is not None else None

    @property
    def state(self) -> str | None:
        """The most urgent state of any of them."""
        return min((process.state for process in self.processes if process.state), key=_urgency, default=None)


def one(process: Process, frame: Frame) -> Figures:
    """The values of one process."""
    return Figures((process,), frame, process.user, process.pid)


def io_percent(process: Process) -> float | None:
    """Time blocked on storage: measured with delay accounting, else the share of samples in state D."""
    return process.blocked_percent if process.io_wait_percent is None else process.io_wait_percent


def io_estimated(process: Process) -> bool:
    """Whether that is such an estimate."""
    return process.io_wait_percent is None and process.blocked_percent is not None


def waited(processes: Iterable[Process]) -> float | None:
    """Run-queue wait relative to waiting and running, over all of them."""
    wait = run = 0.0
    known = False
    for process in processes:
        share, cpu = process.run_wait_percent, process.cpu_percent
        if share is None or cpu is None:
            continue
        known = True
        wait += cpu * share / (100 - min(share, 99.0))
        run += cpu
    if not known:
        return None
    return 100 * wait / (wait + run) if run else 0.0


def add(values: Iterable[float | None]) -> int | None:
    """The rounded sum of known values; None if there are none."""
    total = added(values)
    return None if total is None else round(total)


def _highest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def same(values: Iterable[Plain | None]) -> Plain | None:
    """The common value; None if they differ, or one is unknown."""
    found = set(values)
    return found.pop() if len(found) == 1 else None


def _urgency(state: str) -> int:
    return _URGENT.find(state) % (len(_URGENT) + 1)


def _worst_io(processes: Iterable[Process]) -> float | None:
    """The highest mean by role: loaders that wait for the disk must not vanish among ranks that do not."""
    by_role: dict[Role, list[float | None]] = {}
    for process in processes:
        by_role.setdefault(process.role, []).append(io_percent(process))
    return max((value for value in map(mean, by_role.values()) if value is not None), default=None)


def _indexes(shares: Iterable[GpuShare], frame: Frame) -> tuple[str, ...]:
    gpus = frame.by_uuid
    return tuple(dict.fromkeys(gpus[share.uuid].index if share.uuid in gpus else "?" for share in shares))

"""The numbers of one line of the table: of one process, or of many together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, TypeVar

from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Frame, GpuShare, Node, Process, Role
from gputop.optional_sums import added, mean

Plain = TypeVar("Plain", int, str)
_ADD = (
    "cpu_percent", "threads", "rss_bytes", "read_bytes_per_s", "write_bytes_per_s", "read_chars_per_s",
    "read_calls_per_s", "open_files", "pss_bytes", "shared_bytes", "swap_bytes", "major_faults_per_s",
    "voluntary_switches_per_s", "involuntary_switches_per_s",
)  # fmt: skip
_MEAN = ("step_s", "data_wait_percent", "optimizer_percent")  # of ranks, which step together
_MOST = ("step_p90_s", "step_longest_s")
_SAME = ("waiting_in", "last_cpu", "affinity", "nice")
_STEPS = (*_MEAN, *_MOST, "samples_per_s")
_PLAIN = (*_ADD, *_SAME, *_STEPS, "age_s", "mean_read_bytes", "state")
_added, _alike = attrgetter(*_ADD), attrgetter(*_SAME)  # all at once: each job's line adds them up at every tick
_URGENT = "DZtTRXSI"  # blocked, dead and not reaped, stopped, running, ... asleep


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What the columns show. None is unknown; without `gpus` the GPU figures do not apply."""

    count: int = 1  # processes; of many, what does not add up and is not the same in all of them is None
    pid: int | None = None
    user: str | None = None
    gpus: tuple[str, ...] = ()  # indexes
    gpu_percent: float | None = None
    vram_bytes: int | None = None
    cpu_percent: float | None = None
    threads: int | None = None
    rss_bytes: int | None = None
    wait_percent: float | None = None
    read_bytes_per_s: float | None = None
    write_bytes_per_s: float | None = None
    io_percent: float | None = None
    age_s: float | None = None
    read_chars_per_s: float | None = None
    read_calls_per_s: float | None = None
    mean_read_bytes: float | None = None
    state: str | None = None
    waiting_in: str | None = None
    open_files: int | None = None
    pss_bytes: int | None = None
    shared_bytes: int | None = None
    swap_bytes: int | None = None
    major_faults_per_s: float | None = None
    voluntary_switches_per_s: float | None = None
    involuntary_switches_per_s: float | None = None
    last_cpu: int | None = None
    affinity: str | None = None
    nodes: tuple[Node, ...] = ()  # of the host
    nice: int | None = None
    step_s: float | None = None
    step_p90_s: float | None = None
    step_longest_s: float | None = None
    data_wait_percent: float | None = None
    optimizer_percent: float | None = None
    samples_per_s: float | None = None


def one(process: Process, frame: Frame) -> Figures:
    """The figures of one process."""
    shares = process.gpus
    plain: dict[str, Any] = {name: getattr(process, name) for name in _PLAIN}
    return Figures(
        pid=process.pid,
        user=process.user,
        gpus=_indexes(shares, frame) if shares else (),
        gpu_percent=mean(share.busy_percent for share in shares) if shares else None,
        vram_bytes=add(share.vram_bytes for share in shares) if shares else None,
        wait_percent=process.run_wait_percent,
        io_percent=io_percent(process),
        nodes=frame.host.nodes,
        **plain,
    )


def together(processes: Sequence[Process], frame: Frame, user: str | None) -> Figures:
    """Sums over processes; percentages that do not add up are means, what is unknown is left out of both."""
    shares = tuple(share for process in processes for share in process.gpus)
    sums: dict[str, Any] = dict(zip(_ADD, map(add, zip(*map(_added, processes), strict=True)), strict=False))
    alike: dict[str, Any] = dict(zip(_SAME, map(same, zip(*map(_alike, processes), strict=True)), strict=False))
    chars, calls = sums.get("read_chars_per_s"), sums.get("read_calls_per_s")
    return Figures(
        count=len(processes),
        user=user,
        gpus=_indexes(shares, frame),
        gpu_percent=mean(share.busy_percent for share in shares),
        vram_bytes=add(share.vram_bytes for share in shares),
        wait_percent=waited(processes),
        io_percent=_worst_io(processes),
        age_s=max((process.age_s for process in processes if process.age_s is not None), default=None),
        mean_read_bytes=chars / calls if calls and chars is not None else None,
        state=min((process.state for process in processes if process.state), key=_urgency, default=None),
        nodes=frame.host.nodes,
        **sums,
        **alike,
        **_stepping(processes),
    )


def _stepping(processes: Sequence[Process]) -> dict[str, Any]:
    """What their step meters say: the mean of ranks, the slowest step of any of them, all samples."""
    metered = [one for one in processes if one.step_s is not None]
    if not metered:
        return {}
    means = {name: mean(getattr(one, name) for one in metered) for name in _MEAN}
    known = {name: [value for one in metered if (value := getattr(one, name)) is not None] for name in _MOST}
    return {
        **means,
        **{name: max(values, default=None) for name, values in known.items()},
        "samples_per_s": added(one.samples_per_s for one in metered),
    }


def io_percent(process: Process) -> float | None:
    """Time blocked on storage: measured where delay accounting is on, else the share of looks in state D."""
    return process.blocked_percent if process.io_wait_percent is None else process.io_wait_percent


def io_estimated(process: Process) -> bool:
    """Whether that is such a share of looks: an estimate."""
    return process.io_wait_percent is None and process.blocked_percent is not None


def waited(processes: Iterable[Process]) -> float | None:
    """Time waited for a CPU, of waiting and running, over all of them: each counts by the time it wanted to run."""
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
    """The sum of what is known, rounded; None when nothing is."""
    total = added(values)
    return None if total is None else round(total)


def same(values: Iterable[Plain | None]) -> Plain | None:
    """The value that all have; None when they differ, or one is unknown."""
    found = set(values)
    return found.pop() if len(found) == 1 else None


def _urgency(state: str) -> int:
    return _URGENT.find(state) % (len(_URGENT) + 1)


def _worst_io(processes: Iterable[Process]) -> float | None:
    """The highest of the means by role: loaders that wait for the disk must not vanish among ranks that do not."""
    by_role: dict[Role, list[float | None]] = {}
    for process in processes:
        by_role.setdefault(process.role, []).append(io_percent(process))
    return max((value for value in map(mean, by_role.values()) if value is not None), default=None)


def _indexes(shares: Iterable[GpuShare], frame: Frame) -> tuple[str, ...]:
    gpus = frame.by_uuid
    return tuple(dict.fromkeys(gpus[share.uuid].index if share.uuid in gpus else "?" for share in shares))

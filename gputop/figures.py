"""The numbers of one line of the table: of one process, or of many together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gputop.model import Frame, GpuShare, Process, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What the columns show. None is unknown; without `gpus` the GPU figures do not apply."""

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


def one(process: Process, frame: Frame) -> Figures:
    """The figures of one process."""
    shares = process.gpus
    return Figures(
        pid=process.pid,
        user=process.user,
        gpus=_indexes(shares, frame) if shares else (),
        gpu_percent=mean(share.busy_percent for share in shares) if shares else None,
        vram_bytes=add(share.vram_bytes for share in shares) if shares else None,
        cpu_percent=process.cpu_percent,
        threads=process.threads,
        rss_bytes=process.rss_bytes,
        wait_percent=process.run_wait_percent,
        read_bytes_per_s=process.read_bytes_per_s,
        write_bytes_per_s=process.write_bytes_per_s,
        io_percent=io_percent(process),
        age_s=process.age_s,
    )


def together(processes: Sequence[Process], frame: Frame, user: str | None) -> Figures:
    """Sums over processes; percentages that do not add up are means, what is unknown is left out of both."""
    shares = tuple(share for process in processes for share in process.gpus)
    return Figures(
        user=user,
        gpus=_indexes(shares, frame),
        gpu_percent=mean(share.busy_percent for share in shares),
        vram_bytes=add(share.vram_bytes for share in shares),
        cpu_percent=add(process.cpu_percent for process in processes),
        threads=add(process.threads for process in processes),
        rss_bytes=add(process.rss_bytes for process in processes),
        wait_percent=waited(processes),
        read_bytes_per_s=add(process.read_bytes_per_s for process in processes),
        write_bytes_per_s=add(process.write_bytes_per_s for process in processes),
        io_percent=_worst_io(processes),
        age_s=max((process.age_s for process in processes if process.age_s is not None), default=None),
    )


def io_percent(process: Process) -> float | None:
    """Time blocked on storage: measured where delay accounting is on, else the share of looks in state D."""
    return process.blocked_percent if process.io_wait_percent is None else process.io_wait_percent


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
    known = [value for value in values if value is not None]
    return round(sum(known)) if known else None


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of what is known; None when nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _worst_io(processes: Iterable[Process]) -> float | None:
    """The highest of the means by role: loaders that wait for the disk must not vanish among ranks that do not."""
    by_role: dict[Role, list[float | None]] = {}
    for process in processes:
        by_role.setdefault(process.role, []).append(io_percent(process))
    return max((value for value in map(mean, by_role.values()) if value is not None), default=None)


def _indexes(shares: Iterable[GpuShare], frame: Frame) -> tuple[str, ...]:
    gpus = frame.by_uuid
    return tuple(dict.fromkeys(gpus[share.uuid].index if share.uuid in gpus else "?" for share in shares))

"""Jobs with ranks on several hosts, as one frame: the rules for ranks then compare them across hosts.

A PID is unique on its host only, so each host's are moved to a range of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_address
from threading import Event
from typing import NamedTuple

from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Frame, Gpu, Host, Identity, Job, Missing, Process
from gputop.model.process import changed
from gputop.source import EVERYTHING, UNRECORDED, DetailWish, Interest

_RANKS_PER_S = 50.0  # that are compared a second: the rules take about 2 ms for each
_MOST_APART_S = 10.0
RANGE = 1 << 22  # PIDs are below this: PID_MAX_LIMIT of the kernel


class JobKey(NamedTuple):
    """What the parts of one job on different hosts have in common."""

    kind: str  # slurm, or rendezvous
    id: str
    user: str | None
    world_size: int | None


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The part of a job on one host."""

    host: str
    frame: Frame
    job: Job

    @property
    def ranks(self) -> tuple[Process, ...]:
        """Its trainers that are in the frame."""
        return tuple(self.frame.by_identity[one] for one in self.job.ranks if one in self.frame.by_identity)


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class SpanningJob:
    """A job on several hosts, its parts by host name."""

    key: JobKey
    parts: tuple[Part, ...]

    @property
    def name(self) -> str:
        """Its name on the first host."""
        return self.parts[0].job.name

    @property
    def user(self) -> str | None:
        """Its owner."""
        return self.parts[0].job.user

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts it runs on, of those that are watched."""
        return tuple(part.host for part in self.parts)

    @property
    def ranks(self) -> int:
        """Ranks that are seen."""
        return sum(len(part.job.ranks) for part in self.parts)

    @property
    def missing_ranks(self) -> tuple[int, ...] | None:
        """Ranks of its world that no watched host has; None where the size of the world is unknown."""
        size = self.key.world_size or next(
            (rank.world_size for part in self.parts for rank in part.ranks if rank.world_size), None
        )
        numbers = {rank.rank for part in self.parts for rank in part.ranks}
        return None if size is None or None in numbers else tuple(n for n in range(size) if n not in numbers)

    @property
    def gpus(self) -> int:
        """GPUs of its ranks."""
        return len({(part.host, share.uuid) for part in self.parts for rank in part.ranks for share in rank.gpus})


def job_key(job: Job, frame: Frame) -> JobKey | None:
    """What the other parts of a job would share; None if it cannot have any.

    A Slurm job, else the address at which its ranks meet with the number of ranks.
    """
    ranks = [frame.by_identity[one] for one in job.ranks if one in frame.by_identity]
    size = next((rank.world_size for rank in ranks if rank.world_size), None)
    if size is not None and size <= len(ranks):
        return None
    if job.slurm_job:
        return JobKey("slurm", job.slurm_job, job.user, None)
    meeting = next((rank.rendezvous for rank in ranks if rank.rendezvous), None)
    if meeting is None or size is None or _is_local(meeting):
        return None
    return JobKey("rendezvous", meeting, job.user, size)


def _is_local(meeting: str) -> bool:
    """Whether an address HOST:PORT is that of the host itself on every host."""
    host = meeting.rpartition(":")[0].strip("[]").casefold()
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host in ("", "localhost", "localhost.localdomain")


def spanning_jobs(frames: Mapping[str, Frame]) -> list[SpanningJob]:
    """The jobs that run on more than one of these hosts, by name. `frames`: the newest of each host."""
    found: dict[JobKey, list[Part]] = {}
    for host, frame in sorted(frames.items()):
        for job in frame.jobs:
            key = job_key(job, frame)
            if key is not None:
                found.setdefault(key, []).append(Part(host=host, frame=frame, job=job))
    jobs = [SpanningJob(key=key, parts=tuple(parts)) for key, parts in found.items()]
    return sorted((job for job in jobs if len(set(job.hosts)) > 1), key=lambda job: (job.name, job.key))


def merged(jobs: Sequence[SpanningJob], wall_s: float, mono_s: float) -> Frame:
    """One frame with these jobs: their ranks and their GPUs, named HOST:INDEX."""
    places: dict[str, int] = {}
    gpus: dict[str, Gpu] = {}
    processes: list[Process] = []
    made: list[Job] = []
    for job in jobs:
        key = ":".join(job.key[:2])
        ranks: list[Process] = []
        for part in job.parts:
            base = RANGE * (1 + places.setdefault(part.host, len(places)))
            ranks += [_moved(rank, base, key) for rank in part.ranks]
            used = {share.uuid for rank in part.ranks for share in rank.gpus}
            gpus.update(
                (gpu.uuid, replace(gpu, index=f"{part.host}:{gpu.index}"))
                for gpu in part.frame.gpus
                if gpu.uuid in used
            )
        ranks.sort(key=lambda rank: -1 if rank.rank is None else rank.rank)
        identities = tuple(rank.identity for rank in ranks)
        made.append(replace(job.parts[0].job, key=key, ranks=identities, members=identities))
        processes += ranks
    hosts = len(places)
    return Frame(
        wall_s=wall_s, mono_s=mono_s, hostname=f"{hosts} hosts", host=Host(), gpus=tuple(gpus.values()),
        processes=tuple(processes), jobs=tuple(made),
    )  # fmt: skip


def _moved(rank: Process, base: int, job: str) -> Process:
    return changed(rank, pid=base + rank.pid, parent_pid=base + rank.parent_pid, job=job)


class SpanningSource:
    """The jobs on several hosts as a source of frames, one an interval."""

    def __init__(self, newest: Callable[[], Mapping[str, Frame]], label: str, interval_s: float = 1.0) -> None:
        """`newest` gives the newest frame of each host that is live."""
        self.label = label
        self.elsewhere: str | None = label
        self.interval_s = interval_s
        self.interest = Interest()
        self.jobs: list[SpanningJob] = []
        self._newest = newest

    def past(self) -> Iterator[Frame]:
        """Empty."""
        return iter(())

    def frames(self, stop: Event) -> Iterator[Frame]:
        """A frame an interval, until it is stopped."""
        while not stop.is_set():
            began_s = time.monotonic()
            self.jobs = spanning_jobs(self._newest())
            yield merged(self.jobs, time.time(), began_s)
            ranks = sum(job.ranks for job in self.jobs)
            apart_s = max(self.interval_s, min(_MOST_APART_S, ranks / _RANKS_PER_S))
            stop.wait(max(0.0, apart_s - (time.monotonic() - began_s)))

    def inspect(self, identity: Identity, wish: DetailWish = EVERYTHING) -> Missing:  # noqa: ARG002
        """No details of a job on several hosts."""
        return UNRECORDED

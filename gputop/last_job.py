"""The job that last left the GPUs: owner, end time, duration and utilization."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Frame, Identity, Job, Process


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class LastJob:
    """A job that is gone, as last seen."""

    name: str
    user: str | None
    wall_s: float  # when it was first missing
    ran_s: float | None
    busy_percent: float | None  # of its GPUs, mean while it was watched


class _Run:
    """A job that holds GPUs."""

    def __init__(self) -> None:
        self.ranks: frozenset[Identity] = frozenset()
        self._job: Job | None = None
        self._ran_s: float | None = None
        self._busy, self._looks = 0.0, 0

    def add(self, job: Job, ranks: Sequence[Process]) -> None:
        """Add a sample."""
        self._job, self.ranks = job, frozenset(rank.identity for rank in ranks)
        self._ran_s = max((rank.age_s for rank in ranks if rank.age_s is not None), default=None)
        busy = [share.busy_percent for rank in ranks for share in rank.gpus if share.busy_percent is not None]
        if busy:
            self._busy, self._looks = self._busy + sum(busy) / len(busy), self._looks + 1

    def ended(self, wall_s: float) -> LastJob | None:
        """Its summary, if there is anything to report."""
        if not self._job:
            return None
        mean = self._busy / self._looks if self._looks else None
        return LastJob(name=self._job.name, user=self._job.user, wall_s=wall_s, ran_s=self._ran_s, busy_percent=mean)


class JobEndings:
    """Tracks the end of jobs; `last` is the most recent one."""

    def __init__(self) -> None:
        self.last: LastJob | None = None
        self._runs: dict[str, _Run] = {}

    def add(self, frame: Frame) -> None:
        """Add a frame. A rank without its GPU, as while the driver does not respond, has not ended."""
        ranks: dict[str, list[Process]] = {}
        for process in frame.processes:
            if process.job and process.gpus:
                ranks.setdefault(process.job, []).append(process)
        for key in self._runs.keys() - ranks.keys():
            if self._runs[key].ranks.isdisjoint(frame.by_identity):
                self.last = self._runs.pop(key).ended(frame.wall_s) or self.last
        for job in frame.jobs:
            if job.key in ranks:
                self._runs.setdefault(job.key, _Run()).add(job, ranks[job.key])

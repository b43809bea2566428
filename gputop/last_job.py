"""The job that left the GPUs last: whose it was, when it ended, for how long and how busy it ran."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Frame, Identity, Job, Process


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class LastJob:
    """A job that is gone, as it was when it was last seen."""

    name: str
    user: str | None
    wall_s: float  # when it was missed
    ran_s: float | None
    busy_percent: float | None  # of its GPUs, mean over the time it was watched


class _Run:
    """A job that holds GPUs."""

    def __init__(self) -> None:
        self.ranks: frozenset[Identity] = frozenset()
        self._job: Job | None = None
        self._ran_s: float | None = None
        self._busy, self._looks = 0.0, 0

    def seen(self, job: Job, ranks: Sequence[Process]) -> None:
        """One more look at it."""
        self._job, self.ranks = job, frozenset(rank.identity for rank in ranks)
        self._ran_s = max((rank.age_s for rank in ranks if rank.age_s is not None), default=None)
        busy = [share.busy_percent for rank in ranks for share in rank.gpus if share.busy_percent is not None]
        if busy:
            self._busy, self._looks = self._busy + sum(busy) / len(busy), self._looks + 1

    def ended(self, wall_s: float) -> LastJob | None:
        """What is left to say of it."""
        if not self._job:
            return None
        mean = self._busy / self._looks if self._looks else None
        return LastJob(name=self._job.name, user=self._job.user, wall_s=wall_s, ran_s=self._ran_s, busy_percent=mean)


class JobEndings:
    """Watches jobs come and go; `last` is the one that left last."""

    def __init__(self) -> None:
        self.last: LastJob | None = None
        self._runs: dict[str, _Run] = {}

    def add(self, frame: Frame) -> None:
        """Take in a frame. A rank that lives on without its GPU, as while the driver does not answer, has not ended."""
        ranks: dict[str, list[Process]] = {}
        for process in frame.processes:
            if process.job and process.gpus:
                ranks.setdefault(process.job, []).append(process)
        for key in self._runs.keys() - ranks.keys():
            if self._runs[key].ranks.isdisjoint(frame.by_identity):
                self.last = self._runs.pop(key).ended(frame.wall_s) or self.last
        for job in frame.jobs:
            if job.key in ranks:
                self._runs.setdefault(job.key, _Run()).seen(job, ranks[job.key])

"""GPU time lost by cause, added up over the updates: a counter for each rule, cause and job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gputop.diagnose import Finding
from gputop.diagnose.finding import POSSIBLE
from gputop.model import Frame
from gputop.monitor import Update

LONGEST_GAP_S = 15.0  # what happened in a longer gap is unknown
ENDED_S = 600.0  # how long a job that has ended keeps its counters: long enough for a last scrape
MOST_COUNTERS = 256


class LossKey(NamedTuple):
    """What a loss is counted under. `job` is its key; empty outside any job."""

    rule: str
    cause: str  # the first rule merged into it, else the rule itself
    job: str = ""
    name: str = ""


class LostTime:
    """Counters in GPU seconds, and all GPU time observed."""

    def __init__(self) -> None:
        self.by_cause: dict[LossKey, float] = {}
        self.observed_s = 0.0
        self._last_s: float | None = None  # mono time of the last update
        self._seen_s: dict[LossKey, float] = {}  # when a counter grew, or its job was there

    def add(self, update: Update, interval_s: float) -> None:
        """Add the time since the last update, as this one judges it."""
        frame = update.frame
        before_s, self._last_s = self._last_s, frame.mono_s
        elapsed_s = 0.0 if before_s is None else frame.mono_s - before_s
        if 0 < elapsed_s <= max(LONGEST_GAP_S, 2 * interval_s):  # not after a suspend, nor backwards
            self.observed_s += elapsed_s * sum(gpu.parent_uuid is None for gpu in frame.gpus)
            for key, gpus in losses(update).items():
                self.by_cause[key] = self.by_cause.get(key, 0.0) + elapsed_s * gpus
                self._seen_s[key] = frame.mono_s
        self._forget(frame)

    def _forget(self, frame: Frame) -> None:
        """Drop the counters of jobs that have ended, so that their number is bounded."""
        running = {job.key for job in frame.jobs}
        for key in self.by_cause:
            if not key.job or key.job in running:
                self._seen_s[key] = frame.mono_s
        gone = [key for key, seen_s in self._seen_s.items() if frame.mono_s - seen_s > ENDED_S]
        left = sorted(self._seen_s.keys() - {*gone}, key=lambda key: self._seen_s[key])
        for key in (*gone, *left[: max(0, len(left) - MOST_COUNTERS)]):
            del self._seen_s[key]
            self.by_cause.pop(key, None)


def losses(update: Update) -> Mapping[LossKey, float]:
    """How many GPUs are lost now, by cause: the lost share of each primary finding on each of its GPUs.

    A GPU is lost at most once: where several findings claim more, each counts in proportion.
    """
    of_gpus = _jobs_of_gpus(update.frame)
    claims: dict[str, list[tuple[LossKey, float]]] = defaultdict(list)
    for one in update.findings:
        share = one.lost_share
        if not one.primary or one.healthy or one.cost != "lost" or not share or one.confidence < POSSIBLE:
            continue
        for uuid in _gpus(one, update.frame):
            jobs = of_gpus.get(uuid, {})
            job = next((key for key in one.subject.job_keys if key in jobs), next(iter(jobs), ""))
            key = LossKey(one.rule, next(iter(one.causes), one.rule), job, jobs.get(job, ""))
            claims[uuid].append((key, min(1.0, share)))
    found: dict[LossKey, float] = defaultdict(float)
    for shares in claims.values():
        scale = 1 / max(1.0, sum(share for _, share in shares))
        for key, share in shares:
            found[key] += scale * share
    return found


def _jobs_of_gpus(frame: Frame) -> Mapping[str, dict[str, str]]:
    """By uuid: key and name of each job on that GPU."""
    names = {job.key: job.name for job in frame.jobs}
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for process in frame.processes:
        for share in process.gpus:
            if process.job in names:
                found[share.uuid][process.job] = names[process.job]
    return found


def _gpus(one: Finding, frame: Frame) -> Iterator[str]:
    """The GPUs of a finding: those it names, else those of its processes and jobs."""
    subject, known = one.subject, frame.by_uuid
    named = [uuid for uuid in subject.gpus if uuid in known]
    if not named:
        keys = {*subject.job_keys}
        about = [process for process in frame.processes if process.identity in subject.processes or process.job in keys]
        named = [share.uuid for process in about for share in process.gpus if share.uuid in known]
    return iter(dict.fromkeys(named))

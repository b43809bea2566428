"""The newest update as metrics of the Prometheus client library: a sink of the monitor, and a collector of scrapes.

`take` keeps one reference and adds up lost time; everything else happens when somebody scrapes. So a scraper never
delays the monitor, and during a driver hang it gets the newest sample with its age.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from prometheus_client.core import Metric
from prometheus_client.samples import Sample as ClientSample

from gputop import __version__
from gputop.monitor import Update
from gputop.prometheus import families as names
from gputop.prometheus.families import Family
from gputop.prometheus.job_samples import add_findings, add_jobs
from gputop.prometheus.lost_time import LossKey, LostTime
from gputop.prometheus.samples import (
    BoundedSamples,
    ExportLimits,
    Sample,
    add_gpus,
    add_host,
    add_processes,
    job_labels,
    label,
)


class UpdateCollector:
    """Holds the newest update; `collect` yields its metrics.

    Thread-safe: `take` from one thread, `collect` from any.
    """

    problem: str | None = None
    missed = 0

    def __init__(
        self,
        interval_s: Callable[[], float],
        limits: ExportLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`interval_s`: the wanted time between updates. `clock`: of the age of an update, which may be recorded."""
        self._interval_s, self._limits, self._clock = interval_s, limits or ExportLimits(), clock
        self._newest: tuple[Update, float, dict[LossKey, float], float] | None = None  # replaced as a whole
        self._lost = LostTime()

    def take(self, update: Update) -> None:
        """Keep an update in place of the last one."""
        self._lost.add(update, self._interval_s())
        self._newest = update, self._clock(), dict(self._lost.by_cause), self._lost.observed_s

    @property
    def newest(self) -> Update | None:
        """The newest update; None before the first one."""
        return self._newest[0] if self._newest else None

    def collect(self) -> Iterator[Metric]:
        """The metrics of the newest update; before the first one, the version only."""
        found = self._samples()
        for family in names.families():
            if samples := found.get(family):
                yield _metric(family, samples)

    def _samples(self) -> dict[Family, list[Sample]]:
        build = {names.BUILD: [Sample(names.BUILD, {"version": __version__}, 1.0)]}
        if self._newest is None:
            return build
        update, taken_s, lost, observed_s = self._newest
        age_s = max(0.0, self._clock() - taken_s)
        found = BoundedSamples(self._limits.series)
        add_gpus(found, update, age_s)
        add_findings(found, update)
        for key, seconds in lost.items():
            labels = {"rule": key.rule, "cause": key.cause, **job_labels(key.job, key.name)}
            found.add("finding", key, [Sample(names.LOST, labels, seconds)])
        add_jobs(found, update, self._limits)
        add_host(found, update)
        add_processes(found, update, self._limits)
        return {**build, **self._own(update, age_s, observed_s, found), **found.by_family}

    def _own(
        self, update: Update, age_s: float, observed_s: float, found: BoundedSamples
    ) -> dict[Family, list[Sample]]:
        """About the exporter: a few series beyond the limit."""
        frame = update.frame
        values: dict[Family, float | None] = {
            names.FRAME_TIME: frame.wall_s,
            names.FRAME_AGE: age_s,
            names.OBSERVED: observed_s,
            names.OWN_CPU: None if frame.cost_percent is None else frame.cost_percent / 100,
            names.OWN_DRIVER: None if frame.driver_percent is None else frame.driver_percent / 100,
        }
        keys = dict.fromkeys(label(note.key) for note in frame.notes)
        return {
            **{family: [Sample(family, {}, value)] for family, value in values.items() if value is not None},
            names.NOTE: [Sample(names.NOTE, {"key": key}, 1.0) for key in keys],
            names.DROPPED: [
                Sample(names.DROPPED, {"of": kind}, float(found.dropped[kind])) for kind in names.DROPPABLE
            ],
        }


def _metric(family: Family, samples: list[Sample]) -> Metric:
    metric = Metric(family.base, family.help, family.kind, family.unit)
    metric.samples = [ClientSample(family.name, sample.labels, sample.value) for sample in samples]
    return metric

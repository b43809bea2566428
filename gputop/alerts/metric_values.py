"""The metrics that an alert may watch, by name (`gpu.temperature_celsius`), and their values in a frame."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

from gputop import finding_text, units
from gputop.alerts.message import About
from gputop.model import Disk, Frame, Gpu, Host, Metric, Mount, Network, Pressure, Process, Unit, metrics
from gputop.phrases import threshold_value
from gputop.safe.text import clean, redact

_STALE_S = 15.0  # age from which a GPU's values say nothing of now
_PRESSURES = ("cpu_pressure", "memory_pressure", "io_pressure")


class MeasuredSubject(NamedTuple):
    """What a metric is measured on at one moment."""

    key: tuple[str, object]  # the same in every frame
    owner: Any
    current: bool  # its values are of this moment
    about: Callable[[], About]


class MetricName(NamedTuple):
    """A metric of one kind of subject."""

    name: str  # with its kind
    kind: str
    metric: Metric
    value: Callable[[Any], Any]  # of a subject; AttributeError where a part of it is unknown

    def of(self, subject: MeasuredSubject) -> Any:
        """The value; None if unknown."""
        try:
            return self.value(subject.owner) if subject.current else None
        except AttributeError:  # the pressure is unknown
            return None

    @property
    def label(self) -> str:
        """What it measures: its help up to the first aside."""
        for end in (";", ":", " (", ","):
            before = self.metric.help.partition(end)[0]
            if before != self.metric.help and len(before) >= 4:
                return before
        return self.metric.help


@cache
def metric_names() -> Mapping[str, MetricName]:
    """Every metric that an alert may watch."""
    found = [
        MetricName(f"{kind}.{each.name}", kind, each, attrgetter(each.name))
        for kind, owner in _OWNERS.items()
        for each in metrics(owner)
    ]
    found += [
        MetricName(f"host.{pressure}.{each.name}", "host", each, attrgetter(f"{pressure}.{each.name}"))
        for pressure in _PRESSURES
        for each in metrics(Pressure)
    ]
    return {each.name: each for each in found}


_OWNERS: Mapping[str, type] = {
    "gpu": Gpu,
    "host": Host,
    "process": Process,
    "disk": Disk,
    "mount": Mount,
    "network": Network,
}


def subjects(kind: str, frame: Frame) -> Iterator[MeasuredSubject]:
    """What a frame has of this kind; of processes those in a job or on a GPU."""
    if kind == "host":
        name = clean(frame.hostname, 64)
        yield MeasuredSubject((kind, ""), frame.host, True, lambda: About(kind=kind, name=name))
    elif kind == "gpu":
        for gpu in frame.gpus:
            fresh = gpu.condition == "ok" and gpu.age_s < _STALE_S
            yield MeasuredSubject((kind, gpu.uuid), gpu, fresh, _of_gpu(gpu))
    elif kind == "process":
        for process in frame.processes:
            if process.job is not None or process.gpus:
                yield MeasuredSubject((kind, process.identity), process, True, _of_process(process, frame))
    else:
        host = frame.host
        parts: dict[str, Sequence[Disk | Mount | Network]]
        parts = {"disk": host.disks, "mount": host.mounts, "network": host.networks}
        for part in parts[kind]:
            name = part.path if isinstance(part, Mount) else part.name
            yield MeasuredSubject((kind, name), part, True, _named(kind, name))


def users_and_jobs(subject: MeasuredSubject, frame: Frame) -> tuple[set[str], set[str]]:
    """Users and names of the jobs that a subject belongs to; of a GPU, those that use it."""
    owner = subject.owner
    if isinstance(owner, Process):
        using = [owner]
    elif isinstance(owner, Gpu):
        using = [one for one in frame.processes if any(share.uuid == owner.uuid for share in one.gpus)]
    else:
        return set(), set()
    keys = {one.job for one in using}
    return {one.user for one in using if one.user}, {job.name for job in frame.jobs if job.key in keys}


def value_text(value: Any, unit: Unit) -> str:
    """A value with its unit, as the screen has it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return clean(value, 80)
    if isinstance(value, frozenset):
        return ", ".join(sorted(map(str, value))) or "none"
    if unit is Unit.BYTES:
        return units.size(value)
    if unit is Unit.BYTES_PER_S:
        return f"{units.decimal(value)}/s"
    suffix = {Unit.PERCENT: "_percent", Unit.CELSIUS: "_celsius", Unit.SECONDS: "_s", Unit.PER_S: "_per_s"}.get(unit)
    if suffix:
        return threshold_value(suffix, value)
    name = {Unit.WATTS: " W", Unit.MHZ: " MHz", Unit.JOULES: " J"}.get(unit, "")
    return f"{value:.6g}{name}"


def _of_gpu(gpu: Gpu) -> Callable[[], About]:
    return lambda: About(kind="gpu", name=f"GPU {clean(gpu.index, 12)}", gpus=(clean(gpu.index, 12),))


def _of_process(process: Process, frame: Frame) -> Callable[[], About]:
    def about() -> About:
        job = next((clean(job.name, 64) for job in frame.jobs if job.key == process.job), None)
        user = clean(process.user, 64) if process.user else None
        gpus = tuple(frame.by_uuid[share.uuid].index for share in process.gpus if share.uuid in frame.by_uuid)
        aside = ", ".join(filter(None, (user, f"pid {process.pid}")))
        name = redact(f"{finding_text.program(process.identity, frame)} ({aside})")
        return About(kind="process", name=name, gpus=gpus, pids=(process.pid,), job=job, user=user)

    return about


def _named(kind: str, name: str) -> Callable[[], About]:
    return lambda: About(kind=kind, name=redact(clean(name, 120)))

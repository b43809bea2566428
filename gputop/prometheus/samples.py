"""Samples of an update: values of GPUs, host and processes under the names of `families`, bounded in number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from gputop import units
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Cgroup, Gpu, NvLink, Process, Role, Unit
from gputop.monitor import Update
from gputop.prometheus import families as names
from gputop.prometheus.families import Family, MetricGroup
from gputop.safe.text import clean, redact

Labels = dict[str, str]  # of many samples: never changed
MOST_SERIES = 2000
MOST_PROCESSES = 10
LONGEST_LABEL = 120  # characters of a label value
_ANSWERS = ("ok", "asleep")  # conditions of a GPU in which nothing is wrong with it


class Sample(NamedTuple):
    """One value of one series."""

    family: Family
    labels: Labels
    value: float


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class ExportLimits:
    """How much is exported."""

    series: int = MOST_SERIES
    processes: int = MOST_PROCESSES  # of those on GPUs, by device memory
    with_users: bool = False  # names of users as labels


class BoundedSamples:
    """Samples by family; what does not fit is counted by kind. What is added first comes in."""

    def __init__(self, most: int) -> None:
        self.by_family: dict[Family, list[Sample]] = {}
        self.dropped: Counter[str] = Counter()
        self._left = most
        self._subjects: set[object] = set()

    def add(self, kind: str, subject: object, samples: Sequence[Sample]) -> None:
        """Take all samples of a subject, or none; a second one with the same labels would be the same series."""
        if (kind, subject) in self._subjects:
            return
        self._subjects.add((kind, subject))
        if len(samples) > self._left:
            self.drop(kind, len(samples))
            return
        self._left -= len(samples)
        for sample in samples:
            self.by_family.setdefault(sample.family, []).append(sample)

    def drop(self, kind: str, count: int) -> None:
        """Count samples that are left out."""
        self.dropped[kind] += count


@lru_cache(maxsize=1024)  # names hardly change between two scrapes
def label(text: str | None) -> str:
    """A label value: without control characters and apparent secrets, cut; empty for unknown."""
    return clean(redact(clean(text)), LONGEST_LABEL) if text else ""


def of_group(group: MetricGroup, thing: Any, labels: Labels) -> list[Sample]:
    """The known metrics of an object, in base units."""
    values = zip(group.families, group.scales, group.read(thing), strict=True)
    return [Sample(family, labels, value * scale) for family, scale, value in values if value is not None]


def known_count(group: MetricGroup, thing: Any) -> int:
    """How many samples `of_group` would make."""
    return sum(value is not None for value in group.read(thing))


def of_sets(group: MetricGroup, thing: Any, labels: Labels) -> Iterator[Sample]:
    """One sample for each word of each set of words."""
    for metric, family in group.sets:
        words: frozenset[str] | None = getattr(thing, metric)
        for word in sorted(words) if words else () if words is None else ("none",):
            yield Sample(family, {**labels, family.labels[-1]: word}, 1.0)


def gpu_labels(gpu: Gpu) -> Labels:
    """The labels of a GPU: its number, and the UUID that identifies it."""
    return {"gpu": label(gpu.index), "uuid": label(gpu.uuid)}


def add_gpus(found: BoundedSamples, update: Update, age_s: float) -> None:
    """States and metrics of all GPUs. `age_s`: of the frame."""
    gpus = update.frame.gpus
    found.add("gpu", "count", [Sample(names.GPUS, {}, sum(gpu.parent_uuid is None for gpu in gpus))])
    for gpu in gpus:
        found.add("gpu", (gpu.uuid, gpu.index), [*_gpu(gpu, age_s)])
    for gpu in gpus:
        labels = gpu_labels(gpu)
        extended = of_group(names.GPU_EXTENDED, gpu, labels)
        if gpu.pcie_errors is not None:
            extended += of_group(names.PCIE_ERRORS, gpu.pcie_errors, labels)
        extended += _links(gpu.nvlinks, labels)
        for engine in gpu.engines:
            extended += of_group(names.ENGINE, engine, {**labels, "engine": label(engine.name)})
        found.add("gpu", (gpu.uuid, gpu.index, "extended"), extended)


def _gpu(gpu: Gpu, age_s: float) -> Iterator[Sample]:
    labels = gpu_labels(gpu)
    words = {name: label(getattr(gpu, name)) for name in names.GPU_INFO.labels if name not in names.GPU_LABELS}
    yield Sample(names.GPU_UP, labels, float(gpu.condition in _ANSWERS))
    yield Sample(names.GPU_CONDITION, {**labels, "condition": label(gpu.condition)}, 1.0)
    yield Sample(names.GPU_AGE, labels, gpu.age_s + age_s)
    yield Sample(names.GPU_INFO, {**labels, **words}, 1.0)
    for xid in {xid.number: xid for xid in gpu.xids}.values():
        yield Sample(names.GPU_XID, {**labels, "xid": str(xid.number)}, xid.wall_s)
    yield from of_group(names.GPU, gpu, labels)
    yield from of_sets(names.GPU, gpu, labels)


def _links(links: Sequence[NvLink], labels: Labels) -> Iterator[Sample]:
    """The NVLinks of a GPU as one: which of them are equal changes, and so would the names of the series."""
    known = [(names.NVLINK.read(link), _count(link.numbers)) for link in links]
    for place, (metric, family) in enumerate(zip(names.NVLINK.metrics, names.NVLINK.families, strict=True)):
        values = [(values[place], count) for values, count in known if values[place] is not None]
        if not values:
            continue
        added = metric.counter or metric.unit in (Unit.BYTES_PER_S, Unit.FLAG)
        yield Sample(
            family,
            labels,
            float(sum(value * count for value, count in values) if added else max(value for value, _ in values)),
        )


def _count(numbers: str) -> int:
    """How many links a list of their numbers names; one, if it is no such list."""
    try:
        return len(units.parse_ranges(numbers))
    except ValueError:
        return 1


def add_host(found: BoundedSamples, update: Update) -> None:
    """The host, its devices, and the cgroups of jobs."""
    frame, host = update.frame, update.frame.host
    words = {name: label(getattr(host, name)) for name in names.HOST.words}
    own = [Sample(names.HOST_INFO, {"hostname": label(frame.hostname), **words}, 1.0), *of_group(names.HOST, host, {})]
    for resource, pressure in _pressures(host):
        own += of_group(names.HOST_PRESSURE, pressure, {"resource": resource})
    found.add("host", "host", own)
    for mount in host.mounts:
        labels = {"mountpoint": label(mount.path), "fstype": label(mount.file_system)}
        found.add("mount", (*labels.values(),), of_group(names.MOUNT, mount, labels))
    for group, kind, things in ((names.NETWORK, "network", host.networks), (names.DISK, "disk", host.disks)):
        for thing in things:
            name = label(thing.name)
            found.add(kind, name, of_group(group, thing, {"device": name}))
    for node in host.nodes:
        found.add("numa node", node.number, of_group(names.NUMA_NODE, node, {"node": str(node.number)}))
    for cgroup in (*((host.cgroup,) if host.cgroup else ()), *frame.cgroups):
        labels = {"cgroup": label(cgroup.path)}
        found.add("cgroup", (*labels.values(),), [*_cgroup(cgroup, labels)])


def _cgroup(cgroup: Cgroup, labels: Labels) -> Iterator[Sample]:
    yield from of_group(names.CGROUP, cgroup, labels)
    for resource, pressure in _pressures(cgroup):
        yield from of_group(names.CGROUP_PRESSURE, pressure, {**labels, "resource": resource})


def _pressures(thing: Any) -> Iterator[tuple[str, Any]]:
    found = ((name, getattr(thing, f"{name}_pressure")) for name in ("cpu", "memory", "io"))
    return ((name, pressure) for name, pressure in found if pressure is not None)


def add_processes(found: BoundedSamples, update: Update, limits: ExportLimits) -> None:
    """The processes on GPUs that hold most device memory; without command lines and environments."""
    frame = update.frame
    job_names = {job.key: job.name for job in frame.jobs}
    uuids = frame.by_uuid
    for place, process in enumerate(_on_gpus(frame.processes)):
        shares = {share.uuid: share for share in reversed(process.gpus) if share.uuid in uuids}
        if place >= limits.processes:
            known = known_count(names.PROCESS, process) + sum(
                known_count(names.PROCESS_GPU, share) for share in shares.values()
            )
            found.drop("process", 1 + known)
            continue
        labels = {
            "pid": str(process.pid),
            **job_labels(process.job, job_names.get(process.job or "")),
            "rank": "" if process.rank is None else str(process.rank),
        }
        user = label(process.user) if limits.with_users else ""
        info = {**labels, "name": label(process.name), "role": process.role.value, "user": user}
        samples = [Sample(names.PROCESS_INFO, info, 1.0), *of_group(names.PROCESS, process, labels)]
        for uuid, share in shares.items():
            samples += of_group(names.PROCESS_GPU, share, {**labels, **gpu_labels(uuids[uuid])})
        found.add("process", process.identity, samples)


def _on_gpus(processes: Iterable[Process]) -> list[Process]:
    """Processes on GPUs and trainers, those with most device memory first; of two with one PID, one."""
    some = (one for one in processes if one.gpus or one.role is Role.TRAINER)
    by_pid = {process.pid: process for process in some}

    def weight(process: Process) -> tuple[int, int]:
        return -sum(share.vram_bytes or 0 for share in process.gpus), process.pid

    return sorted(by_pid.values(), key=weight)


def job_labels(key: str | None, name: str | None) -> Labels:
    """The labels of a job; empty for none."""
    return {"job_id": label(key), "job_name": label(name)}

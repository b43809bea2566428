"""Where each metric stands in a frame, and what it is called in a question: `gpu.busy_percent`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

from gputop import labels
from gputop.frozen_dataclass import frozen_dataclass
from gputop.mcp.tool import ToolFailure
from gputop.model import (
    Cgroup,
    Disk,
    Frame,
    Gpu,
    GpuShare,
    Host,
    Metric,
    Mount,
    Network,
    Node,
    NvLink,
    Pressure,
    Process,
    metrics,
)
from gputop.suggest import unknown

MOST_FOUND = 30  # names in one answer
# what it is about in words, the object with the metrics, and the GPU index or PID by which it is chosen
Subject = tuple[str, object, str | int | None]


@frozen_dataclass(frozen=True)
class Place:
    """One kind of object in a frame."""

    name: str
    owner: type
    subjects: Callable[[Frame], Iterator[Subject]]

    @cached_property
    def metrics(self) -> Mapping[str, Metric]:
        """Its metrics by name."""
        return {metric.name: metric for metric in metrics(self.owner)}


def named(name: str) -> tuple[Place, str]:
    """The place and the field of `gpu.busy_percent`; ToolFailure if there is none."""
    kind, _, field = name.partition(".")
    if kind in PLACES and field in PLACES[kind].metrics:
        return PLACES[kind], field
    known = [f"{place.name}.{each}" for place in PLACES.values() for each in place.metrics]
    raise ToolFailure(unknown("metric", name, known, "find_metrics lists them"))


def find(words: str) -> list[tuple[str, str, str]]:
    """Name, unit and meaning of the metrics with all these words; those with them in the name come first."""
    wanted = words.lower().split()
    found = []
    for place in PLACES.values():
        for metric in place.metrics.values():
            name = f"{place.name}.{metric.name}"
            text = f"{name} {metric.help}".lower()
            if wanted and all(word in text for word in wanted):
                found.append((not all(word in name for word in wanted), name, metric.unit.value, metric.help))
    found.sort(key=lambda each: each[0])
    return [each[1:] for each in found[:MOST_FOUND]]


def _gpus(frame: Frame) -> Iterator[Subject]:
    for gpu in frame.gpus:
        yield f"GPU {gpu.index}", gpu, gpu.index


def _links(frame: Frame) -> Iterator[Subject]:
    for gpu in frame.gpus:
        for link in gpu.nvlinks:
            yield f"GPU {gpu.index} links {link.numbers}", link, gpu.index


def _processes(frame: Frame) -> Iterator[Subject]:
    for process in frame.processes:
        if process.job is not None or process.gpus:
            yield _process(process), process, process.pid


def _shares(frame: Frame) -> Iterator[Subject]:
    index = {gpu.uuid: gpu.index for gpu in frame.gpus}
    for process in frame.processes:
        for share in process.gpus:
            yield f"{_process(process)} on GPU {index.get(share.uuid, '?')}", share, process.pid


def _process(process: Process) -> str:
    return f"PID {process.pid} {labels.script(process)}"


def _host(frame: Frame) -> Iterator[Subject]:
    yield frame.hostname, frame.host, None


def _pressures(frame: Frame) -> Iterator[Subject]:
    for name in ("cpu", "memory", "io"):
        if (pressure := getattr(frame.host, f"{name}_pressure")) is not None:
            yield f"{frame.hostname} {name}", pressure, None


def _disks(frame: Frame) -> Iterator[Subject]:
    yield from ((disk.name, disk, None) for disk in frame.host.disks)


def _mounts(frame: Frame) -> Iterator[Subject]:
    yield from ((f"{mount.path} ({mount.file_system})", mount, None) for mount in frame.host.mounts)


def _networks(frame: Frame) -> Iterator[Subject]:
    yield from ((network.name, network, None) for network in frame.host.networks)


def _nodes(frame: Frame) -> Iterator[Subject]:
    yield from ((f"NUMA node {node.number}", node, None) for node in frame.host.nodes)


def _cgroups(frame: Frame) -> Iterator[Subject]:
    yield from ((cgroup.path, cgroup, None) for cgroup in frame.cgroups)


PLACES: Mapping[str, Place] = {
    place.name: place
    for place in (
        Place("gpu", Gpu, _gpus),
        Place("nvlink", NvLink, _links),
        Place("process", Process, _processes),
        Place("share", GpuShare, _shares),
        Place("host", Host, _host),
        Place("pressure", Pressure, _pressures),
        Place("disk", Disk, _disks),
        Place("mount", Mount, _mounts),
        Place("network", Network, _networks),
        Place("numa", Node, _nodes),
        Place("cgroup", Cgroup, _cgroups),
    )
}

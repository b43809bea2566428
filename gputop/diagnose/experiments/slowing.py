"""Who slows whom: an experiment that waits for a resource that is full, and whoever takes a good part of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gputop.declare import record
from gputop.diagnose.experiments.loads import Load, Past, beside, mean
from gputop.diagnose.experiments.types import Resource, Slower
from gputop.diagnose.limits import Limits
from gputop.diagnose.room import meet
from gputop.model import Frame


@record(frozen=True, slots=True)
class Scene:
    """The machine, everybody on it, and the numbers of the rules."""

    frame: Frame
    past: Past
    limits: Limits
    loads: Sequence[Load]

    @property
    def moved(self) -> float | None:
        """Bytes a second that the machine moves to and from storage."""
        read, write = mean(self.past, "host", "read_bytes_per_s"), mean(self.past, "host", "write_bytes_per_s")
        return None if read is None and write is None else (read or 0.0) + (write or 0.0)


def slowed(scene: Scene, load: Load) -> tuple[Slower, ...]:
    """Who takes what this experiment waits for, the worst first; nobody while its GPUs are busy all the same."""
    found = list(_on_gpus(scene, load))
    fed = scene.limits["gpu-bound-healthy"]["busy_percent"]
    if load.busy_percent is None or load.busy_percent < fed:
        found += _on_cpus(scene, load)
        found += _on_disks(scene, load)
    return tuple(sorted(found, key=lambda one: -one.share))


def _on_cpus(scene: Scene, load: Load) -> Iterator[Slower]:
    limits, total = scene.limits["neighbour"], scene.frame.host.cpus_total
    full = (mean(scene.past, "host", "cpu_percent") or 0.0) >= limits["cpu_percent"]
    pressed = (mean(scene.past, "host", "cpu_pressure") or 0.0) >= limits["pressure_percent"]
    if not (full or pressed) or (load.wait or 0.0) < limits["run_wait"] or not total:
        return
    for other in scene.loads:
        if other is not load and other.cores and meet(load.cpus, other.cpus):
            yield from _taken(scene, other.job.name, other.job.key, "cpu", other.cores, total)
    for program in beside(scene.frame, load):
        yield from _taken(scene, program.name, None, "cpu", program.cores, total)


def _on_disks(scene: Scene, load: Load) -> Iterator[Slower]:
    limits, total = scene.limits["neighbour"], scene.moved
    full = any((disk.busy_percent or 0.0) >= limits["disk_percent"] for disk in scene.frame.host.disks)
    pressed = (mean(scene.past, "host", "io_pressure") or 0.0) >= limits["pressure_percent"]
    if not (full or pressed) or (load.blocked or 0.0) < limits["blocked"] or not total:
        return
    for other in scene.loads:
        if other is not load and other.moved:
            yield from _taken(scene, other.job.name, other.job.key, "disk", other.moved, total)
    for program in beside(scene.frame, load):
        yield from _taken(scene, program.name, None, "disk", program.moved, total)


def _on_gpus(scene: Scene, load: Load) -> Iterator[Slower]:
    """Other experiments on a GPU that has no time left."""
    full = scene.limits["experiments"]["gpu_percent"]
    mine = {gpu.uuid for gpu in load.gpus if (mean(scene.past, gpu.uuid, "busy_percent") or 0.0) >= full}
    for other in scene.loads:
        shares = (
            [share for one in other.trainers for share in one.gpus if share.uuid in mine] if other is not load else []
        )
        taken = max((share.busy_percent or 0.0 for share in shares if share.kind != "graphics"), default=0.0)
        yield from _taken(scene, other.job.name, other.job.key, "gpu", taken, 100.0)


def _taken(
    scene: Scene, name: str, key: str | None, resource: Resource, taken: float, total: float
) -> Iterator[Slower]:
    share = min(1.0, taken / total)
    if share >= scene.limits["experiments"]["share"]:
        yield Slower(name=name, experiment=key, resource=resource, share=share)

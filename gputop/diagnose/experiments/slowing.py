"""Who slows whom: an experiment that waits for a resource that is full, and whoever takes a good part of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gputop.declare import record
from gputop.diagnose.contention import Contention
from gputop.diagnose.experiments.loads import Load, Past, mean
from gputop.diagnose.experiments.types import Resource, Slower
from gputop.diagnose.limits import Limits
from gputop.model import Frame
from gputop.words import amount


@record(frozen=True, slots=True)
class Scene:
    """The machine, everybody on it, and the numbers of the rules."""

    frame: Frame
    past: Past
    limits: Limits
    loads: Sequence[Load]
    contention: Contention

    @property
    def moved(self) -> float | None:
        """Bytes a second that the machine moves to and from storage."""
        read, write = mean(self.past, "host", "read_bytes_per_s"), mean(self.past, "host", "write_bytes_per_s")
        return None if read is None and write is None else (read or 0.0) + (write or 0.0)


def slowed(scene: Scene, load: Load) -> tuple[Slower, ...]:
    """Who takes what this experiment waits for, the worst first; nobody while its GPUs are busy all the same."""
    found = [*_on_gpus(scene, load), *_taken_from(scene, load)]
    return tuple(sorted(found, key=lambda one: -one.share))


def _taken_from(scene: Scene, load: Load) -> Iterator[Slower]:
    """What the rules found that others take: of all its trainers together, each of them once."""
    worst: dict[tuple[Resource, str], Slower] = {}
    for trainer in load.trainers:
        for one in scene.contention.of(trainer.identity):
            least = scene.limits["neighbour"]["named"]
            small = [taker for taker in one.takers if taker.share < least]
            told = [
                (taker.name, taker.command.user, taker.job, taker.share) for taker in one.takers[: -len(small) or None]
            ]
            if small:
                told.append((amount(len(small), "smaller program"), None, None, sum(taker.share for taker in small)))
            for name, user, job, share in told:
                if share >= least:
                    said = name if job is not None or not user else f"{name} of user {user}"
                    slower = Slower(name=said, experiment=job, resource=one.resource, share=min(1.0, share))
                    before = worst.get((one.resource, said + (job or "")))
                    if before is None or before.share < slower.share:
                        worst[one.resource, said + (job or "")] = slower
    yield from worst.values()


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

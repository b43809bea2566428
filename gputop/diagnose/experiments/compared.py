"""The whole comparison, from a frame and the past."""

from __future__ import annotations

from gputop.diagnose.contention import Contention
from gputop.diagnose.experiments.fitting import fits, room
from gputop.diagnose.experiments.loads import Load, Past, loads, mean
from gputop.diagnose.experiments.slowing import Scene, slowed
from gputop.diagnose.experiments.types import Experiment, Fit, Slower, Together
from gputop.diagnose.limits import Limits
from gputop.model import Frame


def together(frame: Frame, past: Past, limits: Limits, now: Contention | None = None) -> Together:
    """Every experiment of a frame; `past` is the history that the engine has fed, `limits` the numbers of the rules.

    `now` is what the engine said of contention: the page shows that, so that both agree.
    """
    now = now or Contention()
    scene = Scene(frame, past, limits, loads(frame, past), now)
    slowers = {load.job.key: slowed(scene, load) for load in scene.loads}
    programs = {one.name for many in slowers.values() for one in many if one.resource == "cpu" and not one.experiment}
    cpus = room(frame, scene.loads)
    wanting = [load.wanting for load in scene.loads if load.wanting is not None]
    # of one experiment it is the rule about its own threads that says so
    alone = cpus is not None and len(scene.loads) == 1 and sum(wanting) > limits["threads-host"]["threads"] * cpus
    crowded = now.crowded or alone
    hindered = {key for key, many in slowers.items() if crowded or any(one.resource == "cpu" for one in many)}
    fitting = fits(frame, past, limits, scene.loads, len(programs), hindered)
    loading = {one.process.job for one in now.loaders}
    asked = [load.asked for load in scene.loads if load.asked is not None]
    return Together(
        experiments=tuple(_told(scene, load, slowers[load.job.key], fitting.get(load.job.key)) for load in scene.loads),
        cpus=cpus,
        cpu_percent=mean(past, "host", "cpu_percent"),
        threads_asked=sum(asked) if asked else None,
        threads_wanting=sum(wanting) if wanting else None,
        moved_bytes_per_s=scene.moved,
        crowded=crowded,
        full=not crowded and len(loading) > 1,
    )


def _told(scene: Scene, load: Load, slowers: tuple[Slower, ...], fit: Fit | None) -> Experiment:
    moved = scene.moved
    return Experiment(
        key=load.job.key,
        name=load.job.name,
        trainers=tuple(one.identity for one in load.trainers),
        gpus=tuple(gpu.uuid for gpu in load.gpus),
        gpu_busy_percent=load.busy_percent,
        threads_asked=load.asked,
        threads_wanting=load.wanting,
        loaders=load.loaders,
        cpus_allowed=load.allowed,
        cores=load.cores,
        cpu_wait_percent=None if load.wait is None else 100 * load.wait,
        read_bytes_per_s=load.read,
        write_bytes_per_s=load.write,
        io_share=None if load.moved is None or moved is None else min(1.0, load.moved / moved) if moved else 0.0,
        io_wait_percent=None if load.blocked is None else 100 * load.blocked,
        slowed_by=slowers,
        fit=fit,
    )

"""Rules about loaders that keep every CPU busy, and about too few of them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gputop.diagnose.dataloader import settings
from gputop.diagnose.finding import Evidence, Finding, Step
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.starved import at_most, busy, cores, oversubscribed, share_of_cpus, starved, throttled
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View

_LESS_WORK = (
    Step(text="do less for each sample: decode and augment on the GPU (DALI, torchvision.transforms.v2, kornia)"),
    Step(text="cache what is the same in every epoch: decoded, resized, tokenised"),
    Step(text="resize before anything else; a faster decoder (turbojpeg, pillow-simd)"),
    Step(text="more CPU cores for this job, or a host with more; more loaders would not help"),
)


@rule(
    "starved-cpu-saturated",
    "Is the CPU too slow for the loaders?",
    level=Level.STARVED,
    state="input wait",
    short="WAIT",
    confirmed_by=("waits-for-data", "input-bound"),
    number="R04",
    rows=(4, 6, 10, 21, 26, 33, 35, 62, 66),
    needs=("busy_percent", "cpu_percent", "allowed_cpus"),
    partly=("cpus_total",),
)
def starved_cpu_saturated(view: View) -> Iterator[Finding]:
    """The GPU waits and every CPU it may use is busy loading."""
    for trainer in view.trainers():
        if not view.knows(trainer, "duty", "cores", "allowed") or not starved(view, trainer):
            continue
        loaders_busy = trainer.loaders >= 1 and view.above(trainer.loader_cpu, "loader_cpu")
        enough = trainer.loaders >= view.limit("loaders_share") * (trainer.allowed or math.inf)
        saturated = (
            view.above(trainer.saturation, "saturation") or (loaders_busy and enough) or _host_full(view, trainer)
        )
        severity = view.by_share(trainer.lost)
        if not saturated or severity is None or oversubscribed(view, trainer) or throttled(view, trainer):
            continue
        hidden = _computes_with(view, trainer) is None
        yield view.found(
            trainer,
            severity,
            "waits for CPU work on its input",
            evidence=(busy(view, trainer), cores(view, trainer), *_loaders(view, trainer)),
            steps=(*_pools(hidden), Step(text=f"make the input cheaper: {at_most(trainer)}"), *_LESS_WORK),
            confidence=view.confidence(0.9 if loaders_busy else 0.75, None if hidden else trainer.loaders),
            lost_share=trainer.lost,
        )


def _computes_with(view: View, trainer: Trainer) -> frozenset[str] | None:
    """Libraries that its loaders may lose their time in, as each computes with several threads; None: hidden."""
    if not view.above(trainer.loader_cpu, "openblas-on-intel.loader_cores"):
        return frozenset()
    return frozenset(name for process in trainer.tree for name in process.libraries) or None


def _pools(hidden: bool) -> Iterator[Step]:
    if hidden:
        yield Step(
            text="each loader computes with several threads, whose library is hidden: first try one thread a loader",
            command="export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1",
        )


def _host_full(view: View, trainer: Trainer) -> bool:
    """All CPUs of the machine are busy, most of all with this trainer; one thread alone could not use more of them."""
    if not trainer.loaders and view.against.below(trainer.cores, "loader-in-main.cores"):
        return False
    others = (other.cores or 0.0 for other in view.vectors() if other.identity != trainer.identity)
    largest = (trainer.cores or 0.0) >= max(others, default=0.0)
    if not largest or not view.above(view.mean("host", "cpu_percent"), "host_percent"):
        return False
    total = view.cpus()
    return total is not None and (trainer.cores or 0.0) >= 0.5 * view.limit("host_percent") / 100 * total


@rule(
    "starved-cpu-idle",
    "Would more loaders feed the GPU?",
    level=Level.STARVED,
    state="input wait",
    short="WAIT",
    confirmed_by=("waits-for-data", "input-bound"),
    number="R05",
    rows=(4, 11, 33, 35, 45, 66),
    needs=("busy_percent", "cpu_percent", "allowed_cpus"),
)
def starved_cpu_idle(view: View) -> Iterator[Finding]:
    """The GPU waits, every loader works as fast as it can, and most CPUs are idle: there are too few loaders."""
    for trainer in view.trainers():
        if trainer.loaders < 1 or not view.knows(trainer, "duty", "cores", "allowed", "loader_low"):
            continue
        pressure = view.mean("host", "io_pressure")
        blocked = trainer.loader_blocked
        idle = view.below(trainer.saturation, "saturation") and view.above(trainer.loader_low, "loader_cpu")
        if view.against.above(trainer.loader_cpu, "openblas-on-intel.loader_cores"):
            continue  # each computes with several threads: one CPU is not what holds it up
        waits = blocked is not None and not view.below(blocked, "blocked")
        waits = waits or (pressure is not None and not view.below(pressure, "io_percent"))
        severity = view.by_share(trainer.lost)
        if not idle or waits or severity is None or not starved(view, trainer):
            continue
        yield _too_few(view, trainer, severity, blocked, pressure)


def _too_few(view: View, trainer: Trainer, severity: str, blocked: float | None, pressure: float | None) -> Finding:
    room = max(1, math.floor(share_of_cpus(view, trainer)) - 1)
    wanted = min(room, math.ceil(trainer.loaders * view.limit("more") / (trainer.duty or 1.0)))
    steps = [
        Step(
            text=f"use more loaders: {at_most(trainer)}",
            command=f"DataLoader(..., num_workers={wanted}, {settings(trainer)}, prefetch_factor=4)",
        ),
        Step(text="then try some more and some fewer: the best number is where samples per second stop growing"),
    ]
    if wanted <= trainer.loaders:
        steps = [Step(text="give the job more CPUs: it has as many loaders as its share of them allows"), *_LESS_WORK]
    return view.found(
        trainer,
        severity,  # type: ignore[arg-type]
        f"waits for its {trainer.loaders} loaders: too few of them",
        evidence=(busy(view, trainer), *_loaders(view, trainer), cores(view, trainer)),
        steps=tuple(steps),
        confidence=view.confidence(0.7, blocked, pressure),
        lost_share=trainer.lost,
    )


def _loaders(view: View, trainer: Trainer) -> Iterator[Evidence]:
    if trainer.loaders and trainer.loader_cpu is not None:
        each = 100 * trainer.loader_cpu
        text = f"{trainer.loaders} loaders, each {each:.0f} % of a core"
        yield Evidence(text=text, value=each, unit="%", limit=100 * view.limit("loader_cpu"))

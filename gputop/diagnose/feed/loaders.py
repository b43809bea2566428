"""Rules about loaders that keep every CPU busy, and about too few of them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

from gputop import num_workers
from gputop.diagnose.cpu.blas import several_threads, slow
from gputop.diagnose.cpu.pinning import pinned
from gputop.diagnose.dataloader import settings
from gputop.diagnose.feed.filled import Filled, by_turns, filled, in_use, limited, on_share
from gputop.diagnose.finding import Evidence, Finding, Severity, Step
from gputop.diagnose.looking import stack
from gputop.diagnose.room import full, has_room, idle_cpus, share
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.starved import (
    at_most,
    busy,
    cores,
    each_loader,
    guessed,
    oversubscribed,
    runs_out,
    starved,
    throttled,
    workers,
)
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.usage.programs import serves, torchlike
from gputop.diagnose.view import View

_LESS_WORK = (
    Step(text="cache what is the same in every epoch: decoded, resized, tokenised"),
    Step(text="resize before anything else; a faster decoder (turbojpeg, pillow-simd)"),
    Step(text="more CPU cores for this job, or a host with more; more loaders would not help"),
)


_LOOK = "see what its main thread waits for: the DataLoader, or environments that step"
_ON_THE_GPU = "decode and augment on the GPU (DALI, torchvision v2)"
_IF = "if they are loaders: "


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
    of_host=True,
)
def starved_cpu_saturated(view: View) -> Iterator[Finding]:
    """The GPU waits and every CPU it may use is busy loading, or its share of them has as many loaders as fit."""
    for trainer in view.trainers():
        if not view.knows(trainer, "duty", "cores", "allowed") or not starved(view, trainer) or serves(trainer):
            continue
        full_with, severity = filled(view, trainer), view.by_share(trainer.lost)
        if full_with is None:
            continue
        view.once(("filled", trainer.identity), lambda: True)
        if severity is not None and not oversubscribed(view, trainer) and not throttled(view, trainer):
            yield _too_slow(view, trainer, severity, full_with)


def _too_slow(view: View, trainer: Trainer, severity: Severity, full_with: Filled) -> Finding:
    using = {name for process in trainer.tree for name in process.libraries}
    several, unsure = several_threads(view, trainer), guessed(trainer)
    sure = trainer.loaders >= 1 and view.above(trainer.loader_cpu, "loader_cpu")
    return view.found(
        trainer,
        "warn" if unsure and severity == "crit" else severity,
        f"waits for CPU work {f'of its {workers(trainer)}' if unsure else 'on its input'}{full_with.how}",
        evidence=(busy(view, trainer), full_with.cores, *_loaders(view, trainer), *full_with.more),
        steps=(
            *_look(view, trainer, unsure),
            *full_with.first,
            *(_one_thread(view, trainer, using) if several else ()),
            Step(text=f"{_IF if unsure else ''}do less for each sample, {at_most(trainer)}: {_ON_THE_GPU}"),
            *(_LESS_WORK[:-1] if full_with.first or pinned(view.against, trainer) else _LESS_WORK),
            *full_with.last,
        ),
        confidence=view.confidence(
            0.6 if unsure else 0.9 if sure else 0.75, None if several and not using else trainer.loaders
        ),
        lost_share=trainer.lost,
    )


def _look(view: View, trainer: Trainer, unsure: bool) -> Iterator[Step]:
    if unsure:
        yield stack(view, trainer.process, _LOOK)


def _one_thread(view: View, trainer: Trainer, using: Collection[str]) -> Iterator[Step]:
    """For loaders with a pool of threads each, of these libraries; of OpenBLAS on an Intel CPU another rule tells."""
    if slow(using, view.frame.host.cpu_model or "") and view.above(trainer.saturation, "openblas-on-intel.saturation"):
        return
    whose = "" if using else ", whose library is hidden"
    yield Step(
        text=f"each loader computes with several threads{whose}: first try one thread a loader",
        command="export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1",
    )


@rule(
    "starved-cpu-idle",
    "Would more loaders feed the GPU?",
    level=Level.STARVED,
    state="input wait",
    short="WAIT",
    confirmed_by=("waits-for-data", "input-bound"),
    number="R05",
    rows=(4, 11, 33, 35, 45, 66),
    needs=("busy_percent", "cpu_percent", "allowed_cpus", "cpus_total"),
    of_host=True,
)
def starved_cpu_idle(view: View) -> Iterator[Finding]:
    """The GPU waits, every loader works as fast as it can, and there is room for more, its own and the machine's."""
    for trainer in view.trainers():
        if trainer.loaders < 1 or not view.knows(trainer, "duty", "cores", "allowed", "loader_low"):
            continue
        busy_loaders = limited(view, trainer) or by_turns(view, trainer)
        if not busy_loaders or not view.below(trainer.saturation, "saturation"):
            continue
        severity = view.by_share(trainer.lost)
        if severity is None or not starved(view, trainer) or runs_out(view, trainer):
            continue
        if view.cpus() is None or not view.knows(view.frame.host, "cpu_percent") or full(view.against):
            continue
        if view.once(("filled", trainer.identity), lambda: False) or not has_room(view, trainer):
            continue  # the rule before this one speaks of it
        if view.above(spare := idle_cpus(view, trainer), "spare"):
            yield _too_few(view, trainer, severity, spare or 0.0)


def _too_few(view: View, trainer: Trainer, severity: Severity, spare: float) -> Finding:
    """`spare`: CPUs of the machine that it may take beside its own."""
    mine = share(view, trainer)
    more = trainer.loaders + max(1, math.floor(spare))
    wanted = min(num_workers.fitting(trainer.loaders * view.limit("more") / (trainer.duty or 1.0), mine.cpus), more)
    # what is left of CPUs that nobody else has is room for one, though it would be the trainer's
    wanted = max(wanted, trainer.loaders + 1)
    unsure, torch, together = guessed(trainer), torchlike(trainer), len(mine.who) > 1
    times = at_most(trainer, wanted / trainer.loaders)
    command = f"DataLoader(..., num_workers={wanted}, {settings(trainer)}, prefetch_factor=4)"
    used = (in_use(mine), on_share(trainer, mine)) if together else (cores(view, trainer),)
    return view.found(
        trainer,
        "warn" if unsure and severity == "crit" else severity,
        f"waits for its {workers(trainer)}: too few of them{', perhaps' if unsure else ''}",
        evidence=(busy(view, trainer), *_loaders(view, trainer), *used),
        steps=(
            *_look(view, trainer, unsure),
            Step(
                text=f"{_IF if unsure else ''}use more{' of them' if unsure else ' loaders'}: {times}",
                command=command if torch else None,
            ),
            Step(text="then try some more and some fewer: the best number is where samples per second stop growing"),
        ),
        confidence=view.confidence(0.5 if unsure else 0.7, trainer.loader_blocked, view.mean("host", "io_pressure")),
        lost_share=trainer.lost,
    )


def _loaders(view: View, trainer: Trainer) -> Iterator[Evidence]:
    if trainer.loaders and trainer.loader_cpu is not None:
        each, waits = 100 * trainer.loader_cpu, trainer.loader_blocked or 0.0
        text = f"{each_loader(trainer)} {each:.0f} % of a core"
        if waits >= view.limit("starved.blocked"):
            text += f" + blocked on storage {100 * waits:.0f} % = {each + 100 * waits:.0f} % of its time"
        yield Evidence(text=text, value=each, unit="%", limit=100 * view.limit("loader_cpu"))

"""Rules about loaders that keep every CPU busy, and about too few of them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

from gputop.diagnose.cpu.blas import several_threads, slow
from gputop.diagnose.dataloader import settings
from gputop.diagnose.finding import Evidence, Finding, Severity, Step
from gputop.diagnose.looking import stack
from gputop.diagnose.room import fitting_loaders, full, idle_cpus, share_of_cpus
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.starved import (
    at_most,
    busy,
    cores,
    each_loader,
    guessed,
    loading,
    oversubscribed,
    runs_out,
    starved,
    throttled,
    told_to_load,
    waiting,
    workers,
)
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.usage.programs import serves, torchlike
from gputop.diagnose.view import View

_LESS_WORK = (
    Step(text="do less for each sample: decode and augment on the GPU (DALI, torchvision.transforms.v2, kornia)"),
    Step(text="cache what is the same in every epoch: decoded, resized, tokenised"),
    Step(text="resize before anything else; a faster decoder (turbojpeg, pillow-simd)"),
    Step(text="more CPU cores for this job, or a host with more; more loaders would not help"),
)


_LOOK = "see what its main thread waits for: the DataLoader, or environments that step"
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
)
def starved_cpu_saturated(view: View) -> Iterator[Finding]:
    """The GPU waits and every CPU it may use is busy loading."""
    for trainer in view.trainers():
        if not view.knows(trainer, "duty", "cores", "allowed") or not starved(view, trainer) or serves(trainer):
            continue
        loaders_busy = trainer.loaders >= 1 and view.above(trainer.loader_cpu, "loader_cpu")
        enough = trainer.loaders >= view.limit("loaders_share") * (trainer.allowed or math.inf)
        own = (view.above(trainer.saturation, "saturation") and _loads(view, trainer)) or (loaders_busy and enough)
        fill = () if own else _fill(view, trainer)
        severity = view.by_share(trainer.lost)
        if not (own or fill) or severity is None or oversubscribed(view, trainer) or throttled(view, trainer):
            continue
        using = {name for process in trainer.tree for name in process.libraries}
        several = several_threads(view, trainer)
        unsure = guessed(trainer)
        yield view.found(
            trainer,
            "warn" if unsure and severity == "crit" else severity,
            f"waits for CPU work {f'of its {workers(trainer)}' if unsure else 'on its input'}{_together(fill)}",
            evidence=(busy(view, trainer), cores(view, trainer), *_loaders(view, trainer), *_all_busy(view, fill)),
            steps=(
                *((stack(view, trainer.process, _LOOK),) if unsure else ()),
                *(_one_thread(view, trainer, using) if several else ()),
                Step(text=f"{_IF if unsure else ''}make the input cheaper: {at_most(trainer)}"),
                *_LESS_WORK,
                *_fewer(fill),
            ),
            confidence=view.confidence(
                0.6 if unsure else 0.9 if loaders_busy else 0.75, None if several and not using else trainer.loaders
            ),
            lost_share=trainer.lost,
        )


def _loads(view: View, trainer: Trainer) -> bool:
    """Whether its CPUs are busy with its input: an optimizer on the CPU keeps them as busy, one thread a single one."""
    if trainer.loaders:
        return loading(trainer)
    reads = view.above(trainer.taken, "loader-in-main.read_bytes_per_s") or told_to_load(view, trainer)
    return reads and view.above(trainer.cores, "loader-in-main.cores")


def _one_thread(view: View, trainer: Trainer, using: Collection[str]) -> Iterator[Step]:
    """For loaders with a pool of threads each, of these libraries; of OpenBLAS on an Intel CPU another rule tells."""
    if slow(using, view.frame.host.cpu_model or "") and view.above(trainer.saturation, "openblas-on-intel.saturation"):
        return
    whose = "" if using else ", whose library is hidden"
    yield Step(
        text=f"each loader computes with several threads{whose}: first try one thread a loader",
        command="export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1",
    )


def _fill(view: View, trainer: Trainer) -> Sequence[Trainer]:
    """Who keeps all CPUs of the machine busy with its input: this one, or several with it; nobody where others do."""
    if not full(view) or (total := view.cpus()) is None:
        return ()
    crowd = [one for one in view.vectors() if _loads_hard(view, one)] if _loads_hard(view, trainer) else []
    used = (view.mean("host", "cpu_percent") or 100.0) / 100 * total
    if len(crowd) > 1 and view.above(sum(one.cores or 0.0 for one in crowd) / used, "together"):
        return crowd
    if not _loads(view, trainer):
        return ()
    others = (other.cores or 0.0 for other in view.vectors() if other is not trainer)
    largest = (trainer.cores or 0.0) >= max(others, default=0.0)
    return (trainer,) if largest and (trainer.cores or 0.0) >= 0.5 * view.limit("host_percent") / 100 * total else ()


def _loads_hard(view: View, trainer: Trainer) -> bool:
    """Whether each of its loaders uses a CPU, or would if it had not to wait for one."""
    used = trainer.loader_cpu or 0.0
    return trainer.loaders > 0 and view.above(used + waiting(trainer.loader_wait, used), "loader_cpu")


def _jobs(fill: Sequence[Trainer]) -> int:
    return len({one.process.job or one.key for one in fill})


def _together(fill: Sequence[Trainer]) -> str:
    if len(fill) < 2:
        return ""
    whose = f"{jobs} experiments" if (jobs := _jobs(fill)) > 1 else f"{len(fill)} ranks"
    what = "those" if guessed(fill[0]) else "the loaders"
    return f": the CPUs of the machine are full with {what} of {whose}"


def _fewer(fill: Sequence[Trainer]) -> Iterator[Step]:
    if _jobs(fill) > 1:
        yield Step(text="run fewer experiments at a time on this machine: together they want more CPUs than it has")


def _all_busy(view: View, fill: Sequence[Trainer]) -> Iterator[Evidence]:
    percent = view.mean("host", "cpu_percent")
    if len(fill) > 1 and percent is not None:
        loaders, theirs = sum(one.loaders for one in fill), sum(one.cores or 0.0 for one in fill)
        text = f"all {view.frame.host.cpus_total} CPUs {percent:.0f} % busy, {theirs:.1f} with these: {loaders} loaders"
        yield Evidence(text=text, value=percent, unit="%", limit=view.limit("host_percent"))


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
)
def starved_cpu_idle(view: View) -> Iterator[Finding]:
    """The GPU waits, every loader works as fast as it can, and CPUs are idle, its own and the machine's: too few."""
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
        if not idle or waits or severity is None or not starved(view, trainer) or runs_out(view, trainer):
            continue
        if view.cpus() is None or not view.knows(view.frame.host, "cpu_percent") or full(view.against):
            continue
        if view.above(spare := idle_cpus(view, trainer), "spare"):
            yield _too_few(view, trainer, severity, spare or 0.0, (blocked, pressure))


def _too_few(
    view: View, trainer: Trainer, severity: Severity, spare: float, optional: tuple[float | None, ...]
) -> Finding:
    """`spare`: CPUs of the machine that it may take beside its own."""
    wanted = fitting_loaders(trainer.loaders * view.limit("more") / (trainer.duty or 1.0), share_of_cpus(view, trainer))
    wanted = min(wanted, trainer.loaders + max(1, math.floor(spare)))
    unsure, torch = guessed(trainer), torchlike(trainer)
    command = f"DataLoader(..., num_workers={wanted}, {settings(trainer)}, prefetch_factor=4)"
    steps = [
        Step(
            text=f"{_IF if unsure else ''}use more{' of them' if unsure else ' loaders'}: {at_most(trainer)}",
            command=command if torch else None,
        ),
        Step(text="then try some more and some fewer: the best number is where samples per second stop growing"),
    ]
    if wanted <= trainer.loaders:
        share = Step(text="give the job more CPUs: it has as many loaders as its share of those of the machine allows")
        steps = [share, *_LESS_WORK[:-1]]
    return view.found(
        trainer,
        "warn" if unsure and severity == "crit" else severity,
        f"waits for its {workers(trainer)}: too few of them{', perhaps' if unsure else ''}",
        evidence=(busy(view, trainer), *_loaders(view, trainer), cores(view, trainer)),
        steps=(*((stack(view, trainer.process, _LOOK),) if unsure else ()), *steps),
        confidence=view.confidence(0.5 if unsure else 0.7, *optional),
        lost_share=trainer.lost,
    )


def _loaders(view: View, trainer: Trainer) -> Iterator[Evidence]:
    if trainer.loaders and trainer.loader_cpu is not None:
        each = 100 * trainer.loader_cpu
        text = f"{each_loader(trainer)} {each:.0f} % of a core"
        yield Evidence(text=text, value=each, unit="%", limit=100 * view.limit("loader_cpu"))

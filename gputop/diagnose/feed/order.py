"""A rule about single slow samples, or one slow loader, that everybody waits for."""

from __future__ import annotations

from collections.abc import Iterator

from gputop.diagnose.cpu.pinning import pinned
from gputop.diagnose.finding import Evidence, Finding, Step
from gputop.diagnose.looking import stack
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.starved import (
    at_most,
    busy,
    guessed,
    nobody_reads,
    starved,
    waits_for_cpu,
    waits_for_network,
    waits_for_storage,
    workers,
)
from gputop.diagnose.storage import sources
from gputop.diagnose.storage.latency import latency
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.model import Process, Role


@rule(
    "head-of-line",
    "Do slow samples hold up the others?",
    level=Level.STARVED,
    state="input wait",
    short="WAIT",
    confirmed_by=("waits-for-data", "input-bound"),
    number="R47",
    rows=(33, 35, 62),
    needs=("busy_percent", "main_thread_percent", "cpu_percent", "blocked_percent", "allowed_cpus"),
)
def head_of_line(view: View) -> Iterator[Finding]:
    """The GPU waits, so does the main thread, and most loaders sleep, though neither CPU, disk nor network is short."""
    for trainer in view.trainers():
        if trainer.loaders < view.limit("loaders") or not view.knows(
            trainer, "duty", "main", "loader_cpu", "loader_blocked", "cores", "allowed"
        ):
            continue
        asleep = view.below(trainer.loader_cpu, "loader_cpu") and view.below(trainer.main, "main")
        if not asleep or not view.below(trainer.saturation, "saturation") or not starved(view, trainer):
            continue
        loaders = [process for process in trainer.tree if process.role is Role.LOADER]
        young = any((process.age_s or 0.0) < view.limit("window_s") for process in loaders)
        short = waits_for_cpu(view, trainer) or waits_for_storage(view, trainer) or waits_for_network(view)
        short = short or _may_be_served(view, trainer) or latency(view.against, trainer) is not None
        short = short or pinned(view.against, trainer) is not None
        severity = view.by_share(trainer.lost)
        if not young and not short and severity is not None:
            yield _held_up(view, trainer, loaders, severity)


def _may_be_served(view: View, trainer: Trainer) -> bool:
    """Whether it reads so much that a file server may be who gives it: who waits for one may just sleep.

    What the machine did not get from any disk or server came from memory; some file systems do not tell.
    """
    if (trainer.read_chars or 0.0) < view.limit("starved.reads_bytes_per_s"):
        return False
    return bool(sources.silent_mounts(view)) or not nobody_reads(view)


def _may_fetch(view: View, trainer: Trainer) -> bool:
    """Whether its data may come over the network, a little at a time: who waits for an answer sleeps as well."""
    little = view.limit("starved.quiet_bytes_per_s")
    received = view.mean("host", "receive_bytes_per_s", 30) or 0.0
    return received >= little or ((trainer.read_chars or 0.0) >= little and bool(sources.silent_mounts(view)))


def _held_up(view: View, trainer: Trainer, loaders: list[Process], severity: str) -> Finding:
    slow, fetches = _slowest(view, trainer, loaders), _may_fetch(view, trainer)
    each, main, blocked = (
        100 * (value or 0.0) for value in (trainer.loader_cpu, trainer.main, trainer.loader_blocked)
    )  # fmt: skip
    evidence = [
        busy(view, trainer),
        Evidence(
            text=f"its {trainer.loaders} loaders use {each:.0f} % of a core each and are blocked on storage "
            f"{blocked:.0f} % of the time",
            value=each,
            unit="%",
            limit=100 * view.limit("loader_cpu"),
        ),
        Evidence(text=f"its main thread waits for them: {main:.0f} % of a core", value=main, unit="%",
                 limit=100 * view.limit("main")),
    ]  # fmt: skip
    look = stack(view, slow[0] if slow else loaders[0], "see what a loader waits for")
    if slow:
        one, percent = slow
        evidence.insert(1, Evidence(text=f"loader {one.pid} uses {percent:.0f} % of a core", value=percent, unit="%"))
        steps: tuple[Step, ...] = (
            Step(text=f"split the data evenly among the loaders: {at_most(trainer)}"),
            look,
            *_STEPS,
        )
    else:
        steps = (look, *_STEPS) if fetches else (*_STEPS, look)
    return view.found(
        trainer,
        "warn" if severity == "crit" else severity,  # type: ignore[arg-type]
        f"waits for one of its {workers(trainer)}"
        if slow
        else _asleep(view, trainer) + (_or_fetched(view, trainer) if fetches else ""),
        evidence=tuple(evidence),
        steps=steps,
        confidence=view.confidence(0.55, _reads(view, trainer), view.mean("host", "receive_bytes_per_s")),
        lost_share=trainer.lost,
    )


def _or_fetched(view: View, trainer: Trainer) -> str:
    """What it may be instead, by name where there is one mount only that it may read from."""
    mounts, little = sources.silent_mounts(view), view.limit("starved.quiet_bytes_per_s")
    if len(mounts) == 1 and (trainer.read_chars or 0.0) >= little:
        return f", or reads from {mounts[0].path} ({mounts[0].file_system})"
    return ", or data that comes over the network"


def _asleep(view: View, trainer: Trainer) -> str:
    asleep = (trainer.loader_cpu or 0.0) <= view.limit("workers-oversized.asleep")
    whom = f"its {workers(trainer)}" if guessed(trainer) else "loaders"
    return f"waits for {whom} that {'mostly' if asleep else 'often'} sleep: single slow samples may hold up the rest"


def _reads(view: View, trainer: Trainer) -> float | None:
    """What it reads from storage: its own counts are for its owner, those of the machine for everybody."""
    return 0.0 if trainer.read_bytes is None and nobody_reads(view) else trainer.read_bytes


_STEPS = (
    Step(
        text="take batches as they are ready, not in order (PyTorch 2.6; runs are then not repeatable)",
        command="DataLoader(..., in_order=False)",
    ),
    Step(text="have more batches ready", command="DataLoader(..., prefetch_factor=8)"),
    Step(text="find the samples that take long: decode them beforehand, cap them, or sort by length"),
)


def _slowest(view: View, trainer: Trainer, loaders: list[Process]) -> tuple[Process, float] | None:
    """The loader that works for a minute while the others do not, and its CPU in percent of a core."""
    cores = view.mean(trainer, "cores", 60, whole=True)
    little = cores is not None and cores < view.limit("skewed_cpu")  # all together: no need to ask each
    if little or len(loaders) < view.limit("skewed_loaders"):
        return None
    means = [(view.mean(process, "cpu_percent", 60) or 0.0, process) for process in loaders]
    most, busiest = max(means, key=lambda one: one[0])
    mean = sum(percent for percent, _ in means) / len(means)
    skewed = most >= view.limit("skew") * mean and most / 100 >= view.limit("skewed_cpu")
    return (busiest, most) if skewed else None

"""What all rules about a GPU that waits have in common: whether it waits, and how that reads."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.diagnose.finding import Evidence
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View


def starved(view: View, trainer: Trainer) -> bool:
    """Whether the GPUs of a trainer run empty between its steps."""
    if trainer.compiling or trainer.duty is None or trainer.duty < view.limit("starved.least"):
        return False
    if not view.below(trainer.duty, "starved.duty"):
        return False
    return trainer.flat or trainer.shape is None or view.above(trainer.shape.empty, "starved.empty")


def oversubscribed(view: View, trainer: Trainer) -> bool:
    """Whether its threads are in each other's way: then a busy CPU says nothing about the work there is."""
    threads, allowed = trainer.compute_threads, trainer.allowed
    many = threads is not None and allowed is not None and threads > view.limit("starved.threads") * allowed
    return many and (trainer.run_wait or 0.0) >= view.limit("starved.run_wait")


def throttled(view: View, trainer: Trainer) -> bool:
    """Whether its CPU quota runs out, or other virtual machines take its CPUs."""
    steal = view.mean("host", "steal_percent") or 0.0
    return (trainer.throttled or 0.0) >= view.limit("starved.throttled") or steal > view.limit("starved.steal_percent")


def busy(trainer: Trainer) -> Evidence:
    """How busy its GPUs are, and in what rhythm."""
    gaps = ""
    if trainer.period and trainer.shape and not trainer.flat:
        gaps = f" in steps of {trainer.period.seconds:.1f} s, empty {100 * trainer.shape.empty:.0f} % of the time"
    elif trainer.shape and trainer.shape.high - trainer.shape.low <= 50:
        gaps = ", evenly: its steps are too short to see"
    duty = 100 * (trainer.duty or 0.0)
    return Evidence(text=f"GPU busy {duty:.0f} %{gaps}", value=duty, unit="%", limit=80.0)


def cores(trainer: Trainer) -> Evidence:
    """How much of the CPUs it may use it does use."""
    used, allowed = trainer.cores or 0.0, trainer.allowed or 0.0
    return Evidence(text=f"{used:.1f} of {allowed:.0f} CPU cores in use", value=used, unit="cores", limit=allowed)


def at_most(trainer: Trainer) -> str:
    """What could be won, as a bound and no promise."""
    return f"at most {1 / trainer.duty:.1f} times as fast" if trainer.duty else "faster"


def share_of_cpus(view: View, trainer: Trainer) -> float:
    """CPUs for each rank of its job on this machine."""
    ranks = sum(other.process.job == trainer.process.job for other in view.vectors()) if trainer.process.job else 1
    return (trainer.allowed or 1.0) / max(1, ranks)


def spread(percents: Sequence[float]) -> str:
    """From the least to the most: `12-31 %`, or `97 %` where they are the same."""
    least, most = f"{min(percents):.0f}", f"{max(percents):.0f}"
    return f"{least} %" if least == most else f"{least}-{most} %"


def fed(view: View, trainer: Trainer) -> bool:
    """Whether its GPUs are kept busy all the same: then what troubles its CPUs costs nothing."""
    return trainer.duty is not None and 100 * trainer.duty >= view.limit("gpu-bound-healthy.busy_percent")

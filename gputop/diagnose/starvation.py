"""Shared by all rules on waiting GPUs: whether a GPU waits, and the wording of the evidence."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from gputop import phrases
from gputop.diagnose.features import WINDOW_S
from gputop.diagnose.finding import Evidence
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.labels import amount
from gputop.model import Role
from gputop.phrases import Sense

EITHER = "main-thread-bound, data loading or kernel launches"
_UNSEEN = "steps are too short to be seen one by one"
_LEAST_S = 5.0  # of the window, between pauses
_NAMED = "pt_data_w"  # torch's thread name of a loader, from 2.5 on


def has_work(view: View, trainer: Trainer) -> bool:
    """Whether its GPUs have work: much, or a little at every sample, as fast GPUs that wait for batches."""
    return shows_work(
        trainer.duty, trainer.touched, trainer.loaders, trainer.cores, lambda name: view.limit(f"starved.{name}")
    )


def shows_work(
    duty: float | None, touched: float | None, loaders: int, cores: float | None, limit: Callable[[str], float]
) -> bool:
    """The same from plain values: utilization, share of samples with any work, and CPU use.

    A little work now and then beside idle CPUs does not count.
    """
    if duty is None or duty >= limit("least"):
        return duty is not None
    works = loaders > 0 or (cores or 0.0) >= limit("works")
    return works and duty > 0 and (touched or 0.0) >= limit("again")


def is_starting(view: View, trainer: Trainer) -> bool:
    """Whether it may still compile or prepare data: its context is young, and it has hardly worked."""
    young = (trainer.context_s or 0.0) < view.limit("gpu-idle-cpu-busy.begins_s")
    return young and trainer.work_s < view.limit("gpu-idle-cpu-busy.begun_s")


def is_starved(view: View, trainer: Trainer) -> bool:
    """Whether its GPUs are idle between steps, by the mean: samples may hide the gaps."""
    if trainer.compiling or not has_work(view, trainer):
        return False
    return view.below(duty_between(view, trainer), "starved.duty") and not is_shared(view, trainer)


def duty_between(view: View, trainer: Trainer) -> float | None:
    """GPU busy share between pauses that a rule explains; None if too little time is between them.

    While a checkpoint is written or workers start, a GPU does not wait for input.
    """
    seconds = max(1.0, min(WINDOW_S, trainer.phase_s))
    since_s = view.frame.mono_s - seconds
    explained = [one for one in view.pauses(trainer).since(since_s) if one.cause in ("save", "workers")]
    if not explained or trainer.duty is None:
        return trainer.duty
    shares = [(one.end_s - max(since_s, one.start_s), one.percent / 100) for one in explained]
    left_s = seconds - sum(length_s for length_s, _ in shares)
    if left_s < _LEAST_S:
        return None
    return (trainer.duty * seconds - sum(length_s * busy for length_s, busy in shares)) / left_s


def is_starved_at(view: View, trainer: Trainer, *, lenient: bool) -> bool:
    """The same outside a rule, for callers with their own hysteresis: `lenient` if starved at the last evaluation."""
    if trainer.compiling or trainer.duty is None or not has_work(view, trainer):
        return False
    return trainer.duty <= view.limit("starved.duty", 1 if lenient else 0) and not is_shared(view, trainer)


def has_gaps(view: View, trainer: Trainer) -> bool:
    """Whether samples show its GPUs idle; gaps shorter than a sample do not show."""
    seen = trainer.shape is not None and trainer.shape.empty >= view.limit("starved.empty")
    return seen and not trainer.has_no_gaps


def is_shared(view: View, trainer: Trainer) -> bool:
    """Whether other processes keep its GPUs busy: they are not idle, whatever its own share."""
    if not trainer.peers:
        return False
    means = [view.mean(gpu, "busy_percent", 30) for gpu in trainer.works_on]
    return any(mean is None or mean / 100 > view.limit("starved.duty") for mean in means)


def known_to_load(view: View, trainer: Trainer) -> bool:
    """Whether a stack, a trace or the program reported that its main thread loads data."""
    return has_fact(view, trainer, "loads-in-main")


def has_fact(view: View, trainer: Trainer, name: str) -> bool:
    """Whether a stack, a trace or the program reported this over more than a moment."""
    fact = view.fact(trainer, name)
    return fact is not None and (fact.witness != "stack" or (fact.share or 0.0) >= view.limit("engine.told_share"))


def is_single(trainer: Trainer) -> bool:
    """Whether it runs alone on one GPU: otherwise its main thread and GPUs may wait for each other's work."""
    several = trainer.is_rank or (trainer.job is not None and len(trainer.job.ranks) > 1)
    return not several and len(trainer.works_on) <= 1


def is_oversubscribed(view: View, trainer: Trainer) -> bool:
    """Whether its threads compete for its CPUs: a busy CPU then says nothing about the amount of work."""
    threads, room = trainer.compute_threads, trainer.thread_budget
    many = threads is not None and room is not None and threads > view.limit("starved.threads") * room
    return many and (trainer.run_wait or 0.0) >= view.limit("starved.run_wait")


def mostly_loads(trainer: Trainer) -> bool:
    """Whether it has loaders that use most of its CPU time, with their children."""
    used = trainer.cores or 0.0
    theirs = trainer.loaders * (trainer.loader_cpu or 0.0) if trainer.own is None else used - trainer.own
    return trainer.loaders > 0 and theirs >= used / 2


def is_throttled(view: View, trainer: Trainer) -> bool:
    """Whether its CPU quota is exhausted, or other virtual machines take its CPU time."""
    steal = view.mean("host", "steal_percent") or 0.0
    return quota_exhausted(view, trainer) or steal > view.limit("starved.steal_percent")


def quota_exhausted(view: View, trainer: Trainer) -> bool:
    """Whether its CPU quota is used up before the end of a period."""
    return (trainer.throttled or 0.0) >= view.limit("starved.throttled")


def waiting_threads(ratio: float | None, cores: float | None) -> float:
    """Mean number of threads waiting for a CPU, given `cores` in use and the wait per runnable time `ratio`.

    A thread that rarely runs may wait half of that time at no cost.
    """
    return (cores or 0.0) * (ratio or 0.0) / max(0.01, 1 - (ratio or 0.0))


def has_steal(view: View, trainer: Trainer) -> bool:
    """Whether steal time may cause the delay: a sleeping trainer has no CPU time to lose."""
    steal, used = view.mean("host", "steal_percent") or 0.0, view.mean("host", "cpu_percent") or 100.0
    return (trainer.cores or 0.0) * steal / max(1.0, used) >= view.limit("starved.waiting") * trainer.lost


def waits_for_cpu(view: View, trainer: Trainer) -> bool:
    """Whether its threads or loaders get too little CPU time for any reason, which may cause the delay."""
    waits = (
        (trainer.run_wait, trainer.own),
        (trainer.loader_wait, trainer.loader_cpu),
        (trainer.main_wait, trainer.main),
    )
    least = view.limit("starved.waiting") * trainer.lost
    if is_throttled(view, trainer) and (quota_exhausted(view, trainer) or has_steal(view, trainer)):
        return True
    return any(
        (ratio or 0.0) >= view.limit("starved.run_wait") and waiting_threads(ratio, used) >= least
        for ratio, used in waits
    )


def storage_idle(view: View) -> bool:
    """Whether no disk or file server transfers much for any process; visible without privileges."""
    reads = view.mean("host", "read_bytes_per_s", 30)
    return reads is not None and reads < view.limit("starved.reads_bytes_per_s")


def waits_for_storage(view: View, trainer: Trainer) -> bool:
    """Whether its loaders are seen to wait for storage, or read so much that they may."""
    if (trainer.read_bytes or 0.0) >= view.limit("starved.reads_bytes_per_s"):
        return True
    if trainer.loader_blocked is not None:
        return trainer.loader_blocked >= view.limit("starved.blocked")
    # pressure may be due to others, but where loaders cannot be read there is nothing else
    return (view.mean("host", "io_pressure", 30) or 0.0) >= view.limit("starved.io_percent")


def waits_for_network(view: View) -> bool:
    """Whether so much data arrives over the network that loaders may wait for it."""
    return (view.mean("host", "receive_bytes_per_s", 30) or 0.0) >= view.limit("starved.receives_bytes_per_s")


def busy_evidence(view: View, trainer: Trainer, limit: str = "starved.duty") -> Evidence:
    """GPU busy and the rhythm of the steps, as evidence."""
    how, shape = "", trainer.shape
    if (trainer.duty or 0.0) < view.limit("starved.least") and trainer.touched is not None:
        how = f", active in {100 * trainer.touched:.0f} % of the seconds"
    elif shape and not trainer.has_no_gaps:
        rhythm = f"rising and falling every {trainer.step_s:.1f} s" if trainer.step_s else _UNSEEN
        how = f", {rhythm}"
        how += f", fully idle {100 * shape.empty:.0f} % of the time" if has_gaps(view, trainer) else ""
    elif shape and shape.high - shape.low <= 50:
        how = f", steady: {_UNSEEN}"
    duty = 100 * (trainer.duty or 0.0)
    turns = f", {len(trainer.turns.uuids)} GPUs taking turns, summed" if trainer.turns else ""
    text = f"{trainer.reading(duty)}{turns}{how}"
    return Evidence(text=text, value=duty, unit="%", limit=100 * view.limit(limit), sense="healthy_from")


def cores_evidence(
    view: View, trainer: Trainer, limit: str | None = "saturation", *, sense: Sense = "flagged_below"
) -> Evidence:
    """CPU use against the CPUs it may use; `limit` is a share of them, None if another number decided."""
    used, allowed = trainer.cores or 0.0, trainer.allowed or 0.0
    by = " by one rank" if trainer.is_rank else ""  # the job's row on the screen is their sum
    text = f"{used:.1f} of {amount(allowed, 'CPU core')} in use{by}"
    if limit is None or sense == "flagged_below":  # what is held against a limit there is what is left
        free = f", {allowed - used:.0f} free" if limit is not None and allowed - used >= 1 and not by else ""
        return Evidence(text=f"{text}{free}", value=used, unit="cores")
    return Evidence(text=text, value=used, unit="cores", limit=view.limit(limit) * allowed, sense=sense)


def loaders_uncertain(trainer: Trainer) -> bool:
    """Whether its loaders are identified by parentage alone: forked environment simulators look the same."""
    return any(one.role is Role.LOADER and not one.name.startswith(_NAMED) for one in trainer.tree)


def loaders_text(trainer: Trainer) -> str:
    """`8 workers`, or what else they may be."""
    unsure = f"{amount(trainer.loaders, 'worker process')} (DataLoader or environments)"
    return unsure if loaders_uncertain(trainer) else amount(trainer.loaders, "worker")


def per_loader_text(trainer: Trainer) -> str:
    """`8 workers, each` or `1 worker,`, before a value per worker."""
    what = "worker process" if loaders_uncertain(trainer) else "worker"
    return f"{amount(trainer.loaders, what)},{' each' if trainer.loaders > 1 else ''}"


def upper_bound(trainer: Trainer, most: float = math.inf) -> str:
    """The upper bound of the gain; `most` is a further bound, such as the advised number of loaders."""
    return phrases.at_most(1 - trainer.duty, most) if trainer.duty else "faster"


def range_text(values: Sequence[float], unit: str = "%") -> str:
    """Range of values: `12-31 %`, or `97 %` if they are equal."""
    least, most = f"{min(values):.0f}", f"{max(values):.0f}"
    return f"{least} {unit}" if least == most else f"{least}-{most} {unit}"


def is_fed(view: View, trainer: Trainer) -> bool:
    """Whether its GPUs are busy anyway: CPU problems then cost nothing."""
    return trainer.duty is not None and 100 * trainer.duty >= view.limit("gpu-bound-healthy.busy_percent")

"""Rules on the number of DataLoader workers: too few, too many, or enough on saturated CPUs."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from gputop import num_workers, units
from gputop.diagnose.contention import contention
from gputop.diagnose.cpu_budget import (
    CpuShare,
    affinity,
    cpu_limit,
    cpu_share,
    cpus_saturated,
    fits_another_loader,
    idle_cpus,
    united_cpus,
)
from gputop.diagnose.finding import Evidence, Finding, Severity, Step
from gputop.diagnose.program_kind import may_use_torch, serves
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.rules.cpu.limits import pinned
from gputop.diagnose.rules.cpu.threads import several_threads, slow
from gputop.diagnose.rules.storage.sources import signs
from gputop.diagnose.starvation import (
    busy_evidence,
    cores_evidence,
    is_fed,
    is_oversubscribed,
    is_shared,
    is_starved,
    is_throttled,
    known_to_load,
    loaders_text,
    loaders_uncertain,
    mostly_loads,
    per_loader_text,
    quota_exhausted,
    upper_bound,
    waits_for_network,
    waits_for_storage,
)
from gputop.diagnose.steps import loader_settings, stack
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.labels import amount
from gputop.model import Role

_FEWER = Step(text="Run fewer experiments at a time on this machine: together they need more CPUs than it has")
_MORE = Step(text="Give the job more CPUs: its CPU share fits no more workers")


class Filled(NamedTuple):
    """Which processes saturate the CPUs, with evidence."""

    cores: Evidence  # cores in use
    more: tuple[Evidence, ...] = ()
    how: str = "CPU saturated"  # end of the headline
    first: tuple[Step, ...] = ()  # before all other steps
    last: tuple[Step, ...] = ()


def filled(view: View, trainer: Trainer) -> Filled | None:
    """Whether its loaders lack CPUs: its own, those of the machine, or its share of them."""
    return _own_cpus_full(view, trainer) or _machine_full(view, trainer) or _share_full(view, trainer)


def limited(view: View, trainer: Trainer, table: str = "") -> bool:
    """Whether every loader is limited by one CPU, and waits for nothing else as far as known.

    `table`: where its numbers are, if not in the table of the rule.
    """
    if trainer.loaders < 1 or not view.above(trainer.loader_low, f"{table}loader_cpu"):
        return False
    if view.against.above(trainer.loader_cpu, "openblas-on-intel.loader_cores"):
        return False  # each computes with several threads: one CPU does not limit it
    blocked, pressure = trainer.loader_blocked, view.mean("host", "io_pressure")
    waits = blocked is not None and not view.below(blocked, f"{table}blocked")
    return not waits and (pressure is None or view.below(pressure, f"{table}io_percent"))


def by_turns(view: View, trainer: Trainer) -> bool:
    """Whether every loader computes or waits for a file and hardly ever rests, with no storage at its limit.

    Neither is the limit then: each loader does one after the other, and more of them overlap the two.
    """
    computes, waits = trainer.loader_low, trainer.loader_blocked
    if not trainer.loaders or computes is None or waits is None or trainer.loader_cpu is None:
        return False
    both = view.above(computes + waits, "starved-cpu-idle.both") and view.above(computes, "starved-cpu-idle.least_cpu")
    return (
        both and not view.above(trainer.loader_cpu, "starved-cpu-idle.loader_cpu") and not signs(view, trainer).enough
    )


def in_use(mine: CpuShare) -> Evidence:
    """CPUs in use by all that share them: its own use says little."""
    known = [one.cores for one in mine.sharers if one.cores is not None]  # unknown for a new one
    used, at_least = sum(known), "at least " if len(known) < len(mine.sharers) else ""
    text = f"{at_least}{used:.1f} of {amount(mine.total, 'CPU core')} in use by {_owners_text(mine.sharers)}"
    return Evidence(text=text, value=used, unit="cores")


def on_share(trainer: Trainer, mine: CpuShare) -> Evidence:
    """Its loaders, and how many fit into its share."""
    what = "worker process" if loaders_uncertain(trainer) else "worker"
    text = f"{amount(trainer.loaders, what)} on its share of {amount(round(mine.cpus, 1), 'CPU')}"
    most = num_workers.maximum(mine.cpus)
    text += f", which fits {amount(most, 'worker')}"
    return Evidence(text=text, value=trainer.loaders, unit="loaders", limit=most, sense="flagged_above")


def _own_cpus_full(view: View, trainer: Trainer) -> Filled | None:
    """CPUs saturated by cores in use or by its number of loaders, whichever is at its limit."""
    limit = "starved-cpu-saturated.saturation"
    enough = view.limit("starved-cpu-saturated.loaders_share") * (trainer.allowed or math.inf)
    many = trainer.loaders >= max(1.0, enough) and view.above(trainer.loader_cpu, "starved-cpu-saturated.loader_cpu")
    saturated = view.above(trainer.saturation, limit) and _cpus_busy_loading(view, trainer)
    if saturated and (not many or (trainer.saturation or 0.0) >= view.limit(limit)):
        return Filled(cores_evidence(view, trainer, limit, sense="flagged_above"))
    text = f"{amount(trainer.loaders, 'worker')} on {amount(trainer.allowed or 0.0, 'CPU')}"
    number = Evidence(text=text, value=trainer.loaders, unit="loaders", limit=enough, sense="flagged_above")
    return Filled(cores_evidence(view, trainer, None), (number,)) if many else None


def _machine_full(view: View, trainer: Trainer) -> Filled | None:
    """All CPUs of the machine are busy with its input, or with that of several trainers including it."""
    if not cpus_saturated(view) or (total := view.cpus()) is None:
        return None
    percent = view.mean("host", "cpu_percent") or 100.0
    if not (crowd := _crowd(view, trainer, percent / 100 * total, total)):
        return None
    loaders, theirs = sum(one.loaders for one in crowd), sum(one.cores or 0.0 for one in crowd)
    by = "these trainers" if len(crowd) > 1 else "this trainer"
    busy = Evidence(
        text=f"all {total} CPUs {percent:.0f} % busy, {theirs:.1f} of them by {by} ({amount(loaders, 'worker')})",
        value=percent,
        unit="%",
        limit=view.limit("starved-cpu-saturated.host_percent"),
        sense="flagged_above",
    )
    how = f"CPU saturated by {_owners_text(crowd)}" if len(crowd) > 1 else "CPU saturated"
    return Filled(cores_evidence(view, trainer, None), (busy,), how, last=(_FEWER,) if _jobs(crowd) > 1 else ())


def _share_full(view: View, trainer: Trainer) -> Filled | None:
    """No further loader fits into its share, whatever the others need: taking theirs would be advised to all.

    A trainer with exclusive CPUs is judged by what they have left.
    """
    if not limited(view, trainer, "starved-cpu-idle.") or fits_another_loader(view.against, trainer):
        return None
    mine = cpu_share(view, trainer)
    if len(mine.sharers) > 1:
        how = "its CPU share fits no more workers"
        return Filled(in_use(mine), (on_share(trainer, mine),), how, first=(_MORE,))
    least = view.limit("starved-cpu-idle.spare")
    left = mine.total - (trainer.cores or 0.0)
    text = f"{max(0.0, left):.1f} of a core left for another worker"
    spare = Evidence(text=text, value=left, unit="cores", limit=least, sense="flagged_below")
    return Filled(cores_evidence(view, trainer, None), (spare,))


def _cpus_busy_loading(view: View, trainer: Trainer) -> bool:
    """Whether its CPUs are busy with input: an optimizer on the CPU saturates them, one thread a single CPU."""
    if trainer.loaders:
        return mostly_loads(trainer)
    reads = view.above(trainer.input_rate, "loader-in-main.read_bytes_per_s") or known_to_load(view, trainer)
    return reads and view.above(trainer.cores, "loader-in-main.cores")


def _crowd(view: View, trainer: Trainer, used: float, total: int) -> Sequence[Trainer]:
    """Trainers, including this one, that use most of the CPUs in use; empty if others do."""
    crowd = contention(view).loaders
    if any(one.identity == trainer.identity for one in crowd):
        view.above(sum(one.cores or 0.0 for one in crowd) / used, "starved-cpu-saturated.together")
        return crowd
    if not _cpus_busy_loading(view, trainer):
        return ()
    others = (other.cores or 0.0 for other in view.vectors() if other is not trainer)
    own, half = trainer.cores or 0.0, 0.5 * view.limit("starved-cpu-saturated.host_percent") / 100 * total
    return (trainer,) if own >= max([half, *others]) else ()


def _jobs(some: Sequence[Trainer]) -> int:
    return len({one.process.job or one.key for one in some})


def _owners_text(some: Sequence[Trainer]) -> str:
    return f"{jobs} experiments" if (jobs := _jobs(some)) > 1 else f"{len(some)} ranks"


_LESS_WORK = (
    Step(text="Cache what is the same in every epoch: decoded, resized, tokenized samples"),
    Step(text="Resize first, and use a faster decoder (turbojpeg, pillow-simd)"),
    Step(text="Give the job more CPU cores, or a host with more: more workers would not help"),
)


_LOOK = "Check what its main thread waits for: the DataLoader, or environment steps"
_ON_THE_GPU = "decode and augment on the GPU (DALI, torchvision v2)"
_IF = "If they are DataLoader workers, "


@rule(
    "starved-cpu-saturated",
    "Is the CPU too slow for the DataLoader workers?",
    level=Level.STARVED,
    state="dataloader",
    short="DATA",
    confirmed_by=("waits-for-data", "input-bound"),
    needs=("busy_percent", "cpu_percent", "allowed_cpus"),
    partly=("cpus_total",),
    of_host=True,
)
def starved_cpu_saturated(view: View) -> Iterator[Finding]:
    """The GPU waits while workers saturate every CPU it may use, or its share of the CPUs has no room for more."""
    for trainer in view.trainers():
        if not view.knows(trainer, "duty", "cores", "allowed") or not is_starved(view, trainer) or serves(trainer):
            continue
        full_with, severity = filled(view, trainer), view.by_share(trainer.lost)
        if full_with is None:
            continue
        view.cached(("filled", trainer.identity), lambda: True)
        if severity is not None and not is_oversubscribed(view, trainer) and not is_throttled(view, trainer):
            yield _saturated_finding(view, trainer, severity, full_with)


def _saturated_finding(view: View, trainer: Trainer, severity: Severity, full_with: Filled) -> Finding:
    using = {name for process in trainer.tree for name in process.libraries}
    several, unsure = several_threads(view, trainer), loaders_uncertain(trainer)
    sure = trainer.loaders >= 1 and view.above(trainer.loader_cpu, "loader_cpu")
    reduce = f"{_IF}reduce" if unsure else "Reduce"
    return view.found(
        trainer,
        "warn" if unsure and severity == "crit" else severity,
        f"{'possibly ' if unsure else ''}dataloader-bound, {full_with.how}",
        evidence=(busy_evidence(view, trainer), full_with.cores, *_loaders(view, trainer), *full_with.more),
        steps=(
            *_look(view, trainer, unsure),
            *full_with.first,
            *(_one_thread(view, trainer, using) if several else ()),
            Step(text=f"{reduce} CPU work per sample, {upper_bound(trainer)}: {_ON_THE_GPU}"),
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
    """For loaders with a thread pool of these libraries; OpenBLAS on Intel is covered by another rule."""
    if slow(using, view.frame.host.cpu_model or "") and view.above(trainer.saturation, "openblas-on-intel.saturation"):
        return
    hidden = "" if using else " (library hidden)"
    yield Step(
        text=f"Try one compute thread per worker: each uses several{hidden}",
        command="export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1",
    )


@rule(
    "starved-cpu-idle",
    "Would more DataLoader workers feed the GPU?",
    level=Level.STARVED,
    state="dataloader",
    short="DATA",
    confirmed_by=("waits-for-data", "input-bound"),
    needs=("busy_percent", "cpu_percent", "allowed_cpus", "cpus_total"),
    of_host=True,
)
def starved_cpu_idle(view: View) -> Iterator[Finding]:
    """The GPU waits, every worker is CPU-limited, and idle CPUs leave room for more workers."""
    for trainer in view.trainers():
        if trainer.loaders < 1 or not view.knows(trainer, "duty", "cores", "allowed", "loader_low"):
            continue
        busy_loaders = limited(view, trainer) or by_turns(view, trainer)
        if not busy_loaders or not view.below(trainer.saturation, "saturation"):
            continue
        severity = view.by_share(trainer.lost)
        if severity is None or not is_starved(view, trainer) or quota_exhausted(view, trainer):
            continue
        if view.cpus() is None or not view.knows(view.frame.host, "cpu_percent") or cpus_saturated(view.against):
            continue
        if view.cached(("filled", trainer.identity), lambda: False) or not fits_another_loader(view, trainer):
            continue  # the previous rule covers it
        if view.above(spare := idle_cpus(view, trainer), "spare"):
            yield _too_few_finding(view, trainer, severity, spare or 0.0)


def _too_few(trainer: Trainer) -> str:
    return f"{loaders_text(trainer)} {'is' if trainer.loaders == 1 else 'are'} too few"


def _too_few_finding(view: View, trainer: Trainer, severity: Severity, spare: float) -> Finding:
    """`spare`: CPUs of the machine it may take besides its own."""
    mine = cpu_share(view, trainer)
    more = trainer.loaders + max(1, math.floor(spare))
    wanted = min(num_workers.fitting(trainer.loaders * view.limit("more") / (trainer.duty or 1.0), mine.cpus), more)
    # a fraction of an exclusive CPU is room for one loader, although the trainer may need it
    wanted = max(wanted, trainer.loaders + 1)
    unsure, torch, together = loaders_uncertain(trainer), may_use_torch(trainer), len(mine.sharers) > 1
    times = upper_bound(trainer, wanted / trainer.loaders)
    command = f"DataLoader(..., num_workers={wanted}, {loader_settings(trainer)}, prefetch_factor=4)"
    used = (in_use(mine), on_share(trainer, mine)) if together else (cores_evidence(view, trainer),)
    return view.found(
        trainer,
        "warn" if unsure and severity == "crit" else severity,
        f"{'possibly ' if unsure else ''}dataloader-bound, {_too_few(trainer)}",
        evidence=(busy_evidence(view, trainer), *_loaders(view, trainer), *used),
        steps=(
            *_look(view, trainer, unsure),
            Step(
                text=f"{f'{_IF}r' if unsure else 'R'}aise num_workers to {wanted}: {times}"
                if torch
                else f"{f'{_IF}u' if unsure else 'U'}se {amount(wanted, 'worker')}: {times}",
                command=command if torch else None,
            ),
            Step(text="Then try a few more and a few fewer: the best number is where samples/s stop growing"),
        ),
        confidence=view.confidence(0.5 if unsure else 0.7, trainer.loader_blocked, view.mean("host", "io_pressure")),
        lost_share=trainer.lost,
    )


def _loaders(view: View, trainer: Trainer) -> Iterator[Evidence]:
    if trainer.loaders and trainer.loader_cpu is not None:
        each, waits = 100 * trainer.loader_cpu, trainer.loader_blocked or 0.0
        text = f"{per_loader_text(trainer)} {each:.0f} % of a core"
        if waits >= view.limit("starved.blocked"):
            text += f" + blocked on storage {100 * waits:.0f} % = {each + 100 * waits:.0f} % of its time"
        yield Evidence(text=text, value=each, unit="%", limit=100 * view.limit("loader_cpu"), sense="flagged_above")


@rule(
    "workers-oversized",
    "Are there more workers than CPUs, or more than there is work for?",
    level=Level.NEVER,
    needs=("busy_percent", "cpu_percent", "allowed_cpus"),
    partly=("cpus_total",),
)
def workers_oversized(view: View) -> Iterator[Finding]:
    """A job with more workers than CPUs, or many that are nearly idle; not if they wait for data."""
    for trainer in view.trainers():
        if not trainer.loaders or not view.knows(trainer, "duty", "allowed", "loader_cpu"):
            continue
        asleep = view.against.below(trainer.loader_cpu, "asleep")
        # sleeping loaders may wait for data
        if is_shared(view, trainer) or (asleep and (not is_fed(view, trainer) or _loaders_wait(view, trainer))):
            continue
        ranks = view.mates(trainer)
        total, cpus = sum(rank.loaders for rank in ranks), math.inf
        if total > (trainer.allowed or math.inf):
            cpus = _cpus(view, ranks) or math.inf
        if total > _fitting_loaders(cpus) and _active_loaders(view, ranks) > _fitting_loaders(cpus):
            if pinned(view.against, trainer) is not None:
                continue  # they need more CPUs, which are idle
            yield _too_many_finding(view, trainer, ranks, total, cpus)
        elif asleep and view.below(trainer.loader_cpu, "unneeded") and trainer.loaders >= view.limit("loaders"):
            yield from _unneeded_findings(view, trainer)
    yield from _all_jobs_findings(view)


def _fitting_loaders(cpus: float) -> float:
    """Loaders that fit these CPUs: a fraction left by a quota is room for one more."""
    return math.inf if math.isinf(cpus) else max(1, math.ceil(cpus))


def _active_loaders(view: View, ranks: Sequence[Trainer]) -> int:
    """Loaders at work: validation loaders kept for the next epoch use no CPU."""
    loaders = [process for rank in ranks for process in rank.tree if process.role is Role.LOADER]
    used = [view.mean(process, "cpu_percent") for process in loaders]
    return sum(percent is None or percent / 100 >= view.limit("resting") for percent in used)


def _loaders_wait(view: View, trainer: Trainer) -> bool:
    return waits_for_storage(view, trainer) or waits_for_network(view)


def _cpus(view: View, ranks: Sequence[Trainer]) -> float | None:
    """CPUs that the ranks of a job share; if unknown, this rule abstains."""
    return united_cpus([cpu_limit(rank.process) for rank in ranks], view.frame.host.cpus_total) or view.cpus()


def _too_many_finding(view: View, trainer: Trainer, ranks: Sequence[Trainer], total: int, cpus: float) -> Finding:
    wanted, seen = num_workers.maximum(cpus / len(ranks)), len(affinity(trainer.process))
    each, few = amount(trainer.loaders, "worker"), units.cpus(cpus)
    counted = f"{len(ranks)} ranks with {each} each, {total}" if len(ranks) > 1 else f"{total}"
    text = f"{counted} workers on {amount(cpus, 'allowed CPU')}"
    evidence = [Evidence(text=text, value=total, unit="loaders", limit=cpus, sense="flagged_above"), _each(trainer)]
    if seen > cpus:
        evidence.append(Evidence(text=f"PyTorch detects {seen} CPUs and does not warn: the quota allows {few}"))
    return view.found(
        trainer,
        "info" if is_fed(view, trainer) else "warn",
        f"too many workers, {total} on {amount(cpus, 'CPU')}",
        evidence=tuple(evidence),
        steps=tuple(_fewer_steps(wanted, max(rank.loaders for rank in ranks))),
        confidence=0.75,
    )


def _fewer_steps(wanted: int, most: int) -> Iterator[Step]:
    """Workers per rank; if no rank has more than these, there are too many ranks."""
    if wanted >= most:
        yield Step(
            text=f"Use more CPUs or fewer ranks: with {amount(most, 'worker')} each there are more workers than CPUs"
        )
        return
    command = f"DataLoader(..., num_workers={wanted})"
    yield Step(text=f"Lower num_workers to {wanted}: no more workers than CPUs", command=command)
    yield Step(text="Then try a few more and a few fewer: two often suffice for cheap samples")


def _unneeded_findings(view: View, trainer: Trainer) -> Iterator[Finding]:
    """A clearly smaller number that would do the same work at moderate load."""
    work = trainer.loaders * (trainer.loader_cpu or 0.0)
    wanted = max(2, math.ceil(work / view.limit("pace")))
    if 2 * wanted > trainer.loaders:
        return
    duty = 100 * (trainer.duty or 0.0)
    yield view.found(
        trainer,
        "info",
        f"too many workers, {trainer.loaders} for the work of {wanted}",
        evidence=(
            _each(trainer, 100 * view.limit("unneeded")),
            Evidence(text=trainer.reading(duty), value=duty, unit="%"),
            Evidence(text="each worker holds memory, and prefetched batches in /dev/shm"),
        ),
        steps=(
            Step(
                text=f"Lower num_workers to {wanted}, unless samples come slowly from a server",
                command=f"DataLoader(..., num_workers={wanted})",
            ),
        ),
        confidence=view.confidence(0.75, trainer.loader_blocked, trainer.read_bytes),
    )


def _each(trainer: Trainer, limit: float | None = None) -> Evidence:
    each = 100 * (trainer.loader_cpu or 0.0)
    of = "its worker" if trainer.loaders == 1 else f"each of its {trainer.loaders} workers"
    return Evidence(text=f"{of} uses {each:.0f} % of a core", value=each, unit="%", limit=limit, sense="flagged_below")


def _all_jobs_findings(view: View) -> Iterator[Finding]:
    """All jobs together have more active loaders than the machine has CPUs."""
    busy = [trainer for trainer in view.vectors() if trainer.warm and trainer.loaders and trainer.loader_cpu]
    total = sum(trainer.loaders for trainer in busy)
    jobs = {trainer.process.job or trainer.identity for trainer in busy}
    if len(jobs) < 2 or any(
        trainer.allowed is None or trainer.loaders > _fitting_loaders(trainer.allowed) for trainer in busy
    ):
        return
    cpus = view.cpus()
    if cpus is None or total <= cpus:
        return
    if any(trainer.duty is None for trainer in busy):  # already reported individually
        return
    mean = sum(trainer.loaders * (trainer.loader_cpu or 0.0) for trainer in busy) / total
    host = view.host()
    if view.against.below(mean, "asleep"):
        return
    text = f"{total} workers of {len(jobs)} jobs on {cpus} CPUs, each {100 * mean:.0f} % of a core"
    yield view.found(
        host,
        "info" if all(is_fed(view, trainer) for trainer in busy) else "warn",
        f"too many workers, {total} on {cpus} CPUs",
        evidence=(Evidence(text=text, value=total, unit="loaders", limit=float(cpus), sense="flagged_above"),),
        steps=(_fewer_for_all(num_workers.maximum(cpus / len(busy)), max(trainer.loaders for trainer in busy)),),
        confidence=0.75,
    )


def _fewer_for_all(wanted: int, most: int) -> Step:
    if wanted >= most:
        each = amount(most, "worker")
        return Step(text=f"Run fewer jobs at a time: with {each} each there are more workers than CPUs")
    return Step(text=f"Lower num_workers to {wanted} in each trainer", command=f"DataLoader(..., num_workers={wanted})")

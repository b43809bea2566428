"""A rule about more loaders than there are CPUs for, or than there is work for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from gputop import num_workers, units
from gputop.diagnose.cpu.pinning import pinned
from gputop.diagnose.finding import Evidence, Finding, Step
from gputop.diagnose.room import affinity, part, together
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.starved import fed, shared, waits_for_network, waits_for_storage
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.model import Role
from gputop.words import amount


@rule(
    "workers-oversized",
    "Are there more loaders than CPUs, or than there is work for?",
    level=Level.NEVER,
    number="R07",
    rows=(11, 60),
    needs=("busy_percent", "cpu_percent", "allowed_cpus"),
    partly=("cpus_total",),
)
def workers_oversized(view: View) -> Iterator[Finding]:
    """More of them in a job than CPUs it may use, or many with next to nothing to do; not where they wait for data."""
    for trainer in view.trainers():
        if not trainer.loaders or not view.knows(trainer, "duty", "allowed", "loader_cpu"):
            continue
        asleep = view.against.below(trainer.loader_cpu, "asleep")
        # loaders that sleep may be there for the sake of what they wait for
        if shared(view, trainer) or (asleep and (not fed(view, trainer) or _wait(view, trainer))):
            continue
        ranks = view.mates(trainer)
        total, cpus = sum(rank.loaders for rank in ranks), math.inf
        if total > (trainer.allowed or math.inf):
            cpus = _cpus(view, ranks) or math.inf
        if total > _most(cpus) and _at_work(view, ranks) > _most(cpus):
            if pinned(view.against, trainer) is not None:
                continue  # they want more CPUs, which are idle
            yield _too_many(view, trainer, ranks, total, cpus)
        elif asleep and view.below(trainer.loader_cpu, "unneeded") and trainer.loaders >= view.limit("loaders"):
            yield from _unneeded(view, trainer)
    yield from _of_all_jobs(view)


def _most(cpus: float) -> float:
    """Loaders that these CPUs are enough for: what a quota leaves of one is room for one more."""
    return math.inf if math.isinf(cpus) else max(1, math.ceil(cpus))


def _at_work(view: View, ranks: Sequence[Trainer]) -> int:
    """Loaders that work now: those of a validation that are kept for the next one take no CPU meanwhile."""
    loaders = [process for rank in ranks for process in rank.tree if process.role is Role.LOADER]
    used = [view.mean(process, "cpu_percent") for process in loaders]
    return sum(percent is None or percent / 100 >= view.limit("resting") for percent in used)


def _wait(view: View, trainer: Trainer) -> bool:
    return waits_for_storage(view, trainer) or waits_for_network(view)


def _cpus(view: View, ranks: Sequence[Trainer]) -> float | None:
    """CPUs that the ranks of a job share; where nobody knows, this rule says so."""
    return together([part(rank.process) for rank in ranks], view.frame.host.cpus_total) or view.cpus()


def _too_many(view: View, trainer: Trainer, ranks: Sequence[Trainer], total: int, cpus: float) -> Finding:
    wanted, seen = num_workers.most(cpus / len(ranks)), len(affinity(trainer.process))
    each, few = amount(trainer.loaders, "loader"), units.cpus(cpus)
    counted = f"{len(ranks)} ranks with {each} each, {total}" if len(ranks) > 1 else f"{total}"
    text = f"{counted} loaders on {amount(cpus, 'allowed CPU')}"
    evidence = [Evidence(text=text, value=total, unit="loaders", limit=cpus), _each(trainer)]
    if seen > cpus:
        evidence.append(Evidence(text=f"PyTorch sees {seen} CPUs and does not warn: a quota leaves {few}"))
    return view.found(
        trainer,
        "info" if fed(view, trainer) else "warn",
        f"runs {total} loaders on {amount(cpus, 'CPU')}",
        evidence=tuple(evidence),
        steps=tuple(_fewer(wanted, max(rank.loaders for rank in ranks))),
        confidence=0.75,
    )


def _fewer(wanted: int, most: int) -> Iterator[Step]:
    """So many loaders a rank; where none has more than these, there are too many ranks."""
    if wanted >= most:
        yield Step(
            text=f"more CPUs, or fewer ranks: with {amount(most, 'loader')} each there are more loaders than CPUs"
        )
        return
    yield Step(text="no more of them than CPUs", command=f"DataLoader(..., num_workers={wanted})")
    yield Step(text="then try some more and some fewer; two are often enough where samples are cheap")


def _unneeded(view: View, trainer: Trainer) -> Iterator[Finding]:
    """As many as would do the same work at a comfortable pace, if that is clearly fewer."""
    work = trainer.loaders * (trainer.loader_cpu or 0.0)
    wanted = max(2, math.ceil(work / view.limit("pace")))
    if 2 * wanted > trainer.loaders:
        return
    duty = 100 * (trainer.duty or 0.0)
    yield view.found(
        trainer,
        "info",
        f"has {trainer.loaders} loaders for the work of {wanted}",
        evidence=(
            _each(trainer, 100 * view.limit("unneeded")),
            Evidence(text=trainer.reading(duty), value=duty, unit="%"),
            Evidence(text="each of them holds memory, and prefetched batches in /dev/shm"),
        ),
        steps=(
            Step(
                text="fewer would feed it as well, unless samples come slowly from a server",
                command=f"DataLoader(..., num_workers={wanted})",
            ),
        ),
        confidence=view.confidence(0.75, trainer.loader_blocked, trainer.read_bytes),
    )


def _each(trainer: Trainer, limit: float | None = None) -> Evidence:
    each = 100 * (trainer.loader_cpu or 0.0)
    whose = "its loader" if trainer.loaders == 1 else f"each of its {trainer.loaders} loaders"
    text = f"{whose} uses {each:.0f} % of a core"
    return Evidence(text=text, value=each, unit="%", limit=limit)


def _of_all_jobs(view: View) -> Iterator[Finding]:
    """All jobs together have more loaders than the machine has CPUs, and they are at work."""
    busy = [trainer for trainer in view.vectors() if trainer.warm and trainer.loaders and trainer.loader_cpu]
    total = sum(trainer.loaders for trainer in busy)
    jobs = {trainer.process.job or trainer.identity for trainer in busy}
    if len(jobs) < 2 or any(trainer.allowed is None or trainer.loaders > _most(trainer.allowed) for trainer in busy):
        return
    cpus = view.cpus()
    if cpus is None or total <= cpus:
        return
    if any(trainer.duty is None for trainer in busy):  # those it is told of one by one
        return
    mean = sum(trainer.loaders * (trainer.loader_cpu or 0.0) for trainer in busy) / total
    host = view.host()
    if view.against.below(mean, "asleep"):
        return
    text = f"{total} loaders of {len(jobs)} jobs on {cpus} CPUs, each {100 * mean:.0f} % of a core"
    yield view.found(
        host,
        "info" if all(fed(view, trainer) for trainer in busy) else "warn",
        f"runs {total} loaders on {cpus} CPUs",
        evidence=(Evidence(text=text, value=total, unit="loaders", limit=float(cpus)),),
        steps=(_shared_out(num_workers.most(cpus / len(busy)), max(trainer.loaders for trainer in busy)),),
        confidence=0.75,
    )


def _shared_out(wanted: int, most: int) -> Step:
    if wanted >= most:
        return Step(text=f"fewer jobs at a time: with {amount(most, 'loader')} each there are more loaders than CPUs")
    return Step(text="share the CPUs among the trainers", command=f"DataLoader(..., num_workers={wanted})")

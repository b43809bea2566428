"""The questions of the diagnosis in their order, with the answers of one trainer: used, busy, whose wait, why."""

from __future__ import annotations

from collections.abc import Iterator

from gputop import units
from gputop.diagnose.answers import Answers, Asked
from gputop.diagnose.contention import contention
from gputop.diagnose.efficiency.chip import dram_of_top, tensor_of_top
from gputop.diagnose.starved import oversubscribed, used
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View

# why it waits, and for whom where it is one of several ranks, in the order in which that is looked for
_WHY = ("openblas-on-intel", "memory-pressure", "numa-misplacement", "cpu-slow", "checkpoint-stall")
_STORAGE = ("network-fs-bound", "io-bound", "io-small-files")
_RANKS = ("collective-wait", "network-bound", "straggler")


def flow(view: View, trainer: Trainer, answers: Answers) -> Iterator[Asked]:
    """What is asked of a trainer before its class; what is unknown is answered with that."""
    duty = trainer.duty
    works = used(view, trainer)
    yield "is its GPU used?", "not known" if duty is None else f"{'yes' if works else 'no'}, {duty:.0%} busy"
    if duty is None or not works:
        return
    enough = view.limit("gpu-bound-healthy.busy_percent") / 100
    yield _asked("is it busy nine tenths of the time?", duty, enough, "{:.0%}")
    yield from _work(view, trainer) if duty >= enough else _wait(view, trainer, answers)
    if trainer.ranked is None:
        yield "is it one of several ranks?", "not known, no world_size"
    elif trainer.ranked:
        yield from (answers.of(trainer, rule) for rule in _RANKS)
    if duty < enough:
        yield "do others take its CPUs or its disk?", _others(view, trainer)
        yield from (answers.of(trainer, rule) for rule in _WHY)


def _work(view: View, trainer: Trainer) -> Iterator[Asked]:
    """Busy: with what?"""
    table = "gpu-bound-healthy."
    known = trainer.tensor is not None or trainer.dram is not None or trainer.sm is not None
    best = "{:.0%} of the best there is"
    yield _asked("do its tensor cores work?", tensor_of_top(trainer), view.limit(f"{table}tensor"), best)
    yield _asked("is its memory near its limit?", dram_of_top(trainer), view.limit(f"{table}dram"), best)
    yield _asked("do its multiprocessors work?", trainer.sm, view.limit(f"{table}sm"), "{:.0%}")
    if not known:
        power = view.limit(f"{table}power_share")
        yield _asked("does it draw as much power as work needs?", trainer.power_share, power, "{:.0%}")


def _wait(view: View, trainer: Trainer, answers: Answers) -> Iterator[Asked]:
    """Not busy: who waits for whom, and why?"""
    yield _asked("is the main thread busy?", trainer.main, view.limit("loader-in-main.main"), "{:.2f} of a core")
    yield "does it have loaders?", f"yes, {trainer.loaders}" if trainer.loaders else "no"
    if trainer.loaders:
        loaders = view.limit("starved-cpu-idle.loader_cpu")
        yield _asked("are they busy?", trainer.loader_cpu, loaders, "each {:.2f} of a core")
        storage = view.limit("starved-cpu-idle.blocked")
        yield _asked("do they wait for storage?", trainer.loader_blocked, storage, "{:.0%} of them")
        if (trainer.loader_blocked or 0.0) >= storage:
            yield from (answers.of(trainer, rule) for rule in _STORAGE)
    limit, cpus = view.limit("starved-cpu-saturated.saturation"), units.cpus(trainer.allowed or 0.0)
    yield _asked("are all its CPUs busy?", trainer.saturation, limit, f"{{:.0%}} of {cpus}")
    full, how = view.limit("starved-cpu-saturated.host_percent"), "{:.0f} % of its CPUs in use"
    yield _asked("is the machine full?", view.mean("host", "cpu_percent"), full, how)
    yield "are there more threads than CPUs?", _threads(view, trainer)
    if (crowd := contention(view).pools) is not None:
        how = f"{{:.1f}} times: {crowd.threads:.0f} of {len(crowd.trainers)} on {crowd.cpus or 0:.0f}"
        many = crowd.threads / crowd.cpus if crowd.cpus else None
        yield _asked("do all trainers together have more?", many, view.limit("threads-host.threads"), how)
    yield _asked("does its CPU quota run out?", trainer.throttled, view.limit("starved.throttled"), "{:.0%} of periods")
    if (steal := view.mean("host", "steal_percent")) is not None:
        limit = view.limit("starved.steal_percent")
        yield _asked("do other virtual machines take its CPUs?", steal, limit, "{:.0f} % of them")


def _others(view: View, trainer: Trainer) -> str:
    """As the rule about neighbours and the page of experiments have it."""
    now = contention(view)
    said = [
        f"{100 * one.taken / one.total:.0f} % of {'all CPUs' if one.resource == 'cpu' else 'all I/O'}"
        for one in now.of(trainer.identity)
    ]
    if said:
        return ", ".join(("yes", *said))
    return "not known" if trainer.identity in now.unknown | now.hidden | now.uncounted else "no"


def _threads(view: View, trainer: Trainer) -> str:
    """Whether its own are too many: more than it has CPUs, and they wait for them."""
    threads, allowed = trainer.compute_threads, trainer.allowed
    if threads is None or allowed is None or trainer.run_wait is None:
        return "not known"
    how = f"{threads:.0f} on {units.cpus(allowed)}, which waited {trainer.run_wait:.0%} of their runnable time"
    return f"{'yes' if oversubscribed(view, trainer) else 'no'}, {how}"


def _asked(question: str, value: float | None, limit: float, how: str) -> Asked:
    """Whether a value reaches a limit."""
    if value is None:
        return question, "not known"
    return question, f"{'yes' if value >= limit else 'no'}, {how.format(value)}"

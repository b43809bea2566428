"""Why loaders that work as fast as they can get no more done: the CPUs are full, with them or with others like them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from gputop import num_workers
from gputop.diagnose.contention import contention
from gputop.diagnose.finding import Evidence, Step
from gputop.diagnose.room import Share, full, has_room, share
from gputop.diagnose.starved import cores, guessed, loading, told_to_load
from gputop.diagnose.storage.signs import signs
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.words import amount

_FEWER = Step(text="run fewer experiments at a time on this machine: together they want more CPUs than it has")
_MORE = Step(text="give the job more CPUs: it has as many loaders as its share of those of the machine allows")


class Filled(NamedTuple):
    """With whom the CPUs are full, and the figures that say so."""

    cores: Evidence  # how many are in use
    more: tuple[Evidence, ...] = ()
    how: str = ""  # the end of the headline
    first: tuple[Step, ...] = ()  # before all others
    last: tuple[Step, ...] = ()


def filled(view: View, trainer: Trainer) -> Filled | None:
    """Whether the CPUs are what its loaders lack: its own, those of the machine, or its share of them."""
    return _own(view, trainer) or _machine(view, trainer) or _shared(view, trainer)


def limited(view: View, trainer: Trainer, table: str = "") -> bool:
    """Whether every loader works as fast as one CPU lets it, and waits for nothing else as far as anybody can tell.

    `table`: where its numbers stand, if not in that of the rule.
    """
    if trainer.loaders < 1 or not view.above(trainer.loader_low, f"{table}loader_cpu"):
        return False
    if view.against.above(trainer.loader_cpu, "openblas-on-intel.loader_cores"):
        return False  # each computes with several threads: one CPU is not what holds it up
    blocked, pressure = trainer.loader_blocked, view.mean("host", "io_pressure")
    waits = blocked is not None and not view.below(blocked, f"{table}blocked")
    return not waits and (pressure is None or view.below(pressure, f"{table}io_percent"))


def by_turns(view: View, trainer: Trainer) -> bool:
    """Whether every loader computes or waits for a file, and hardly ever rests, with no storage at its limit.

    Then neither is what holds them up: each does one after the other, and more of them would do both at the same time.
    """
    computes, waits = trainer.loader_low, trainer.loader_blocked
    if not trainer.loaders or computes is None or waits is None or trainer.loader_cpu is None:
        return False
    both = view.above(computes + waits, "starved-cpu-idle.both") and view.above(computes, "starved-cpu-idle.least_cpu")
    return (
        both and not view.above(trainer.loader_cpu, "starved-cpu-idle.loader_cpu") and not signs(view, trainer).enough
    )


def in_use(mine: Share) -> Evidence:
    """CPUs in use by all who have these together: its own use says little of them."""
    known = [one.cores for one in mine.who if one.cores is not None]  # of who has just begun it is not
    used, at_least = sum(known), "at least " if len(known) < len(mine.who) else ""
    text = f"{at_least}{used:.1f} of {amount(mine.total, 'CPU core')} in use by {_whose(mine.who)}"
    return Evidence(text=text, value=used, unit="cores")


def on_share(trainer: Trainer, mine: Share) -> Evidence:
    """Its loaders, and how many fit into its share."""
    what = "worker process" if guessed(trainer) else "loader"
    text = f"{amount(trainer.loaders, what)} on its share of {amount(round(mine.cpus, 1), 'CPU')}"
    most = num_workers.most(mine.cpus)
    return Evidence(text=f"{text}, which has room for {most}", value=trainer.loaders, unit="loaders", limit=most)


def _own(view: View, trainer: Trainer) -> Filled | None:
    """Its cores in use say so, or how many loaders it has; told is the one that is at its limit."""
    limit = "starved-cpu-saturated.saturation"
    enough = view.limit("starved-cpu-saturated.loaders_share") * (trainer.allowed or math.inf)
    many = trainer.loaders >= max(1.0, enough) and view.above(trainer.loader_cpu, "starved-cpu-saturated.loader_cpu")
    saturated = view.above(trainer.saturation, limit) and _loads(view, trainer)
    if saturated and (not many or (trainer.saturation or 0.0) >= view.limit(limit)):
        return Filled(cores(view, trainer, limit))
    text = f"{amount(trainer.loaders, 'loader')} on {amount(trainer.allowed or 0.0, 'CPU')}"
    number = Evidence(text=text, value=trainer.loaders, unit="loaders", limit=enough)
    return Filled(cores(view, trainer, None), (number,)) if many else None


def _machine(view: View, trainer: Trainer) -> Filled | None:
    """All CPUs of the machine are busy with its input: of this one, or of several with it; not where others do that."""
    if not full(view) or (total := view.cpus()) is None:
        return None
    percent = view.mean("host", "cpu_percent") or 100.0
    if not (crowd := _crowd(view, trainer, percent / 100 * total, total)):
        return None
    loaders, theirs = sum(one.loaders for one in crowd), sum(one.cores or 0.0 for one in crowd)
    text = f"all {total} CPUs {percent:.0f} % busy, {theirs:.1f} with {'these' if len(crowd) > 1 else 'it'}"
    busy = Evidence(
        text=f"{text}: {amount(loaders, 'loader')}", value=percent, unit="%",
        limit=view.limit("starved-cpu-saturated.host_percent"),
    )  # fmt: skip
    what = "those" if guessed(crowd[0]) else "the loaders"
    how = f": the CPUs of the machine are full with {what} of {_whose(crowd)}" if len(crowd) > 1 else ""
    return Filled(cores(view, trainer, None), (busy,), how, last=(_FEWER,) if _jobs(crowd) > 1 else ())


def _shared(view: View, trainer: Trainer) -> Filled | None:
    """Not one loader more fits into its share, whether others need theirs or not: to take that would be advised to all.

    Who has its CPUs for itself is told by what is left of them.
    """
    if not limited(view, trainer, "starved-cpu-idle.") or has_room(view.against, trainer):
        return None
    mine = share(view, trainer)
    if len(mine.who) > 1:
        how = ": it has as many loaders as its share of the CPUs allows"
        return Filled(in_use(mine), (on_share(trainer, mine),), how, first=(_MORE,))
    least = view.limit("starved-cpu-idle.spare")
    left = mine.total - (trainer.cores or 0.0)
    text = f"{max(0.0, left):.1f} of a core left for one more"
    return Filled(cores(view, trainer, None), (Evidence(text=text, value=left, unit="cores", limit=least),))


def _loads(view: View, trainer: Trainer) -> bool:
    """Whether its CPUs are busy with its input: an optimizer on the CPU keeps them as busy, one thread a single one."""
    if trainer.loaders:
        return loading(trainer)
    reads = view.above(trainer.taken, "loader-in-main.read_bytes_per_s") or told_to_load(view, trainer)
    return reads and view.above(trainer.cores, "loader-in-main.cores")


def _crowd(view: View, trainer: Trainer, used: float, total: int) -> Sequence[Trainer]:
    """Those who use most of what is in use, with this one among them; nobody where others do."""
    crowd = contention(view).loaders
    if any(one.identity == trainer.identity for one in crowd):
        view.above(sum(one.cores or 0.0 for one in crowd) / used, "starved-cpu-saturated.together")
        return crowd
    if not _loads(view, trainer):
        return ()
    others = (other.cores or 0.0 for other in view.vectors() if other is not trainer)
    own, half = trainer.cores or 0.0, 0.5 * view.limit("starved-cpu-saturated.host_percent") / 100 * total
    return (trainer,) if own >= max([half, *others]) else ()


def _jobs(some: Sequence[Trainer]) -> int:
    return len({one.process.job or one.key for one in some})


def _whose(some: Sequence[Trainer]) -> str:
    return f"{jobs} experiments" if (jobs := _jobs(some)) > 1 else f"{len(some)} ranks"

"""CPUs for a trainer: which of them, and how it gets there."""

from __future__ import annotations

from collections.abc import Sequence

from gputop import units
from gputop.diagnose.command import started, starts_all
from gputop.diagnose.finding import Step
from gputop.diagnose.looking import closed
from gputop.diagnose.room import affinity
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.units import cpus_of


def apart(view: View, trainers: Sequence[Trainer], each: int) -> list[str]:
    """So many CPUs of its own for each, near its GPUs first, as lists; nothing where not all can have them."""
    taken: set[int] = set()
    found = []
    for trainer in trainers:
        near = frozenset[int]().union(*(cpus_of(gpu.local_cpus) for gpu in trainer.works_on))
        free = sorted(usable(view, trainer) - taken, key=lambda cpu: (cpu not in near, cpu))
        if len(free) < each:
            return []
        taken.update(free[:each])
        found.append(units.ranges(tuple(free[:each])))
    return found


def usable(view: View, trainer: Trainer) -> frozenset[int]:
    """CPUs it may run on; where that is not known, those of the machine if it may use so many, else none."""
    total = view.frame.host.cpus_total or 0
    every = frozenset(range(total)) if (trainer.process.allowed_cpus or 0.0) >= total else frozenset[int]()
    return affinity(trainer.process) or every


def bound(view: View, trainer: Trainer, text: str, cpus: str, by: str | None = None) -> Step:
    """Started there, `by` another command than taskset if need be. What others start is moved there while it runs,
    with its loaders: its own command line would start something else."""
    if starts_all(trainer.process, trainer.job):
        return Step(text=text, command=f"{by or f'taskset -c {cpus}'} {started(trainer.process)}")
    return moved(view, trainer, f"{text}, as it runs", cpus)


def moved(view: View, trainer: Trainer, text: str, cpus: str) -> Step:
    """Put there while it runs, with its loaders."""
    pid, root = trainer.process.pid, closed(view, trainer.process)
    move = f"{'sudo ' if root else ''}taskset -acp {cpus}"
    command = f"for p in {pid} $(pgrep -P {pid}); do {move} $p; done" if trainer.loaders else f"{move} {pid}"
    return Step(text=text, command=command, needs_root=root)

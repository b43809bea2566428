"""A rule about limits on CPU: a quota that runs out, and an affinity that leaves too few CPUs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from gputop import num_workers
from gputop.diagnose.container import widened
from gputop.diagnose.cpu import pinning
from gputop.diagnose.cpu.pinning import Pinned, pinned
from gputop.diagnose.finding import Evidence, Finding, Severity, Step
from gputop.diagnose.room import affinity, fitting_threads, idle, sharing
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.starved import fed
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.usage.programs import torchlike
from gputop.diagnose.view import View
from gputop.model import Cgroup
from gputop.words import amount


@rule(
    "cpu-quota",
    "Is a job held back by a limit on its CPUs?",
    level=Level.CAUSE,
    state="cpu limit",
    short="CPU",
    number="R19",
    rows=(9, 10),
    needs=(),
    partly=("throttled_percent", "cpus_total"),
)
def cpu_quota(view: View) -> Iterator[Finding]:
    """Its control group ran out of CPU quota, or it fills the CPUs it is pinned to while others are idle."""
    for trainer in view.trainers():
        group = _group(view, trainer)
        waiting = _waiting(view, group)
        if held(trainer.throttled, waiting, view.limit("least_waiting"), view.above):
            yield _throttled(view, trainer, group, waiting)
        elif (few := pinned(view, trainer)) is not None:
            yield _pinned(view, trainer, few)
        elif trainer.throttled is None:
            view.knows(trainer, "throttled")


def held(
    throttled: float | None, waiting: float | None, least: float, above: Callable[[float | None, str], bool]
) -> bool:
    """Whether a quota runs out, or stops much work; not where what it stops is less than the least that counts."""
    little = waiting is not None and waiting < least
    return not little and (above(throttled, "throttled") or above(waiting, "waiting"))


def _group(view: View, trainer: Trainer) -> Cgroup | None:
    path = trainer.process.cgroup
    return next((group for group in view.frame.cgroups if group.path == path), None) if path else None


def _waiting(view: View, group: Cgroup | None) -> float | None:
    """CPUs' worth of work that were stopped."""
    return None if group is None else view.mean(f"cgroup {group.path}", "throttled_cpus")


def _throttled(view: View, trainer: Trainer, group: Cgroup | None, waiting: float | None) -> Finding:
    allowed, share = trainer.allowed or 1.0, trainer.throttled or 0.0
    quota = group.cpu_quota if group and group.cpu_quota else allowed
    ranks = len(sharing(view, trainer))
    spun = _spun(view, trainer)
    severity: Severity = "crit" if view.above(share, "crit_throttled") and spun is None else "warn"
    evidence = [
        Evidence(
            text=f"the limit of {amount(quota, 'CPU')} ran out in {100 * share:.0f} % of periods",
            value=100 * share,
            unit="%",
            limit=100 * view.limit("throttled"),
        )
    ]
    if waiting:
        text = f"{waiting:.1f} CPUs' worth of work was stopped meanwhile"
        evidence.append(Evidence(text=text, value=waiting, unit="cores", limit=view.limit("waiting")))
    if spun is not None:
        text = f"{100 * spun:.0f} % of its CPU time goes to compute threads beside the main one, which spin"
        evidence.append(Evidence(text=text, value=100 * spun, unit="%", limit=100 * view.limit("spun")))
    if (busy := view.mean("host", "cpu_percent")) is not None:
        evidence.append(Evidence(text=f"the machine itself is {100 - busy:.0f} % idle", value=100 - busy, unit="%"))
    more, fewer = _raise(view, trainer, quota, ranks), _within(trainer, quota, ranks)
    return view.found(
        trainer,
        "info" if fed(view, trainer) else severity,
        f"is held to {amount(quota, 'CPU')} by its quota",
        evidence=tuple(evidence),
        steps=(*more, *fewer) if spun is None else (*fewer, *more),  # fewer threads may be enough
        confidence=0.9 if spun is None else 0.6,
        grade="driver",
        lost_share=None if trainer.duty is None else trainer.lost,
    )


def _spun(view: View, trainer: Trainer) -> float | None:
    """The share of its own CPU time that a pool of threads spins away, where that is much; None where it is not so.

    What runs out then is enough for the work: the threads are the cause, and the quota is what they use up.
    """
    own, main, threads, room = trainer.own, trainer.main, trainer.compute_threads, trainer.room
    if not own or main is None or threads is None or room is None or trainer.switches is None:
        return None
    spins = trainer.switches < view.limit("threads-process.switches")
    spun = max(0.0, own - main) / own
    many = threads >= view.limit("threads-process.threads") * room
    return spun if spins and many and spun >= view.limit("spun") else None


def _raise(view: View, trainer: Trainer, quota: float, ranks: int) -> Iterator[Step]:
    """Twice as much, as far as the machine is known to have it; none where it has no more."""
    process, total = trainer.process, view.frame.host.cpus_total or 0
    wanted = max(int(quota) + 1, min(2 * math.ceil(quota), int(quota + (idle(view) or 0.0))))
    wanted = min(wanted, len(affinity(process)) or total)
    # one launcher is one task, whatever it starts
    tasks = 1 if trainer.job and trainer.job.steps else ranks
    each = wanted // tasks
    if wanted <= quota or (process.slurm_job and each <= quota / tasks):
        return
    if process.slurm_job:
        yield Step(text=f"ask Slurm for {amount(each, 'CPU')} a task", command=f"#SBATCH --cpus-per-task={each}")
    elif process.container:
        text = f"give its container {amount(wanted, 'CPU')}"
        yield widened(view, process, text, f"--cpus {wanted}", f"resources.limits.cpu: {wanted}")
    else:
        group = process.cgroup or "its group"
        yield Step(text=f"give it {amount(wanted, 'CPU')}: raise CPUQuota of its unit, or cpu.max of {group}")


def _within(trainer: Trainer, quota: float, ranks: int) -> Iterator[Step]:
    """Loaders and threads that the quota has room for."""
    few, torch = fitting_threads(quota / ranks), torchlike(trainer)
    loaders, whose = num_workers.most(few), " a rank" if ranks > 1 else ""
    if trainer.loaders > loaders:
        yield Step(
            text=f"as it is, loaders for no more than {amount(few, 'CPU')}{whose}",
            command=f"DataLoader(..., num_workers={loaders})" if torch else None,
        )
    yield Step(
        text=f"as it is, {amount(few, 'compute thread')}{whose}: libraries see all CPUs of the machine",
        command=f"torch.set_num_threads({few})" if torch else f"export OMP_NUM_THREADS={few}",
    )


def _pinned(view: View, trainer: Trainer, few: Pinned) -> Finding:
    total = view.frame.host.cpus_total or 0
    severity = "warn" if trainer.duty is None else view.by_share(trainer.lost)
    return view.found(
        trainer,
        "info" if severity is None or fed(view, trainer) else severity,
        pinning.headline(few, trainer, total),
        evidence=tuple(pinning.evidence(view, few)),
        steps=tuple(pinning.steps(view, trainer, few)),
        confidence=0.9,
        lost_share=None if trainer.duty is None else trainer.lost,
    )

"""Rules on CPU limits: an exhausted quota, an affinity or pinning that leaves too few CPUs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from shlex import quote

from gputop import num_workers, units
from gputop.diagnose.cpu_budget import affinity, fitting_threads, idle_host_cpus, sharers
from gputop.diagnose.finding import Evidence, Finding, Severity, Step
from gputop.diagnose.program_kind import may_use_torch
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.starvation import is_fed, waiting_threads
from gputop.diagnose.steps import only_root_may_inspect, raise_container_limit
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.frozen_dataclass import frozen_dataclass
from gputop.labels import amount
from gputop.model import Cgroup, Process, Role
from gputop.units import cpus_of

_TABLE = "cpu-quota"
_WINDOW_S = 30.0


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """Pinned processes, their CPUs, and the cost."""

    cpus: frozenset[int]
    processes: tuple[Process, ...]
    trainer: bool  # whether the trainer process is one of them
    loaders: int  # number of loaders among them
    used: float  # cores used by them
    runnable: int  # their running or runnable threads
    waiting: float | None  # mean number of threads waiting for a CPU
    outside: float | None  # idle CPUs outside the set; None if unknown


def pinned(view: View, trainer: Trainer) -> Pinned | None:
    """Processes of a trainer's tree that saturate the CPUs they are pinned to; the busiest such set."""
    total = view.frame.host.cpus_total
    groups: dict[frozenset[int], list[Process]] = {}
    own = affinity(trainer.process)
    for one in trainer.tree:
        if cpus := affinity(one) or own:  # children inherit it unless they change it
            groups.setdefault(cpus, []).append(one)
    narrow = [cpus for cpus in groups if not total or len(cpus) < total]
    if not narrow or trainer.cores is None or view.cpus() is None:
        return None
    sets = [_pinned_set(view, trainer, cpus, [one for other in groups if other <= cpus for one in groups[other]])
            for cpus in narrow]  # fmt: skip
    held = [one for one in sets if one is not None]
    return max(held, key=lambda one: (one.used / len(one.cpus), len(one.processes)), default=None)


def _pinned_set(view: View, trainer: Trainer, cpus: frozenset[int], processes: Sequence[Process]) -> Pinned | None:
    places = {one.last_cpu for one in processes if one.cpu_percent} - {None}
    if not places <= cpus:
        return None  # it was moved after its affinity was read
    crowded = view.above(_busy(view, cpus), f"{_TABLE}.crowded")
    if not crowded and not view.above((trainer.cores or 0.0) / len(cpus), f"{_TABLE}.full"):
        return None  # all of its processes together do not fill them
    figures = [view.cached(("pinned", one.identity), partial(_figures, view, one)) for one in processes]
    used = sum(cores for cores, _, _ in figures)
    waits = [late for _, late, _ in figures if late is not None]
    late = sum(waits) if len(waits) == len(figures) else None
    runnable = sum(threads for _, _, threads in figures)
    # use cannot exceed the CPUs of the set: the excess is of threads with another affinity
    full = view.above(used / len(cpus), f"{_TABLE}.full") and used <= 1.15 * len(cpus)
    if not full and not (crowded and view.above(late, f"{_TABLE}.late")):
        return None
    # one thread on one CPU has all that it can use
    if runnable < len(cpus) or runnable < 2:
        return None
    if is_fed(view, trainer) and (late or 0.0) < view.limit(f"{_TABLE}.late"):
        return None
    outside, total = idle_host_cpus(view), view.frame.host.cpus_total or 0
    if outside is None:
        if total < 4 * len(cpus):
            return None
    elif not view.above(outside / len(cpus), f"{_TABLE}.outside") or outside < 1:
        return None
    return Pinned(
        cpus=cpus,
        processes=tuple(processes),
        trainer=trainer.process in processes,
        loaders=sum(one.role is Role.LOADER for one in processes),
        used=used,
        runnable=runnable,
        waiting=late,
        outside=outside,
    )


def _figures(view: View, one: Process) -> tuple[float, float | None, int]:
    """Cores in use, threads waiting for a CPU, runnable threads: means where known."""
    used = view.mean(one, "cpu_percent", _WINDOW_S) or 0.0
    ratio = view.mean(one, "run_wait_percent", _WINDOW_S)
    late = None if ratio is None else waiting_threads(ratio / 100, used / 100)
    wants = used / 100 + (late or 0.0) >= 0.1
    return used / 100, late, max(round(view.mean(one, "busy_threads", _WINDOW_S) or 0.0), int(wants))


def _busy(view: View, cpus: frozenset[int]) -> float | None:
    """Utilization of these CPUs by any process, 0-1."""
    cores = view.frame.host.cpu_cores_percent
    known = [cores[cpu] for cpu in cpus if cpu < len(cores)]
    if not known or None in known:
        return None
    looks = view.record(view.host(), sum(one or 0.0 for one in known) / len(known), units.ranges(tuple(sorted(cpus))))
    return sum(busy for _, busy in looks) / len(looks) / 100


def headline(held: Pinned, trainer: Trainer, total: int) -> str:
    """Which of its processes are pinned, and to how many CPUs."""
    where = f"pinned to {len(held.cpus)} of {total} CPUs"
    if not held.trainer:
        return f"{amount(held.loaders, 'worker') if held.loaders else 'processes'} {where}"
    return f"{where}{'' if held.loaders == trainer.loaders else ', its workers are not'}"


def evidence(view: View, held: Pinned) -> Iterator[Evidence]:
    """Use of the set, and idle CPUs outside it."""
    listed = units.ranges(tuple(sorted(held.cpus)))
    threads = "workers and compute threads" if held.loaders and held.trainer else None
    what = threads or ("workers" if held.loaders else "compute threads")
    yield Evidence(
        text=f"{held.runnable} runnable {what} on CPU {listed}", value=held.runnable, limit=len(held.cpus),
        sense="flagged_above",
    )  # fmt: skip
    text = f"{held.used:.1f} of {amount(len(held.cpus), 'pinned CPU')} in use"
    if held.waiting is not None and held.waiting >= 0.1:
        text += f", {held.waiting:.1f} threads waiting for one"
    most = view.limit(f"{_TABLE}.full") * len(held.cpus)
    yield Evidence(text=text, value=held.used, unit="cores", limit=most, sense="flagged_above")
    if held.outside is not None:
        yield Evidence(text=f"{held.outside:.0f} CPUs idle outside this set", value=held.outside, unit="cores")


def steps(view: View, trainer: Trainer, held: Pinned) -> Iterator[Step]:
    """Steps to widen the affinity now, then at its origin: Slurm, container, launcher or program."""
    process, total = trainer.process, view.frame.host.cpus_total or 0
    group = _cpuset(view, process)
    allowed = (group and cpus_of(group.cpus)) or frozenset(range(total))
    wider = units.ranges(tuple(sorted(allowed | held.cpus)))
    if len(allowed) > len(held.cpus):
        limit = "" if group and group.cpus else " as far as its cpuset allows"
        yield _widen(view, trainer, held, f"Widen the CPU affinity of the running process{limit}", wider)
    if process.slurm_job:
        yield Step(text="In Slurm, let each task run on all CPUs of the job", command="srun --cpu-bind=none COMMAND")
        wanted = min(total, max(4, trainer.loaders + 1, 2 * len(held.cpus)))
        yield Step(text="Request more CPUs per task", command=f"#SBATCH --cpus-per-task={wanted}")
    elif len(allowed) <= len(held.cpus):
        yield from _by_cpuset(view, process, group, total)
    if held.trainer:
        yield Step(text="At launch, drop taskset, numactl -C, or the launcher's rank-binding option")
        yield Step(
            text="Unset the affinity variables of OpenMP: it pins the main thread, and workers inherit that",
            command="unset OMP_PROC_BIND OMP_PLACES GOMP_CPU_AFFINITY KMP_AFFINITY",
        )
        yield Step(
            text="Set the affinity in the program, before the workers start",
            command=f"os.sched_setaffinity(0, range({total}))",
        )
    else:
        yield Step(
            text="Widen the affinity in worker_init_fn: workers inherit that of the thread that starts them",
            command=f"DataLoader(..., worker_init_fn=lambda _: os.sched_setaffinity(0, range({total})))",
        )


def _widen(view: View, trainer: Trainer, held: Pinned, text: str, cpus: str) -> Step:
    pid, root = trainer.process.pid, only_root_may_inspect(view, trainer.process)
    move = f"{'sudo ' if root else ''}taskset -acp {cpus}"
    own = [str(pid)] if held.trainer else []
    pids = [*own, f"$(pgrep -P {pid})"] if held.loaders else own
    command = f"{move} {pid}" if pids == own else f"for p in {' '.join(pids)}; do {move} $p; done"
    return Step(text=text, command=command, needs_root=root)


def _cpuset(view: View, process: Process) -> Cgroup | None:
    return next((group for group in view.frame.cgroups if group.path == process.cgroup), None)


def _by_cpuset(view: View, process: Process, group: Cgroup | None, total: int) -> Iterator[Step]:
    """Steps for the owner of the cpuset."""
    every = f"0-{total - 1}"
    if process.container:
        yield raise_container_limit(
            view, process, "Widen the cpuset of its container", f"--cpuset-cpus={every}", "request more CPUs"
        )
    elif group is not None:
        unit = group.path.rpartition("/")[2]
        known = unit.endswith((".service", ".scope", ".slice"))
        yield Step(
            text=f"Widen the cpuset of its control group, {group.path}",
            command=f"sudo systemctl set-property --runtime {quote(unit)} AllowedCPUs={every}" if known else None,
            needs_root=known,
        )


@rule(
    "cpu-quota",
    "Is a job limited by its CPU quota or affinity?",
    level=Level.CAUSE,
    state="CPU quota",
    short="QUOTA",
    needs=(),
    partly=("throttled_percent", "cpus_total"),
)
def cpu_quota(view: View) -> Iterator[Finding]:
    """The control group exhausts its CPU quota, or the process saturates its pinned CPUs while others are idle."""
    for trainer in view.trainers():
        group = _cgroup(view, trainer)
        waiting = _throttled_cpus(view, group)
        if held(trainer.throttled, waiting, view.limit("least_waiting"), view.above):
            yield _quota_finding(view, trainer, group, waiting)
        elif (few := pinned(view, trainer)) is not None:
            yield _pinned_finding(view, trainer, few)
        elif trainer.throttled is None:
            view.knows(trainer, "throttled")


def held(
    throttled: float | None, waiting: float | None, least: float, above: Callable[[float | None, str], bool]
) -> bool:
    """Whether a quota is exhausted or throttles much work; not if it throttles less than `least`."""
    little = waiting is not None and waiting < least
    return not little and (above(throttled, "throttled") or above(waiting, "waiting"))


def _cgroup(view: View, trainer: Trainer) -> Cgroup | None:
    path = trainer.process.cgroup
    return next((group for group in view.frame.cgroups if group.path == path), None) if path else None


def _throttled_cpus(view: View, group: Cgroup | None) -> float | None:
    """Throttled work, in CPUs."""
    return None if group is None else view.mean(f"cgroup {group.path}", "throttled_cpus")


def _quota_finding(view: View, trainer: Trainer, group: Cgroup | None, waiting: float | None) -> Finding:
    allowed, share = trainer.allowed or 1.0, trainer.throttled or 0.0
    quota = group.cpu_quota if group and group.cpu_quota else allowed
    ranks = len(sharers(view, trainer))
    spun = _spin_share(view, trainer)
    severity: Severity = "crit" if view.above(share, "crit_throttled") and spun is None else "warn"
    evidence = [
        Evidence(
            text=f"quota of {amount(quota, 'CPU')} exhausted in {100 * share:.0f} % of periods",
            value=100 * share,
            unit="%",
            limit=100 * view.limit("throttled"),
            sense="flagged_above",
        )
    ]
    if waiting:
        text, most = f"runnable work for {waiting:.1f} more CPUs throttled", view.limit("waiting")
        evidence.append(Evidence(text=text, value=waiting, unit="cores", limit=most, sense="flagged_above"))
    if spun is not None:
        text, most = f"{100 * spun:.0f} % of its CPU time in spinning compute threads", 100 * view.limit("spun")
        evidence.append(Evidence(text=text, value=100 * spun, unit="%", limit=most, sense="flagged_above"))
    if (busy := view.mean("host", "cpu_percent")) is not None:
        evidence.append(Evidence(text=f"all CPUs of the machine {100 - busy:.0f} % idle", value=100 - busy, unit="%"))
    more, fewer = _raise_quota(view, trainer, quota, ranks), _steps_within_quota(trainer, quota, ranks)
    return view.found(
        trainer,
        "info" if is_fed(view, trainer) else severity,
        f"CPU quota of {amount(quota, 'CPU')} exhausted",
        evidence=tuple(evidence),
        steps=(*more, *fewer) if spun is None else (*fewer, *more),  # fewer threads may be enough
        confidence=0.9 if spun is None else 0.6,
        grade="driver",
        lost_share=None if trainer.duty is None else trainer.lost,
    )


def _spin_share(view: View, trainer: Trainer) -> float | None:
    """Share of its CPU time that a thread pool spends spinning, if large; else None.

    The quota suffices for the work then: the threads are the cause, and use it up.
    """
    own, main, threads, room = trainer.own, trainer.main, trainer.compute_threads, trainer.thread_budget
    if not own or main is None or threads is None or room is None or trainer.switches is None:
        return None
    spins = trainer.switches < view.limit("threads-process.switches")
    spun = max(0.0, own - main) / own
    many = threads >= view.limit("threads-process.threads") * room
    return spun if spins and many and spun >= view.limit("spun") else None


def _raise_quota(view: View, trainer: Trainer, quota: float, ranks: int) -> Iterator[Step]:
    """Steps to double the quota, as far as the machine has the CPUs."""
    process, total = trainer.process, view.frame.host.cpus_total or 0
    wanted = max(int(quota) + 1, min(2 * math.ceil(quota), int(quota + (idle_host_cpus(view) or 0.0))))
    wanted = min(wanted, len(affinity(process)) or total)
    # one launcher is one task, whatever it starts
    tasks = 1 if trainer.job and trainer.job.steps else ranks
    each = wanted // tasks
    if wanted <= quota or (process.slurm_job and each <= quota / tasks):
        return
    if process.slurm_job:
        yield Step(text=f"Request {amount(each, 'CPU')} per task from Slurm", command=f"#SBATCH --cpus-per-task={each}")
    elif process.container:
        text = f"Raise the CPU limit of its container to {amount(wanted, 'CPU')}"
        yield raise_container_limit(view, process, text, f"--cpus {wanted}", f"set resources.limits.cpu: {wanted}")
    else:
        group = process.cgroup or "its group"
        yield Step(text=f"Raise CPUQuota of its unit, or cpu.max of {group}, to {amount(wanted, 'CPU')}")


def _steps_within_quota(trainer: Trainer, quota: float, ranks: int) -> Iterator[Step]:
    """Steps for loaders and threads that fit into the quota."""
    few, torch = fitting_threads(quota / ranks), may_use_torch(trainer)
    loaders, whose = num_workers.maximum(few), " per rank" if ranks > 1 else ""
    if trainer.loaders > loaders:
        yield Step(
            text=f"Within this quota, use {amount(loaders, 'worker')}{whose}",
            command=f"DataLoader(..., num_workers={loaders})" if torch else None,
        )
    yield Step(
        text=f"Within this quota, use {amount(few, 'compute thread')}{whose}: libraries see all CPUs of the machine",
        command=f"torch.set_num_threads({few})" if torch else f"export OMP_NUM_THREADS={few}",
    )


def _pinned_finding(view: View, trainer: Trainer, few: Pinned) -> Finding:
    total = view.frame.host.cpus_total or 0
    severity = "warn" if trainer.duty is None else view.by_share(trainer.lost)
    return view.found(
        trainer,
        "info" if severity is None or is_fed(view, trainer) else severity,
        headline(few, trainer, total),
        evidence=tuple(evidence(view, few)),
        steps=tuple(steps(view, trainer, few)),
        confidence=0.9,
        lost_share=None if trainer.duty is None else trainer.lost,
    )

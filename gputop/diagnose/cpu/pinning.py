"""Processes of a job that are pinned to a few CPUs, which they fill while others are idle: a quota by another name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from shlex import quote

from gputop import units
from gputop.declare import record
from gputop.diagnose.container import widened
from gputop.diagnose.finding import Evidence, Step
from gputop.diagnose.looking import closed
from gputop.diagnose.room import affinity, idle
from gputop.diagnose.starved import fed, waiting
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.model import Cgroup, Process, Role
from gputop.units import cpus_of
from gputop.words import amount

_TABLE = "cpu-quota"
_WINDOW_S = 30.0


@record(frozen=True, slots=True, kw_only=True)
class Pinned:
    """Who is pinned, where, and what it costs."""

    cpus: frozenset[int]
    processes: tuple[Process, ...]
    trainer: bool  # whether the training process is one of them
    loaders: int  # how many of them are loaders
    used: float  # cores in use by them
    runnable: int  # of their threads that want to run
    waiting: float | None  # threads that wait for a CPU at any time
    outside: float | None  # idle CPUs elsewhere; None where nobody knows


def pinned(view: View, trainer: Trainer) -> Pinned | None:
    """The processes of a trainer's tree that fill the CPUs they may run on, with work for more; the fullest set."""
    total = view.frame.host.cpus_total
    groups: dict[frozenset[int], list[Process]] = {}
    own = affinity(trainer.process)
    for one in trainer.tree:
        if cpus := affinity(one) or own:  # children have that of their parent unless they change it
            groups.setdefault(cpus, []).append(one)
    narrow = [cpus for cpus in groups if not total or len(cpus) < total]
    if not narrow or trainer.cores is None or view.cpus() is None:
        return None
    sets = [_of(view, trainer, cpus, [one for other in groups if other <= cpus for one in groups[other]])
            for cpus in narrow]  # fmt: skip
    held = [one for one in sets if one is not None]
    return max(held, key=lambda one: (one.used / len(one.cpus), len(one.processes)), default=None)


def _of(view: View, trainer: Trainer, cpus: frozenset[int], processes: Sequence[Process]) -> Pinned | None:
    places = {one.last_cpu for one in processes if one.cpu_percent} - {None}
    if not places <= cpus:
        return None  # it was moved since its affinity was read
    crowded = view.above(_busy(view, cpus), f"{_TABLE}.crowded")
    if not crowded and not view.above((trainer.cores or 0.0) / len(cpus), f"{_TABLE}.full"):
        return None  # all of its processes together do not fill them
    figures = [view.once(("pinned", one.identity), partial(_figures, view, one)) for one in processes]
    used = sum(cores for cores, _, _ in figures)
    waits = [late for _, late, _ in figures if late is not None]
    late = sum(waits) if len(waits) == len(figures) else None
    runnable = sum(threads for _, _, threads in figures)
    # no more is used there than there is: what is, is used by threads that the affinity does not hold
    full = view.above(used / len(cpus), f"{_TABLE}.full") and used <= 1.15 * len(cpus)
    if not full and not (crowded and view.above(late, f"{_TABLE}.late")):
        return None
    # one thread on one CPU has all that it can use
    if runnable < len(cpus) or runnable < 2:
        return None
    if fed(view, trainer) and (late or 0.0) < view.limit(f"{_TABLE}.late"):
        return None
    outside, total = idle(view), view.frame.host.cpus_total or 0
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
    """Cores in use, threads that wait for a CPU, threads that want to run: means where they are known."""
    used = view.mean(one, "cpu_percent", _WINDOW_S) or 0.0
    ratio = view.mean(one, "run_wait_percent", _WINDOW_S)
    late = None if ratio is None else waiting(ratio / 100, used / 100)
    wants = used / 100 + (late or 0.0) >= 0.1
    return used / 100, late, max(round(view.mean(one, "busy_threads", _WINDOW_S) or 0.0), int(wants))


def _busy(view: View, cpus: frozenset[int]) -> float | None:
    """How busy these CPUs are, with whatever runs there, 0-1."""
    cores = view.frame.host.cpu_cores_percent
    known = [cores[cpu] for cpu in cpus if cpu < len(cores)]
    if not known or None in known:
        return None
    looks = view.looks(view.host(), sum(one or 0.0 for one in known) / len(known), units.ranges(tuple(sorted(cpus))))
    return sum(busy for _, busy in looks) / len(looks) / 100


def headline(held: Pinned, trainer: Trainer, total: int) -> str:
    """Which of its processes are pinned, and to how little."""
    where = f"pinned to {len(held.cpus)} of {total} CPUs"
    if not held.trainer:
        return f"has {amount(held.loaders, 'loader') if held.loaders else 'processes'} {where}"
    return f"is {where}{'' if held.loaders == trainer.loaders else ', unlike its loaders'}"


def evidence(view: View, held: Pinned) -> Iterator[Evidence]:
    """What fills the set, and what is idle outside."""
    listed = units.ranges(tuple(sorted(held.cpus)))
    threads = "loaders and compute threads" if held.loaders and held.trainer else None
    what = threads or ("loaders" if held.loaders else "compute threads")
    yield Evidence(
        text=f"{held.runnable} {what} share CPU {listed}", value=held.runnable, limit=len(held.cpus)
    )  # fmt: skip
    text = f"{held.used:.1f} of {amount(len(held.cpus), 'pinned CPU')} in use"
    if held.waiting is not None and held.waiting >= 0.1:
        text += f", {held.waiting:.1f} threads wait for one"
    yield Evidence(text=text, value=held.used, unit="cores", limit=view.limit(f"{_TABLE}.full") * len(held.cpus))
    if held.outside is not None:
        yield Evidence(text=f"{held.outside:.0f} CPUs idle outside of that set", value=held.outside, unit="cores")


def steps(view: View, trainer: Trainer, held: Pinned) -> Iterator[Step]:
    """Widen it as it runs, then where it was pinned: by Slurm, its container, its launcher or its own code."""
    process, total = trainer.process, view.frame.host.cpus_total or 0
    group = _cpuset(view, process)
    allowed = (group and cpus_of(group.cpus)) or frozenset(range(total))
    wider = units.ranges(tuple(sorted(allowed | held.cpus)))
    if len(allowed) > len(held.cpus):
        limit = "" if group and group.cpus else ", as far as its cpuset allows"
        yield _widen(view, trainer, held, f"Widen the affinity as it runs{limit}", wider)
    if process.slurm_job:
        yield Step(text="In Slurm: let each task run on all CPUs of the job", command="srun --cpu-bind=none COMMAND")
        wanted = min(total, max(4, trainer.loaders + 1, 2 * len(held.cpus)))
        yield Step(text="And ask for more CPUs a task", command=f"#SBATCH --cpus-per-task={wanted}")
    elif len(allowed) <= len(held.cpus):
        yield from _by_cpuset(view, process, group, total)
    if held.trainer:
        yield Step(text="Where it is started: drop taskset, numactl -C, or the launcher's option that binds ranks")
        yield Step(
            text="OpenMP pins its main thread, and loaders inherit that: unset its variables",
            command="unset OMP_PROC_BIND OMP_PLACES GOMP_CPU_AFFINITY KMP_AFFINITY",
        )
        yield Step(
            text="Or in the program, before the loaders start",
            command=f"os.sched_setaffinity(0, range({total}))",
        )
    else:
        yield Step(
            text="In the program: loaders inherit the affinity of the thread that starts them; widen it there",
            command=f"DataLoader(..., worker_init_fn=lambda _: os.sched_setaffinity(0, range({total})))",
        )


def _widen(view: View, trainer: Trainer, held: Pinned, text: str, cpus: str) -> Step:
    pid, root = trainer.process.pid, closed(view, trainer.process)
    move = f"{'sudo ' if root else ''}taskset -acp {cpus}"
    own = [str(pid)] if held.trainer else []
    pids = [*own, f"$(pgrep -P {pid})"] if held.loaders else own
    command = f"{move} {pid}" if pids == own else f"for p in {' '.join(pids)}; do {move} $p; done"
    return Step(text=text, command=command, needs_root=root)


def _cpuset(view: View, process: Process) -> Cgroup | None:
    return next((group for group in view.frame.cgroups if group.path == process.cgroup), None)


def _by_cpuset(view: View, process: Process, group: Cgroup | None, total: int) -> Iterator[Step]:
    """Whose cpuset that is."""
    every = f"0-{total - 1}"
    if process.container:
        yield widened(view, process, "Widen the cpuset of its container", f"--cpuset-cpus={every}", "more CPUs")
    elif group is not None:
        unit = group.path.rpartition("/")[2]
        known = unit.endswith((".service", ".scope", ".slice"))
        yield Step(
            text=f"Widen the cpuset of its control group, {group.path}",
            command=f"sudo systemctl set-property --runtime {quote(unit)} AllowedCPUs={every}" if known else None,
            needs_root=known,
        )

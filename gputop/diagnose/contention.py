"""Contention for CPUs and disks: which trainers wait, which other processes use the resource, and how much in all.

Computed once per evaluation for the rules, the workload classes and the experiments page, so that all agree. Many small
consumers fill a machine as much as a large one, so their sum decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from gputop.diagnose.cpu_budget import affinity, cpu_limit, overlap, united_cpus
from gputop.diagnose.estimators import change_point
from gputop.diagnose.job_tree import DEEPEST
from gputop.diagnose.neighbours import CORES, MOVED, cores, group_key, moved_bytes_per_s, unrelated
from gputop.diagnose.starvation import is_starved_at, waiting_threads
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Identity, Process

Resource = Literal["cpu", "disk"]
_WINDOW_S, _PAST_S = 30.0, 900.0
_BESIDE_S = 60.0  # seconds of GPU history before the onset
# programs that start commands on behalf of others
_SHELLS = frozenset({"bash", "sh", "dash", "zsh", "fish", "tcsh", "csh", "ksh"})
_SESSIONS = (
    "sshd",
    "systemd",
    "tmux",
    "screen",
    "init",
    "login",
    "su",
    "sudo",
    "containerd",
    "docker",
    "cron",
    "slurm",
)


@frozen_dataclass(frozen=True, slots=True)
class Consumer:
    """Processes that belong together and their use: cores or bytes/s, and the share of the total."""

    name: str
    command: Process  # the one that started most of them, or does the most itself
    job: str | None  # its key
    processes: tuple[Process, ...]
    group: str
    used: float
    share: float


@frozen_dataclass(frozen=True, slots=True)
class Shortage:
    """A trainer that waits for a resource of which others use the most."""

    trainer: Identity
    job: str | None
    resource: Resource
    consumers: tuple[Consumer, ...]  # largest first
    own: float  # use of its own job
    total: float  # what exists (CPUs), or what all transfer (disk)
    full_percent: float  # utilization of the CPUs, or of the busiest disk
    wait: float  # share of its time spent waiting
    disk: str = ""

    @property
    def used_by_others(self) -> float:
        """Use of all others."""
        return sum(one.used for one in self.consumers)


@frozen_dataclass(frozen=True, slots=True)
class ThreadCrowd:
    """Trainers with a thread pool each, all their threads, and the CPUs that they share, if known."""

    trainers: Sequence[Trainer]
    threads: float
    cpus: float | None


@frozen_dataclass(frozen=True, slots=True)
class Contention:
    """Contention on one machine at one evaluation."""

    shortages: tuple[Shortage, ...] = ()
    pools: ThreadCrowd | None = None  # of compute threads, whatever their number
    crowded: bool = False  # the pools have more threads than the CPUs can run
    loaders: tuple[Trainer, ...] = ()  # trainers with loaders that together use all CPUs
    unknown: frozenset[Identity] = frozenset()  # trainers with an unknown wait
    hidden: frozenset[Identity] = frozenset()  # trainers that share a disk with processes of hidden I/O
    uncounted: frozenset[Identity] = frozenset()  # trainers that wait on a machine of unknown CPU count

    def shortages_of(self, trainer: Identity) -> Iterator[Shortage]:
        """Resources that one trainer waits for."""
        return (one for one in self.shortages if one.trainer == trainer)

    def crowd_of(self, trainer: Identity) -> frozenset[str]:
        """Jobs of the crowds that a trainer belongs to: a crowd is reported as one, not member by member."""
        crowds = [self.pools.trainers] if self.crowded and self.pools is not None else []
        crowds.append(self.loaders)
        mine = [crowd for crowd in crowds if any(one.identity == trainer for one in crowd)]
        return frozenset(one.process.job or "" for crowd in mine for one in crowd)

    def competitors(self, one: Shortage) -> Sequence[Consumer]:
        """Consumers that a trainer competes with, without members of its own crowd."""
        crowd = self.crowd_of(one.trainer) if one.resource == "cpu" else frozenset()
        return [taker for taker in one.consumers if taker.job not in crowd]


class _Hysteresis:
    """Comparisons with hysteresis: lenient for what was found at the last evaluation."""

    def __init__(self, view: View, shown: bool) -> None:
        self._view, self._shown = view, shown

    def reached(self, value: float | None, name: str) -> bool:
        """Whether a value is at or above a limit; False for an unknown one."""
        return value is not None and value >= self._view.limit(name, -1 if self._shown else 0)


def contention(view: View) -> Contention:
    """Contention of this evaluation, computed by the first caller."""
    return view.cached("contention", lambda: _find_contention(view))


def _find_contention(view: View) -> Contention:
    notes = view.notes(view.frame.host, of="contention")
    before: Contention = notes.get("before", Contention())
    pools = _thread_pools(view)
    loaders = _saturating_loaders(view, _Hysteresis(view, bool(before.loaders)))
    found: list[Shortage] = []
    unknown, hidden, uncounted = set(), set(), set()
    for trainer in view.vectors():
        shown = any(True for _ in before.shortages_of(trainer.identity))
        limits = _Hysteresis(view, shown)
        if not trainer.warm or not is_starved_at(view, trainer, lenient=shown):
            continue
        for one in (_cpu_shortage(view, trainer, limits), _disk_shortage(view, trainer, limits)):
            if isinstance(one, Shortage):
                found.append(one)
            elif one == "unknown":
                unknown.add(trainer.identity)
            elif one == "hidden":
                hidden.add(trainer.identity)
            elif one == "uncounted":
                uncounted.add(trainer.identity)
    crowded = _is_crowded(view, pools, _Hysteresis(view, before.crowded))
    said = Contention(
        tuple(found), pools, crowded, loaders, frozenset(unknown), frozenset(hidden), frozenset(uncounted)
    )
    notes["before"] = said
    return said


def _cpu_shortage(
    view: View, trainer: Trainer, limits: _Hysteresis
) -> Shortage | Literal["unknown", "uncounted"] | None:
    used, total = view.mean("host", "cpu_percent", _WINDOW_S), view.frame.host.cpus_total
    pressure = view.mean("host", "cpu_pressure", _WINDOW_S)  # not every kernel has it
    if not limits.reached(used, "neighbour.cpu_percent"):
        return None
    if pressure is not None and not limits.reached(pressure, "neighbour.pressure_percent"):
        return None
    if trainer.loader_wait is None and trainer.run_wait is None:
        return "unknown"
    wait = max(trainer.run_wait or 0.0, trainer.loader_wait or 0.0, _main_wait(view, trainer))
    own = [rank.cores for rank in view.mates(trainer)]
    if not limits.reached(wait, "neighbour.run_wait") or None in own:
        return None  # a rank has just started: the largest consumer is not known yet
    if not total:
        return "uncounted"
    mine, others = sum(one or 0.0 for one in own), consumers_beside(view, trainer, "cpu", float(total))
    taken = sum(one.used for one in others)
    if not limits.reached(taken / total, "neighbour.share") or taken <= mine:
        return None
    return Shortage(trainer.identity, trainer.process.job, "cpu", tuple(others), mine, float(total), used or 0.0, wait)


def _main_wait(view: View, trainer: Trainer) -> float:
    """Run-queue wait of a busy main thread (0-1). A thread that rarely runs may wait half of that time at no cost."""
    least = view.limit("starved.waiting") * trainer.lost
    return (trainer.main_wait or 0.0) if waiting_threads(trainer.main_wait, trainer.main) >= least else 0.0


def _disk_shortage(view: View, trainer: Trainer, limits: _Hysteresis) -> Shortage | Literal["hidden"] | None:
    known = ((view.mean(f"disk {disk.name}", "busy_percent", _WINDOW_S), disk.name) for disk in view.frame.host.disks)
    percent, disk = max(((busy, name) for busy, name in known if busy is not None), default=(None, ""))
    blocked, pressure = trainer.loader_blocked, view.mean("host", "io_pressure", _WINDOW_S)
    if not (
        limits.reached(percent, "neighbour.disk_percent")
        and limits.reached(blocked, "neighbour.blocked")
        and (pressure is None or limits.reached(pressure, "neighbour.pressure_percent"))
    ):
        return None
    mine = _mean_use(view, group_key(trainer.process), MOVED) if trainer.process.job else _tree_io(view, trainer)
    others = consumers_beside(view, trainer, "disk", 1.0)
    taken, whole = sum(one.used for one in others), _machine_io(view)
    total = max(mine + taken, whole or 0.0)
    large = limits.reached(taken / total if total else None, "neighbour.share")
    # where the I/O of some processes is hidden, the visible ones are blamed only if they exceed the hidden rest
    if any(map(_io_hidden, view.frame.processes)) and (not large or whole is None or taken <= total - mine - taken):
        return "hidden"
    if not large or taken <= mine:
        return None
    shares = tuple(
        Consumer(one.name, one.command, one.job, one.processes, one.group, one.used, one.used / total) for one in others
    )
    return Shortage(
        trainer.identity, trainer.process.job, "disk", shares, mine, total, percent or 0.0, blocked or 0.0, disk
    )


def _tree_io(view: View, trainer: Trainer) -> float:
    """Bytes/s that the process tree of a trainer without a job reads and writes."""
    names = ("read_bytes_per_s", "write_bytes_per_s")
    return sum(view.history.mean(trainer.key, name, _WINDOW_S) or 0.0 for name in names)


def _machine_io(view: View) -> float | None:
    """Bytes/s that the machine reads and writes, including for processes not visible here."""
    read, written = (view.mean("host", name, _WINDOW_S) for name in ("read_bytes_per_s", "write_bytes_per_s"))
    return None if read is None or written is None else read + written


def _io_hidden(process: Process) -> bool:
    return any(one.metric == "read_bytes_per_s" and one.reason == "denied" for one in process.missing)


def consumers_beside(view: View, trainer: Trainer, resource: Resource, total: float) -> list[Consumer]:
    """Consumers outside the trainer's job, by job or by user and control group, largest first."""
    groups: dict[str, list[Process]] = {}
    here = affinity(trainer.process)
    for process in unrelated(view.frame, trainer.process):
        if resource == "disk" or overlap(here, affinity(process)):
            groups.setdefault(group_key(process), []).append(process)
    takes, name = (cores, CORES) if resource == "cpu" else (moved_bytes_per_s, MOVED)
    by_pid = view.cached("by pid", lambda: {one.pid: one for one in view.frame.processes if one.unseen is None})
    members, found = view.cached("groups", lambda: _groups(view)), []
    for key, processes in groups.items():
        used, every = _mean_use(view, key, name), members.get(key, processes)
        if len(processes) < len(every):  # some of the group belong to the trainer, or cannot run on its CPUs
            whole = sum(map(takes, every))
            used *= sum(map(takes, processes)) / whole if whole else len(processes) / len(every)
        if used > 0:
            command = _main_command(processes, by_pid, resource)
            job = command.job
            called = (view.display_name(command) if job else command.name) or "a program"
            found.append(Consumer(called, command, job, tuple(processes), key, used, used / total))
    return sorted(found, key=lambda one: -one.used)


def _groups(view: View) -> dict[str, list[Process]]:
    """All visible processes by group."""
    found: dict[str, list[Process]] = {}
    for process in view.frame.processes:
        if process.unseen is None:
            found.setdefault(group_key(process), []).append(process)
    return found


def _mean_use(view: View, key: str, name: str, seconds: float = _WINDOW_S) -> float:
    """Mean use of a group; 0 for the time in which it did not exist."""
    values = _use_series(view, key, name, seconds)
    return sum(values) / len(values) if values else 0.0


def _use_series(view: View, key: str, name: str, seconds: float) -> list[float]:
    """Use of a group at each sampled second."""
    looked = view.history.values("host", "cpu_percent", seconds)
    if all(value is None for value in looked):
        looked = view.history.values("host", "memory_available_bytes", seconds)
    values = view.history.values(key, name, seconds)
    return [value or 0.0 for value, there in zip(values, looked, strict=True) if there is not None or value is not None]


def _main_command(processes: Sequence[Process], by_pid: Mapping[int, Process], resource: Resource) -> Process:
    """The command that started most of this use: `make`, and not one of its compilers."""
    takes = cores if resource == "cpu" else moved_bytes_per_s
    sums: dict[Identity, float] = {}
    heads: dict[Identity, Process] = {}
    for process in processes:
        one = process
        for _ in range(DEEPEST):
            parent = by_pid.get(one.parent_pid)
            if parent is None or (parent.uid, parent.cgroup, parent.job) != (one.uid, one.cgroup, one.job):
                break
            if parent.name.startswith(_SESSIONS) or (parent.name in _SHELLS and parent.group != one.group):
                break
            one = parent
        heads[one.identity] = one
        sums[one.identity] = sums.get(one.identity, 0.0) + takes(process)
    return heads[max(sums, key=lambda identity: sums[identity])]


def _thread_pools(view: View) -> ThreadCrowd | None:
    """All trainers with a thread pool if there are two or more; single-threaded ones do not count."""
    least = view.limit("threads-host.pool")
    warm = [trainer for trainer in view.vectors() if trainer.warm and not _single_threaded(trainer)]
    pools = [trainer for trainer in warm if (trainer.compute_threads or 0.0) >= least]
    if len(pools) < 2:
        return None
    cpus = united_cpus([cpu_limit(trainer.process) for trainer in pools], view.frame.host.cpus_total)
    threads = sum(trainer.compute_threads or 0.0 for trainer in pools)
    return ThreadCrowd(pools, threads, None if cpus is None else max(1.0, cpus))


def _single_threaded(trainer: Trainer) -> bool:
    """Whether it was started with one compute thread, and has not created one per CPU since."""
    each_cpu = len(affinity(trainer.process)) or trainer.allowed or 0.0
    return trainer.process.omp_threads == 1 and not 1 < each_cpu <= (trainer.compute_threads or 0.0)


def crowd_wait(crowd: ThreadCrowd) -> float | None:
    """Share of their time that the threads of a crowd wait for a CPU."""
    waits = [trainer.run_wait for trainer in crowd.trainers if trainer.run_wait is not None]
    return sum(waits) / len(waits) if waits else None


def _is_crowded(view: View, crowd: ThreadCrowd | None, limits: _Hysteresis) -> bool:
    """Whether threads of several trainers wait for each other."""
    warm = [trainer for trainer in view.vectors() if trainer.warm]
    if crowd is None or crowd.cpus is None or any(one.compute_threads is None or one.allowed is None for one in warm):
        return False
    pressed = limits.reached(view.mean("host", "cpu_pressure", _WINDOW_S), "threads-host.pressure_percent")
    contended = pressed or limits.reached(crowd_wait(crowd), "threads-host.run_wait")
    return contended and limits.reached(crowd.threads / crowd.cpus, "threads-host.threads")


def _saturating_loaders(view: View, limits: _Hysteresis) -> tuple[Trainer, ...]:
    """Two or more trainers with loaders that use most of the CPUs while all CPUs are busy."""
    percent, total = view.mean("host", "cpu_percent", _WINDOW_S), view.frame.host.cpus_total
    if not total or not limits.reached(percent, "starved-cpu-saturated.host_percent"):
        return ()
    crowd = tuple(one for one in view.vectors() if _loaders_cpu_bound(one, limits))
    used = sum(one.cores or 0.0 for one in crowd) / ((percent or 100.0) / 100 * total)
    return crowd if len(crowd) > 1 and limits.reached(used, "starved-cpu-saturated.together") else ()


def _loaders_cpu_bound(trainer: Trainer, limits: _Hysteresis) -> bool:
    """Whether each of its loaders uses a CPU, or would if it did not wait for one."""
    used = trainer.loader_cpu or 0.0
    wanted = used + waiting_threads(trainer.loader_wait, used)
    return trainer.loaders > 0 and limits.reached(wanted, "starved-cpu-saturated.loader_cpu")


class Onset(NamedTuple):
    """When a use rose, from what to what, and how busy the GPU was before and after, in percent."""

    ago_s: float
    before: float
    after: float
    busy_before: float | None
    busy_after: float | None

    def slowed(self, points: float) -> bool:
        """Whether GPU busy fell by at least `points` percentage points."""
        return (
            self.busy_before is not None
            and self.busy_after is not None
            and self.busy_before - self.busy_after >= points
        )


def find_onset(view: View, trainer: Trainer, one: Shortage, takers: Sequence[Consumer]) -> Onset | None:
    """When these consumers began, from the history of their groups; None if that is older than the history."""
    name = CORES if one.resource == "cpu" else MOVED
    columns = [_use_series(view, taker.group, name, _PAST_S) for taker in takers]
    values = [sum(row) for row in zip(*columns, strict=True)] if columns else []
    place = change_point(values)
    if place is None:
        return None
    before, after = sum(values[:place]) / place, sum(values[place:]) / (len(values) - place)
    if after - before < view.limit("neighbour.rose") * after or after <= 0:
        return None
    ago = len(values) - place
    busy = view.history.values(trainer.key, "busy_percent", ago + _BESIDE_S)
    return Onset(float(ago), before, after, _mean(busy[:-ago]), _mean(busy[-ago:]))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None

"""A rule about somebody else's work that takes CPUs or disks from a trainer."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import NamedTuple

from gputop import units
from gputop.diagnose.cpu.apart import apart, bound, usable
from gputop.diagnose.cpulist import parsed
from gputop.diagnose.finding import Evidence, Finding, Step
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.starved import busy, starved, stolen
from gputop.diagnose.strangers import strangers
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.model import Missing, Process

_NICED = 8  # processes of a job that are named in a command
_MOVED = ("read_bytes_per_s", "write_bytes_per_s")
_HIDDEN = "the I/O of other users is hidden"


class Consumer(NamedTuple):
    """Processes that belong together and what they use: cores, or bytes a second."""

    processes: tuple[Process, ...]
    used: float

    @property
    def largest(self) -> Process:
        """The one that stands for all."""
        return max(self.processes, key=lambda process: process.cpu_percent or 0.0)


@rule(
    "neighbour",
    "Does other work take the CPUs or the disk?",
    level=Level.CAUSE,
    state="neighbour",
    short="NEAR",
    number="R22",
    rows=(19,),
    needs=("busy_percent",),
    partly=("run_wait_percent", "read_bytes_per_s", "cpus_total"),
)
def neighbour(view: View) -> Iterator[Finding]:
    """The GPU waits, CPUs or disk are full, and most of that is not of this job but of another one."""
    for trainer in view.trainers():
        if not view.knows(trainer, "duty") or not starved(view, trainer):
            continue
        if view.above(view.mean("host", "steal_percent"), "steal_percent") and stolen(view, trainer):
            yield _stolen(view, trainer)
        elif _cpu_full(view, trainer):
            yield from _by_cpu(view, trainer)
        elif _disk_full(view, trainer):
            yield from _by_disk(view, trainer)


def _cpu_full(view: View, trainer: Trainer) -> bool:
    waits = max(trainer.run_wait or 0.0, trainer.loader_wait or 0.0)
    full = view.above(view.mean("host", "cpu_percent"), "cpu_percent")
    if full and trainer.loader_wait is None and not view.knows(trainer, "run_wait"):
        return False
    pressure = view.mean("host", "cpu_pressure")  # not every kernel tells it
    pressed = pressure is None or view.above(pressure, "pressure_percent")
    return full and view.above(waits, "run_wait") and pressed


def _disk_full(view: View, trainer: Trainer) -> bool:
    busiest = _busiest(view)
    return (
        busiest is not None
        and view.above(busiest[0], "disk_percent")
        and view.above(trainer.loader_blocked, "blocked")
        and view.above(view.mean("host", "io_pressure"), "pressure_percent")
    )


def _busiest(view: View) -> tuple[float, str] | None:
    """How busy the busiest disk was, and its name."""
    known = ((view.mean(f"disk {disk.name}", "busy_percent"), disk.name) for disk in view.frame.host.disks)
    return max(((busy, name) for busy, name in known if busy is not None), default=None)


def _by_cpu(view: View, trainer: Trainer) -> Iterator[Finding]:
    other = max(_others(view, trainer, "cpu_percent"), key=lambda one: one.used, default=None)
    ranks = [rank.cores for rank in view.mates(trainer)]
    if other is None or None in ranks:  # a rank has only come, and nobody knows yet who takes most
        return
    cores = other.used / 100
    if cores <= sum(own for own in ranks if own is not None) or (total := view.cpus()) is None:
        return
    if view.above(cores / total, "share"):
        full = view.mean("host", "cpu_percent") or 0.0
        wait = 100 * max(trainer.run_wait or 0.0, trainer.loader_wait or 0.0)
        evidence = (
            Evidence(
                text=f"{_who(view, trainer, other)} uses {cores:.1f} of {total} CPUs",
                value=cores,
                unit="cores",
                limit=view.limit("share") * total,
            ),
            Evidence(text=f"all CPUs {full:.0f} % busy", value=full, unit="%", limit=view.limit("cpu_percent")),
            Evidence(
                text=f"this job waits for a CPU {wait:.0f} % of its time",
                value=wait,
                unit="%",
                limit=100 * view.limit("run_wait"),
            ),
        )
        yield _found(view, trainer, other, "the CPUs", evidence)


def _by_disk(view: View, trainer: Trainer) -> Iterator[Finding]:
    """Who reads and writes most; where the I/O of others is hidden nobody is blamed who may be less than what is."""
    hidden = any(_denied(process) for process in view.frame.processes)
    others, mine = _others(view, trainer, *_MOVED), _job_moves(view, trainer)
    seen, whole = mine + sum(one.used for one in others), _all_moved(view)
    total = max(seen, whole or 0.0)
    other = max(others, key=lambda one: one.used, default=None)
    large = other is not None and view.above(other.used / total if total else None, "share")
    if hidden and (other is None or not large or whole is None or other.used <= total - seen):
        unlock = view.unlock(_HIDDEN, sudo="sudo gputop shows who uses the disk")
        view.abstain(trainer, Missing(metric="read_bytes_per_s", reason="denied", unlock=unlock))
    elif other is not None and large and other.used > mine:
        busy, disk = _busiest(view) or (0.0, "a disk")
        wait = 100 * (trainer.loader_blocked or 0.0)
        evidence = (
            Evidence(
                text=f"{_who(view, trainer, other)} moves {other.used / 1e6:.0f} MB/s", value=other.used, unit="B/s"
            ),
            Evidence(text=f"{disk} {busy:.0f} % busy", value=busy, unit="%"),
            Evidence(text=f"loaders of this job wait for it {wait:.0f} % of their time", value=wait, unit="%"),
        )
        yield _found(view, trainer, other, "the disk", evidence)


def _job_moves(view: View, trainer: Trainer) -> float:
    """Bytes a second that all ranks of its job read and write: the mean of the looks of a window."""
    tree = [process for rank in view.mates(trainer) for process in rank.tree]
    looks = view.looks(trainer, sum(getattr(process, metric) or 0.0 for process in tree for metric in _MOVED), "own")
    return sum(moved for _, moved in looks) / len(looks)


def _all_moved(view: View) -> float | None:
    """Bytes a second that the machine reads and writes, whoever it is for: not all of them need be seen here."""
    read, written = (view.mean("host", metric) for metric in _MOVED)
    return None if read is None or written is None else read + written


def _denied(process: Process) -> bool:
    return any(one.metric == "read_bytes_per_s" and one.reason == "denied" for one in process.missing)


def _others(view: View, trainer: Trainer, *metrics: str) -> list[Consumer]:
    """What is not of this trainer's job, by job or by user and control group: the mean of the looks of a window."""
    groups: dict[Hashable, list[Process]] = {}
    for process in strangers(view.frame, trainer.process):
        groups.setdefault(process.job or (process.uid, process.cgroup), []).append(process)
    used = {
        who: sum(getattr(process, metric) or 0.0 for process in group for metric in metrics)
        for who, group in groups.items()
    }
    looks = view.looks(trainer, used, " ".join(metrics))
    return [
        Consumer(tuple(group), sum(look.get(who, 0.0) for _, look in looks) / len(looks))
        for who, group in groups.items()
    ]


def _who(view: View, trainer: Trainer, other: Consumer) -> str:
    """Of other users no more than who they are and what runs."""
    process = other.largest
    name = (view.called(process) if process.job else process.name) or "a program"
    if process.uid is not None and process.uid == trainer.process.uid:
        return f"{name} (pid {process.pid})"
    return f"{name} of user {process.user}" if process.user else name


def _found(
    view: View, trainer: Trainer, other: Consumer, what: str, evidence: tuple[Evidence, ...]
) -> Finding:  # fmt: skip
    age_s = min((process.age_s for process in other.processes if process.age_s is not None), default=None)
    together = age_s is not None and abs(age_s - trainer.phase_s) <= view.limit("together_s")
    if together:
        evidence += (Evidence(text=f"it began {units.ago(age_s)} ago, when the load of the GPU changed", value=age_s),)
    own = other.largest.uid is not None and other.largest.uid == trainer.process.uid
    return view.found(
        trainer,
        "warn",
        f"shares {what} with {_who(view, trainer, other)}, which takes most",
        evidence=(*evidence, busy(view, trainer)),
        steps=(
            Step(text="run heavy jobs on different machines, or one after the other"),
            _nice(other) if own else _ask(other),
            *_apart(view, trainer, other, own),
        ),
        confidence=view.confidence(0.65, view.mean("host", "cpu_pressure"), confirmed=together),
        lost_share=trainer.lost,
    )  # fmt: skip


def _nice(other: Consumer) -> Step:
    busiest = sorted(other.processes, key=lambda process: -(process.cpu_percent or 0.0))[:_NICED]
    pids = " ".join(str(process.pid) for process in busiest)
    return Step(text="let it have what is left over", command=f"renice -n 19 -p {pids}; ionice -c 3 -p {pids}")


def _ask(other: Consumer) -> Step:
    """What only its owner can do is no command of ours, and whose it is has been said."""
    owner = f"user {other.largest.user}" if other.largest.user else "its owner"
    return Step(text=f"ask {owner} to let it have what is left over: renice -n 19, ionice -c 3")


def _apart(view: View, trainer: Trainer, other: Consumer, own: bool) -> Iterator[Step]:
    """Half of the CPUs that it may use for it alone: that takes both, and who takes most must be moved by its owner."""
    every = usable(view, trainer)
    for mine in apart(view, [trainer], len(every) // 2) if len(every) > 1 else ():
        rest = units.ranges(tuple(sorted(every - parsed(mine))))
        yield bound(view, trainer, "or give each CPUs of its own: this one", mine)
        if own:
            pids = " ".join(str(process.pid) for process in other.processes[:_NICED])
            yield Step(text="and the other", command=f"for p in {pids}; do taskset -acp {rest} $p; done")
        else:
            yield Step(text=f"and ask its owner to keep the other to CPUs {rest}: without that the first helps nobody")


def _stolen(view: View, trainer: Trainer) -> Finding:
    steal = view.mean("host", "steal_percent") or 0.0
    return view.found(
        trainer,
        "warn",
        "shares its CPUs with other virtual machines",
        evidence=(
            Evidence(
                text=f"{steal:.0f} % of the CPU time goes to other virtual machines (steal)",
                value=steal,
                unit="%",
                limit=view.limit("steal_percent"),
            ),
            busy(view, trainer),
        ),
        steps=(Step(text="move to a host, or an instance type, with CPUs of its own (dedicated, not burstable)"),),
        confidence=0.65,
        lost_share=trainer.lost,
    )

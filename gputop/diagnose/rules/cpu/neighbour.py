"""A rule on other jobs or users that take CPUs or disk bandwidth from a trainer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gputop import units
from gputop.diagnose.contention import Consumer, Onset, Shortage, contention, find_onset
from gputop.diagnose.finding import Evidence, Finding, Step
from gputop.diagnose.neighbours import cores
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.rules.cpu.placement import apart, bound, usable
from gputop.diagnose.starvation import busy_evidence, has_steal, is_starved
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.labels import amount
from gputop.model import Missing
from gputop.units import cpus_of

_NICED = 8  # processes of a job that are listed in a command
_NAMED = 4  # consumers listed, largest first
_VISIBLE = 5.0  # percentage points of GPU busy: a smaller drop is no change
_HIDDEN = "the I/O of other users is hidden"
_LOWER = "Lower its CPU and I/O priority"


@rule(
    "neighbour",
    "Do other jobs or users take the CPUs or the disk?",
    level=Level.CAUSE,
    state="neighbour",
    short="NEAR",
    needs=("busy_percent",),
    partly=("run_wait_percent", "read_bytes_per_s", "cpus_total"),
)
def neighbour(view: View) -> Iterator[Finding]:
    """The GPU waits, CPUs or a disk are saturated, and most of that use belongs to other jobs or users."""
    now = contention(view)
    for trainer in view.trainers():
        if not view.knows(trainer, "duty"):
            continue
        steal = view.above(view.mean("host", "steal_percent"), "steal_percent") and has_steal(view, trainer)
        if steal and is_starved(view, trainer):
            yield _steal_finding(view, trainer)
            continue
        if trainer.identity in now.unknown:
            view.knows(trainer, "run_wait")
        if trainer.identity in now.uncounted:
            view.cpus()  # records the abstention
        if trainer.identity in now.hidden:
            unlock = view.unlock(_HIDDEN, sudo="sudo gputop shows which processes use the disk")
            view.abstain(trainer, Missing(metric="read_bytes_per_s", reason="denied", unlock=unlock))
        for one in list(now.shortages_of(trainer.identity))[:1]:
            takers = now.competitors(one)
            taken = sum(taker.used for taker in takers)
            if takers and taken > one.own and view.above(taken / one.total, "share"):
                yield _found(view, trainer, one, takers, taken)


def _found(view: View, trainer: Trainer, one: Shortage, takers: Sequence[Consumer], taken: float) -> Finding:
    """The largest consumer is named alone if most is its use; many small ones are summed."""
    largest, what = takers[0], "CPU" if one.resource == "cpu" else "disk"
    alone = largest.used >= view.limit("largest") * taken
    began = find_onset(view, trainer, one, takers[:1] if alone else takers)
    by = _consumer_label(trainer, largest) if alone else "others"
    slowed = began is not None and began.slowed(view.limit("fell"))
    own = _is_same_user(trainer, largest)
    most = _consumer_label(trainer, largest) if alone else amount(len(takers), "other program")
    return view.found(
        trainer,
        "warn",
        f"{what} contention, mostly from {most}",
        evidence=(
            *_evidence(view, trainer, one, takers, taken),
            *_onset_evidence(began, one, by),
            busy_evidence(view, trainer),
        ),
        steps=(
            Step(text="Run heavy jobs on different machines, or one after the other"),
            _lower_priority(view, largest) if own else _ask_owner(largest),
            *(_give_exclusive_cpus(view, trainer, largest, own) if alone else ()),
        ),
        confidence=view.confidence(0.65, view.mean("host", "cpu_pressure"), confirmed=slowed),
        lost_share=trainer.lost,
    )


def _evidence(
    view: View, trainer: Trainer, one: Shortage, takers: Sequence[Consumer], taken: float
) -> Iterator[Evidence]:
    cpu, wait = one.resource == "cpu", 100 * one.wait
    limit = view.limit("share") * one.total
    total = f"of {one.total:.0f} CPUs" if cpu else f"of {one.total / 1e6:.0f} MB/s"
    if len(takers) > 1:
        sum_ = f"{taken:.1f}" if cpu else f"{taken / 1e6:.0f}"
        text = f"{len(takers)} other programs {'use' if cpu else 'transfer'} {sum_} {total}"
        unit = "cores" if cpu else "B/s"
        yield Evidence(text=text, value=taken, unit=unit, limit=limit, sense="flagged_above")
    named = [taker for taker in takers if taker.share >= view.limit("named")] or takers[:1]
    for taker in named[:_NAMED]:
        used = f"uses {taker.used:.1f} of {one.total:.0f} CPUs" if cpu else f"transfers {taker.used / 1e6:.0f} MB/s"
        text = f"{_consumer_label(trainer, taker)} {used}"
        yield Evidence(
            text=text,
            value=taker.used,
            unit="cores" if cpu else "B/s",
            limit=limit if len(takers) == 1 and cpu else None,
            sense="flagged_above",
        )
    if cpu:
        view.above(one.full_percent, "cpu_percent")
        view.above(one.wait, "run_wait")
        view.above(view.mean("host", "cpu_pressure"), "pressure_percent")
        full, most, least = one.full_percent, view.limit("cpu_percent"), 100 * view.limit("run_wait")
        text = f"this job waited for a CPU {wait:.0f} % of its runnable time"
        yield Evidence(text=text, value=wait, unit="%", limit=least, sense="healthy_to")
        text = f"all CPUs of the machine {full:.0f} % busy"
        yield Evidence(text=text, value=full, unit="%", limit=most, sense="flagged_above")
    else:
        view.above(one.full_percent, "disk_percent")
        view.above(one.wait, "blocked")
        view.above(view.mean("host", "io_pressure"), "pressure_percent")
        yield Evidence(text=f"{one.disk or 'a disk'} {one.full_percent:.0f} % busy", value=one.full_percent, unit="%")
        yield Evidence(text=f"workers of this job blocked on it {wait:.0f} % of their time", value=wait, unit="%")


def _onset_evidence(began: Onset | None, one: Shortage, by: str) -> Iterator[Evidence]:
    """When their use rose, from the history rather than process ages, and how the GPU changed."""
    if began is None:
        return
    cpu, unit = one.resource == "cpu", 1.0 if one.resource == "cpu" else 1e6
    before, after = f"{began.before / unit:.0f}", f"{began.after / unit:.0f} {'cores' if cpu else 'MB/s'}"
    text = f"{'CPU use' if cpu else 'I/O'} by {by} rose from {before} to {after} {units.ago_text(began.ago_s)} ago"
    yield Evidence(text=text, value=began.ago_s, unit="s")
    if began.busy_before is not None and began.busy_after is not None and began.slowed(_VISIBLE):
        text = f"GPU busy fell from {began.busy_before:.0f} % to {began.busy_after:.0f} % at the same time"
        yield Evidence(text=text, value=began.busy_after, unit="%")


def _is_same_user(trainer: Trainer, taker: Consumer) -> bool:
    return taker.command.uid is not None and taker.command.uid == trainer.process.uid


def _consumer_label(trainer: Trainer, taker: Consumer) -> str:
    """Label of a consumer; for other users only the user and the program."""
    process = taker.command
    if _is_same_user(trainer, taker):
        return f"{taker.name} (pid {process.pid})"
    return f"{taker.name} of user {process.user}" if process.user else taker.name


def _lower_priority(view: View, taker: Consumer) -> Step:
    """Lower the priority: of the process group, if processes are too short-lived to list."""
    lasting = [one for one in taker.processes if one.age_s is None or one.age_s >= view.limit("lived_s")]
    brief = sum(map(cores, taker.processes)) > 2 * sum(map(cores, lasting))
    if brief and taker.command.group:
        command = f"renice -n 19 -g {taker.command.group}; ionice -c 3 -P {taker.command.group}"
        return Step(text=_LOWER, command=command)
    busiest = sorted(lasting or taker.processes, key=lambda process: -(process.cpu_percent or 0.0))[:_NICED]
    pids = " ".join(str(process.pid) for process in busiest)
    return Step(text=_LOWER, command=f"renice -n 19 -p {pids}; ionice -c 3 -p {pids}")


def _ask_owner(taker: Consumer) -> Step:
    """Ask the owner, without a command: only the owner could run it."""
    owner = f"user {taker.command.user}" if taker.command.user else "its owner"
    return Step(text=f"Ask {owner} to lower its CPU and I/O priority: renice -n 19, ionice -c 3")


def _give_exclusive_cpus(view: View, trainer: Trainer, other: Consumer, own: bool) -> Iterator[Step]:
    """Give half of its CPUs to it exclusively: both must move, and only its owner can move the other."""
    every = usable(view, trainer)
    for mine in apart(view, [trainer], len(every) // 2) if len(every) > 1 else ():
        rest = units.ranges(tuple(sorted(every - cpus_of(mine))))
        if own:
            pids = " ".join(str(process.pid) for process in other.processes[:_NICED])
            yield Step(
                text=f"Pin {other.name} to CPUs {rest}",
                command=f"for p in {pids}; do taskset -acp {rest} $p; done",
            )
        else:
            yield Step(text=f"Ask its owner to pin {other.name} to CPUs {rest}")
        yield bound(view, trainer, f"Then pin this job to the other CPUs, {mine}", mine)


def _steal_finding(view: View, trainer: Trainer) -> Finding:
    steal = view.mean("host", "steal_percent") or 0.0
    return view.found(
        trainer,
        "warn",
        "CPU steal, host shared with other virtual machines",
        evidence=(
            Evidence(
                text=f"steal {steal:.0f} % of CPU time, taken by other virtual machines",
                value=steal,
                unit="%",
                limit=view.limit("steal_percent"),
                sense="healthy_to",
            ),
            busy_evidence(view, trainer),
        ),
        steps=(Step(text="Move to a host or instance type with dedicated CPUs, not burstable ones"),),
        confidence=0.65,
        lost_share=trainer.lost,
    )

"""Rules on worker timing: one slow sample that all wait for, and workers restarted for every epoch."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from gputop import units
from gputop.diagnose.finding import Evidence, Finding, Severity, Step
from gputop.diagnose.pauses import Pause, Pauses
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.rules.cpu.limits import pinned
from gputop.diagnose.rules.storage import sources
from gputop.diagnose.rules.storage.slow_reads import latency
from gputop.diagnose.starvation import (
    busy_evidence,
    is_shared,
    is_starved,
    loaders_text,
    loaders_uncertain,
    storage_idle,
    upper_bound,
    waits_for_cpu,
    waits_for_network,
    waits_for_storage,
)
from gputop.diagnose.steps import stack
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.labels import amount
from gputop.model import Identity, Process, Role


@rule(
    "head-of-line",
    "Do slow samples block the others (head-of-line blocking)?",
    level=Level.STARVED,
    state="dataloader",
    short="DATA",
    confirmed_by=("waits-for-data", "input-bound"),
    needs=("busy_percent", "main_thread_percent", "cpu_percent", "blocked_percent", "allowed_cpus"),
)
def head_of_line(view: View) -> Iterator[Finding]:
    """GPU and main thread wait while most workers sleep, and neither CPU, disk nor network is short."""
    for trainer in view.trainers():
        if trainer.loaders < view.limit("loaders") or not view.knows(
            trainer, "duty", "main", "loader_cpu", "loader_blocked", "cores", "allowed"
        ):
            continue
        asleep = view.below(trainer.loader_cpu, "loader_cpu") and view.below(trainer.main, "main")
        if not asleep or not view.below(trainer.saturation, "saturation") or not is_starved(view, trainer):
            continue
        loaders = [process for process in trainer.tree if process.role is Role.LOADER]
        young = any((process.age_s or 0.0) < view.limit("window_s") for process in loaders)
        short = waits_for_cpu(view, trainer) or waits_for_storage(view, trainer) or waits_for_network(view)
        short = short or _may_use_server(view, trainer) or latency(view.against, trainer) is not None
        short = short or pinned(view.against, trainer) is not None
        severity = view.by_share(trainer.lost)
        if not young and not short and severity is not None:
            yield _head_of_line_finding(view, trainer, loaders, severity)


def _may_use_server(view: View, trainer: Trainer) -> bool:
    """Whether it reads so much that it may come from a file server: waiting for one may look like plain sleep.

    What the machine got from no disk or server came from memory; some file systems report nothing.
    """
    if (trainer.read_chars or 0.0) < view.limit("starved.reads_bytes_per_s"):
        return False
    return bool(sources.silent_mounts(view)) or not storage_idle(view)


def _may_fetch(view: View, trainer: Trainer) -> bool:
    """Whether its data may arrive over the network in small amounts: waiting for replies is sleep as well."""
    little = view.limit("starved.quiet_bytes_per_s")
    received = view.mean("host", "receive_bytes_per_s", 30) or 0.0
    return received >= little or ((trainer.read_chars or 0.0) >= little and bool(sources.silent_mounts(view)))


def _head_of_line_finding(view: View, trainer: Trainer, loaders: list[Process], severity: str) -> Finding:
    slow, fetches = _slowest(view, trainer, loaders), _may_fetch(view, trainer)
    each, main, blocked = (
        100 * (value or 0.0) for value in (trainer.loader_cpu, trainer.main, trainer.loader_blocked)
    )  # fmt: skip
    evidence = [
        busy_evidence(view, trainer),
        Evidence(
            text=f"{trainer.loaders} workers use {each:.0f} % of a core each, blocked on storage "
            f"{blocked:.0f} % of the time",
            value=each,
            unit="%",
            limit=100 * view.limit("loader_cpu"),
            sense="flagged_below",
        ),
        Evidence(text=f"main thread waits for them, {main:.0f} % of a core", value=main, unit="%",
                 limit=100 * view.limit("main"), sense="flagged_below"),
    ]  # fmt: skip
    look = stack(view, slow[0] if slow else loaders[0], "Check what a worker waits for")
    if slow:
        one, percent = slow
        evidence.insert(1, _busiest(one, percent))
        steps: tuple[Step, ...] = (
            Step(text=f"Split the data evenly among the workers: {upper_bound(trainer)}"),
            look,
            *_STEPS,
        )
    else:
        steps = (look, *_STEPS) if fetches else (*_STEPS, look)
    return view.found(
        trainer,
        "warn" if severity == "crit" else severity,  # type: ignore[arg-type]
        f"dataloader-bound, one of {loaders_text(trainer)} does most of the work"
        if slow
        else _sleep_text(trainer) + (_alternative_text(view, trainer) if fetches else ""),
        evidence=tuple(evidence),
        steps=steps,
        confidence=view.confidence(0.55, _reads(view, trainer), view.mean("host", "receive_bytes_per_s")),
        lost_share=trainer.lost,
    )


def _busiest(worker: Process, percent: float) -> Evidence:
    return Evidence(text=f"worker PID {worker.pid} uses {percent:.0f} % of a core", value=percent, unit="%")


def _alternative_text(view: View, trainer: Trainer) -> str:
    """The alternative explanation, with the mount's name if there is only one it may read from."""
    mounts, little = sources.silent_mounts(view), view.limit("starved.quiet_bytes_per_s")
    if len(mounts) == 1 and (trainer.read_chars or 0.0) >= little:
        return f", or slow reads from {mounts[0].path} ({mounts[0].file_system})"
    return ", or slow network reads"


def _sleep_text(trainer: Trainer) -> str:
    bound = f"{'possibly ' if loaders_uncertain(trainer) else ''}dataloader-bound"
    return f"{bound}, head-of-line blocking on slow samples"


def _reads(view: View, trainer: Trainer) -> float | None:
    """Bytes/s from storage: its own counters are visible to its owner, those of the machine to all."""
    return 0.0 if trainer.read_bytes is None and storage_idle(view) else trainer.read_bytes


_STEPS = (
    Step(
        text="Take batches as they are ready, not in order (PyTorch 2.6; runs are then not reproducible)",
        command="DataLoader(..., in_order=False)",
    ),
    Step(text="Prefetch more batches", command="DataLoader(..., prefetch_factor=8)"),
    Step(text="Find the slow samples: decode them beforehand, cap their size, or sort by length"),
)


def _slowest(view: View, trainer: Trainer, loaders: list[Process]) -> tuple[Process, float] | None:
    """The loader that works for a minute while the others do not, and its CPU in percent of a core."""
    cores = view.mean(trainer, "cores", 60, whole=True)
    little = cores is not None and cores < view.limit("skewed_cpu")  # by their sum: saves checking each
    if little or len(loaders) < view.limit("skewed_loaders"):
        return None
    means = [(view.mean(process, "cpu_percent", 60) or 0.0, process) for process in loaders]
    most, busiest = max(means, key=lambda one: one[0])
    mean = sum(percent for percent, _ in means) / len(means)
    skewed = most >= view.limit("skew") * mean and most / 100 >= view.limit("skewed_cpu")
    return (busiest, most) if skewed else None


_AROUND_S = 1.0  # seconds around a start in which the GPU's pause may begin or end
_LATE_S = 10.0  # seconds by which a worker may be recognized after its start
_KEPT = 64


@dataclass(slots=True)
class WorkerTeam:
    """Workers that started together."""

    from_s: float  # earliest start of the first
    last_s: float  # latest start of the last
    parent: int | None
    team: set[Identity]
    cost_s: float = 0.0  # GPU seconds
    settled: bool = False


@dataclass(slots=True)
class WorkerTeams:
    """Worker starts of a trainer, by birth time, for any number of workers and any interval."""

    first_s: float | None = None  # watched since
    looked_s: float = 0.0
    here: frozenset[Identity] = frozenset()
    starts: deque[WorkerTeam] = field(default_factory=lambda: deque(maxlen=_KEPT))

    def look(self, workers: Sequence[Process], now_s: float, within_s: float) -> None:
        """Take in the present workers."""
        here = frozenset(one.identity for one in workers)
        if self.first_s is None:
            self.first_s = now_s
        else:
            since_s = now_s - self.looked_s
            born = [(self._born(one, now_s, since_s), one) for one in workers if one.identity not in self.here]
            for (from_s, until_s), one in sorted(born, key=lambda each: each[0]):
                self._add(one, from_s, until_s, here, within_s)
        self.here, self.looked_s = here, now_s

    def _born(self, one: Process, now_s: float, since_s: float) -> tuple[float, float]:
        """Earliest and latest start time of a worker; an impossible age is ignored."""
        if one.age_s is not None and one.age_s <= since_s + _LATE_S:
            return now_s - one.age_s, now_s - one.age_s
        return self.looked_s, now_s

    def _add(self, one: Process, from_s: float, until_s: float, here: frozenset[Identity], within_s: float) -> None:
        last = self.starts[-1] if self.starts else None
        near = last is not None and from_s - last.last_s <= within_s
        if last is not None and near and last.parent == one.parent_pid and last.team <= here:
            last.last_s = max(last.last_s, until_s)
            last.team.add(one.identity)
        else:
            self.starts.append(WorkerTeam(from_s, until_s, one.parent_pid, {one.identity}))

    def weigh(self, pauses: Pauses) -> None:
        """Compute the cost of each start: the GPU pauses around it, each counted once."""
        for start in self.starts:
            if start.settled:
                continue
            around = [one for one in reversed(pauses.known) if _touches(start, one)]
            for one in around:
                if one.born_s is None:
                    one.born_s = start.from_s
                    one.cause = one.cause or "workers"
            start.cost_s = sum(one.starting_s for one in around if one.born_s == start.from_s)
            over = (pauses.seen_s or 0.0) > start.last_s + 3 * _AROUND_S
            start.settled = over and all(one.settled for one in around)


def _touches(start: WorkerTeam, one: Pause) -> bool:
    return one.start_s <= start.last_s + _AROUND_S and one.end_s >= start.from_s - _AROUND_S


@rule(
    "worker-respawn",
    "Do DataLoader workers respawn every epoch?",
    level=Level.STARVED,
    state="dataloader",
    short="DATA",
    needs=("busy_percent",),
    lasting=True,
)
def worker_respawn(view: View) -> Iterator[Finding]:
    """Workers respawn repeatedly, for training or validation, and the GPU waits while they start."""
    for trainer in view.trainers():
        notes = view.notes(trainer)
        teams: WorkerTeams = notes.get("teams") or notes.setdefault("teams", WorkerTeams())
        workers = [process for process in trainer.tree if process.role is Role.LOADER]
        teams.look(workers, view.frame.mono_s, view.limit("within_s"))
        pauses = view.pauses(trainer)
        teams.weigh(pauses)
        since_s = view.frame.mono_s - view.limit("window_s")
        starts = [one for one in teams.starts if one.from_s >= since_s]
        if len(starts) >= view.limit("times") and view.knows(trainer, "duty") and not is_shared(view, trainer):
            yield from _respawn_findings(view, trainer, starts, pauses)


def _respawn_findings(view: View, trainer: Trainer, starts: Sequence[WorkerTeam], pauses: Pauses) -> Iterator[Finding]:
    now_s, times = view.frame.mono_s, len(starts)
    every_s = (starts[-1].from_s - starts[0].from_s) / (times - 1)
    cost_s = sum(one.cost_s for one in starts) / times
    if now_s - starts[-1].from_s > view.limit("late") * every_s:
        return
    early = times <= view.limit("times")
    if early:  # their interval is not known: the share is of the whole time tracked
        lost = times * cost_s / max(every_s, pauses.watched_s(view.limit("window_s")))
    else:
        lost = sum(one.cost_s for one in starts[1:]) / (now_s - starts[0].from_s)
    if not view.above(cost_s, "cost_s") and not view.above(lost, "lost"):
        return  # short epochs pay little each time, and much in total
    # the end of the first epoch and of its validation: not a problem by itself
    if not view.above(lost, "lost" if times <= view.limit("times") + 1 else "least_lost"):
        return
    yield view.found(
        trainer,
        "info" if early else _severity(view, lost),
        f"dataloader-bound, workers respawn every {units.ago_text(round(every_s))}",
        evidence=(
            Evidence(
                text=f"{_sizes(starts)} started {times} times, every {units.ago_text(round(every_s))}",
                value=float(times),
            ),
            Evidence(
                text=f"GPU idle {cost_s:.1f} s per start, {100 * lost:.1f} % of GPU time lost",
                value=100 * lost,
                unit="%",
                limit=100 * view.limit("lost"),
                sense="healthy_to",
            ),
        ),
        steps=tuple(_steps(starts)),
        confidence=0.65 if early else 0.9 if every_s > 5 * _AROUND_S + 2 * view.stands_for_s else 0.75,
        lost_share=lost,
    )


def _severity(view: View, lost: float) -> Severity:
    if lost >= view.limit("engine.lost_crit"):
        return "crit"
    return "warn" if lost >= view.limit("lost") else "info"


def _sizes(starts: Iterable[WorkerTeam]) -> str:
    """`8 workers`, or `8 and 4 workers` if training and validation have separate ones."""
    *most, last = dict.fromkeys(len(one.team) for one in starts)
    return f"{', '.join(map(str, most))} and {last} workers" if most else amount(last, "worker")


def _steps(starts: Sequence[WorkerTeam]) -> Iterator[Step]:
    several = len({len(one.team) for one in starts}) > 1
    which = " of training and of validation" if several else ""
    yield Step(text=f"Keep the workers{which} between epochs", command="DataLoader(..., persistent_workers=True)")
    yield Step(text="Create each DataLoader once, before the epoch loop, not in it")
    yield Step(text="Open large files and indexes in the worker on first use: what the dataset holds is sent to each")

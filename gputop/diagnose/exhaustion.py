"""Time to exhaustion: what is left of a memory, divided by the rate of steady growth.

A projection takes less than a minute. A leak test over a quarter of an hour is too late: a program that takes 90 MB/s
of 24 GB is killed before that window is half full.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gputop.diagnose.estimators import rise
from gputop.diagnose.starvation import has_work
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Cgroup, Identity, Process, Role

Series = Callable[[float], Sequence[float | None]]  # maps seconds to that many values, one per second, newest last


@frozen_dataclass(frozen=True, slots=True)
class Projection:
    """Steady growth and what it leaves: bytes/s, bytes seen over `window_s`, bytes left."""

    per_s: float
    grown: float
    window_s: float
    left: float

    @property
    def left_s(self) -> float:
        """Seconds until nothing is left."""
        return self.left / self.per_s


def projection(view: View, used: Series, left: float | None, idle: bool = False) -> Projection | None:
    """Steady growth that leaves less than ten minutes, over the shortest window that shows it; None for any other.

    `idle`: no GPU works, so it may be a load that ends.
    """
    shortest = view.limit("exhaustion.idle_window_s" if idle else "exhaustion.window_s")
    longest = view.limit("exhaustion.long_s")
    window_s = shortest
    while left is not None and window_s <= longest:
        found = rise(used(window_s), 1.0)
        if found is not None and view.below(left / found.per_s, "exhaustion.urgent_s"):
            return Projection(found.per_s, found.total, window_s, max(0.0, left))
        window_s = longest if window_s < longest else longest + 1
    return None


def in_steps(view: View, trainer: Trainer) -> bool:
    """Whether it runs training steps: its GPU works, and did before. False for a GPU without utilization."""
    if not trainer.gpus:
        return False
    if trainer.duty is None:
        return trainer.settled
    return has_work(view, trainer) and trainer.work_s >= view.limit("exhaustion.work_s")


class Pool(NamedTuple):
    """Host memory under one limit: bytes in total and left, use over time, and the name of the limit."""

    total: float
    left: float
    used: Series
    of: str


def pool(view: View, group: Cgroup | None) -> Pool | None:
    """Memory of a control group with a limit, or of the machine. Page cache does not count: it is reclaimable."""
    host, history = view.frame.host, view.history
    if group is not None and group.memory_limit_bytes and group.anonymous_bytes is not None:
        key, taken = f"cgroup {group.path}", group.anonymous_bytes + (group.shared_bytes or 0)

        def charged(seconds: float) -> Sequence[float | None]:
            own, shared = (history.values(key, name, seconds) for name in ("anonymous_bytes", "shared_bytes"))
            return [None if one is None else one + (two or 0.0) for one, two in zip(own, shared, strict=True)]

        limit = float(group.memory_limit_bytes)
        return Pool(limit, max(0.0, limit - taken), charged, "of its memory limit")
    if host.memory_total_bytes and host.memory_available_bytes is not None:

        def gone(seconds: float) -> Sequence[float | None]:
            values = history.values("host", "memory_available_bytes", seconds)
            return [None if value is None else -value for value in values]

        total, left = float(host.memory_total_bytes), float(host.memory_available_bytes)
        return Pool(total, left, gone, "of host memory")
    return None


class TreeGrowth(NamedTuple):
    """Growth of a trainer's processes in bytes: in all, in its loaders; and what the growing ones read."""

    total: float
    loaders: float
    read: float


class _Sample(NamedTuple):
    at_s: float
    held: Mapping[Identity, float]  # memory that a process does not share with others
    read: Mapping[Identity, float]  # bytes/s


def own_bytes(process: Process) -> float | None:
    """Memory of a process that is neither file-backed nor shared; otherwise its proportional share (PSS)."""
    if process.rss_bytes is not None and process.shared_bytes is not None:
        return float(max(0, process.rss_bytes - process.shared_bytes))
    return None if process.pss_bytes is None else float(process.pss_bytes)


def _samples(view: View, notes: dict[str, Any]) -> deque[_Sample]:
    """Record what each trainer's processes hold and read now; return the samples of the longest window."""
    looks: deque[_Sample] = notes.setdefault("looks", deque())
    processes = [one for trainer in view.vectors() for one in trainer.tree]
    held = {one.identity: own for one in processes if (own := own_bytes(one)) is not None}
    read = {one.identity: max(one.read_bytes_per_s or 0.0, one.read_chars_per_s or 0.0) for one in processes}
    looks.append(_Sample(view.frame.mono_s, held, read))
    while looks[0].at_s < view.frame.mono_s - view.limit("exhaustion.long_s"):
        looks.popleft()
    return looks


def tree_growth(looks: Sequence[_Sample], trainer: Trainer, seconds: float) -> TreeGrowth:
    """Growth of its processes over that time, each since its first sample: a fork begins with what it shares."""
    newest = looks[-1]
    within = [one for one in looks if one.at_s >= newest.at_s - seconds]
    total = loaders = read = 0.0
    for process in trainer.tree:
        identity = process.identity
        known = [one.held[identity] for one in within if identity in one.held]
        grown = known[-1] - known[0] if known else 0.0
        total += grown
        loaders += grown if process.role is Role.LOADER else 0.0
        if grown > 0 and len(within) > 1:
            rates = [one.read.get(identity, 0.0) for one in within]
            read += sum(rates) / len(rates) * (within[-1].at_s - within[0].at_s)
    return TreeGrowth(total, loaders, read)


class Exhaustion(NamedTuple):
    """A trainer that soon exhausts the memory it may use."""

    trainer: Trainer
    pool: Pool
    projection: Projection
    growth: TreeGrowth
    in_steps: bool  # its GPU works
    keeps_data: bool  # it reads about as much as it grows by: the growth may end with the data


def exhaustions(view: View, groups: Mapping[str, Cgroup], notes: dict[str, Any]) -> Iterator[Exhaustion]:
    """Trainers that exhaust their memory within ten minutes, each with the limit reached first."""
    looks, host = _samples(view, notes), pool(view, None)
    projected: dict[tuple[str | None, bool], Projection | None] = {}
    for trainer in view.vectors():
        path = trainer.process.cgroup if trainer.process.cgroup in groups else None
        training = in_steps(view, trainer)
        found: list[tuple[Pool, Projection]] = []
        for where, bounds in ((path, pool(view, groups[path]) if path else None), (None, host)):
            if bounds is None:
                continue
            asked = where, not training
            if asked not in projected:
                projected[asked] = projection(view, bounds.used, bounds.left, idle=not training)
            if (one := projected[asked]) is not None:
                found.append((bounds, one))
        for bounds, one in sorted(found, key=lambda each: each[1].left_s)[:1]:
            its = tree_growth(looks, trainer, one.window_s)
            if its.total >= view.limit("exhaustion.share") * one.grown:
                ratio = its.read / its.total
                keeps = view.limit("exhaustion.kept_least") <= ratio <= view.limit("exhaustion.kept_most")
                yield Exhaustion(trainer, bounds, one, its, training, keeps)


class OtherExhaustion(NamedTuple):
    """Machine memory soon exhausted by other processes, and the one that grows most, if visible."""

    pool: Pool
    projection: Projection
    process: Process | None
    grown: float  # by that process, since it is tracked


def other_exhaustion(view: View, found: Sequence[Exhaustion], notes: dict[str, Any]) -> OtherExhaustion | None:
    """Exhaustion by other processes. It may be a load that ends, so it must outlast one."""
    bounds = pool(view, None)
    soon = projection(view, bounds.used, bounds.left, idle=True) if bounds is not None and view.vectors() else None
    if bounds is None or soon is None or any(one.pool.of == bounds.of for one in found):
        notes.pop("others", None)
        return None
    theirs = {process.identity for trainer in view.vectors() for process in trainer.tree}
    held = {
        process.identity: own
        for process in view.frame.processes
        if process.identity not in theirs and (own := own_bytes(process)) is not None
    }
    since_s, first = notes.setdefault("others", (view.frame.mono_s, held))
    if view.frame.mono_s - since_s < view.limit("exhaustion.named_s"):
        return None
    grown = {identity: own - first.get(identity, own) for identity, own in held.items()}
    largest = max(grown, key=lambda one: grown[one], default=None)
    least = view.limit("exhaustion.share") * soon.per_s * (view.frame.mono_s - since_s)
    if largest is None or grown[largest] < least:
        return OtherExhaustion(bounds, soon, None, 0.0)
    process = next(one for one in view.frame.processes if one.identity == largest)
    return OtherExhaustion(bounds, soon, process, grown[largest])

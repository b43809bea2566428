"""A rule on training that stops while a checkpoint is written."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import mean, median, pstdev
from typing import NamedTuple

from gputop.diagnose.finding import Evidence, Finding, Severity, Step
from gputop.diagnose.pauses import Pause, Pauses
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.rules.storage.sources import moved
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.frozen_dataclass import frozen_dataclass
from gputop.history import Key
from gputop.model import Missing, Process
from gputop.optional_sums import added
from gputop.units import ago_text, size

_MOST_S = 900.0  # kept by the history per second
_FOLLOWS_S = 60.0  # after a pause, in which writeback of what it began may continue
_BEFORE_S = 30.0  # before a pause, for its usual write rate
_GOES_ON = 0.3  # of the rate in the pause, above which writeback continues
_LEAST_S, _LEAST_AFTER_S = 1.5, 5.0  # of that, to know it; of what comes after it instead
_ROOM = 0.25  # of the interval between two pauses, in which writes count toward one of them


@frozen_dataclass(frozen=True, slots=True)
class Written:
    """Bytes per second up to `now_s`; `lag_s`: how far from a pause a write may count toward it."""

    bytes: Sequence[float | None]
    now_s: float
    lag_s: float

    @classmethod
    def of(cls, view: View, trainer: Trainer, pause_s: float, lag_s: float) -> Written:
        """Writes of its job since shortly before a pause; of the whole machine if those are hidden."""
        now_s = view.frame.mono_s
        seconds = math.ceil(min(_MOST_S, now_s - pause_s + lag_s + _BEFORE_S))
        about = trainer.process.job or trainer.identity
        found = view.cached(("written", about, seconds), lambda: _by_second(view, trainer, seconds))
        return cls(found, now_s, lag_s)

    def settle(self, before: Pause | None, one: Pause, after: Pause | None) -> None:
        """Record what was written because of a pause, including writeback after it, and the rate before it."""
        earlier_s = self.lag_s if before is None else min(self.lag_s, _ROOM * (one.start_s - before.end_s))
        later_s = self.lag_s if after is None else min(self.lag_s, _ROOM * (after.start_s - one.end_s))
        first_s, last_s = one.start_s - earlier_s, one.end_s + later_s
        since_s = first_s - _BEFORE_S
        if before is not None:
            since_s = max(since_s, before.written_s or before.end_s + earlier_s)
        total, known_s = self._sum(since_s, first_s)
        if known_s >= _LEAST_S:
            one.between = total / known_s
        elif before is not None:
            one.between = before.between
        one.written, _ = self._sum(first_s, last_s)
        until_s = min(self.now_s, last_s + _FOLLOWS_S, math.inf if after is None else after.start_s - later_s)
        more, goes_on_s = self._background(last_s, until_s, _GOES_ON * one.written / (last_s - first_s), one.between)
        if goes_on_s + 1.0 <= until_s:  # it ended: otherwise it writes all the time
            one.written, last_s = one.written + more, goes_on_s
        one.written_s = last_s
        if one.between is None:  # no data before it: the rate after it is used
            total, known_s = self._sum(last_s, self.now_s if after is None else after.start_s - later_s)
            one.between = total / known_s if known_s >= _LEAST_AFTER_S else None
        one.written = max(0.0, one.written - (one.between or 0.0) * (last_s - first_s))
        over = one.between is not None and goes_on_s + 1.0 <= self.now_s
        one.settled = one.ended and (over or after is not None)

    def _background(self, from_s: float, until_s: float, rate: float, between: float | None) -> tuple[float, float]:
        """Bytes of writeback after a pause, and its end: faster than before, and near the rate of the pause."""
        total, enough = 0.0, max(rate, 2 * (between or 0.0), 1.0)
        while from_s + 1.0 <= until_s and (more := self._sum(from_s, from_s + 1.0)[0]) >= enough:
            total, from_s = total + more, from_s + 1.0
        return total, from_s

    def _sum(self, from_s: float, until_s: float) -> tuple[float, float]:
        """Bytes written between two times, and the seconds of these that are known."""
        start_s, total, known_s = self.now_s - len(self.bytes), 0.0, 0.0
        for place in range(max(0, math.floor(from_s - start_s)), min(len(self.bytes), math.ceil(until_s - start_s))):
            value = self.bytes[place]
            if value is not None:
                part_s = max(0.0, min(until_s, start_s + place + 1) - max(from_s, start_s + place))
                total, known_s = total + part_s * value, known_s + part_s
        return total, known_s


def hidden(trainer: Trainer) -> bool:
    """Whether this user may not see its writes."""
    return trainer.write_chars is None and any(one.metric == "write_chars_per_s" for one in trainer.missing)


def _by_second(view: View, trainer: Trainer, seconds: int) -> Sequence[float | None]:
    ranks = view.mates(trainer)
    if any(hidden(one) for one in ranks):
        return view.history.values("host", "write_bytes_per_s", seconds)
    columns = [_file_writes(view, one.key, one.identity, seconds) for one in ranks]
    columns += [_file_writes(view, one.identity, one.identity, seconds) for one in _detached_processes(view, trainer)]
    return columns[0] if len(columns) == 1 else [added(row) for row in zip(*columns, strict=True)]


def _detached_processes(view: View, trainer: Trainer) -> Sequence[Process]:
    """Processes of its job outside any trainer's tree: a checkpoint writer may be detached."""
    job = trainer.process.job
    if job is None:
        return ()
    inside = {process.pid for one in view.mates(trainer) for process in one.tree}
    return [one for one in view.frame.processes if one.job == job and one.pid not in inside and one.unseen is None]


def _file_writes(view: View, key: Key, alone: Key, seconds: int) -> Sequence[float | None]:
    """Bytes written to files: to storage, or more than its processes may have read from each other.

    Not all file systems count storage writes, and starting workers receive much through pipes. `alone`: the process
    itself, whose storage writes count while its children are unknown.
    """
    stored, chars, read = (
        view.history.values(key, f"{kind}_per_s", seconds) for kind in ("write_bytes", "write_chars", "read_chars")
    )
    if key != alone and None in chars:
        own = view.history.values(alone, "write_bytes_per_s", seconds)
        four = zip(stored, chars, read, own, strict=True)
        return [itself if wrote is None else _largest_write(kept, wrote, got) for kept, wrote, got, itself in four]
    three = zip(stored, chars, read, strict=True)
    return [None if wrote is None else _largest_write(kept, wrote, got) for kept, wrote, got in three]


def _largest_write(kept: float | None, wrote: float, got: float | None) -> float:
    return max(kept or 0.0, wrote - (got or 0.0))


_COST = 0.01  # share of time that does not matter
_ALIKE = 2.0  # factor in length: beyond it, pauses are of another kind
_LATEST = 12  # saves that determine interval and length: the frequency may change
_HIDDEN = "writes of a process are visible to its owner only"


class Saves(NamedTuple):
    """Checkpoints that a trainer waited for, and their cost."""

    pauses: Sequence[Pause]
    every_s: float  # mean interval
    idle_s: float  # mean GPU time lost in each
    share: float  # of GPU time


@rule(
    "checkpoint-stall",
    "Does training stall on checkpoint writes?",
    level=Level.CAUSE,
    state="checkpoint",
    short="SAVE",
    confirmed_by=("saves",),
    needs=("busy_percent",),
    partly=("write_chars_per_s",),
    lasting=True,
)
def checkpoint_stall(view: View) -> Iterator[Finding]:
    """The GPUs idle repeatedly, each time with the bytes of a checkpoint written during the pause."""
    for trainer in view.trainers():
        if not trainer.gpus:
            continue
        view.knows(trainer, "duty")
        pauses = view.pauses(trainer)
        settle(view, trainer, pauses)
        long = [one for one in pauses.recent(view.limit("window_s")) if one.idle_s >= view.limit("idle_s")]
        found = _saves(view, pauses, long)
        if found is not None:
            yield _found(view, trainer, found)
        elif len(long) > view.limit("saves") and hidden(trainer) and _regular(view, long):
            view.abstain(trainer, Missing(metric="write_chars_per_s", reason="denied", unlock=view.unlock(_HIDDEN)))


def settle(view: View, trainer: Trainer, pauses: Pauses) -> None:
    """Determine what its job wrote because of each pause, until that is final, and whether it saved."""
    lag_s = view.limit("checkpoint-stall.lag_s")
    open_ones = [place for place, one in enumerate(pauses.known) if not one.settled]
    if not open_ones:
        return
    first = open_ones[0]
    written = Written.of(view, trainer, pauses.known[first].start_s, lag_s)
    for place in range(first, len(pauses.known)):
        one = pauses.known[place]
        before = pauses.known[place - 1] if place else None
        after = pauses.known[place + 1] if place + 1 < len(pauses.known) else None
        if not one.settled:
            written.settle(before, one, after)
        if one.cause in (None, "workers") and saved(view, one):
            one.cause = "save"


def saved(view: View, one: Pause) -> bool:
    """Whether a checkpoint was written in a pause: many bytes, far beyond the usual rate."""
    if one.between is None or one.written < view.limit("checkpoint-stall.written_bytes"):
        return False
    usual = one.between * one.length_s
    return one.written + usual >= view.limit("checkpoint-stall.burst") * usual


def _saves(view: View, pauses: Pauses, long: Sequence[Pause]) -> Saves | None:
    """Recurring saves: two suffice, as the writes are clear evidence; more must be evenly spaced."""
    saves = [one for one in long if one.cause == "save" and one.settled][-_LATEST:]
    if len(saves) < view.limit("saves"):
        return None
    every_s = mean(after.start_s - before.start_s for before, after in pairwise(saves))
    usual_s = median(one.length_s for one in saves)
    others = [
        one
        for one in long
        if one.cause is None
        and one.start_s >= saves[0].start_s
        and usual_s / _ALIKE <= one.length_s <= usual_s * _ALIKE
    ]
    if len(saves) < view.limit("share") * (len(saves) + len(others)):
        return None  # it pauses for another reason, and the writes are a coincidence
    if view.frame.mono_s - saves[-1].start_s > view.limit("missed") * every_s:
        return None
    idle_s, early = mean(one.saving_s for one in saves), len(saves) <= view.limit("saves")
    share = min(1.0, idle_s / every_s)
    if early:  # their interval is not certain yet: the share is of the whole time tracked
        share = min(share, sum(one.saving_s for one in saves) / pauses.watched_s(view.limit("window_s")))
    elif not _regular(view, saves):
        return None
    return Saves(saves, every_s, idle_s, share) if view.above(share, "least_share") else None


def _regular(view: View, pauses: Sequence[Pause]) -> bool:
    """Whether they are evenly spaced."""
    gaps = [after.start_s - before.start_s for before, after in pairwise(pauses)]
    return view.below(pstdev(gaps) / mean(gaps), "variation")


def _severity(view: View, share: float) -> Severity:
    if share >= view.limit("engine.lost_crit"):
        return "crit"
    return "warn" if share >= view.limit("warn_share") else "info"


def _found(view: View, trainer: Trainer, saves: Saves) -> Finding:
    bytes_each = median(one.written for one in saves.pauses)
    times, early = len(saves.pauses), len(saves.pauses) <= view.limit("saves")
    unseen = any(hidden(one) for one in view.mates(trainer))
    limit = view.limit("warn_share")
    return view.found(
        trainer,
        _severity(view, saves.share),
        f"checkpoint stalls, {_seconds(saves.idle_s)} every {ago_text(round(saves.every_s))}",
        evidence=(
            Evidence(
                text=f"GPU idle {_seconds(saves.idle_s)} per save, {100 * saves.share:.1f} % of GPU time lost",
                value=100 * saves.share,
                unit="%",
                limit=100 * limit,
                sense="healthy_to",
            ),
            Evidence(
                text=f"{size(bytes_each)} written per save, {moved(bytes_each / max(saves.idle_s, 0.1))}",
                value=bytes_each,
                unit="B",
            ),
            Evidence(
                text=f"{times} saves{', interval not certain yet' if early else ''}",
                value=float(times),
            ),
        ),
        steps=tuple(_steps(saves)),
        confidence=view.confidence(0.65 if early else 0.8, None if unseen else 1.0),
        lost_share=saves.share,
    )


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 9.95 else ago_text(round(seconds))


def _minutes(seconds: float) -> str:
    """An interval to set: whole minutes above two."""
    return ago_text(round(seconds / 60) * 60 if seconds >= 120 else round(seconds))


def _steps(saves: Saves) -> Iterator[Step]:
    if saves.share > _COST:
        rare, often = _minutes(saves.idle_s / _COST), _minutes(saves.every_s)
        yield Step(text=f"Save every {rare} instead of every {often}: costs 1 % of GPU time")
    yield Step(text="Save optimizer state only in checkpoints to resume from, not in each one")
    yield Step(
        text='Save asynchronously from a copy in host memory (needs init_process_group("cpu:gloo,cuda:nccl"))',
        command="torch.distributed.checkpoint.async_save(state, checkpoint_id=PATH)",
    )
    yield Step(text="Write to a local NVMe disk, then copy to shared storage in the background")
    yield Step(text="With several ranks, save sharded (torch.distributed.checkpoint) instead of all on rank 0")

"""What a trainer's job writes, second by second, and which part of that belongs to a pause of its GPUs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gputop.declare import record
from gputop.diagnose.pauses import Pause
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.history import Key
from gputop.known import added
from gputop.model import Process

_MOST_S = 900.0  # that the history keeps by the second
_FOLLOWS_S = 60.0  # after a pause, in which what it began may still be written in the background
_BEFORE_S = 30.0  # before a pause, for what it writes all the time
_GOES_ON = 0.3  # of the rate in the pause, at which it still is
_LEAST_S, _LEAST_AFTER_S = 1.5, 5.0  # of that, to know it; of what comes after it instead
_ROOM = 0.25  # of the time between two pauses, in which writes may belong to one of them


@record(frozen=True, slots=True)
class Written:
    """Bytes in each of the last seconds, up to `now_s`; `lag_s`: how far from a pause a write may be counted."""

    bytes: Sequence[float | None]
    now_s: float
    lag_s: float

    @classmethod
    def of(cls, view: View, trainer: Trainer, pause_s: float, lag_s: float) -> Written:
        """What its job wrote since a while before a pause; the whole machine where that is hidden."""
        now_s = view.frame.mono_s
        seconds = math.ceil(min(_MOST_S, now_s - pause_s + lag_s + _BEFORE_S))
        about = trainer.process.job or trainer.identity
        found = view.once(("written", about, seconds), lambda: _by_second(view, trainer, seconds))
        return cls(found, now_s, lag_s)

    def settle(self, before: Pause | None, one: Pause, after: Pause | None) -> None:
        """Take in what was written because of a pause, also in the background after it, and what was before it."""
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
        if goes_on_s + 1.0 <= until_s:  # it ended: else it writes all the time
            one.written, last_s = one.written + more, goes_on_s
        one.written_s = last_s
        if one.between is None:  # nobody looked before it: what is written after it tells
            total, known_s = self._sum(last_s, self.now_s if after is None else after.start_s - later_s)
            one.between = total / known_s if known_s >= _LEAST_AFTER_S else None
        one.written = max(0.0, one.written - (one.between or 0.0) * (last_s - first_s))
        over = one.between is not None and goes_on_s + 1.0 <= self.now_s
        one.settled = one.ended and (over or after is not None)

    def _background(self, from_s: float, until_s: float, rate: float, between: float | None) -> tuple[float, float]:
        """What is still written from then on without a pause, and until when: faster than before, and that fast."""
        total, enough = 0.0, max(rate, 2 * (between or 0.0), 1.0)
        while from_s + 1.0 <= until_s and (more := self._sum(from_s, from_s + 1.0)[0]) >= enough:
            total, from_s = total + more, from_s + 1.0
        return total, from_s

    def _sum(self, from_s: float, until_s: float) -> tuple[float, float]:
        """What was written between two times, and in how many seconds of these that is known."""
        start_s, total, known_s = self.now_s - len(self.bytes), 0.0, 0.0
        for place in range(max(0, math.floor(from_s - start_s)), min(len(self.bytes), math.ceil(until_s - start_s))):
            value = self.bytes[place]
            if value is not None:
                part_s = max(0.0, min(until_s, start_s + place + 1) - max(from_s, start_s + place))
                total, known_s = total + part_s * value, known_s + part_s
        return total, known_s


def hidden(trainer: Trainer) -> bool:
    """Whether this user may not see what it writes."""
    return trainer.write_chars is None and any(one.metric == "write_chars_per_s" for one in trainer.missing)


def _by_second(view: View, trainer: Trainer, seconds: int) -> Sequence[float | None]:
    ranks = view.mates(trainer)
    if any(hidden(one) for one in ranks):
        return view.history.values("host", "write_bytes_per_s", seconds)
    columns = [_to_files(view, one.key, one.identity, seconds) for one in ranks]
    columns += [_to_files(view, one.identity, one.identity, seconds) for one in _beside(view, trainer)]
    return columns[0] if len(columns) == 1 else [added(row) for row in zip(*columns, strict=True)]


def _beside(view: View, trainer: Trainer) -> Sequence[Process]:
    """Processes of its job that are in no trainer's tree: one that writes checkpoints may have left its parent."""
    job = trainer.process.job
    if job is None:
        return ()
    inside = {process.pid for one in view.mates(trainer) for process in one.tree}
    return [one for one in view.frame.processes if one.job == job and one.pid not in inside and one.unseen is None]


def _to_files(view: View, key: Key, alone: Key, seconds: int) -> Sequence[float | None]:
    """What was written to files: to storage, or more than its processes may have read from each other.

    Not all file systems count what is for storage, and a start of workers sends them much through pipes. `alone`: the
    process itself, which tells of storage where what it started is not known yet.
    """
    stored, chars, read = (
        view.history.values(key, f"{kind}_per_s", seconds) for kind in ("write_bytes", "write_chars", "read_chars")
    )
    if key != alone and None in chars:
        own = view.history.values(alone, "write_bytes_per_s", seconds)
        four = zip(stored, chars, read, own, strict=True)
        return [itself if wrote is None else _most(kept, wrote, got) for kept, wrote, got, itself in four]
    three = zip(stored, chars, read, strict=True)
    return [None if wrote is None else _most(kept, wrote, got) for kept, wrote, got in three]


def _most(kept: float | None, wrote: float, got: float | None) -> float:
    return max(kept or 0.0, wrote - (got or 0.0))

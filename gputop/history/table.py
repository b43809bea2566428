"""All subjects of one kind over time: one row of numbers a slot, in which they stand side by side; NaN is unknown."""

from __future__ import annotations

import math
from array import array
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

NAN = math.nan
_SPARE = 64  # slots too old are dropped so many at a time
_EMPTY: array[float] = array("f")


class _Run(NamedTuple):
    """Slots in which the same subjects stand."""

    since: int
    keys: Sequence[Hashable]
    places: Mapping[Hashable, int]  # of the first number of each


class _State(NamedTuple):
    first: int  # the oldest slot
    rows: list[array[float]]  # one a slot, without a hole; an empty one where nobody knows what was
    runs: list[_Run]

    @property
    def end(self) -> int:
        """The slot after the newest."""
        return self.first + len(self.rows)


_NOTHING = _State(0, [], [])


class Table:
    """`width` numbers of each subject, of the newest `limit` slots and a few more.

    One thread writes while others read: a reader takes the state once, and to what is in it rows are only appended.
    """

    __slots__ = ("_limit", "_state", "_width")

    def __init__(self, width: int, limit: int) -> None:
        self._width, self._limit, self._state = width, limit, _NOTHING

    @property
    def newest(self) -> int:
        """The newest slot; -1 where there is none."""
        return self._state.end - 1

    def put(self, slot: int, keys: Sequence[Hashable], numbers: Iterable[float], hold: int = 1) -> bool:
        """Write a slot and up to `hold - 1` unwritten ones before it; says whether other subjects stand there now.

        `numbers` are those of the first subject, then those of the second, and so on. A slot that is written already
        stays: a chart that is frozen there must not change.
        """
        state = self._state
        if state.rows and slot < state.end:
            return False
        begin = slot - hold + 1
        if not state.rows or begin - state.end >= self._limit:
            state = _State(begin, [], [])
        begin = max(begin, state.end)
        if begin > state.end:
            state.runs.append(_Run(state.end, (), {}))
            state.rows.extend([_EMPTY] * (begin - state.end))
        others = not state.runs or keys != state.runs[-1].keys
        if others:  # who stands where comes before the row: a reader must not take one for another
            places: dict[Hashable, int] = {}
            for place, key in enumerate(keys):
                places.setdefault(key, place * self._width)
            state.runs.append(_Run(begin, keys, places))
        state.rows.extend([array("f", numbers)] * (slot - begin + 1))
        self._state = self._trimmed(state)
        return others

    def _trimmed(self, state: _State) -> _State:
        over = len(state.rows) - self._limit
        if over < _SPARE:
            return state
        first = state.first + over
        ends = [*(run.since for run in state.runs[1:]), state.end]
        kept = [run for run, end in zip(state.runs, ends, strict=True) if end > first]
        return _State(first, state.rows[over:], kept)

    def rewind(self, slot: int) -> None:
        """Forget everything after a slot."""
        first, rows, runs = self._state
        kept = max(0, slot - first + 1)
        self._state = _State(first, rows[:kept], [run for run in runs if run.since <= slot]) if kept else _NOTHING

    def keys(self, last: int | None = None, count: int | None = None) -> list[Hashable]:
        """Whoever stands in the newest `count` slots up to `last`, or in any, each once."""
        state = self._state
        last, count = state.end - 1 if last is None else last, len(state.rows) if count is None else count
        return list(dict.fromkeys(key for run, _, _ in _parts(state, last, count) for key in run.keys))

    def column(self, key: Hashable, index: int, last: int, count: int) -> list[float]:
        """The newest `count` slots up to `last` of one number of a subject, oldest first."""
        state, low = self._state, last - count + 1
        values: list[float] = []
        for run, begin, end in _parts(state, last, count):
            values += [NAN] * (begin - low - len(values))
            place = run.places.get(key)
            if place is not None:
                at = place + index
                values += [row[at] for row in state.rows[begin - state.first : end - state.first]]
        return values + [NAN] * (count - len(values))

    def block(self, key: Hashable, last: int, count: int) -> list[array[float]]:
        """All numbers of a subject in the newest `count` slots up to `last` in which it stands, oldest first."""
        state = self._state
        found = []
        for run, begin, end in _parts(state, last, count):
            place = run.places.get(key)
            if place is not None:
                rows = state.rows[begin - state.first : end - state.first]
                found += [row[place : place + self._width] for row in rows]
        return found


def _parts(state: _State, last: int, count: int) -> list[tuple[_Run, int, int]]:
    """The runs of these slots with the first of them and the one after the last, oldest first."""
    low, end, found = last - count + 1, min(last + 1, state.end), []
    for run in reversed(state.runs):
        begin = max(run.since, low, state.first)
        if begin < end:
            found.append((run, begin, end))
            end = begin
        if run.since <= low:
            break
    return found[::-1]

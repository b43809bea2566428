"""All subjects of one kind over time: one row of numbers per slot, subjects side by side; NaN is unknown."""

from __future__ import annotations

import math
from array import array
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class HistoryWindow:
    """The values of one metric over some time, without gaps."""

    __slots__ = ("covered", "seconds", "values")

    def __init__(self, values: Sequence[float | None]) -> None:
        self.seconds = values  # one per slot, None for a gap
        self.values = [value for value in values if value is not None]
        self.covered = len(self.values) / len(values) if values else 0.0  # known share of the window

    def mean(self) -> float | None:
        """Arithmetic mean."""
        return sum(self.values) / len(self.values) if self.values else None

    def percentile(self, share: float) -> float | None:
        """The value that a share (0-1) of the values does not exceed, nearest rank."""
        if not self.values:
            return None
        return sorted(self.values)[max(0, math.ceil(share * len(self.values)) - 1)]

    def share_above(self, bound: float) -> float | None:
        """Share (0-1) of the values above a bound."""
        return sum(value > bound for value in self.values) / len(self.values) if self.values else None


NAN = math.nan
_SWEEP = 64  # slots after which expired ones are dropped
_WASTE, _WASTE_EACH = 16, 4  # empty columns left in place: a fixed number, and one per so many in use

Values = Sequence[float | None]


@dataclass(slots=True)
class _Presence:
    """The presence of one subject in one column; a subject that returns gets a new one."""

    seat: int
    since: int
    until: int | None = None  # the first slot without it

    def ends_after(self, slot: int) -> bool:
        """Whether it lasts, or lasted, beyond this slot."""
        return self.until is None or self.until > slot


class _State(NamedTuple):
    first: int  # the oldest slot
    rows: list[array[float]]  # one per slot without holes; all values are unknown where nothing was sampled

    @property
    def end(self) -> int:
        """The slot after the newest."""
        return self.first + len(self.rows)


class HistoryTable:
    """`width` numbers per subject in the newest `limit` slots; departed subjects are forgotten after `keep` slots.

    One thread writes while others read: a reader first takes the state and its end. Rows are only appended, and nothing
    changes before that end.
    """

    def __init__(self, width: int, limit: int, keep: int) -> None:
        self._width, self._limit, self._keep = width, limit, keep
        self._gap: Values = (None,) * width
        self._restart(0)

    def _restart(self, slot: int) -> None:
        self._state, self._swept = _State(slot, []), slot
        self._stays: dict[Hashable, list[_Presence]] = {}
        self._reassign_columns(slot)

    def _reassign_columns(self, slot: int) -> None:
        """Reassign columns: all subjects leave theirs, and the present ones get new ones."""
        for stays in self._stays.values():
            if stays[-1].until is None:
                stays[-1].until = slot
        self._keys: Sequence[Hashable] | None = None
        self._seats: dict[Hashable, int] = {}
        self._vacant: list[int] = []
        self._order: list[int] = []

    @property
    def newest(self) -> int:
        """The newest slot; one before the first if there is none."""
        return self._state.end - 1

    @property
    def _room(self) -> int:
        """Number of columns, used or not."""
        return len(self._seats) + len(self._vacant)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._stays

    def put(self, slot: int, keys: Sequence[Hashable], rows: Iterable[Values], hold: int = 1) -> None:
        """Write the values of all present subjects to a slot, and to up to `hold - 1` unwritten ones before it.

        A written slot stays, even if a subject appeared later in it: a frozen chart must not change.
        """
        state, begin = self._state, slot - hold + 1
        if state.rows and slot < state.end:
            return
        if not state.rows or begin - state.end >= self._limit:
            self._restart(begin)
            state = self._state
        begin = max(begin, state.end)
        if begin > state.end:
            nothing = array("f", [NAN]) * (self._width * self._room)
            state.rows.extend([nothing] * (begin - state.end))
        if keys != self._keys:
            self._seat(keys, begin)
        seated: list[Values] = [self._gap] * self._room
        for seat, row in zip(reversed(self._order), reversed(list(rows)), strict=True):  # of duplicates the first stays
            seated[seat] = row
        numbers = array("f", [NAN if value is None else value for row in seated for value in row])
        state.rows.extend([numbers] * (slot - begin + 1))
        if slot - self._swept >= _SWEEP:
            self._sweep(slot)

    def _seat(self, keys: Sequence[Hashable], slot: int) -> None:
        """Update the columns for a changed set of subjects."""
        there = dict.fromkeys(keys)
        for key in [key for key in self._seats if key not in there]:
            self._vacant.append(self._seats.pop(key))
            self._stays[key][-1].until = slot
        for key in there:
            if key not in self._seats:
                seat = self._vacant.pop() if self._vacant else len(self._seats)
                self._seats[key] = seat
                self._stays.setdefault(key, []).append(_Presence(seat, slot))
        self._keys, self._order = keys, [self._seats[key] for key in keys]

    def _sweep(self, slot: int) -> None:
        """Drop expired slots, and compact the columns if many are empty."""
        self._swept = slot
        over = max(0, len(self._state.rows) - self._limit)
        self._state = _State(self._state.first + over, self._state.rows[over:])
        first = self._state.first
        gone = max(first, slot - self._keep)
        there = {key: stays for key, stays in self._stays.items() if stays[-1].ends_after(gone)}
        self._stays = {key: [stay for stay in stays if stay.ends_after(first)] for key, stays in there.items()}
        if len(self._vacant) > len(self._seats) // _WASTE_EACH + _WASTE:
            self._reassign_columns(slot + 1)

    def rewind(self, slot: int) -> None:
        """Forget everything after a slot."""
        first, rows = self._state
        if slot < first or not rows:
            self._restart(slot)
            return
        self._state, self._swept = _State(first, rows[: slot - first + 1]), slot
        end = self._state.end
        self._stays = {key: kept for key, stays in self._stays.items() if (kept := _before(stays, end))}
        self._reassign_columns(end)

    def keys(self, last: int, count: int) -> list[Hashable]:
        """Subjects present in the newest `count` slots up to `last`."""
        return [key for key in self._stays if any(True for _ in self._parts(key, self._state, last, count))]

    def column(self, key: Hashable, index: int, last: int, count: int) -> list[float]:
        """One number of a subject in the newest `count` slots up to `last`, oldest first."""
        state, low = self._state, last - count + 1
        values: list[float] = []
        for stay, begin, end in self._parts(key, state, last, count):
            values += [NAN] * (begin - low - len(values))
            at = stay.seat * self._width + index
            values += [row[at] for row in state.rows[begin - state.first : end - state.first]]
        return values + [NAN] * (count - len(values))

    def block(self, key: Hashable, last: int, count: int) -> list[array[float]]:
        """All numbers of a subject where it is present in the newest `count` slots up to `last`, oldest first."""
        state, found = self._state, []
        for stay, begin, end in self._parts(key, state, last, count):
            at = stay.seat * self._width
            found += [row[at : at + self._width] for row in state.rows[begin - state.first : end - state.first]]
        return found

    def _parts(self, key: Hashable, state: _State, last: int, count: int) -> Iterator[tuple[_Presence, int, int]]:
        """Presence of a subject in these slots: first slot and the one after the last, oldest first."""
        low, end = max(last - count + 1, state.first), min(last + 1, state.end)
        for stay in self._stays.get(key, ()):
            until = end if stay.until is None else min(stay.until, end)
            if max(stay.since, low) < until:
                yield stay, max(stay.since, low), until


def _before(stays: Sequence[_Presence], end: int) -> list[_Presence]:
    """The part of them before a slot."""
    return [
        _Presence(stay.seat, stay.since, end if stay.until is None else min(stay.until, end))
        for stay in stays
        if stay.since < end
    ]

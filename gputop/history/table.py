"""All subjects of one kind over time: one row of numbers a slot, in which they sit side by side; NaN is unknown."""

from __future__ import annotations

import math
from array import array
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Window:
    """The values of one metric over some time, gaps left out."""

    __slots__ = ("covered", "seconds", "values")

    def __init__(self, values: Sequence[float | None]) -> None:
        self.seconds = values  # each slot of it, None for a gap
        self.values = [value for value in values if value is not None]
        self.covered = len(self.values) / len(values) if values else 0.0  # share of the window that is known

    def mean(self) -> float | None:
        """Arithmetic mean."""
        return sum(self.values) / len(self.values) if self.values else None

    def percentile(self, share: float) -> float | None:
        """The value that `share` (0-1) of the values do not exceed, nearest rank."""
        if not self.values:
            return None
        return sorted(self.values)[max(0, math.ceil(share * len(self.values)) - 1)]

    def share_above(self, bound: float) -> float | None:
        """Share (0-1) of the values above a bound."""
        return sum(value > bound for value in self.values) / len(self.values) if self.values else None


NAN = math.nan
_SWEEP = 64  # slots after which what is too old is dropped
_WASTE, _WASTE_EACH = 16, 4  # empty seats that are no reason to sit closer: some, and one for so many that are taken

Values = Sequence[float | None]


@dataclass(slots=True)
class _Stay:
    """One subject from when it came until it left, in one seat; who leaves and comes back has two."""

    seat: int
    since: int
    until: int | None = None  # the first slot without it

    def ends_after(self, slot: int) -> bool:
        """Whether it lasts, or lasted until later."""
        return self.until is None or self.until > slot


class _State(NamedTuple):
    first: int  # the oldest slot
    rows: list[array[float]]  # one a slot without a hole; where nobody looked, all of it is unknown

    @property
    def end(self) -> int:
        """The slot after the newest."""
        return self.first + len(self.rows)


class Table:
    """`width` numbers of each subject in the newest `limit` slots; who is gone is forgotten after `keep` slots.

    One thread writes while others read: a reader first takes the state and its end. Rows are only appended to it, and
    up to that end nothing changes any more.
    """

    def __init__(self, width: int, limit: int, keep: int) -> None:
        self._width, self._limit, self._keep = width, limit, keep
        self._gap: Values = (None,) * width
        self._begin_anew(0)

    def _begin_anew(self, slot: int) -> None:
        self._state, self._swept = _State(slot, []), slot
        self._stays: dict[Hashable, list[_Stay]] = {}
        self._rise(slot)

    def _rise(self, slot: int) -> None:
        """All leave their seats; who is still there takes one anew."""
        for stays in self._stays.values():
            if stays[-1].until is None:
                stays[-1].until = slot
        self._keys: Sequence[Hashable] | None = None
        self._seats: dict[Hashable, int] = {}
        self._vacant: list[int] = []
        self._order: list[int] = []

    @property
    def newest(self) -> int:
        """The newest slot; one before the first where there is none."""
        return self._state.end - 1

    @property
    def _room(self) -> int:
        """Seats, taken or not."""
        return len(self._seats) + len(self._vacant)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._stays

    def put(self, slot: int, keys: Sequence[Hashable], rows: Iterable[Values], hold: int = 1) -> None:
        """Write who is there, with the values of each, to a slot and to up to `hold - 1` unwritten ones before it.

        A slot that is written stays, though somebody came later in it: a chart that is frozen there must not change.
        """
        state, begin = self._state, slot - hold + 1
        if state.rows and slot < state.end:
            return
        if not state.rows or begin - state.end >= self._limit:
            self._begin_anew(begin)
            state = self._state
        begin = max(begin, state.end)
        if begin > state.end:
            nothing = array("f", [NAN]) * (self._width * self._room)
            state.rows.extend([nothing] * (begin - state.end))
        if keys != self._keys:
            self._seat(keys, begin)
        seated: list[Values] = [self._gap] * self._room
        for seat, row in zip(reversed(self._order), reversed(list(rows)), strict=True):  # of two alike the first stays
            seated[seat] = row
        numbers = array("f", [NAN if value is None else value for row in seated for value in row])
        state.rows.extend([numbers] * (slot - begin + 1))
        if slot - self._swept >= _SWEEP:
            self._sweep(slot)

    def _seat(self, keys: Sequence[Hashable], slot: int) -> None:
        """Others are there than a slot before."""
        there = dict.fromkeys(keys)
        for key in [key for key in self._seats if key not in there]:
            self._vacant.append(self._seats.pop(key))
            self._stays[key][-1].until = slot
        for key in there:
            if key not in self._seats:
                seat = self._vacant.pop() if self._vacant else len(self._seats)
                self._seats[key] = seat
                self._stays.setdefault(key, []).append(_Stay(seat, slot))
        self._keys, self._order = keys, [self._seats[key] for key in keys]

    def _sweep(self, slot: int) -> None:
        """Drop what is too old, and have those that are left sit closer where many have gone."""
        self._swept = slot
        over = max(0, len(self._state.rows) - self._limit)
        self._state = _State(self._state.first + over, self._state.rows[over:])
        first = self._state.first
        gone = max(first, slot - self._keep)
        there = {key: stays for key, stays in self._stays.items() if stays[-1].ends_after(gone)}
        self._stays = {key: [stay for stay in stays if stay.ends_after(first)] for key, stays in there.items()}
        if len(self._vacant) > len(self._seats) // _WASTE_EACH + _WASTE:
            self._rise(slot + 1)

    def rewind(self, slot: int) -> None:
        """Forget everything after a slot."""
        first, rows = self._state
        if slot < first or not rows:
            self._begin_anew(slot)
            return
        self._state, self._swept = _State(first, rows[: slot - first + 1]), slot
        end = self._state.end
        self._stays = {key: kept for key, stays in self._stays.items() if (kept := _before(stays, end))}
        self._rise(end)

    def keys(self, last: int, count: int) -> list[Hashable]:
        """Whoever is there in the newest `count` slots up to `last`."""
        return [key for key in self._stays if any(True for _ in self._parts(key, self._state, last, count))]

    def column(self, key: Hashable, index: int, last: int, count: int) -> list[float]:
        """The newest `count` slots up to `last` of one number of a subject, oldest first."""
        state, low = self._state, last - count + 1
        values: list[float] = []
        for stay, begin, end in self._parts(key, state, last, count):
            values += [NAN] * (begin - low - len(values))
            at = stay.seat * self._width + index
            values += [row[at] for row in state.rows[begin - state.first : end - state.first]]
        return values + [NAN] * (count - len(values))

    def block(self, key: Hashable, last: int, count: int) -> list[array[float]]:
        """All numbers of a subject in the newest `count` slots up to `last` in which it is there, oldest first."""
        state, found = self._state, []
        for stay, begin, end in self._parts(key, state, last, count):
            at = stay.seat * self._width
            found += [row[at : at + self._width] for row in state.rows[begin - state.first : end - state.first]]
        return found

    def _parts(self, key: Hashable, state: _State, last: int, count: int) -> Iterator[tuple[_Stay, int, int]]:
        """When a subject was there in these slots: the first of them and the one after the last, oldest first."""
        low, end = max(last - count + 1, state.first), min(last + 1, state.end)
        for stay in self._stays.get(key, ()):
            until = end if stay.until is None else min(stay.until, end)
            if max(stay.since, low) < until:
                yield stay, max(stay.since, low), until


def _before(stays: Sequence[_Stay], end: int) -> list[_Stay]:
    """What of them was before a slot."""
    return [
        _Stay(stay.seat, stay.since, end if stay.until is None else min(stay.until, end))
        for stay in stays
        if stay.since < end
    ]

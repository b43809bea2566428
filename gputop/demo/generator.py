"""The physics of a simulated server: work that is on or off, what a window sees of it, and noise; functions of time."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Protocol

from gputop.frozen_dataclass import frozen_dataclass

WINDOW_S = 1 / 6  # one sample of the driver's utilisation buffer
_REMEMBERED = 8192  # the heat of a card depends on moments that were asked for two minutes ago
_CYCLE = 1024  # steps after which the jitter repeats
_rng = random.Random(5)
_TABLE = tuple(_rng.uniform(-1, 1) for _ in range(4096))


def noise(seed: int, t: float) -> float:
    """A value in -1..1 that wanders from second to second: the same for the same seed and time."""
    whole = int(t)
    place = seed * 787 + whole
    first = _TABLE[place & 4095]
    return first if t == whole else first + (t - whole) * (_TABLE[place + 1 & 4095] - first)


def noises(seeds: range, t: float) -> list[float]:
    """The same for many seeds at once."""
    whole = int(t)
    part, table = t - whole, _TABLE
    places = [seed * 787 + whole for seed in seeds]
    return [(first := table[place & 4095]) + part * (table[place + 1 & 4095] - first) for place in places]


def around(value: float, share: float, seed: int, t: float) -> float:
    """The value, give or take a share of it."""
    return value * (1 + share * noise(seed, t)) if value else 0.0


@lru_cache(maxsize=256)
def _summed(value: float, share: float, most: float) -> tuple[float, ...]:
    """What `around` gives at the places of the table, and no more than `most`, added up."""
    return tuple(accumulate((min(most, value * (1 + share * each)) for each in _TABLE), initial=0.0))


def spent(value: float, share: float, seed: int, most: float, *, since_s: float, until_s: float) -> float:
    """What the value, give or take a share of it, comes to in that time: each second what it is at its end."""
    if not value:
        return 0.0
    sums = _summed(value, share, most)
    return _until(sums, seed, until_s) - _until(sums, seed, since_s)


def _until(sums: tuple[float, ...], seed: int, t: float) -> float:
    whole = math.floor(t)
    place = seed * 787 + whole + 1
    at = place & 4095
    known = sums[at]
    return (place >> 12) * sums[-1] + known + ((t - whole) * (sums[at + 1] - known) if t != whole else 0.0)


class DutyCycle(Protocol):
    """Something that is on for a part of the time."""

    def busy_s(self, t: float) -> float:
        """Seconds it was on from 0 to t."""
        ...


@lru_cache(maxsize=256)
def _edges(jitter: float, seed: int) -> tuple[float, ...]:
    """Where the steps of one cycle begin, in mean steps; the last edge is exactly the length of the cycle."""
    rng = random.Random(seed)
    lengths = [max(0.05, rng.gauss(1, jitter)) for _ in range(_CYCLE)]
    scale = _CYCLE / sum(lengths)
    edges = [0.0]
    for length in lengths:
        edges.append(edges[-1] + length * scale)
    edges[-1] = float(_CYCLE)
    return tuple(edges)


class Pulse:
    """Steps of mean length `period_s`, on for the first `duty` (0-1) of each; lengths vary by `jitter` (sigma)."""

    __slots__ = ("_duty", "_edges", "_period_s")

    def __init__(self, period_s: float, duty: float, jitter: float = 0.0, seed: int = 0) -> None:
        self._period_s, self._duty = period_s, max(0.0, min(1.0, duty))
        self._edges = _edges(jitter, seed)

    def busy_s(self, t: float) -> float:
        """Seconds it was on from 0 to t; over whole steps exactly `duty` of them."""
        cycles, place = divmod(t / self._period_s, _CYCLE)
        edges, duty = self._edges, self._duty
        index = bisect_right(edges, place, 1, _CYCLE)  # just before 0 the remainder rounds up to a whole cycle
        began = edges[index - 1]
        into, on = place - began, duty * (edges[index] - began)
        return self._period_s * (duty * (cycles * _CYCLE + began) + (into if into < on else on))

    def count(self, t: float) -> int:
        """How many on parts ended by t, since 0."""
        cycles, place = divmod(t / self._period_s, _CYCLE)
        index = bisect_right(self._edges, place, 1, _CYCLE) - 1
        began = self._edges[index]
        return int(cycles) * _CYCLE + index + (place - began >= self._duty * (self._edges[index + 1] - began))


@frozen_dataclass(frozen=True, slots=True)
class Gated:
    """One activity while the gate is on, another while it is off; the other one stands still."""

    gate: Pulse
    on: DutyCycle
    off: DutyCycle

    def busy_s(self, t: float) -> float:
        """Seconds it was on from 0 to t."""
        gate = self.gate.busy_s(t)
        return self.on.busy_s(gate) + self.off.busy_s(t - gate)


@frozen_dataclass(frozen=True, slots=True)
class Scaled:
    """An activity that counts for more or less than its time: joules per second of it."""

    activity: DutyCycle
    factor: float

    def busy_s(self, t: float) -> float:
        """The factor for each second it was on from 0 to t."""
        return self.factor * self.activity.busy_s(t)


class PhaseSchedule:
    """Activities one after another, each from its own start to the next one's."""

    def __init__(self, parts: tuple[tuple[float, DutyCycle], ...]) -> None:
        self._starts = [start for start, _ in parts]
        self._parts = [part for _, part in parts]
        self._before = [0.0]
        for (start, part), end in zip(parts, self._starts[1:], strict=False):
            self._before.append(self._before[-1] + part.busy_s(end - start))
        self._known: dict[float, float] = {}  # the ranks of a job ask for the same moments

    def busy_s(self, t: float) -> float:
        """Seconds it was on from the first start to t; none before it."""
        busy = self._known.get(t)
        if busy is None:
            index = bisect_right(self._starts, t) - 1
            busy = self._before[index] + self._parts[index].busy_s(t - self._starts[index]) if index >= 0 else 0.0
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[t] = busy
        return busy


def share(activity: DutyCycle, t: float, window_s: float) -> float:
    """The part of the window before t in which the activity was on, 0-1: the box filter."""
    start = t - window_s
    return _part(activity.busy_s(t) - activity.busy_s(start), t - start)


def shares(activity: DutyCycle, edges: Sequence[float]) -> list[float]:
    """The same for windows that follow one another, from edge to edge."""
    busy = list(map(activity.busy_s, edges))
    spans = zip(edges, edges[1:], busy, busy[1:], strict=False)
    return [_part(after - before, end - start) for start, end, before, after in spans]


def _part(busy_s: float, of_s: float) -> float:
    part = busy_s / of_s
    return 0.0 if part < 0 else 1.0 if part > 1 else part

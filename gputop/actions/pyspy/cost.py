"""What it costs a process to be watched, measured on that process: how long it is paused, what it waits, its pace.

Its pace is what it does in a second, by CPU time and by how often its main thread waits for something: both grow with
the steps of a training loop. A job has phases of its own, so the pace counts only where it was the same before and
after.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable

from gputop.frozen_dataclass import frozen_dataclass
from gputop.safe.identity import parse_stat

LOOK_S = 0.02  # between two looks at whether it is paused
WINDOW_S = 2.0  # the guard judges by the last of these seconds
MOST_COST = 0.2  # of its time; beyond, the profile is ended early
_SAME = 0.15  # paces that differ by less are the same
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_LEAST_TICKS, _LEAST_SWITCHES = 20, 20  # fewer say nothing about a pace


@frozen_dataclass(frozen=True, slots=True)
class Reading:
    """Counters of a process at one moment."""

    at_s: float
    cpu_s: float  # of all its threads
    switches: int  # its main thread waited so often
    waited_s: float  # its main thread, for a CPU
    paused: bool  # its main thread is held by a tracer now


@frozen_dataclass(frozen=True, slots=True)
class Cost:
    """What it cost: parts of its time, 0 to 1. None is unknown, or its pace was not the same before and after."""

    paused: float
    waited: float | None
    slowed: float | None

    @property
    def text(self) -> str:
        """`paused 4% of the time`, `cost 1%`, `waits 2% longer for a CPU` where its own pace changed."""
        if self.paused >= 0.005:
            return f"paused {self.paused:.0%} of the time"
        if self.slowed is not None:
            return f"cost {max(self.slowed, 0.0):.0%}"
        return "cost unknown" if self.waited is None else f"waits {self.waited:.0%} longer for a CPU"


def remembered(meta: object) -> Cost | None:
    """A cost that was written down with a profile; None of what is none."""
    if not isinstance(meta, dict):
        return None
    paused, waited, slowed = (_number(meta.get(name)) for name in ("paused", "waited", "slowed"))
    return None if paused is None else Cost(paused, waited, slowed)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def read(pid: int) -> Reading | None:
    """The counters of a process now; None if it has ended or they cannot be read."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = parse_stat(file.read(4096))
        with open(f"/proc/{pid}/task/{pid}/stat", "rb") as file:
            main = parse_stat(file.read(4096))
        with open(f"/proc/{pid}/task/{pid}/schedstat", "rb") as file:
            waited = int(file.read(256).split()[1]) / 1e9
        with open(f"/proc/{pid}/task/{pid}/status", "rb") as file:
            switches = next(int(line.split()[1]) for line in file if line.startswith(b"voluntary_ctxt_switches"))
    except (OSError, ValueError, IndexError, StopIteration):
        return None
    if stat is None or main is None or stat.user_ticks is None or stat.system_ticks is None:
        return None
    return Reading(
        time.monotonic(), (stat.user_ticks + stat.system_ticks) * _TICK_S, switches, waited, main.state in "tT"
    )


class Meter:
    """Looks at a process before, while and after it is watched."""

    def __init__(self, read: Callable[[], Reading | None]) -> None:
        self._read = read
        self._before: list[Reading] = []
        self._after: list[Reading] = []
        self._first: Reading | None = None
        self._last: Reading | None = None
        self._recent: deque[tuple[Reading, float]] = deque()
        self._looks = self._paused = 0
        self._took = (0.0, 0.0)

    def before(self) -> None:
        """A look while nothing is done to it yet."""
        self._add(self._before)

    def during(self, took_s: float) -> None:
        """A look while it is watched; `took_s` is the CPU time that the watching has taken so far."""
        now = self._read()
        if now is None:
            return
        self._took = (took_s if self._first is None else self._took[0], took_s)
        self._first, self._last = self._first or now, now
        self._looks += 1
        self._paused += now.paused
        self._recent.append((now, took_s))
        while now.at_s - self._recent[0][0].at_s > WINDOW_S:
            self._recent.popleft()

    def after(self) -> None:
        """A look when it is over."""
        self._add(self._after)

    def too_much(self) -> str | None:
        """Why to end it early: what it has cost in the last seconds; None if it may go on."""
        recent = [look for look, _ in self._recent]
        if not recent or recent[-1].at_s - recent[0].at_s < 0.8 * WINDOW_S:
            return None
        paused = sum(look.paused for look in recent) / len(recent)
        if paused > MOST_COST:
            return f"it was paused {paused:.0%} of the time"
        longer = self._longer(recent, self._recent[-1][1] - self._recent[0][1])
        if longer is not None and longer > MOST_COST:
            return f"it waited {longer:.0%} of the time longer for a CPU"
        return None

    def cost(self) -> Cost:
        """What it has cost so far."""
        during = [look for look in (self._first, self._last) if look]
        return Cost(
            paused=self._paused / self._looks if self._looks else 0.0,
            waited=self._longer(during, self._took[1] - self._took[0]),
            slowed=self._slowed(during),
        )

    def _longer(self, during: list[Reading], took_s: float) -> float | None:
        """How much longer it waited for a CPU than before: no longer than the watching had one, whoever else came."""
        waited, usual = _waited(during), _waited(self._before)
        if waited is None or usual is None:
            return None
        return max(0.0, min(waited - usual, took_s / (during[-1].at_s - during[0].at_s)))

    def _slowed(self, during: list[Reading]) -> float | None:
        measures = [_cpu] if self._paused else [_switching, _cpu]  # to be paused is a switch, too
        for measure in measures:
            old, mid, new = measure(self._before), measure(during), measure(self._after)
            if old and new and mid is not None and abs(old - new) <= _SAME * max(old, new):
                return 1 - 2 * mid / (old + new)
        return None

    def _add(self, looks: list[Reading]) -> None:
        now = self._read()
        if now is not None:
            looks[1:] = [now]  # the first and the newest


def _cpu(looks: list[Reading]) -> float | None:
    """CPU seconds a second."""
    if len(looks) < 2 or looks[-1].cpu_s - looks[0].cpu_s < _LEAST_TICKS * _TICK_S:
        return None
    return (looks[-1].cpu_s - looks[0].cpu_s) / (looks[-1].at_s - looks[0].at_s)


def _switching(looks: list[Reading]) -> float | None:
    """Waits a second."""
    if len(looks) < 2 or looks[-1].switches - looks[0].switches < _LEAST_SWITCHES:
        return None
    return (looks[-1].switches - looks[0].switches) / (looks[-1].at_s - looks[0].at_s)


def _waited(looks: list[Reading]) -> float | None:
    """The part of the time that its main thread waited for a CPU."""
    if len(looks) < 2 or looks[-1].at_s <= looks[0].at_s:
        return None
    return (looks[-1].waited_s - looks[0].waited_s) / (looks[-1].at_s - looks[0].at_s)

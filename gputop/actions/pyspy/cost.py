"""Cost of profiling, measured on the profiled process: time paused, run-queue wait, and pace.

The pace is its CPU time per second and the rate at which its main thread waits: both grow with the steps of a training
loop. A job has phases of its own, so the pace counts only if it was the same before and after.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable

from gputop.frozen_dataclass import frozen_dataclass
from gputop.safe.identity import parse_stat

LOOK_S = 0.02  # between two checks for a pause
WINDOW_S = 2.0  # seconds that the guard judges by
MOST_COST = 0.2  # of its time; above, the profile is ended early
_SAME = 0.15  # paces that differ by less are equal
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_LEAST_TICKS, _LEAST_SWITCHES = 20, 20  # fewer give no pace


@frozen_dataclass(frozen=True, slots=True)
class CostReading:
    """Counters of a process at one moment."""

    at_s: float
    cpu_s: float  # of all its threads
    switches: int  # waits of its main thread
    waited_s: float  # run-queue wait of its main thread
    paused: bool  # its main thread is stopped by a tracer now


@frozen_dataclass(frozen=True, slots=True)
class Cost:
    """The cost as shares of its time (0-1). None: unknown, or its pace was not the same before and after."""

    paused: float
    waited: float | None
    slowed: float | None

    @property
    def text(self) -> str:
        """`paused 4% of the time`, `cost 1%`, `waits 2% longer for a CPU` where its own pace changed."""
        if self.paused >= 0.005:
            return f"paused {100 * self.paused:.0f} % of the time"
        if self.slowed is not None:
            return f"cost {100 * max(self.slowed, 0.0):.0f} %"
        return "cost unknown" if self.waited is None else f"waits {100 * self.waited:.0f} % longer for a CPU"


def remembered(meta: object) -> Cost | None:
    """The cost stored with a profile; None if there is none."""
    if not isinstance(meta, dict):
        return None
    paused, waited, slowed = (_number(meta.get(name)) for name in ("paused", "waited", "slowed"))
    return None if paused is None else Cost(paused, waited, slowed)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def read(pid: int) -> CostReading | None:
    """Current counters of a process; None if it has ended or they are unreadable."""
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
    return CostReading(
        time.monotonic(), (stat.user_ticks + stat.system_ticks) * _TICK_S, switches, waited, main.state in "tT"
    )


class CostMeter:
    """Samples a process before, during and after profiling."""

    def __init__(self, read: Callable[[], CostReading | None]) -> None:
        self._read = read
        self._before: list[CostReading] = []
        self._after: list[CostReading] = []
        self._first: CostReading | None = None
        self._last: CostReading | None = None
        self._recent: deque[tuple[CostReading, float]] = deque()
        self._looks = self._paused = 0
        self._took = (0.0, 0.0)

    def before(self) -> None:
        """Sample before profiling."""
        self._add(self._before)

    def during(self, took_s: float) -> None:
        """Sample during profiling; `took_s`: CPU seconds used by the profiler so far."""
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
        """Sample after profiling."""
        self._add(self._after)

    def excess(self) -> str | None:
        """Why to end early: the cost over the last seconds; None if it may continue."""
        recent = [look for look, _ in self._recent]
        if not recent or recent[-1].at_s - recent[0].at_s < 0.8 * WINDOW_S:
            return None
        paused = sum(look.paused for look in recent) / len(recent)
        if paused > MOST_COST:
            return f"it was paused {100 * paused:.0f} % of the time"
        longer = self._longer_wait(recent, self._recent[-1][1] - self._recent[0][1])
        if longer is not None and longer > MOST_COST:
            return f"it waited {100 * longer:.0f} % of the time longer for a CPU"
        return None

    def cost(self) -> Cost:
        """The cost so far."""
        during = [look for look in (self._first, self._last) if look]
        return Cost(
            paused=self._paused / self._looks if self._looks else 0.0,
            waited=self._longer_wait(during, self._took[1] - self._took[0]),
            slowed=self._slowdown(during),
        )

    def _longer_wait(self, during: list[CostReading], took_s: float) -> float | None:
        """Additional run-queue wait (share of time), at most the profiler's CPU time: other causes do not count."""
        waited, usual = _wait_share(during), _wait_share(self._before)
        if waited is None or usual is None:
            return None
        return max(0.0, min(waited - usual, took_s / (during[-1].at_s - during[0].at_s)))

    def _slowdown(self, during: list[CostReading]) -> float | None:
        measures = [_cpu_rate] if self._paused else [_wait_rate, _cpu_rate]  # a pause is a context switch, too
        for measure in measures:
            old, mid, new = measure(self._before), measure(during), measure(self._after)
            if old and new and mid is not None and abs(old - new) <= _SAME * max(old, new):
                return 1 - 2 * mid / (old + new)
        return None

    def _add(self, looks: list[CostReading]) -> None:
        now = self._read()
        if now is not None:
            looks[1:] = [now]  # the first and the newest


def _cpu_rate(looks: list[CostReading]) -> float | None:
    """CPU seconds per second."""
    if len(looks) < 2 or looks[-1].cpu_s - looks[0].cpu_s < _LEAST_TICKS * _TICK_S:
        return None
    return (looks[-1].cpu_s - looks[0].cpu_s) / (looks[-1].at_s - looks[0].at_s)


def _wait_rate(looks: list[CostReading]) -> float | None:
    """Waits per second."""
    if len(looks) < 2 or looks[-1].switches - looks[0].switches < _LEAST_SWITCHES:
        return None
    return (looks[-1].switches - looks[0].switches) / (looks[-1].at_s - looks[0].at_s)


def _wait_share(looks: list[CostReading]) -> float | None:
    """Share of time that its main thread waited for a CPU."""
    if len(looks) < 2 or looks[-1].at_s <= looks[0].at_s:
        return None
    return (looks[-1].waited_s - looks[0].waited_s) / (looks[-1].at_s - looks[0].at_s)

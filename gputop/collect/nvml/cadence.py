"""What driver calls cost, and how much slower the GPUs are asked because of it.

The driver holds one lock for nearly all of them: what is spent on one GPU, the programs of every other wait for.
"""

from __future__ import annotations

from collections import deque

SHARE_PERCENT = 2.0  # of a second that may be spent inside calls, about all GPUs together
CALL_S = 0.020  # 95 of 100 calls must be faster
MAX_FACTOR = 64
_CALLS = 200  # calls that are remembered
_ENOUGH = 40  # calls before their speed is judged
_SWEEPS = 4  # sweeps over which the share is taken: the slow cadences make single ones uneven
_SURE = 2  # judgements in a row before we slow down: a busy machine has hiccups
_CALM = 3  # and before we speed up


class CallCosts:
    """Seconds spent inside calls; written by the caller, read by the pace. A call that hung is not in here."""

    def __init__(self) -> None:
        self.total_s = 0.0  # about any GPU
        self.recent: deque[float] = deque(maxlen=_CALLS)

    def add(self, gpu: int | None, spent_s: float) -> None:
        """Account one call."""
        if gpu is not None:
            self.total_s += spent_s
            self.recent.append(spent_s)

    def slow_s(self) -> float | None:
        """What the slowest calls but 5 of 100 took; None while too few are known."""
        spent = sorted(self.recent)
        return spent[-1 - len(spent) // 20] if len(spent) >= _ENOUGH else None


class Cadence:
    """The factor by which every cadence is stretched: 1, 2, 4 ... 64, so that the calls fit their share."""

    def __init__(self, costs: CallCosts) -> None:
        self.factor = 1
        self.call_s = 0.0  # what a slow call takes
        self.driver_percent: float | None = None  # of the time, about all GPUs together
        self._costs = costs
        self._looks: deque[tuple[float, float]] = deque(maxlen=_SWEEPS + 1)
        self._trend = 0  # judgements in a row for slower (positive) or faster

    def restart(self, now_s: float) -> None:
        """Forget what was spent so far: a first sweep reads everything and says nothing about the next ones."""
        self._costs.recent.clear()
        self._looks.clear()
        self._looks.append((now_s, self._costs.total_s))

    def judge(self, now_s: float) -> None:
        """Check what the last sweeps cost, and go slower or faster when that has been so for a while."""
        if not self._looks:
            self.restart(now_s)
        since_s, before = self._looks[0]
        if now_s <= since_s:
            return
        self._looks.append((now_s, self._costs.total_s))
        self.driver_percent = 100 * (self._costs.total_s - before) / (now_s - since_s)
        slow_s = self._costs.slow_s()
        self.call_s = self.call_s if slow_s is None else slow_s
        wanted = self._wanted()
        if wanted > self.factor:
            self._trend = max(0, self._trend) + 1
        elif wanted < self.factor:
            self._trend = min(0, self._trend) - 1
        else:
            self._trend = 0
        if self._trend >= _SURE:
            self._change(wanted, now_s)
        elif self._trend <= -_CALM:
            self._change(self.factor // 2, now_s)

    def _wanted(self) -> int:
        share = (self.driver_percent or 0.0) * self.factor / SHARE_PERCENT
        needed = max(share, self.call_s / CALL_S)
        factor = 1
        while factor < needed and factor < MAX_FACTOR:
            factor *= 2
        return factor

    def _change(self, factor: int, now_s: float) -> None:
        self.factor = factor
        self._trend = 0
        self.restart(now_s)

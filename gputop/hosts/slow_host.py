"""One host on which every rank of a job is slow: no rank stands out there, only the host does among the hosts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

from gputop.hosts.spanning import JobKey, Part, SpanningJob
from gputop.model import Gpu

HOLDS_S = 30.0  # what is not so for this long is not shown
_CLOCK_SHARE = 0.9  # of the other hosts' SM clock: below it a host sets the pace
_WAIT_POINTS = 20.0  # percentage points of data wait, or of CPU wait, above the other hosts
_BUSY_PERCENT = 50.0  # a GPU that waits for its host may clock down
_MOST_SAMPLES = 64


class SlowHost(NamedTuple):
    """The host, what shows it, and its value beside that of the other hosts."""

    host: str
    measure: str
    text: str  # `SM clock 1,100 MHz (other hosts 1,980 MHz)`


class Measure(NamedTuple):
    """One number of a host's part of a job. `gap` is how much worse one value is than another, 1 is the limit."""

    name: str
    value: Callable[[Part], float | None]
    gap: Callable[[float, float], float]
    text: Callable[[float], str]


def _clock(part: Part) -> float | None:
    """Median SM clock of its GPUs; None unless all of them are busy."""
    gpus = _gpus(part)
    busy = [gpu for gpu in gpus if (gpu.busy_percent or 0) > _BUSY_PERCENT]
    known = [gpu.sm_clock_mhz for gpu in busy if gpu.sm_clock_mhz is not None]
    return median(known) if known and len(known) == len(gpus) else None


def _gpus(part: Part) -> list[Gpu]:
    used = {share.uuid for rank in part.ranks for share in rank.gpus}
    return [gpu for gpu in part.frame.gpus if gpu.uuid in used]


def _of_ranks(name: str) -> Callable[[Part], float | None]:
    def value(part: Part) -> float | None:
        known = [found for rank in part.ranks if (found := getattr(rank, name)) is not None]
        return median(known) if known and len(known) == len(part.ranks) else None

    return value


def _points(mine: float, others: float) -> float:
    return (mine - others) / _WAIT_POINTS


MEASURES = (
    Measure(
        "SM clock", _clock, lambda mine, others: (1 - mine / others) / (1 - _CLOCK_SHARE) if others else 0.0,
        lambda value: f"{value:,.0f} MHz",
    ),
    Measure("data wait", _of_ranks("data_wait_percent"), _points, lambda value: f"{value:.0f} % of step time"),
    Measure("CPU wait", _of_ranks("run_wait_percent"), _points, lambda value: f"{value:.0f} % of runnable time"),
)  # fmt: skip


def outlier(parts: Sequence[Part]) -> SlowHost | None:
    """The one host that is slower than all others by a measure; None for two hosts alike, or if any is unknown.

    Of two hosts the slower one is named by clock only: which of two waits is normal, nothing says.
    """
    if len({gpu.name for part in parts for gpu in _gpus(part)}) > 1:
        return None
    for measure in MEASURES:
        values = [measure.value(part) for part in parts]
        known = [value for value in values if value is not None]
        if len(known) < len(parts) or (len(parts) < 3 and measure is not MEASURES[0]):
            continue
        for place, mine in enumerate(known):
            others = known[:place] + known[place + 1 :]
            usual = median(others)
            alike = max(abs(measure.gap(other, usual)) for other in others) <= 0.5
            if alike and measure.gap(mine, usual) >= 1:
                text = f"{measure.name} {measure.text(mine)} (other hosts {measure.text(usual)})"
                return SlowHost(parts[place].host, measure.name, text)
    return None


class SlowHosts:
    """Remembers which host was slow, and names one once it has been so for a while."""

    def __init__(self) -> None:
        self._seen: dict[JobKey, deque[tuple[float, SlowHost | None]]] = {}

    def update(self, jobs: Sequence[SpanningJob], now_s: float) -> dict[JobKey, SlowHost]:
        """The slow host of each job, as of the newest frames. `now_s` is monotonic."""
        before, self._seen = self._seen, {}
        found: dict[JobKey, SlowHost] = {}
        for job in jobs:
            seen = self._seen[job.key] = before.get(job.key) or deque(maxlen=_MOST_SAMPLES)
            seen.append((now_s, outlier(job.parts)))
            newest = seen[-1][1]
            held = [at_s for at_s, _ in _same(seen, newest)]
            if newest and held and now_s - held[-1] >= HOLDS_S:
                found[job.key] = newest
        return found


def _same(seen: deque[tuple[float, SlowHost | None]], newest: SlowHost | None) -> list[tuple[float, SlowHost | None]]:
    """The newest samples in a row that name the same host by the same measure, newest first."""
    found: list[tuple[float, SlowHost | None]] = []
    for at_s, one in reversed(seen):
        if one is None or newest is None or one[:2] != newest[:2]:
            break
        found.append((at_s, one))
    return found

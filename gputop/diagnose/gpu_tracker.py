"""What is remembered of one GPU between frames: busy samples, their rhythm, and the idle power."""

from __future__ import annotations

import math
import re
from collections import deque
from functools import lru_cache
from itertools import takewhile

from gputop.diagnose.estimators import LEAST_SAMPLES, Period, Shape, period, shape, spacing
from gputop.model import Gpu

# boost clocks in MHz from NVIDIA's data sheets. Partner cards run somewhat faster, laptop GPUs depend on their power
# limit: there is no value for names that continue with "Laptop GPU" or "with Max-Q Design"
_GEFORCE = {
    "RTX 5090": 2407, "RTX 5080": 2617, "RTX 5070 Ti": 2452, "RTX 5070": 2512, "RTX 5060 Ti": 2572, "RTX 5060": 2497,
    "RTX 4090": 2520, "RTX 4090 D": 2520, "RTX 4080 SUPER": 2550, "RTX 4080": 2505, "RTX 4070 Ti SUPER": 2610,
    "RTX 4070 Ti": 2610, "RTX 4070 SUPER": 2475, "RTX 4070": 2475, "RTX 4060 Ti": 2535, "RTX 4060": 2460,
    "RTX 3090 Ti": 1860, "RTX 3090": 1695, "RTX 3080 Ti": 1665, "RTX 3080": 1710, "RTX 3070 Ti": 1770,
    "RTX 3070": 1725, "RTX 3060 Ti": 1665, "RTX 3060": 1777,
    "RTX 2080 Ti": 1545, "RTX 2080 SUPER": 1815, "RTX 2080": 1710, "RTX 2070 SUPER": 1770, "RTX 2070": 1620,
    "RTX 2060 SUPER": 1650, "RTX 2060": 1680,
}  # fmt: skip
_WORKSTATION = {
    "RTX 6000 Ada Generation": 2505, "RTX 5000 Ada Generation": 2550, "RTX A6000": 1800, "RTX A5000": 1695,
    "RTX A4000": 1560, "TITAN RTX": 1770, "Quadro RTX 8000": 1770, "Quadro RTX 6000": 1770,
}  # fmt: skip
_BOOST = {f"GeForce {name}": float(mhz) for name, mhz in _GEFORCE.items()} | _WORKSTATION
# cards and chips whose maximum clock is the end of their curve; data center GPUs reach theirs
_BEYOND_REACH = re.compile(
    r"GeForce|\b(RTX|GTX|TITAN|Quadro|CMP|T[1-9]\d{2,3}|GB10|DGX Spark|Thor|Orin|Xavier|Tegra\w*|Jetson|N1X)\b", re.I
)


@lru_cache(maxsize=256)
def _advertised(name: str) -> float | None:
    return _BOOST.get(name.removeprefix("NVIDIA ").strip())


@lru_cache(maxsize=256)
def reaches_max_clock(name: str) -> bool:
    """Whether a GPU of this name reaches its maximum clock under load."""
    return _BEYOND_REACH.search(name) is None


def advertised_mhz(gpu: Gpu) -> float | None:
    """Boost clock from the data sheet for a GPU whose maximum clock is not informative; None if unknown."""
    found = None if reaches_max_clock(gpu.name) else _advertised(gpu.name)
    return found if found is None or gpu.sm_clock_max_mhz is None else min(found, gpu.sm_clock_max_mhz)


def sustained_mhz(gpu: Gpu) -> float | None:
    """SM clock in MHz that it holds under load when nothing throttles it; None if unknown."""
    if gpu.boost_clock_max_mhz or reaches_max_clock(gpu.name):
        return gpu.boost_clock_max_mhz or gpu.sm_clock_max_mhz
    return advertised_mhz(gpu)


def reference_mhz(gpu: Gpu) -> float | None:
    """Reference for clock shares: the data sheet's boost clock where the maximum clock is not informative."""
    return (None if gpu.boost_clock_max_mhz else advertised_mhz(gpu)) or gpu.sm_clock_max_mhz


KEPT = 180  # samples: half a minute at six per second, three minutes at one
_POWERS = 360  # power values: a minute at six per second
FRESH_S = 5.0  # seconds after which shape and rhythm are recomputed
LEAST_S = 0.05  # between two frames: a frame may be shown twice
_UNSURE_S = 0.25  # tolerance for the time of one sample in two frames
QUIET_S = 5.0  # seconds without work after which the power is idle power
# watts of the largest cards of a kind, and the share of its limit any idle card draws: the smaller one counts
_IDLE_WATTS = {"volta": 50.0, "turing": 20.0, "ampere": 60.0, "ada": 30.0, "hopper": 70.0, "blackwell": 130.0}
_IDLE_SHARE = 0.13
_OTHER_SHARE = 0.1  # for an unknown kind


class GpuTracker:
    """One GPU over time."""

    def __init__(self) -> None:
        self.shape: Shape | None = None
        self.period: Period | None = None
        self.spacing_s = 1.0
        self.shaped_s = -FRESH_S  # when shape and rhythm were computed
        self._samples: deque[float] = deque(maxlen=KEPT)
        self._times: deque[float] = deque(maxlen=KEPT)  # mono time of these
        self.powers: deque[float] = deque(maxlen=_POWERS)  # watts, at the driver's sampling rate
        self._powers_s: float | None = None  # wall time of the newest
        self._seen_s: float | None = None  # mono time of the last frame
        self._newest_s: float | None = None  # and of the newest sample taken in
        self._worked_s: float | None = None
        self._idle_watts: float | None = None
        self._least_watts: float | None = None  # the lowest ever: idle power is no higher

    def add(self, gpu: Gpu, now_s: float) -> None:
        """Take in the driver's samples that are newer than the last one stored."""
        since_s = KEPT if self._seen_s is None else now_s - self._seen_s
        self._seen_s = now_s
        if gpu.busy_samples:
            spacing_s = spacing([ago_s for ago_s, _ in gpu.busy_samples[-8:]]) or 1.0
            # a frame repeats samples of the previous one, and its newest may be a moment old. The time of a sample
            # identifies it, with an error below half of the spacing
            last_s = -math.inf if self._newest_s is None else self._newest_s + min(0.5 * spacing_s, _UNSURE_S)
            fresh = list(takewhile(lambda sample: now_s - sample[0] > last_s, reversed(gpu.busy_samples)))
            self._resample(spacing_s)
            if fresh:
                self._newest_s = now_s - fresh[0][0]
                self._samples.extend(value for _, value in reversed(fresh))
                self._times.extend(now_s - ago_s for ago_s, _ in reversed(fresh))
        elif gpu.busy_percent is not None and since_s >= LEAST_S:
            self._resample(min(since_s, 60.0))
            self._samples.append(gpu.busy_percent)
            self._times.append(now_s)
        if gpu.power_series is not None and gpu.power_series.wall_s != self._powers_s:
            self._powers_s = gpu.power_series.wall_s
            self.powers.extend(gpu.power_series.values)
        if gpu.power_watts is not None:
            self._least_watts = min(gpu.power_watts, self._least_watts or gpu.power_watts)
        if gpu.busy_percent is None or gpu.busy_percent > 0 or self._worked_s is None:
            self._worked_s = now_s
        elif now_s - self._worked_s >= QUIET_S and gpu.power_watts is not None:
            self._idle_watts = min(gpu.power_watts, self._idle_watts or gpu.power_watts)

    @property
    def series(self) -> list[tuple[float, float]]:
        """Samples with their times, oldest first."""
        return list(zip(self._times, self._samples, strict=True))

    def recent(self, seconds: float) -> list[float]:
        """Samples of the last `seconds`, oldest first."""
        return list(self._samples)[-max(1, round(seconds / self.spacing_s)) :]

    def _resample(self, spacing_s: float) -> None:
        """Take in the current sample spacing, which always varies a little."""
        if 0.5 < spacing_s / self.spacing_s < 2.0:
            self.spacing_s += (spacing_s - self.spacing_s) / 8
        else:
            self.restart()  # a series has one spacing
            self.spacing_s = spacing_s

    def due(self, now_s: float) -> bool:
        """Whether shape and rhythm are outdated, or unknown with enough samples to compute them."""
        fresh = self.shape is not None and now_s - self.shaped_s < FRESH_S
        return not fresh and len(self._samples) >= LEAST_SAMPLES

    def describe(self, now_s: float) -> None:
        """Compute shape and rhythm: 0.25 ms, so not for every GPU at every frame."""
        values = list(self._samples)
        self.shaped_s, self.shape = now_s, shape(values)
        self.period = period(values, self.spacing_s) if self.shape and self.shape.sigma > 2 else None

    def idle_watts(self, gpu: Gpu) -> float | None:
        """Power without work: measured, else typical of its kind and size; never more than the least it ever drew."""
        if self._idle_watts is not None:
            return self._idle_watts
        limit = gpu.power_default_limit_watts or gpu.power_limit_watts
        usual = _IDLE_WATTS.get(gpu.architecture or "")
        guesses = [] if usual is None else [usual]
        guesses += [] if limit is None else [limit * (_OTHER_SHARE if usual is None else _IDLE_SHARE)]
        guesses += [] if self._least_watts is None or not guesses else [self._least_watts]
        return min(guesses, default=None)

    def restart(self) -> None:
        """Drop the samples: its activity has changed."""
        self._samples.clear()
        self._times.clear()
        self.shape = self.period = None

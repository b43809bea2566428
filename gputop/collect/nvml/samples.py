"""The driver's own sample buffers: what a GPU did between two readings, each read in one call."""

from __future__ import annotations

import time
from ctypes import byref, c_int, c_uint, c_ulonglong, create_string_buffer
from itertools import pairwise
from struct import Struct

from gputop.collect.nvml.device import Device, reads
from gputop.collect.nvml.gate import INSUFFICIENT_SIZE, NoValue, Unanswered
from gputop.collect.nvml.probe import Answers, probe
from gputop.model import Series

BUFFER_S = 16.0  # about what the driver keeps
POWER, BUSY, MEMORY_BUSY, SM_CLOCK, MEMORY_CLOCK, MODULE_POWER = 0, 1, 2, 5, 6, 7  # nvmlSamplingType_t
_MOST = 1 << 16  # samples of a buffer: known ones have some hundreds
_FUNCTION = "nvmlDeviceGetSamples"
# nvmlSample_t: the driver's time in microseconds, a value of eight bytes; by type of the value
_SAMPLES = tuple(map(Struct, ("=Qd", "=QI4x", "=QQ", "=QQ", "=Qq", "=Qi4x", "=QH6x")))
_MOST_MW = 1e7
MOST_MHZ = 2e4  # no clock is faster: graphics memory of 2025 has 15,001 MHz, that of an RTX 4090 10,501
_MEAN_S = 5  # of this number of seconds, whenever they are asked for
_GAP = 3  # times the usual step: what lies before it is not of the same series
LATE_S = 1.0  # without a new sample a buffer has run dry: what it said last is not said again
_LONGEST_STEP_S = 2.0  # what is further apart was stored when it changed, not at a rhythm
_DAY_US = 86_400_000_000

Stamped = tuple[int, float]  # the driver's time in microseconds, a value


class DriverClock:
    """What the clock of the driver's time stamps says, in our wall clock: nearly always it is the same one."""

    def __init__(self) -> None:
        self._behind_us: int | None = None  # by how much another clock is behind ours, at the most

    def arrived(self, newest_us: int, now_us: int) -> None:
        """Samples came that are new. A buffer may be old, but not by days: then its clock is another one."""
        behind_us = now_us - newest_us
        if abs(behind_us) < _DAY_US:
            self._behind_us = 0
        elif self._behind_us != 0:
            # no sample is newer than the look that brought it: the least distance ever seen is the best known
            self._behind_us = behind_us if self._behind_us is None else min(self._behind_us, behind_us)

    def wall_us(self, stamp_us: int) -> int:
        """A time stamp of the driver in our time."""
        return stamp_us + (self._behind_us or 0)

    def stamp_us(self, wall_us: int) -> int:
        """Our time as the driver would stamp it."""
        return wall_us - (self._behind_us or 0)


def driver_clock(card: Device) -> DriverClock:
    """The clock of this card's time stamps."""
    clock: DriverClock = card.kept.setdefault("driver clock", DriverClock())
    return clock


def now_us() -> int:
    """Microseconds of our wall clock."""
    return time.time_ns() // 1000


def fresh(card: Device, kind: int, after_us: int) -> list[Stamped]:
    """The samples later than a driver's time stamp, oldest first; none is an answer too."""
    try:
        return sorted({stamp: value for stamp, value in _read(card, kind, after_us) if stamp > after_us}.items())
    except Unanswered as silent:
        if silent.no.reason == "absent":  # nothing new
            return []
        raise


def _read(card: Device, kind: int, after_us: int) -> list[Stamped]:
    """The call with a buffer of our own, as large as the driver once said: the wrapper asks for the size each time."""
    key = f"samples {kind}"
    size, type_ = c_uint(card.kept.get(key, 0)), c_int()
    given = (c_int(kind), c_ulonglong(after_us), byref(type_), byref(size))
    if not size.value:
        card.symbol(_FUNCTION, *given, None, about=kind)
        if size.value > _MOST:
            raise Unanswered(NoValue("stale"))
        card.kept[key] = size.value
    room = size.value
    buffer = create_string_buffer(16 * max(1, room))
    if card.symbol(_FUNCTION, *given, buffer, about=kind) == INSUFFICIENT_SIZE or not 0 <= type_.value < len(_SAMPLES):
        card.kept.pop(key)
        raise Unanswered(NoValue("stale"))
    return list(_SAMPLES[type_.value].iter_unpack(buffer.raw[: 16 * min(size.value, room)]))


def series(samples: list[Stamped], scale: float, clock: DriverClock) -> Series | None:
    """Samples at an even step; what lies before a gap is left out. Fewer than two have no step.

    Some drivers store a clock only when it changes, a hundred times in a day: that is no series, and None.
    """
    steps = [after[0] - before[0] for before, after in pairwise(samples)]
    if not steps:
        return None
    most = _GAP * sorted(steps)[len(steps) // 2]
    first = max((place for place, step in enumerate(steps, 1) if step > most), default=0)
    kept = samples[first:]
    step_s = (kept[-1][0] - kept[0][0]) / 1e6 / max(1, len(kept) - 1)
    if len(kept) < 2 or step_s > _LONGEST_STEP_S:
        return None
    return Series(
        wall_s=clock.wall_us(kept[-1][0]) / 1e6,
        step_s=step_s,
        values=tuple([value * scale for _, value in kept]),
    )


def _new(card: Device, kind: int, most: float) -> list[Stamped]:
    """What was measured since the last reading, but what cannot be; the buffer is deeper than between two readings."""
    key = f"newest {kind}"
    found = fresh(card, kind, card.kept.get(key, 0))
    if found:
        card.kept[key] = found[-1][0]
        driver_clock(card).arrived(found[-1][0], now_us())
    return [one for one in found if 0 <= one[1] <= most]


def _young(card: Device, found: list[Stamped], most_s: float) -> list[float]:
    """Values that are at most so old now; a buffer that ran dry holds none."""
    since_us = driver_clock(card).stamp_us(now_us()) - most_s * 1e6
    return [value for stamp, value in found if stamp > since_us]


@probe(every_s=_MEAN_S, fills=("memory_busy_percent", "memory_busy_series"))
def memory_busy(card: Device) -> Answers:
    """Time device memory was read or written: some times a second, and the mean of the newest seconds."""
    found = _new(card, MEMORY_BUSY, 100)
    newest = _young(card, found, _MEAN_S + LATE_S) if _young(card, found, LATE_S) else []  # it may have run dry
    return {
        "memory_busy_percent": sum(newest) / len(newest) if newest else None,
        "memory_busy_series": series(found, 1.0, driver_clock(card)) if reads(card, "memory_busy_series") else None,
    }


@probe(every_s=10, fills=("power_series",))
def power_series(card: Device) -> Answers:
    """Board power, some times a second, of the last seconds before the look: for its peaks.

    Newer drivers keep 2.4 s of it, and the sensor pauses too often to sum it up: mean power is that of the energy.
    """
    return {"power_series": series(_new(card, POWER, _MOST_MW), 1e-3, driver_clock(card))}


@probe(every_s=10, fills=("power_module_series",))
def power_module_series(card: Device) -> Answers:
    """The same of a superchip, its CPU included."""
    return {"power_module_series": series(_new(card, MODULE_POWER, _MOST_MW), 1e-3, driver_clock(card))}


@probe(every_s=10, fills=("sm_clock_series",))
def sm_clock_series(card: Device) -> Answers:
    """Clock of the multiprocessors, some times a second."""
    return {"sm_clock_series": series(_new(card, SM_CLOCK, MOST_MHZ), 1.0, driver_clock(card))}


@probe(every_s=10, fills=("memory_clock_series",))
def memory_clock_series(card: Device) -> Answers:
    """Memory clock, some times a second."""
    return {"memory_clock_series": series(_new(card, MEMORY_CLOCK, MOST_MHZ), 1.0, driver_clock(card))}

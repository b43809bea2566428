"""The driver's own sample buffers: what a GPU did between two looks, each read in one call."""

from __future__ import annotations

import time
from ctypes import byref, c_int, c_uint, c_ulonglong, create_string_buffer
from itertools import pairwise
from struct import Struct

from gputop.collect.nvml.card import Card
from gputop.collect.nvml.gate import INSUFFICIENT_SIZE, No, Unanswered
from gputop.collect.nvml.probe import Answers, probe
from gputop.model import Series

BUFFER_S = 16.0  # about what the driver keeps
POWER, BUSY, MEMORY_BUSY, SM_CLOCK, MEMORY_CLOCK, MODULE_POWER = 0, 1, 2, 5, 6, 7  # nvmlSamplingType_t
_FUNCTION = "nvmlDeviceGetSamples"
# nvmlSample_t: the driver's time in microseconds, a value of eight bytes; by type of the value
_SAMPLES = tuple(map(Struct, ("=Qd", "=QI4x", "=QQ", "=QQ", "=Qq", "=Qi4x", "=QH6x")))
_MOST_MW, _MOST_MHZ = 1e7, 1e4
_MEAN_S = 5  # of so many seconds, whenever they are asked for
_GAP = 3  # times the usual step: what lies before it is not of the same series

Stamped = tuple[int, float]  # the driver's time in microseconds, a value


def fresh(card: Card, kind: int, after_us: int) -> list[Stamped]:
    """The samples later than a driver's time stamp, oldest first; none is an answer too."""
    try:
        return sorted({stamp: value for stamp, value in _read(card, kind, after_us) if stamp > after_us}.items())
    except Unanswered as silent:
        if silent.no.reason == "absent":  # nothing new
            return []
        raise


def _read(card: Card, kind: int, after_us: int) -> list[Stamped]:
    """The call with a buffer of our own, as large as the driver once said: the wrapper asks for the size each time."""
    key = f"samples {kind}"
    size, type_ = c_uint(card.kept.get(key, 0)), c_int()
    given = (c_int(kind), c_ulonglong(after_us), byref(type_), byref(size))
    if not size.value:
        card.symbol(_FUNCTION, *given, None, about=kind)
        card.kept[key] = size.value
    room = size.value
    buffer = create_string_buffer(16 * max(1, room))
    if card.symbol(_FUNCTION, *given, buffer, about=kind) == INSUFFICIENT_SIZE or not 0 <= type_.value < len(_SAMPLES):
        card.kept.pop(key)
        raise Unanswered(No("stale"))
    return list(_SAMPLES[type_.value].iter_unpack(buffer.raw[: 16 * min(size.value, room)]))


def wall_us(newest_us: int) -> int:
    """A driver's time stamp in our time; of a driver with another clock, now."""
    now_us = time.time_ns() // 1000
    return newest_us if 0 <= now_us - newest_us < BUFFER_S * 1e6 else now_us


def series(samples: list[Stamped], scale: float = 1.0) -> Series | None:
    """Samples at an even step; what lies before a gap is left out. Fewer than two have no step."""
    steps = [after[0] - before[0] for before, after in pairwise(samples)]
    if not steps:
        return None
    most = _GAP * sorted(steps)[len(steps) // 2]
    first = max((place for place, step in enumerate(steps, 1) if step > most), default=0)
    kept = samples[first:]
    if len(kept) < 2:
        return None
    return Series(
        wall_s=wall_us(kept[-1][0]) / 1e6,
        step_s=(kept[-1][0] - kept[0][0]) / 1e6 / (len(kept) - 1),
        values=tuple([value * scale for _, value in kept]),
    )


def _new(card: Card, kind: int, most: float) -> list[Stamped]:
    """What was measured since this was asked last, but what cannot be; the buffer is deeper than between two looks."""
    key = f"newest {kind}"
    found = fresh(card, kind, card.kept.get(key, 0))
    if found:
        card.kept[key] = found[-1][0]
    return [one for one in found if 0 <= one[1] <= most]


@probe(every_s=_MEAN_S, fills=("memory_busy_percent", "memory_busy_series"))
def memory_busy(card: Card) -> Answers:
    """Time device memory was read or written: some times a second, and the mean of the newest seconds."""
    found = _new(card, MEMORY_BUSY, 100)
    newest = [value for stamp, value in found if stamp > found[-1][0] - _MEAN_S * 1e6]
    return {
        "memory_busy_percent": sum(newest) / len(newest) if newest else None,
        "memory_busy_series": series(found),
    }


@probe(every_s=10, fills=("power_series",))
def power_series(card: Card) -> Answers:
    """Board power, some times a second: for its peaks; the sensor looks away too often to sum it up."""
    return {"power_series": series(_new(card, POWER, _MOST_MW), 1e-3)}


@probe(every_s=10, fills=("power_module_series",))
def power_module_series(card: Card) -> Answers:
    """The same of a superchip, its CPU included."""
    return {"power_module_series": series(_new(card, MODULE_POWER, _MOST_MW), 1e-3)}


@probe(every_s=10, fills=("sm_clock_series",))
def sm_clock_series(card: Card) -> Answers:
    """Clock of the multiprocessors, some times a second."""
    return {"sm_clock_series": series(_new(card, SM_CLOCK, _MOST_MHZ))}


@probe(every_s=10, fills=("memory_clock_mhz", "memory_clock_series"))
def memory_clock(card: Card) -> Answers:
    """Memory clock, some times a second, and now."""
    found = _new(card, MEMORY_CLOCK, _MOST_MHZ)
    return {"memory_clock_mhz": found[-1][1] or None if found else None, "memory_clock_series": series(found)}

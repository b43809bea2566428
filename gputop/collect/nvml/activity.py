"""How busy a GPU is, and how full: the driver's sample buffer, engines, device memory."""

from __future__ import annotations

import time
from bisect import bisect_right
from dataclasses import dataclass, field
from math import inf

from gputop.collect.nvml.card import Card
from gputop.collect.nvml.gate import NOT_SUPPORTED, No, Unanswered
from gputop.collect.nvml.probe import Answers, probe
from gputop.collect.nvml.samples import BUFFER_S, BUSY, Stamped, fresh
from gputop.model.unified import integrated

_MEMORY_V2 = 0x02000028  # the version word of the struct that tells reserved memory apart
_MOST_BYTES = 1 << 50
SPARE_S = 4.0  # by so much a frame may be late without missing a sample


def percent(value: int) -> float | None:
    """A percentage; more than 100 is not one."""
    return float(value) if 0 <= value <= 100 else None


@dataclass(slots=True)
class Buffer:
    """The samples of the last seconds, as (driver's time in microseconds, percent), oldest first."""

    began_s: float  # of our clock
    looked_s: float
    passed_s: float = 0.0  # between the last two looks
    samples: list[Stamped] = field(default_factory=list)
    newest_us: int = 0

    def add(self, fresh: list[Stamped], now_s: float) -> list[float]:
        """Append what is new, drop what is old; the values since the last look, of a second at least."""
        self.passed_s, self.looked_s = now_s - self.looked_s, now_s
        since_s, before_us = max(1.0, min(BUFFER_S, self.passed_s)), self.newest_us
        self.samples += fresh
        if not self.samples:
            return []
        self.newest_us = self.samples[-1][0]
        del self.samples[: self._later(self.newest_us - BUFFER_S * 1e6)]
        since_us = self.newest_us - since_s * 1e6
        # looks and samples have clocks of their own: whatever time has passed, nothing that is new is left out
        return [value for _, value in self.samples[self._later(min(since_us, before_us or since_us)) :]]

    def _later(self, than_us: float) -> int:
        return bisect_right(self.samples, (than_us, inf))

    def span_s(self) -> float:
        """How far back is told: all there is while frames are the first of somebody, then what one may have missed."""
        young = self.looked_s - self.began_s < BUFFER_S
        return BUFFER_S if young else min(BUFFER_S, self.passed_s + SPARE_S)

    def ages(self, now_us: int, span_s: float) -> tuple[tuple[float, float], ...]:
        """(seconds ago, percent), oldest first; of a driver with another clock, since the newest sample."""
        if not 0 <= now_us - self.newest_us < BUFFER_S * 1e6:
            now_us = self.newest_us
        told = self.samples[self._later(self.newest_us - span_s * 1e6) :]
        return tuple([((now_us - stamp) // 1000 / 1000, value) for stamp, value in told])


@probe(every_s=1, fills=("busy_percent", "busy_samples"))
def busy(card: Card) -> Answers:
    """Time a kernel was resident: the mean of the driver's own samples since the last look, of 1 to 16 s."""
    now_s = card.gate.clock()
    buffer: Buffer = card.kept.setdefault("busy", Buffer(began_s=now_s, looked_s=now_s))
    try:
        samples = fresh(card, BUSY, buffer.newest_us)
    except Unanswered as silent:
        rates = card.call("nvmlDeviceGetUtilizationRates")
        return {"busy_percent": percent(rates.gpu), "busy_samples": silent.no}
    last = buffer.add([(stamp, float(value)) for stamp, value in samples if value <= 100], now_s)
    return {
        "busy_percent": sum(last) / len(last) if last else None,
        "busy_samples": buffer.ages(time.time_ns() // 1000, buffer.span_s()),
    }


@probe(every_s=2, backs=("memory_busy_percent",))
def memory_busy_now(card: Card) -> Answers:
    """Time device memory was read or written lately, where there is no buffer of it."""
    return {"memory_busy_percent": percent(card.call("nvmlDeviceGetUtilizationRates").memory)}


@probe(every_s=10, fills=("encoder_percent",))
def encoder(card: Card) -> Answers:
    """Time the video encoder was busy."""
    return {"encoder_percent": percent(card.call("nvmlDeviceGetEncoderUtilization")[0])}


@probe(every_s=10, fills=("decoder_percent",))
def decoder(card: Card) -> Answers:
    """Time the video decoder was busy."""
    return {"decoder_percent": percent(card.call("nvmlDeviceGetDecoderUtilization")[0])}


_UNTOLD = dict.fromkeys(
    ("vram_total_bytes", "vram_used_bytes", "vram_reserved_bytes"),
    No("unsupported", "the driver does not report the memory of this card"),
) | {"unified_memory": False}
_UNIFIED = {"unified_memory": True} | dict.fromkeys(
    ("vram_total_bytes", "vram_used_bytes", "vram_reserved_bytes"), No("unsupported", "memory is shared with the host")
)


@probe(every_s=2, fills=("vram_total_bytes", "vram_used_bytes", "vram_reserved_bytes", "unified_memory"))
def memory(card: Card) -> Answers:
    """Device memory. Unified memory is decided by what the GPU is: a call may be refused for any reason."""
    shares = integrated(card.name, card.identity.get("compute_capability"))
    if shares:
        return _UNIFIED
    none = _UNTOLD if shares is False else _UNIFIED
    reserved: int | No | None = No("unsupported", "a newer driver")
    try:
        try:
            info = card.call("nvmlDeviceGetMemoryInfo", _MEMORY_V2)
            reserved = info.reserved
        except Unanswered as silent:
            if silent.no.reason != "unsupported":
                raise
            info = card.call("nvmlDeviceGetMemoryInfo")
    except Unanswered as silent:
        if silent.code != NOT_SUPPORTED:
            raise
        return none
    if info.total == 0:
        return none
    if not info.used <= info.total < _MOST_BYTES:
        return {"vram_total_bytes": None, "vram_used_bytes": None, "vram_reserved_bytes": None}
    if isinstance(reserved, int) and reserved > info.total:
        reserved = None
    return {
        "vram_total_bytes": info.total,
        "vram_used_bytes": info.used,
        "vram_reserved_bytes": reserved,
        "unified_memory": False,
    }

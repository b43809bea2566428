"""How busy a GPU is, and how full: the driver's sample buffer, engines, device memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf

from gputop.collect.nvml.device import Device
from gputop.collect.nvml.gate import NOT_SUPPORTED, NoValue, Unanswered
from gputop.collect.nvml.probe import Answers, probe
from gputop.collect.nvml.samples import BUFFER_S, BUSY, LATE_S, Stamped, driver_clock, fresh, now_us
from gputop.model.plausible import integrated

_MEMORY_V2 = 0x02000028  # the version word of the struct that lists reserved memory separately
_MOST_BYTES = 1 << 50
DEAR_S = 0.0008  # a call that takes longer is made every other second: eight GPUs share one lock of the driver
_OFTEN_S = 1.5
SPARE_S = 4.0  # by so much a frame may be late without missing a sample


def percent(value: int) -> float | None:
    """A percentage; more than 100 is not one."""
    return float(value) if 0 <= value <= 100 else None


@dataclass(slots=True)
class Buffer:
    """The samples of the last seconds, as (driver's time in microseconds, percent), oldest first.

    Some drivers store none while the GPU idles. What is asked for instead then stands among them at its own time.
    """

    began_s: float  # of our clock
    looked_s: float
    passed_s: float = 0.0  # between the last two readings
    samples: list[Stamped] = field(default_factory=list)
    newest_us: int = 0  # of the driver's own
    filled: list[Stamped] = field(default_factory=list)  # what was asked for since then
    took_s: tuple[float, ...] = ()  # to read it, the last times
    skips_idle: bool = False  # this driver was seen to store nothing while the GPU idles
    step_us: float = 0.0  # between two samples, as it mostly is

    def add(self, new: list[Stamped], now_s: float) -> list[float]:
        """Append what is new, drop what is old; the values since the last reading, of a second at least."""
        self.passed_s, self.looked_s = now_s - self.looked_s, now_s
        since_s, before_us = max(1.0, min(BUFFER_S, self.passed_s)), self.newest_us
        if new:
            self._extend(new)
        if not self.samples:
            return []
        since_us = self.newest_us - since_s * 1e6
        # readings and samples have separate clocks: whatever time has passed, nothing that is new is left out
        return [value for _, value in self.samples[self._later(min(since_us, before_us or since_us)) :]]

    def fill(self, at_us: int, percent: float) -> None:
        """Add what the driver answered at this time of its clock, in place of a sample that it did not store."""
        self.skips_idle |= percent == 0
        self.filled.append((at_us, percent))
        self._append([(at_us, percent)])

    def dry(self, at_us: int) -> bool:
        """Whether nothing of the driver's own is newer than a second, at this time of its clock."""
        return at_us - self.newest_us > LATE_S * 1e6

    @property
    def dear(self) -> bool:
        """Whether it takes the driver long to read it, every time."""
        return len(self.took_s) > 2 and min(self.took_s) > DEAR_S

    def _extend(self, new: list[Stamped]) -> None:
        """Its own samples may come late: they cover more than the time that was asked for."""
        if self.filled:
            later = [one for one in self.filled if one[0] >= new[0][0]]
            if later:
                self.samples = [one for one in self.samples if one not in later]
            self.filled.clear()
        self._append([*self._skipped(new)] if self.skips_idle else new)
        self.newest_us = new[-1][0]

    def _skipped(self, new: list[Stamped]) -> Iterator[Stamped]:
        """New samples, and none at work where the driver stored none because the GPU idled."""
        steps = sorted(after[0] - before[0] for before, after in pairwise(new))
        if steps:
            self.step_us = steps[len(steps) // 4]  # gaps make most of them longer, and none shorter
        before_us = max(self.samples[-1][0] if self.samples else new[0][0], round(new[0][0] - BUFFER_S * 1e6))
        for stamp, value in new:
            while self.step_us and stamp - before_us > 1.5 * self.step_us:
                before_us += round(self.step_us)
                yield before_us, 0.0
            yield stamp, value
            before_us = stamp

    def _append(self, new: list[Stamped]) -> None:
        self.samples += new
        del self.samples[: self._later(self.samples[-1][0] - BUFFER_S * 1e6)]

    def _later(self, than_us: float) -> int:
        return bisect_right(self.samples, (than_us, inf))

    def span_s(self) -> float:
        """How far back to report: all there is while the first frames are shown, then what a frame may have missed."""
        young = self.looked_s - self.began_s < BUFFER_S
        return BUFFER_S if young else min(BUFFER_S, self.passed_s + SPARE_S)

    def ages(self, at_us: int, span_s: float) -> tuple[tuple[float, float], ...]:
        """(seconds ago, percent), oldest first, at a time of the driver's clock: a sample keeps its time."""
        newest = self.samples[self._later(at_us - span_s * 1e6) :]
        return tuple([(max(0, at_us - stamp) // 1000 / 1000, value) for stamp, value in newest])


@probe(every_s=1, fills=("busy_percent", "busy_samples"))
def busy(card: Device) -> Answers:
    """Time a kernel was resident: the mean of the driver's own samples since the last reading, of 1 to 16 s.

    Where reading them is slow it is done every other second, which loses none; between, its last window is given.
    """
    now_s, clock = card.gate.clock(), driver_clock(card)
    buffer: Buffer = card.kept.setdefault("busy", Buffer(began_s=now_s, looked_s=now_s))
    if buffer.dear and now_s - buffer.looked_s < _OFTEN_S:
        return {"busy_percent": _now(card), "busy_samples": buffer.ages(clock.stamp_us(now_us()), buffer.span_s())}
    try:
        samples = fresh(card, BUSY, buffer.newest_us)
    except Unanswered as silent:
        return {"busy_percent": _now(card), "busy_samples": silent.no}
    buffer.took_s = (*buffer.took_s[-2:], card.gate.spent_s)
    wall_us = now_us()
    if samples:
        clock.arrived(samples[-1][0], wall_us)
    last = buffer.add([(stamp, float(value)) for stamp, value in samples if value <= 100], now_s)
    value = sum(last) / len(last) if last else None
    if buffer.dry(clock.stamp_us(wall_us)):
        value = _now(card)
        if value is not None:
            buffer.fill(clock.stamp_us(wall_us), value)
    return {"busy_percent": value, "busy_samples": buffer.ages(clock.stamp_us(wall_us), buffer.span_s())}


def _now(card: Device) -> float | None:
    """The same of the driver's last window, a sixth of a second to a second: where it stored no sample."""
    return percent(card.call("nvmlDeviceGetUtilizationRates").gpu)


@probe(every_s=2, backs=("memory_busy_percent",))
def memory_busy_now(card: Device) -> Answers:
    """Time device memory was read or written lately, where there is no buffer of it."""
    return {"memory_busy_percent": percent(card.call("nvmlDeviceGetUtilizationRates").memory)}


@probe(every_s=10, fills=("encoder_percent",))
def encoder(card: Device) -> Answers:
    """Time the video encoder was busy."""
    return {"encoder_percent": percent(card.call("nvmlDeviceGetEncoderUtilization")[0])}


@probe(every_s=10, fills=("decoder_percent",))
def decoder(card: Device) -> Answers:
    """Time the video decoder was busy."""
    return {"decoder_percent": percent(card.call("nvmlDeviceGetDecoderUtilization")[0])}


_UNREPORTED = dict.fromkeys(
    ("vram_total_bytes", "vram_used_bytes", "vram_reserved_bytes"),
    NoValue("unsupported", "the driver does not report this GPU's memory"),
) | {"unified_memory": False}
_UNIFIED = {"unified_memory": True} | dict.fromkeys(
    ("vram_total_bytes", "vram_used_bytes", "vram_reserved_bytes"),
    NoValue("unsupported", "memory is shared with the host"),
)


@probe(every_s=2, fills=("vram_total_bytes", "vram_used_bytes", "vram_reserved_bytes", "unified_memory"))
def memory(card: Device) -> Answers:
    """Device memory. Unified memory is decided by what the GPU is: a call may be refused for any reason."""
    shares = integrated(card.name, card.identity.get("compute_capability"))
    if shares:
        return _UNIFIED
    none = _UNREPORTED if shares is False else _UNIFIED
    reserved: int | NoValue | None = NoValue("unsupported", "a newer driver")
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

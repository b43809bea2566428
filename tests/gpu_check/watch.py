"""One look at a GPU for some seconds: what the driver says of it a few times a second, and the means of it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from tests.gpu_check.driver import Driver, Field, Gpu
from tests.gpu_check.gpm import Gpm

STEP_S = 0.25
BUSY, SM = 1, 1  # NVML_GPU_UTILIZATION_SAMPLES; clock domain
WATTS, STALL = (186, 0), (297, 0)
POWER_CAP_NS, HEAT_NS, ENERGY_MJ, TX_BYTES, RX_BYTES = 74, 75, 83, 197, 198
COUNTERS = (POWER_CAP_NS, ENERGY_MJ, HEAT_NS)
PAIR_S, ROUND = 0.03, 1 << 32  # PCIe counters are of 32 bits: in so short a time none comes round


def mean(values: list[float]) -> float | None:
    """The mean, None of nothing."""
    return sum(values) / len(values) if values else None


@dataclass
class Watched:
    """What was seen; percent, watts, MHz."""

    seconds: float = 0.0
    busy: list[float] = field(default_factory=list)  # the driver's own samples
    memory: list[float] = field(default_factory=list)
    watts: list[float] = field(default_factory=list)
    clock: list[float] = field(default_factory=list)
    stall: list[float] = field(default_factory=list)
    reasons: list[int] = field(default_factory=list)
    state: int | None = None
    gpm: dict[int, list[float]] = field(default_factory=dict)
    grown: dict[int, float] = field(default_factory=dict)  # by counter, per second
    pcie: dict[int, list[float]] = field(default_factory=dict)  # bytes a second of pairs of looks, by counter

    def gpm_mean(self, metric: int) -> float | None:
        """Mean of a GPM metric."""
        return mean(self.gpm.get(metric, []))


def watch(driver: Driver, gpu: Gpu, label: str, seconds: float) -> Watched:
    """Ask every quarter of a second what gputop asks, GPM once a second."""
    driver.label = label
    seen, newest, gpm = Watched(), _newest(driver, gpu), Gpm(driver, gpu)
    before, start_s = _counters(driver, gpu), time.monotonic()
    step_s, gpm_s, due_s = min(STEP_S, seconds / 4), min(1.0, seconds / 2), start_s
    gpm.take()
    while (now_s := time.monotonic()) < start_s + seconds:
        time.sleep(step_s)
        newest = _look(driver, gpu, seen, newest)
        _pair(driver, gpu, seen)
        if now_s >= due_s + gpm_s:
            due_s = now_s
            for metric, value in gpm.take().items():
                seen.gpm.setdefault(metric, []).append(value)
    gpm.close()
    seen.seconds = time.monotonic() - start_s
    seen.grown = _grown(before, _counters(driver, gpu))
    seen.state = driver.on(gpu, "nvmlDeviceGetPerformanceState").value
    driver.label = ""
    return seen


def _newest(driver: Driver, gpu: Gpu) -> int:
    answer = driver.on(gpu, "nvmlDeviceGetSamples", BUSY, 0)
    return max((sample.timeStamp for sample in answer.value[1]), default=0) if answer.value else 0


def _look(driver: Driver, gpu: Gpu, seen: Watched, newest: int) -> int:
    answer = driver.on(gpu, "nvmlDeviceGetSamples", BUSY, newest)
    fresh = [sample for sample in answer.value[1] if sample.timeStamp > newest] if answer.value else []
    seen.busy += [float(sample.sampleValue.uiVal) for sample in fresh]
    rates = driver.on(gpu, "nvmlDeviceGetUtilizationRates").value
    if rates is not None:
        seen.memory.append(float(rates.memory))
    for one in driver.fields(gpu, WATTS, STALL):
        if one.value is not None:
            (seen.watts.append(one.value / 1e3) if one.number == WATTS[0] else seen.stall.append(one.value))
    if (clock := driver.on(gpu, "nvmlDeviceGetClockInfo", SM).value) is not None:
        seen.clock.append(float(clock))
    if (reasons := driver.on(gpu, "nvmlDeviceGetCurrentClocksEventReasons").value) is not None:
        seen.reasons.append(reasons)
    return max((sample.timeStamp for sample in fresh), default=newest)


def _pair(driver: Driver, gpu: Gpu, seen: Watched) -> None:
    """Two looks at the PCIe counters, close together."""
    before = _counters(driver, gpu, TX_BYTES, RX_BYTES)
    time.sleep(PAIR_S)
    after = _counters(driver, gpu, TX_BYTES, RX_BYTES)
    for number in before.keys() & after.keys():
        (start_s, old), (end_s, new) = before[number], after[number]
        seen.pcie.setdefault(number, []).append((new.value - old.value) % ROUND / (end_s - start_s))


def _counters(driver: Driver, gpu: Gpu, *numbers: int) -> dict[int, tuple[float, Field]]:
    asked = driver.fields(gpu, *((number, 0) for number in numbers or COUNTERS))
    now_s = time.monotonic()
    return {one.number: (now_s, one) for one in asked if one.value is not None}


def _grown(before: dict[int, tuple[float, Field]], after: dict[int, tuple[float, Field]]) -> dict[int, float]:
    grown = {}
    for number in before.keys() & after.keys():
        (start_s, old), (end_s, new) = before[number], after[number]
        grown[number] = (new.value - old.value) / (end_s - start_s)
    return grown

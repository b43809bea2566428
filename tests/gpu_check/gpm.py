"""GPM samples of one GPU, and item 3: what an ordinary user gets from them."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.gpu_check.driver import OK, Driver, Gpu
from tests.gpu_check.records import Fact, Figures, Record, Skip, Verdict, measurement

if TYPE_CHECKING:
    from tests.gpu_check.check import Check

SHARES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 174)
RATES = (20, 21, 60, 61)
METRICS = (*SHARES, *RATES)
DISTANCES_S = (0.05, 0.1, 1.0)  # NVIDIA asks for 0.1 at least


class Value(NamedTuple):
    """One metric: its own return code, its value."""

    code: int
    value: float


class Gpm:
    """Two samples that take turns; nothing where GPM does not work."""

    def __init__(self, driver: Driver, gpu: Gpu) -> None:
        self._driver, self._gpu = driver, gpu
        support = driver.on(gpu, "nvmlGpmQueryDeviceSupport").value
        self.supported = bool(support and support.isSupportedDevice)
        count = 2 if self.supported else 0
        self._samples = [driver.ask("nvmlGpmSampleAlloc", kept=False).value for _ in range(count)]
        self._primed = False

    def take(self) -> dict[int, float]:
        """A new sample, and the good metrics since the one before."""
        return {metric: one.value for metric, one in self.raw().items() if one.code == OK and math.isfinite(one.value)}

    def raw(self) -> dict[int, Value]:
        """The same with every metric's code, NaN included; empty at the first look and where a call failed."""
        if not self.supported:
            return {}
        taken = self._driver.on(self._gpu, "nvmlGpmSampleGet", self._samples[1], kept=False)
        if taken.code != OK:
            self._primed = False
            return {}
        found = self._compare() if self._primed else {}
        self._samples.reverse()
        self._primed = True
        return found

    def close(self) -> None:
        """Give the samples back."""
        for sample in self._samples:
            self._driver.ask("nvmlGpmSampleFree", sample, kept=False)
        self._samples = []

    def _compare(self) -> dict[int, Value]:
        binding = self._driver.binding
        request: Any = binding.c_nvmlGpmMetricsGet_t()
        request.version, request.numMetrics = binding.NVML_GPM_METRICS_GET_VERSION, len(METRICS)
        request.sample1, request.sample2 = self._samples
        for place, metric in enumerate(METRICS):
            request.metrics[place].metricId = metric
        answer = self._driver.ask("nvmlGpmMetricsGet", request, kept=False)
        if answer.code != OK:
            return {}
        found = {m.metricId: Value(m.nvmlReturn, m.value) for m in request.metrics[: len(METRICS)]}
        self._driver.note("nvmlGpmMetricsGet", self._gpu, answer, {m: list(one) for m, one in found.items()})
        return found


@measurement("3", "Does GPM answer an ordinary user, at 50 ms, 100 ms and 1 s, and beside a second reader?")
def gpm(check: Check) -> Iterator[Record]:
    """GPM at several distances; which metrics are NaN, zero, refused or above 100."""
    support = check.driver.on(check.gpu, "nvmlGpmQueryDeviceSupport")
    reader = Gpm(check.driver, check.gpu)
    if not reader.supported:
        word = check.driver.error(support.code)
        raise Skip(f"this GPU or driver has no GPM (nvmlGpmQueryDeviceSupport: {word}); Hopper and newer have it")
    for distance_s in DISTANCES_S:
        seen = _series(check, reader, distance_s)
        yield from _describe(check, f"{distance_s * 1e3:.0f} ms", seen, detail=distance_s == 1.0)
    yield from _second(check, reader)
    reader.close()


def _series(check: Check, reader: Gpm, distance_s: float) -> list[dict[int, Value]]:
    check.driver.label = f"gpm {distance_s} s"
    reader.raw()
    seen, end_s = [], time.monotonic() + check.seconds
    while not seen or time.monotonic() < end_s:
        time.sleep(distance_s)
        seen.append(reader.raw())
    check.driver.label = ""
    return seen


def _describe(check: Check, name: str, seen: list[dict[int, Value]], *, detail: bool) -> Iterator[Record]:
    good = [found for found in seen if found]
    yield Verdict(len(good) == len(seen), f"{len(good)} of {len(seen)} looks {name} apart brought metrics")
    for metric in METRICS if good else ():
        codes = sorted({check.driver.error(found[metric].code) for found in good} - {"OK"})
        numbers = [found[metric].value for found in good if found[metric].code == OK]
        finite = [value for value in numbers if math.isfinite(value)]
        odd = f"{len(numbers) - len(finite)} NaN" if len(finite) < len(numbers) else ""
        if metric in SHARES and finite and not -0.01 <= min(finite) <= max(finite) <= 101:
            yield Verdict(False, f"metric {metric} lies outside 0 to 100 %: {min(finite):.4g} to {max(finite):.4g}")
        if codes or odd:
            yield Fact(f"metric {metric:3} {name} apart: {' '.join([*codes, odd])}".rstrip())
        if detail and finite:
            yield Figures(f"metric {metric}, {name} apart", "%" if metric in SHARES else "MiB/s", tuple(finite))


SECOND = """
import time
from tests.gpu_check.driver import Driver
from tests.gpu_check.gpm import Gpm
driver = Driver()
gpm = Gpm(driver, driver.gpus()[{place}])
end = time.monotonic() + {seconds}
good = asked = 0
gpm.take()
while not asked or time.monotonic() < end:
    time.sleep(0.2)
    asked, good = asked + 1, good + bool(gpm.take())
print(good, asked)
"""


def _second(check: Check, reader: Gpm) -> Iterator[Record]:
    code = SECOND.format(place=check.gpus.index(check.gpu), seconds=check.seconds)
    beside = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    seen = []
    while beside.poll() is None:
        time.sleep(0.2)
        seen.append(bool(reader.take()))
    good, asked = map(int, (beside.communicate()[0] or "0 0").split())
    text = f"two readers at once: {sum(seen)} of {len(seen)} looks here, {good} of {asked} there brought metrics"
    yield Verdict(all(seen) and good == asked > 0, text)

"""How hot the machine is and whether the CPUs slow down for it, from thermal zones, hwmon and the cores' counters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gputop.collect.host.cpu import hidden, sampled_cores
from gputop.collect.kernel_files import Kernel
from gputop.collect.rates import Ledger, total
from gputop.model import Host

_CPU_SENSORS = frozenset({"coretemp", "k10temp", "zenpower"})
_PACKAGES = "x86_pkg_temp"  # a thermal zone of this type is a CPU package
_PACKAGE = re.compile(r"Package id|Tdie|Tctl|Tccd")
_MILLIDEGREE = 0.001


class CpuTemperature:
    """The CPU packages' temperature."""

    fills = ("cpu_celsius",)
    every_s = 10.0

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def read(self, now_s: float) -> Host:  # noqa: ARG002
        """As it is now; what this machine does not show is missing."""
        zones = (_degrees(self._kernel, f"{folder}/temp") for folder, kind in _zones(self._kernel) if kind == _PACKAGES)
        packages = [celsius for celsius in (*zones, *self._sensors()) if celsius is not None]
        host = Host(cpu_celsius=max(packages, default=None))
        return replace(host, missing=hidden(host, self.fills))

    def _sensors(self) -> Iterator[float | None]:
        """Of every CPU package, in degrees Celsius."""
        for sensor in self._kernel.names("class/hwmon"):
            folder = f"class/hwmon/{sensor}"
            if self._kernel.word(f"{folder}/name") in _CPU_SENSORS:
                for name in self._kernel.names(folder):
                    if name.endswith("_label") and _PACKAGE.match(self._kernel.word(f"{folder}/{name}") or ""):
                        yield _degrees(self._kernel, f"{folder}/{name.removesuffix('label')}input")


class Zones:
    """The hottest thermal zone. A zone may be any device: a disk or a management controller that is dead too."""

    fills = ("zone_celsius",)
    every_s = 10.0

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def read(self, now_s: float) -> Host:  # noqa: ARG002
        """As it is now; what this machine does not show is missing."""
        found = (_degrees(self._kernel, f"{folder}/temp") for folder, _ in _zones(self._kernel))
        host = Host(zone_celsius=max((celsius for celsius in found if celsius is not None), default=None))
        return replace(host, missing=hidden(host, self.fills))


class Throttles:
    """How often the cores slowed down for heat."""

    fills = ("cpu_throttles_per_s",)
    every_s = 10.0

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._throttles: Ledger[str] = Ledger()

    def read(self, now_s: float) -> Host:
        """Slowdowns since the last sample; missing where no core counts them."""
        cores = sampled_cores(self._kernel)
        counts = {core: self._kernel.number(f"{core}/thermal_throttle/core_throttle_count") for core in cores}
        known = {core: (count,) for core, count in counts.items() if count is not None}
        grown = self._throttles.grown(now_s, known)
        host = Host(cpu_throttles_per_s=total(growth.per_s(0) for growth in grown.values()))
        return host if known else replace(host, missing=hidden(host, self.fills))


def _zones(kernel: Kernel) -> Iterator[tuple[str, str | None]]:
    """Folder and type of every thermal zone."""
    for zone in kernel.names("class/thermal"):
        if zone.startswith("thermal_zone"):
            folder = f"class/thermal/{zone}"
            yield folder, kernel.word(f"{folder}/type")


def _degrees(kernel: Kernel, name: str) -> float | None:
    value = kernel.number(name)
    return None if value is None else value * _MILLIDEGREE

"""How hot the machine is and whether the CPUs slow down for it, from thermal zones, hwmon and the cores' counters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gputop.collect.growth import Ledger, total
from gputop.collect.host.speeds import hidden, sampled_cores
from gputop.collect.kernel import Kernel
from gputop.model import Host

_CPU_SENSORS = frozenset({"coretemp", "k10temp", "zenpower"})
_PACKAGE = re.compile(r"Package id|Tdie|Tctl|Tccd")
_MILLIDEGREE = 0.001


class Heat:
    """Temperatures, and the slowdowns that they cause."""

    fills = ("cpu_celsius", "zone_celsius", "cpu_throttles_per_s")
    every_s = 10.0

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._throttles: Ledger[str] = Ledger()

    def read(self, now_s: float) -> Host:
        """Temperatures now, slowdowns since the last look; what this machine does not show is missing."""
        zones = tuple(self._zones())
        packages = (*(celsius for kind, celsius in zones if kind == "x86_pkg_temp"), *self._sensors())
        counts = {core: self._kernel.number(f"{core}/thermal_throttle/core_throttle_count") for core in self._cores()}
        grown = self._throttles.grown(now_s, {core: (count,) for core, count in counts.items() if count is not None})
        host = Host(
            cpu_celsius=max(packages, default=None),
            zone_celsius=max((celsius for _, celsius in zones), default=None),
            cpu_throttles_per_s=total(growth.per_s(0) for growth in grown.values()),
        )
        counted = any(count is not None for count in counts.values())
        names = tuple(name for name in self.fills if not (counted and name == "cpu_throttles_per_s"))
        return replace(host, missing=hidden(host, names))

    def _cores(self) -> list[str]:
        return sampled_cores(self._kernel)

    def _zones(self) -> Iterator[tuple[str | None, float]]:
        """Type and degrees Celsius of every thermal zone."""
        for zone in self._kernel.names("class/thermal"):
            folder = f"class/thermal/{zone}"
            if zone.startswith("thermal_zone") and (celsius := self._degrees(f"{folder}/temp")) is not None:
                yield self._kernel.word(f"{folder}/type"), celsius

    def _sensors(self) -> Iterator[float]:
        """Of every CPU package, in degrees Celsius."""
        for sensor in self._kernel.names("class/hwmon"):
            folder = f"class/hwmon/{sensor}"
            if self._kernel.word(f"{folder}/name") in _CPU_SENSORS:
                for name in self._kernel.names(folder):
                    if name.endswith("_label") and _PACKAGE.match(self._kernel.word(f"{folder}/{name}") or ""):
                        celsius = self._degrees(f"{folder}/{name.removesuffix('label')}input")
                        yield from () if celsius is None else (celsius,)

    def _degrees(self, name: str) -> float | None:
        value = self._kernel.number(name)
        return None if value is None else value * _MILLIDEGREE

"""How fast and how hot the CPUs run, from cpufreq, thermal zones and hwmon; a virtual machine shows none of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gputop.collect.kernel import Kernel
from gputop.model import Host, Missing

_CPUS = "devices/system/cpu"
_SAMPLED = 64  # of many cores: each read may wake one up
_CPU_SENSORS = frozenset({"coretemp", "k10temp", "zenpower"})
_PACKAGE = re.compile(r"Package id|Tdie|Tctl|Tccd")
_KHZ, _MILLIDEGREE = 0.001, 0.001


class Speeds:
    """Clocks, governor, temperature."""

    fills = ("cpu_mhz", "cpu_max_mhz", "cpu_governor", "cpu_celsius")
    every_s = 10.0

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def read(self, now_s: float) -> Host:  # noqa: ARG002
        """As they are now; what this machine does not show is missing."""
        cores = self._cores()
        clocks = [khz for core in cores if (khz := self._kernel.number(f"{core}/scaling_cur_freq"))]
        highest = [khz for core in cores if (khz := self._kernel.number(f"{core}/cpuinfo_max_freq"))]
        host = Host(
            cpu_mhz=sum(clocks) / len(clocks) * _KHZ if clocks else None,
            cpu_max_mhz=max(highest) * _KHZ if highest else None,
            cpu_governor=self._kernel.word(f"{cores[0]}/scaling_governor") if cores else None,
            cpu_celsius=max(self._temperatures(), default=None),
        )
        missing = (
            Missing(metric=name, reason="absent", unlock="not shown by this kernel, as in most virtual machines")
            for name in self.fills
            if getattr(host, name) is None
        )
        return replace(host, missing=tuple(missing))

    def _cores(self) -> list[str]:
        policies = [f"{_CPUS}/{name}/cpufreq" for name in self._kernel.names(_CPUS) if re.fullmatch(r"cpu\d+", name)]
        return policies[:: -(-len(policies) // _SAMPLED) or 1]

    def _temperatures(self) -> Iterator[float]:
        """Of every CPU package, in degrees Celsius."""
        for zone in self._kernel.names("class/thermal"):
            if self._kernel.word(f"class/thermal/{zone}/type") == "x86_pkg_temp":
                yield from self._degrees(f"class/thermal/{zone}/temp")
        for sensor in self._kernel.names("class/hwmon"):
            folder = f"class/hwmon/{sensor}"
            if self._kernel.word(f"{folder}/name") in _CPU_SENSORS:
                for name in self._kernel.names(folder):
                    if name.endswith("_label") and _PACKAGE.match(self._kernel.word(f"{folder}/{name}") or ""):
                        yield from self._degrees(f"{folder}/{name.removesuffix('label')}input")

    def _degrees(self, name: str) -> Iterator[float]:
        value = self._kernel.number(name)
        if value is not None:
            yield value * _MILLIDEGREE

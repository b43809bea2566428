"""How fast the CPUs run and may run, from cpufreq; a virtual machine shows none of it."""

from __future__ import annotations

import re
from dataclasses import replace

from gputop.collect.kernel import Kernel
from gputop.model import Host, Missing

_CPUS = "devices/system/cpu"
_SAMPLED = 64  # of many cores: each read may wake one up
_KHZ = 0.001
_HIDDEN = "not shown by this kernel, as in most virtual machines"


class Speeds:
    """Clocks, and what rules them."""

    fills = (
        "cpu_mhz",
        "cpu_low_mhz",
        "cpu_max_mhz",
        "cpu_cap_mhz",
        "cpu_governor",
        "cpu_driver",
        "cpu_preference",
        "cpu_turbo",
    )
    every_s = 10.0

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def read(self, now_s: float) -> Host:  # noqa: ARG002
        """As they are now; what this machine does not show is missing."""
        cores = [f"{core}/cpufreq" for core in sampled_cores(self._kernel)]
        clocks, highest, caps = (
            [khz * _KHZ for core in cores if (khz := self._kernel.number(f"{core}/{name}"))]
            for name in ("scaling_cur_freq", "cpuinfo_max_freq", "scaling_max_freq")
        )
        governor, driver, preference = (
            self._kernel.word(f"{cores[0]}/{name}") if cores else None
            for name in ("scaling_governor", "scaling_driver", "energy_performance_preference")
        )
        host = Host(
            cpu_mhz=sum(clocks) / len(clocks) if clocks else None,
            cpu_low_mhz=min(clocks, default=None),
            cpu_max_mhz=max(highest, default=None),
            cpu_cap_mhz=min(caps, default=None),
            cpu_governor=governor,
            cpu_driver=driver,
            cpu_preference=preference,
            cpu_turbo=self._turbo(),
        )
        return replace(host, missing=hidden(host, self.fills))

    def _turbo(self) -> bool | None:
        """As Intel's driver says it, or that of everybody else."""
        off = self._kernel.number(f"{_CPUS}/intel_pstate/no_turbo")
        on = self._kernel.number(f"{_CPUS}/cpufreq/boost")
        return off == 0 if off is not None else None if on is None else on == 1


def sampled_cores(kernel: Kernel) -> list[str]:
    """Folders of the cores below /sys: all of them, or evenly chosen ones of many."""
    cores = [f"{_CPUS}/{name}" for name in kernel.names(_CPUS) if re.fullmatch(r"cpu\d+", name)]
    return cores[:: -(-len(cores) // _SAMPLED) or 1]


def hidden(host: Host, names: tuple[str, ...]) -> tuple[Missing, ...]:
    """One for each that has no value."""
    unknown = (name for name in names if getattr(host, name) is None)
    return tuple(Missing(metric=name, reason="absent", unlock=_HIDDEN) for name in unknown)

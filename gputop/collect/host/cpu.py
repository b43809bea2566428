"""The CPUs of the machine: time by kind and by core, load, pressure, and how fast they run and may run."""

from __future__ import annotations

import re
from dataclasses import replace

from gputop.collect.cgroups import RESOURCES, UNLOCK, Stalls
from gputop.collect.kernel_files import Kernel
from gputop.collect.rates import Growth, Ledger
from gputop.model import Host, Missing


class Pressures:
    """How much of the time tasks waited; the kernel may be built without it, or booted with psi=0."""

    fills = (
        "cpu_pressure",
        "memory_pressure",
        "io_pressure",
        "pressure.some_percent",
        "pressure.full_percent",
        "pressure.some_avg10_percent",
    )
    every_s = 0.0
    unlock = UNLOCK

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._stalls = Stalls()

    def read(self, now_s: float) -> Host:
        """Shares of the time since the last sample."""
        found = self._stalls.pressures(now_s, {name: self._kernel.proc(f"pressure/{name}") for name in RESOURCES})
        return Host(cpu_pressure=found["cpu"], memory_pressure=found["memory"], io_pressure=found["io"])


_CPUS = "devices/system/cpu"
_SAMPLED = 64  # of many cores: each read may wake one up
_KHZ = 0.001
_HIDDEN = "not exposed by this kernel, as in most virtual machines"


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
        """As Intel's driver reports it, or any other."""
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


_ALL = -1  # the row of the whole machine
# columns of proc_stat(5); guest time, the ninth and tenth, is already in user and nice
_USER, _NICE, _SYSTEM, _IDLE, _IOWAIT, _IRQ, _SOFTIRQ, _STEAL = range(8)


class Cpu:
    """How busy the CPUs are."""

    fills = (
        "cpus_total",
        "cpu_percent",
        "cpu_cores_percent",
        "user_percent",
        "system_percent",
        "iowait_percent",
        "steal_percent",
        "load",
    )
    every_s = 0.0

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._times: Ledger[int] = Ledger()

    def read(self, now_s: float) -> Host:
        """Shares of the CPU time since the last sample; a core that came, or whose clock went back, has none."""
        table = cpu_times(self._kernel.proc("stat"))
        grown = self._times.grown(now_s, table)
        cores = max(table, default=_ALL) + 1
        machine = grown.get(_ALL)
        return Host(
            cpus_total=len(table) - (_ALL in table) or None,
            cpu_percent=_busy(machine),
            cpu_cores_percent=tuple(_busy(grown.get(core)) for core in range(cores)),
            user_percent=_share(machine, _USER, _NICE),
            system_percent=_share(machine, _SYSTEM, _IRQ, _SOFTIRQ),
            iowait_percent=_share(machine, _IOWAIT),
            steal_percent=_share(machine, _STEAL),
            load=self._load(),
        )

    def _load(self) -> tuple[float, float, float] | None:
        try:
            one, five, fifteen = map(float, self._kernel.proc("loadavg").split()[:3])
        except (OSError, ValueError):
            return None
        return one, five, fifteen


def cpu_times(raw: bytes) -> dict[int, tuple[int, ...]]:
    """The eight kinds of time of every CPU that is online, by its number; the whole machine is -1."""
    table: dict[int, tuple[int, ...]] = {}
    for line in raw.splitlines():
        if not line.startswith(b"cpu"):
            break  # what follows is longer than all of it: one number for each interrupt
        name, *times = line.split()
        eight = [*map(int, times[:8]), *([0] * (8 - len(times)))]  # kernels before 2.6.11 have no steal
        table[int(name[3:] or _ALL)] = tuple(eight)
    return table


def _busy(growth: Growth | None) -> float | None:
    return _share(growth, _USER, _NICE, _SYSTEM, _IRQ, _SOFTIRQ, _STEAL)


def _share(growth: Growth | None, *kinds: int) -> float | None:
    if growth is None:
        return None
    known = [grown for grown in growth.by if grown is not None]
    whole = sum(known)
    if len(known) < len(growth.by) or not whole:
        return None
    return 100 * sum(known[kind] for kind in kinds) / whole

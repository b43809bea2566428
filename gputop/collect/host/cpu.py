"""CPU time by kind and by core, from /proc/stat; load."""

from __future__ import annotations

from gputop.collect.growth import Growth, Ledger
from gputop.collect.kernel import Kernel
from gputop.model import Host

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
        """Shares of the CPU time since the last look; a core that came, or whose clock went back, has none."""
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

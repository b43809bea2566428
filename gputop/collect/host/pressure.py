"""Pressure stall information of the whole machine, from /proc/pressure."""

from __future__ import annotations

from gputop.collect.kernel import Kernel
from gputop.collect.stalls import RESOURCES, UNLOCK, Stalls
from gputop.model import Host


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
        """Shares of the time since the last look."""
        found = self._stalls.pressures(now_s, {name: self._kernel.proc(f"pressure/{name}") for name in RESOURCES})
        return Host(cpu_pressure=found["cpu"], memory_pressure=found["memory"], io_pressure=found["io"])

"""Pressure stall information: how much of the time tasks waited for CPU, memory or storage."""

from __future__ import annotations

from gputop.collect.host.growth import Growth, Ledger
from gputop.collect.kernel import Kernel
from gputop.model import Host, Pressure

RESOURCES = ("cpu", "memory", "io")
_MICROSECOND = 1e-6


class Pressures:
    """/proc/pressure; the kernel may be built without it, or booted with psi=0."""

    fills = (
        "cpu_pressure",
        "memory_pressure",
        "io_pressure",
        "pressure.some_percent",
        "pressure.full_percent",
        "pressure.some_avg10_percent",
    )
    every_s = 0.0
    unlock = "boot with psi=1"

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._stalled: Ledger[tuple[str, str]] = Ledger()

    def read(self, now_s: float) -> Host:
        """Shares of the time since the last look."""
        lines = {resource: _lines(self._kernel.proc(f"pressure/{resource}")) for resource in RESOURCES}
        grown = self._stalled.grown(
            now_s,
            {(resource, kind): (total,) for resource in RESOURCES for kind, (total, _) in lines[resource].items()},
        )

        def pressure(resource: str) -> Pressure:
            return Pressure(
                some_percent=_share(grown.get((resource, "some"))),
                full_percent=_share(grown.get((resource, "full"))),
                some_avg10_percent=lines[resource]["some"][1],
            )

        return Host(cpu_pressure=pressure("cpu"), memory_pressure=pressure("memory"), io_pressure=pressure("io"))


def _lines(raw: bytes) -> dict[str, tuple[int, float]]:
    """`some avg10=0.33 avg60=0.76 avg300=0.35 total=5089576`: its total in us and its average, by kind."""
    found = {}
    for line in raw.decode("ascii", "replace").splitlines():
        kind, *pairs = line.split()
        values = dict(pair.split("=", 1) for pair in pairs)
        found[kind] = int(values["total"]), float(values["avg10"])
    return found


def _share(growth: Growth | None) -> float | None:
    return growth.percent(0, _MICROSECOND) if growth else None

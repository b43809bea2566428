"""Pressure files of the kernel: time in which tasks waited for CPU, memory or storage, as shares between two looks."""

from __future__ import annotations

from collections.abc import Mapping

from gputop.collect.growth import Growth, Ledger
from gputop.model import Pressure

RESOURCES = ("cpu", "memory", "io")
UNLOCK = "boot with psi=1"
_MICROSECOND = 1e-6


class Stalls:
    """The last look at the files of one machine or one control group."""

    def __init__(self) -> None:
        self._stalled: Ledger[tuple[str, str]] = Ledger()

    def pressures(self, now_s: float, files: Mapping[str, bytes]) -> dict[str, Pressure]:
        """The pressure of each resource, from the text of its file; ValueError or KeyError for text that is none."""
        lines = {resource: _lines(raw) for resource, raw in files.items()}
        totals = {(resource, kind): (total,) for resource in lines for kind, (total, _) in lines[resource].items()}
        grown = self._stalled.grown(now_s, totals)
        return {
            resource: Pressure(
                some_percent=_share(grown.get((resource, "some"))),
                full_percent=_share(grown.get((resource, "full"))),
                some_avg10_percent=found["some"][1],
            )
            for resource, found in lines.items()
        }


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

"""Where a training step stands below the ceilings of its device: achieved FLOP/s, share of them, and a picture.

The ceilings are measured: a matrix product in each precision, and a copy. The operations of a step are counted by
torch; its bytes are those that each operation reads and writes, as if no cache held anything and nothing were fused.
So its intensity, operations a byte, is the least that it can be.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gputop.declare import record
from gputop.lab.precision import COMPILED, middle, verdict

WIDTH, HEIGHT = 78, 12  # cells of the picture, with its axis
_AXIS = 12  # cells of the numbers at the left
_NEAR = 0.5  # of its roof, from which a step is bound by it


@record(frozen=True, slots=True, kw_only=True)
class Spot:
    """One precision on the roofline."""

    kind: str
    flops: float  # of a step
    flops_per_s: float  # of the step alone, without waits for data
    ceiling: float | None  # FLOP/s of a matrix product in this precision
    intensity: float | None  # FLOP a byte; None for a compiled step, whose bytes cannot be counted
    bandwidth: float | None  # bytes/s of a copy
    overhead: bool = False  # whether two batch sizes take the same time

    @property
    def utilization(self) -> float | None:
        """The share of the measured matrix product's FLOP/s: the MFU."""
        return self.flops_per_s / self.ceiling if self.ceiling else None

    @property
    def roof(self) -> float | None:
        """The FLOP/s that its intensity allows at most."""
        if not self.ceiling or not self.bandwidth or self.intensity is None:
            return None
        return min(self.ceiling, self.bandwidth * self.intensity)

    @property
    def bound(self) -> str | None:
        """What limits it: compute, memory bandwidth, or overhead; None where it is near no roof, or that is unknown."""
        if self.overhead:
            return "overhead"
        if self.roof is None or self.flops_per_s < _NEAR * self.roof:
            return None
        return "compute" if self.roof == self.ceiling else "memory bandwidth"


def spots(result: Mapping[str, Any]) -> list[Spot]:
    """Every precision whose operations were counted; a compiled step has those of the same step uncompiled."""
    ceilings = result.get("ceilings") or {}
    overhead = verdict(result)["overhead_bound"] is True
    found = []
    for kind, rows in result["runs"].items():
        plain = kind.partition("+")[0]
        counted = next((row for row in result["runs"].get(plain, ()) if row.get("flops")), None)
        if counted is None:
            continue
        intensity = counted["flops"] / counted["bytes"] if counted["bytes"] and kind != COMPILED else None
        found.append(
            Spot(
                kind=kind,
                flops=counted["flops"],
                flops_per_s=counted["flops"] / (middle(rows, "alone_s") or math.inf),
                ceiling=(ceilings.get("flops") or {}).get(plain),
                intensity=intensity,
                bandwidth=ceilings.get("bytes_per_s"),
                overhead=overhead,
            )
        )
    return found


def rate(value: float) -> str:
    """FLOP/s in words: 312 TFLOP/s, 45.1 GFLOP/s."""
    for limit, unit in ((1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s")):
        if value >= limit:
            return f"{value / limit:.3g} {unit}" if value < 999.5 * limit else f"{value / limit:.0f} {unit}"
    return f"{value:.0f} FLOP/s"


def bandwidth(value: float) -> str:
    """Bytes a second of a memory, in words: 1.5 TB/s, 46 GB/s."""
    return f"{value / 1e12:.3g} TB/s" if value >= 999.5e9 else f"{value / 1e9:.3g} GB/s"


def picture(found: Sequence[Spot]) -> tuple[str, ...]:
    """The roofline, both axes logarithmic: a roof for each precision, and a letter for each step."""
    placed = [spot for spot in found if spot.roof is not None and spot.intensity]
    if not placed:
        return ()
    slope = placed[0].bandwidth or 1.0
    roofs = {spot.kind: spot.ceiling or 1.0 for spot in placed}
    ridges = [roof / slope for roof in roofs.values()]
    across = _Scale(
        min([*(spot.intensity or 1.0 for spot in placed), *ridges]) / 8,
        max([*(spot.intensity or 1.0 for spot in placed), *ridges]) * 8,
        WIDTH - _AXIS - 1,
    )
    up = _Scale(
        min([*(spot.flops_per_s for spot in placed), min(roofs.values()) / 30]) / 2, max(roofs.values()) * 1.5, HEIGHT
    )
    cells = [[" "] * across.cells for _ in range(HEIGHT)]
    for roof in sorted(set(roofs.values()), reverse=True):
        _roof(cells, across, up, roof, slope)
    for letter, spot in zip("ABCDEFGH", placed, strict=False):
        cells[HEIGHT - 1 - up.cell(spot.flops_per_s)][across.cell(spot.intensity or 1.0)] = letter
    return tuple(_framed(cells, across, up, list(roofs.values())))


class _Scale:
    """A logarithmic axis of some cells."""

    def __init__(self, low: float, high: float, cells: int) -> None:
        self.low, self.cells = math.log(low), cells
        self.step = (math.log(high) - self.low) / (cells - 1)

    def cell(self, value: float) -> int:
        """The cell of a value, the nearest where it lies outside."""
        return max(0, min(self.cells - 1, round((math.log(value) - self.low) / self.step)))

    def value(self, cell: int) -> float:
        """The value in the middle of a cell."""
        return math.exp(self.low + cell * self.step)


def _roof(cells: list[list[str]], across: _Scale, up: _Scale, roof: float, slope: float) -> None:
    """Up with the bandwidth, then flat with the ceiling."""
    flat, before = HEIGHT - 1 - up.cell(roof), None
    for column in range(across.cells):
        reached = slope * across.value(column)
        row = HEIGHT - 1 - up.cell(min(roof, reached))
        if reached < up.value(0):
            continue
        if row == flat:
            cells[row][column] = "─"
        elif row != before:
            cells[row][column] = "/"
        before = row


def _framed(cells: list[list[str]], across: _Scale, up: _Scale, roofs: Sequence[float]) -> Iterator[str]:
    """The cells with their axes: the ceilings and the lowest value at the left, powers of ten below."""
    names = {HEIGHT - 1 - up.cell(roof): rate(roof) for roof in sorted(roofs)}
    names.setdefault(HEIGHT - 1, rate(up.value(0)))
    for number, row in enumerate(cells):
        yield f"{names.get(number, ''):>{_AXIS}} │{''.join(row)}".rstrip()
    yield f"{'':>{_AXIS}} └{'─' * across.cells}"
    ticks = [" "] * across.cells
    for power in range(-6, 7):
        value = 10.0**power
        if across.value(0) <= value <= across.value(across.cells - 1):
            text, at = f"{value:g}", across.cell(value)
            if at + len(text) <= across.cells:
                ticks[at : at + len(text)] = text
    yield f"{'FLOP/byte':>{_AXIS}}  {''.join(ticks)}".rstrip()

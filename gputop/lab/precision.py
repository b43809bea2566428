"""One training in several precisions: fp32, bf16, bf16 with torch.compile, optionally TF32 and fp16.

Each run is a separate process, and the precisions take turns, so that changes of the machine affect all; the difference
of equal runs is the spread, and no verdict is given within it. Results go into one plain object at once: a failure
keeps earlier ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from gputop.frozen_dataclass import frozen_dataclass
from gputop.lab.child import NotMeasured
from gputop.lab.loader import percentile

STEPS, WARMUP, REPEATS = 55, 5, 3
FP32, BF16, FP16, TF32, COMPILED = "fp32", "bf16", "fp16", "tf32", "bf16+compile"
LEAST_PRECISION = 0.20  # gain of bf16, fp16 or TF32 over fp32 below which precision is not the limit
LEAST_COMPILE = 0.10  # gain of torch.compile below which little was left to fuse
BF16_SINCE = (8, 0)  # compute capability with Tensor Cores for bf16
WAITS = 0.20  # share of a step spent waiting for data, from which the loader comes first
SAME_TIME, TWICE_TIME = 1.3, 1.7  # time ratio of a batch twice as large: overhead-bound below, work-bound above
LEAST_PAIRS, STEADY = 10, 1.25  # of both batch sizes, and largest quartile distance of one
MADE = (  # kept from a child's first answer
    "torch", "device", "device_name", "capability", "cpus", "tf32", "batch_size", "loads", "workers", "optimizer",
    "own_step", "parameters",
)  # fmt: skip
SIZES, CEILINGS = "two batch sizes", "ceilings"  # measured after the runs

Ask = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]  # maps a title and a request to the child's answer


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionPlan:
    """What to measure."""

    steps: int = STEPS
    warmup: int = WARMUP
    repeats: int = REPEATS
    fp16: bool = False
    tf32: bool = False

    @property
    def kinds(self) -> list[str]:
        """The precisions in the order of their turns."""
        return [FP32, *([TF32] if self.tf32 else []), BF16, *([FP16] if self.fp16 else []), COMPILED]

    @property
    def children(self) -> int:
        """Number of child processes."""
        return self.repeats * len(self.kinds) + 2


class SpeedRatio(NamedTuple):
    """Speed ratio of two settings over equal runs: minimum, median, maximum."""

    low: float
    middle: float
    high: float
    once: bool = False  # one run of each: the spread is unknown

    def decided(self, least: float) -> bool | None:
        """Whether it reaches `least`; None if the spread is too large to say, or unknown."""
        return None if self.once else True if self.low >= least else False if self.high < least else None


def compare(ask: Ask, plan: PrecisionPlan, result: dict[str, Any]) -> None:
    """Measure the whole plan; an exception from `ask` leaves earlier results in `result`.

    A failing precision is recorded in `failed` and the others continue; the first one must succeed, unless it lacks
    memory, which another may need less of.
    """
    runs: dict[str, list[dict[str, Any]]] = result.setdefault("runs", {})
    failed: dict[str, str] = result.setdefault("failed", {})
    for number in range(1, plan.repeats + 1):
        for kind in plan.kinds:
            if kind in failed:
                continue
            request = {"mode": "run", "kind": kind, "steps": plan.steps, "warmup": plan.warmup, "count": number == 1}
            try:
                answer = ask(f"{kind}, run {number} of {plan.repeats}", request)
            except NotMeasured as trouble:
                if not runs and trouble.cause != "memory":
                    raise
                failed[kind] = str(trouble)
                if kind == BF16 and trouble.cause != "memory":  # compiled it would fail again, after a long wait
                    failed.setdefault(COMPILED, "bf16 fails")
                continue
            result.setdefault("made", {key: answer["ready"][key] for key in MADE})
            runs.setdefault(kind, []).append(_timed(answer, compiled=kind == COMPILED))
    if not runs:
        raise NotMeasured(next(iter(failed.values())))
    _measure_rest(ask, plan, result)


def _measure_rest(ask: Ask, plan: PrecisionPlan, result: dict[str, Any]) -> None:
    """The two batch sizes and the ceilings; their failure keeps the runs."""
    runs = result["runs"]
    kind = next((each for each in (BF16, FP32) if each in runs and each not in result["failed"]), next(iter(runs)))
    same = {"steps": plan.steps, "warmup": plan.warmup}
    for key, request in (
        (SIZES, {"mode": "sizes", "kind": kind, **same}),
        (
            CEILINGS,
            {"mode": "ceilings", "kinds": [each for each in plan.kinds if each in runs and "+" not in each], **same},
        ),
    ):
        try:
            answer = dict(ask(key, request))
        except NotMeasured as trouble:
            result["failed"][key] = str(trouble)
            continue
        if key == SIZES:
            result["sizes"] = {"kind": kind, "size": answer["size"], "ratio": ratio(answer)._asdict()}
            result["sizes"]["steady"] = steady(answer["once_s"])
        else:
            result["ceilings"] = {"flops": answer["flops"], "bytes_per_s": answer["bytes_per_s"]}


def _timed(answer: Mapping[str, Any], *, compiled: bool) -> dict[str, Any]:
    """The numbers of one run."""
    steps, took_s = answer["steps"], max(answer["took_s"], 1e-9)
    alone_s = median(answer["alone_s"])
    found = {
        "step_s": took_s / steps,
        "steps_per_s": steps / took_s,
        "samples_per_s": answer["samples"] / took_s if answer["samples"] else None,
        "alone_s": alone_s,
        "compile_s": sum(max(0.0, one - min(answer["alone_s"])) for one in answer["warm_s"]) if compiled else None,
    }
    kept = ("steps", "waited_s", "peak_bytes", "reserved_bytes", "loss", "loss_name", "breaks")
    found |= {key: answer[key] for key in kept}
    return found | {key: answer.get(key) for key in ("flops", "bytes", "uncounted", "skipped")}


def ratio(answer: Mapping[str, Any]) -> SpeedRatio:
    """Time ratio of a batch twice as large, pair by pair: the quartiles."""
    pairs = [twice / max(once, 1e-9) for once, twice in zip(answer["once_s"], answer["twice_s"], strict=True)]
    return SpeedRatio(percentile(pairs, 0.25), median(pairs), percentile(pairs, 0.75))


def steady(times: Sequence[float]) -> bool:
    """Whether the steps of one batch size vary little enough to compare two sizes."""
    return len(times) >= LEAST_PAIRS and percentile(times, 0.75) < STEADY * percentile(times, 0.25)


def median_of(rows: Sequence[Mapping[str, Any]], key: str) -> float | None:
    """The median of known values."""
    known = [row[key] for row in rows if row.get(key) is not None]
    return median(known) if known else None


def spread(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Speed ratio of the fastest to the slowest equal run; None for a single one."""
    rates = [row["steps_per_s"] for row in rows]
    return max(rates) / min(rates) - 1 if len(rates) > 1 else None


def gain(result: Mapping[str, Any], before: str, after: str) -> SpeedRatio | None:
    """Speed ratio of two precisions; None if either was not measured."""
    old, new = result["runs"].get(before), result["runs"].get(after)
    if not old or not new:
        return None
    slow, fast = [row["steps_per_s"] for row in old], [row["steps_per_s"] for row in new]
    once = len(fast) == len(slow) == 1
    return SpeedRatio(min(fast) / max(slow) - 1, median(fast) / median(slow) - 1, max(fast) / min(slow) - 1, once)


def wait_share(rows: Sequence[Mapping[str, Any]]) -> SpeedRatio:
    """Share of a step spent waiting for its batch: the extra time over a batch at hand.

    At most the time until a batch was there: other delays are no wait for data.
    """
    shares = [min(extra_share(row), row["waited_s"] / (row["step_s"] * row["steps"])) for row in rows]
    return SpeedRatio(min(shares), median(shares), max(shares))


def extra_share(row: Mapping[str, Any]) -> float:
    """Share of a step beyond its time with a batch at hand, for any reason."""
    return max(0.0, 1 - float(row["alone_s"] / row["step_s"]))


def judged_half(result: Mapping[str, Any]) -> str:
    """The half precision to judge: bf16, or fp16 if only that was measured or has Tensor Cores."""
    runs = result["runs"]
    return FP16 if FP16 in runs and (BF16 not in runs or not bf16_cores(result)) else BF16


def bf16_cores(result: Mapping[str, Any]) -> bool:
    """Whether bf16 has Tensor Cores on this device, as far as known."""
    capability = result["made"]["capability"]
    return not capability or tuple(capability) >= BF16_SINCE


def verdict(result: Mapping[str, Any]) -> dict[str, Any]:
    """Verdicts by fixed thresholds; None for each within the spread."""
    runs = result["runs"]
    first = FP32 if FP32 in runs else next(iter(runs))
    waiting = wait_share(runs[first]) if result["made"]["loads"] else None
    by_precision, by_compile = gain(result, FP32, judged_half(result)), gain(result, BF16, COMPILED)
    sizes = result.get("sizes")
    overhead = None
    if sizes and sizes["steady"]:
        low, high = sizes["ratio"]["low"], sizes["ratio"]["high"]
        overhead = True if high < SAME_TIME else False if low > TWICE_TIME else None
    return {
        "waits": waiting.middle if waiting else None,
        "waits_for_data": waiting.decided(WAITS) if waiting else None,
        "precision": judged_half(result),
        "precision_gain": by_precision.middle if by_precision else None,
        "precision_helps": by_precision.decided(LEAST_PRECISION) if by_precision else None,
        "compile_gain": by_compile.middle if by_compile else None,
        "compile_helps": by_compile.decided(LEAST_COMPILE) if by_compile else None,
        "overhead_bound": overhead,
    }


WIDTH, HEIGHT = 78, 14  # cells of the plot, with its axis
_AXIS = 12  # cells of the labels at the left
_ACROSS = "FLOP per byte of memory traffic"
_ROOFS = "─/"
_NEAR = 0.5  # of its roof, from which a step is bound by it


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """One precision on the roofline."""

    kind: str
    flops: float  # of a step
    flops_per_s: float  # of the step alone, without waits for data
    ceiling: float | None  # FLOP/s of a matrix product in this precision
    intensity: float | None  # FLOP per byte; None for a compiled step, whose bytes cannot be counted
    bandwidth: float | None  # bytes/s of a copy
    overhead: bool = False  # whether two batch sizes take the same time

    @property
    def utilization(self) -> float | None:
        """FLOP/s relative to the measured matrix product: the MFU."""
        return self.flops_per_s / self.ceiling if self.ceiling else None

    @property
    def roof(self) -> float | None:
        """The maximum FLOP/s at its intensity."""
        if not self.ceiling or not self.bandwidth or self.intensity is None:
            return None
        return min(self.ceiling, self.bandwidth * self.intensity)

    @property
    def bound(self) -> str | None:
        """Its limit: compute, memory bandwidth, or overhead; None if it is near no roof, or unknown."""
        if self.overhead:
            return "overhead"
        if self.roof is None or self.flops_per_s < _NEAR * self.roof:
            return None
        return "compute" if self.roof == self.ceiling else "memory bandwidth"


def spots(result: Mapping[str, Any]) -> list[Spot]:
    """Every precision with counted operations; a compiled step has those of the uncompiled one."""
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
                flops_per_s=counted["flops"] / (median_of(rows, "alone_s") or math.inf),
                ceiling=(ceilings.get("flops") or {}).get(plain),
                intensity=intensity,
                bandwidth=ceilings.get("bytes_per_s"),
                overhead=overhead,
            )
        )
    return found


def rate(value: float) -> str:
    """FLOP/s as text: 312 TFLOP/s, 45.1 GFLOP/s."""
    for limit, unit in ((1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s")):
        if value >= limit:
            return f"{value / limit:.3g} {unit}" if value < 999.5 * limit else f"{value / limit:.0f} {unit}"
    return f"{value:.0f} FLOP/s"


def bandwidth(value: float) -> str:
    """Memory bandwidth as text: 1.5 TB/s, 46 GB/s."""
    return f"{value / 1e12:.3g} TB/s" if value >= 999.5e9 else f"{value / 1e9:.3g} GB/s"


def picture(found: Sequence[Spot]) -> tuple[str, ...]:
    """The roofline plot on logarithmic axes: a roof per precision, and a letter per step."""
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
    lowest = min(*(spot.flops_per_s for spot in placed), min(roofs.values()) / 10)
    up = _Scale(10.0 ** math.floor(math.log10(lowest)), max(roofs.values()) * 1.5, HEIGHT)
    cells = [[" "] * across.cells for _ in range(HEIGHT)]
    for roof in sorted(set(roofs.values()), reverse=True):
        _roof(cells, across, up, roof, slope)
    for letter, spot in zip("ABCDEFGH", placed, strict=False):
        _letter(cells, across, up, spot, letter, (slope * (spot.intensity or 1.0), *roofs.values()))
    return tuple(_framed(cells, across, up, list(roofs.values())))


def _letter(
    cells: list[list[str]], across: _Scale, up: _Scale, spot: Spot, letter: str, limits: Sequence[float]
) -> None:
    """Draw a step: below a line that it has not reached, never on it, and right of another letter in its cell."""
    row, column = HEIGHT - 1 - up.cell(spot.flops_per_s), across.cell(spot.intensity or 1.0)
    beside = [limit for limit in limits if up.cell(limit) == up.cell(spot.flops_per_s)]
    down = -1 if beside and spot.flops_per_s > max(beside) else 1
    while cells[row][column] in _ROOFS and 0 <= row + down < HEIGHT:
        row += down
    while cells[row][column] not in f" {_ROOFS}" and column < across.cells - 1:
        column += 1
    cells[row][column] = letter


class _Scale:
    """A logarithmic axis of some cells."""

    def __init__(self, low: float, high: float, cells: int) -> None:
        self.first, self.low, self.cells = low, math.log(low), cells
        self.step = (math.log(high) - self.low) / (cells - 1)

    def cell(self, value: float) -> int:
        """The cell of a value, clamped to the axis."""
        return max(0, min(self.cells - 1, round((math.log(value) - self.low) / self.step)))

    def value(self, cell: int) -> float:
        """The value in the middle of a cell."""
        return math.exp(self.low + cell * self.step)


def _roof(cells: list[list[str]], across: _Scale, up: _Scale, roof: float, slope: float) -> None:
    """Draw a roof: bandwidth slope, then flat at the ceiling."""
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
    """The cells with axes: ceilings and the lowest value at the left, powers of ten and what they count below."""
    names = {HEIGHT - 1 - up.cell(roof): rate(roof) for roof in sorted(roofs)}
    names.setdefault(HEIGHT - 1, rate(up.first))
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
    yield f"{'':>{_AXIS}}  {''.join(ticks)}".rstrip()
    yield f"{'':>{_AXIS}}  {_ACROSS:^{across.cells}}".rstrip()

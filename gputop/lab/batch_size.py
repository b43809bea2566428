"""Find the largest batch that trains: doubled until it does not fit, then bisected; and recommend a size.

Each try is a separate process. A batch is too large if CUDA or the CPU runs out of memory, or if the kernel or the C++
library ends the process for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gputop import units
from gputop.frozen_dataclass import frozen_dataclass
from gputop.lab.child import NotMeasured
from gputop.report import Do, Page, Point, ReportTable
from gputop.safe.text import clean

START, STEPS = 8, 3
MOST = 1 << 17  # samples; larger batches are not tried
FINE = 32  # the search ends at a thirty-second of the batch
MARGIN = 0.10  # of the memory at the largest batch, to be left free
ENOUGH = 0.95  # of the best samples/s, sufficient for a smaller batch
MULTIPLE = 8  # Tensor Cores need multiples of it
PUBLISHED = 0.4  # times the largest batch without gradients, in a snippet whose comment says "80 % of max"
TOO_LARGE = ("memory", "killed", "aborted")

Ask = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]  # maps a title and a request to the child's answer


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """What to try."""

    start: int = START
    inference: bool = False
    shape: tuple[int, ...] | None = None  # of one sample, if the function returns only a model
    steps: int = STEPS


def search(ask: Ask, plan: BatchPlan, result: dict[str, Any]) -> None:
    """Find the largest batch; each try is added to `tries` at once, so that a failure keeps earlier ones."""
    low, size = 0, plan.start
    high: int | None = None
    while high is None or high - low > max(1, low // FINE):
        if high is None and low >= MOST:
            result["stopped"] = f"larger batches than {MOST} are not tried"
            break
        left = None if high is None else math.ceil(math.log2((high - low) / max(1, low // FINE))) if low else 2
        try:
            fits = _try(ask, plan, size, left, result)
        except NotMeasured as trouble:
            if trouble.cause != "hung" or not low:
                raise
            result["stopped"] = f"batch {size} made no step in time: the limit is time, not memory"
            break
        low, high = (size, high) if fits else (low, size)
        size = 2 * low if high is None else (low + high) // 2 if low else high // 2
        if not size:
            break
    if not low:
        raise NotMeasured(f"even a batch of 1 does not fit: {result['tries'][-1]['why']}", cause="memory")
    result["largest"] = low
    fitting = [one for one in result["tries"] if one["fits"]]
    result["recommended"] = fast_enough(fitting) if "stopped" in result else recommended(fitting)


def _try(ask: Ask, plan: BatchPlan, size: int, left: int | None, result: dict[str, Any]) -> bool:
    """Whether a batch of this size fits."""
    tries: list[dict[str, Any]] = result.setdefault("tries", [])
    request = {"mode": "batch", "batch": size, "inference": plan.inference, "shape": plan.shape, "steps": plan.steps}
    try:
        answer = ask(f"batch {size}", {**request, "rounds_left": left})
    except NotMeasured as trouble:
        if trouble.cause not in TOO_LARGE:
            raise
        tries.append({"batch": size, "fits": False, "why": str(trouble)})
        return False
    ready = answer["ready"]
    result.setdefault("made", {key: ready[key] for key in ("torch", "device", "limit_bytes")})
    kept = {key: answer[key] for key in ("peak_bytes", "reserved_bytes", "step_s")}
    tries.append({"batch": size, "fits": True, "samples_per_s": size / max(answer["step_s"], 1e-9), **kept})
    return True


def curve(fitting: Sequence[Mapping[str, Any]]) -> tuple[float, float] | None:
    """Bytes without samples, and bytes per sample, from the smallest and largest batch; None without growth."""
    ranked = sorted(fitting, key=lambda one: one["batch"])
    first, last = ranked[0], ranked[-1]
    if last["batch"] == first["batch"] or last["peak_bytes"] <= first["peak_bytes"]:
        return None
    each = (last["peak_bytes"] - first["peak_bytes"]) / (last["batch"] - first["batch"])
    return max(0.0, last["peak_bytes"] - each * last["batch"]), each


def recommended(fitting: Sequence[Mapping[str, Any]]) -> int:
    """The largest batch that leaves the margin free, by the measured curve; rounded to 8 if at least 8."""
    last = max(fitting, key=lambda one: one["batch"])
    size: float = last["batch"] * (1 - MARGIN)
    if (found := curve(fitting)) is not None:
        size = ((1 - MARGIN) * last["peak_bytes"] - found[0]) / found[1]
    whole = max(1, min(int(last["batch"]), math.floor(size)))
    return whole // MULTIPLE * MULTIPLE if whole >= MULTIPLE else whole


def fast_enough(fitting: Sequence[Mapping[str, Any]]) -> int:
    """The smallest batch about as fast as the fastest."""
    best = max(one["samples_per_s"] for one in fitting)
    return int(min(one["batch"] for one in fitting if one["samples_per_s"] >= ENOUGH * best))


def page(result: Mapping[str, Any]) -> Page:
    """The report on all tries, complete or partial."""
    done = "largest" in result and not result.get("ended")
    return Page(
        title=_title(result),
        before=(_tries(result),),
        heading="Findings" if done else "Findings so far",
        words=tuple(_words(result)),
        points=_points(result) if done else (),
        notes=tuple(_notes(result)),
    )


def _title(result: Mapping[str, Any]) -> str:
    made = result.get("made")
    does = "forward without gradients" if result["inference"] else "forward, backward and optimizer step"
    where = f", {clean(result['gpu'] or made['device'].upper())}, torch {clean(made['torch'])}" if made else ""
    return f"{clean(result['factory'])}: {does}{where}"


def _tries(result: Mapping[str, Any]) -> ReportTable:
    cuda = (result.get("made") or {}).get("device") == "cuda"
    head = ("", "FITS", "PEAK MEMORY" if cuda else "PEAK RSS", "STEP", "SAMPLES/s")
    cells = []
    for one in sorted(result["tries"], key=lambda one: one["batch"]):
        numbers = (units.UNKNOWN,) * 3
        if one["fits"]:
            numbers = (units.decimal(one["peak_bytes"]), units.took_text(one["step_s"]), f"{one['samples_per_s']:.4g}")
        cells.append((str(one["batch"]), "yes" if one["fits"] else "no", *numbers))
    return ReportTable("batch", head, tuple(cells))


def _words(result: Mapping[str, Any]) -> Iterator[str]:
    """Sentences on the largest batch, its limit, memory per sample, and throughput."""
    fitting = [one for one in result["tries"] if one["fits"]]
    if not fitting:
        return
    largest = max(one["batch"] for one in fitting)
    does = "runs" if result["inference"] else "trains"
    over = min((one for one in result["tries"] if not one["fits"]), key=lambda one: one["batch"], default=None)
    if over is not None:
        yield f"The largest batch that {does} is {largest}; {over['batch']} does not fit: {clean(over['why'])}."
    elif stopped := result.get("stopped"):
        yield f"The largest batch that was tried is {largest}: {clean(stopped)}."
    if (found := curve(fitting)) is not None:
        yield f"Each sample takes {units.decimal(found[1])}, everything else {units.decimal(found[0])}."
    if (size := fast_enough(fitting)) < largest and "stopped" not in result:
        yield f"A batch of {size} already reaches {100 * ENOUGH:.0f} % of the best samples/s."


def _points(result: Mapping[str, Any]) -> tuple[Point, ...]:
    largest, chosen = result["largest"], result["recommended"]
    free = f"{100 * MARGIN:.0f} % of the memory at {largest} is left free"
    if "stopped" in result:
        free = f"memory is not the limit up to {largest}; {chosen} reaches {100 * ENOUGH:.0f} % of the best samples/s"
    if result["inference"]:
        factor = math.floor(PUBLISHED * largest)
        return (
            Point(
                severity="info",
                text=f"batch {chosen} for inference",
                facts=(free,),
                steps=(
                    "For training, measure without --inference",
                    f"A published rule of thumb trains with 0.4 × {largest} = {factor}: it is not measured",
                ),
            ),
        )
    return (
        Point(
            severity="info",
            text=f"batch {chosen} for training",
            facts=(free,),
            steps=(
                Do("Create the loader with", f"DataLoader(dataset, batch_size={chosen}, ...)"),
                "Measure again with the longest samples, and with the precision you train in",
            ),
        ),
    )


def _notes(result: Mapping[str, Any]) -> Iterator[str]:
    made = result.get("made")
    if ended := result.get("ended"):
        yield f"The measurement is not complete: {clean(ended)}"
    if made and made["device"] != "cuda":
        limit = made["limit_bytes"]
        of = f" of {units.decimal(limit)}" if limit is not None else ""
        yield (
            f"This is a CPU: the limit{of} is the memory that is available here now. A GPU has its own, "
            "and needs other memory for each sample."
        )
    if "largest" in result and "stopped" not in result:
        yield (
            "The free memory is for fragments, longer samples and evaluation. A published snippet takes 0.4 of the "
            "largest batch, in a comment 80 %, as it searches without gradients: where training itself is tried, no "
            "such factor is needed."
        )

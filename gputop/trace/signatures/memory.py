"""Device memory: growth from step to step, the limit, repeated driver allocations."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise

from gputop import pytorch, units
from gputop.phrases import percent
from gputop.trace.intervals import union
from gputop.trace.verdict import (
    Limits,
    TraceVerdict,
    TraceView,
    VerdictNumber,
    memory_peak,
    percentage,
    signature,
    stopped,
)


@signature("T09", "memory-growth", "Does allocated memory grow from step to step?", steps=3, growth=0.01)
def growth(view: TraceView, limit: Limits) -> Iterator[TraceVerdict]:
    """Allocation at the end of each step keeps growing."""
    memory = view.trace.memory
    ends = []
    for step in view.found.window.steps:
        place = bisect_right(memory.at, step.end) - 1
        if place >= 0 and memory.at[place] >= step.start:
            ends.append((memory.allocated[place], memory.reserved[place]))
    if len(ends) < limit["steps"] or any(b[0] <= a[0] for a, b in pairwise(ends)):
        return
    each = (ends[-1][0] - ends[0][0]) / (len(ends) - 1)
    if each < limit["growth"] * max(1, ends[0][0]):
        return
    yield TraceVerdict(
        severity="warn",
        headline=f"memory growing by {units.decimal(each)} per step, graphs of earlier steps retained",
        numbers=(
            VerdictNumber(
                text="growth per step",
                value=each / 1e6,
                unit="MB",
                limit=limit["growth"] * ends[0][0] / 1e6,
                sense="flagged_from",
            ),
            VerdictNumber(text="allocated at the end", value=ends[-1][0] / 1e6, unit="MB"),
            VerdictNumber(text="reserved at the end", value=ends[-1][1] / 1e6, unit="MB"),
        ),
        steps=(
            "Accumulate loss.detach(), not loss; .detach() tensors that are stored in a list.",
            "Find the allocating line with torch.cuda.memory._record_memory_history().",
        ),
    )


@signature("T16", "allocator-churn", "Does the allocator call the driver in every step?", per_step=1, time=0.01)
def churn(view: TraceView, limit: Limits) -> Iterator[TraceVerdict]:
    """After two steps the cache should have everything needed."""
    steps, calls = view.found.window.steps, view.trace.calls
    if len(steps) < 3:
        return
    start, end = steps[1].end, steps[-1].end
    count = sum(start <= at < end for at in calls.made_at) / (len(steps) - 2)
    asked = union(calls.made_at, calls.made_took).within(start, end)
    time = asked.total / (end - start) if end > start else 0.0
    idle = view.found.share(stopped(view, asked))
    if count < limit["per_step"] and time < limit["time"]:
        return
    yield TraceVerdict(
        severity="warn",
        headline=f"allocator churn, {count:.1f} driver calls per step"
        + (f", GPU idle {percent(idle)} of the time because of them" if idle >= limit["time"] else ""),
        numbers=(
            VerdictNumber(
                text="cudaMalloc and cudaFree per step", value=count, limit=limit["per_step"], sense="flagged_from"
            ),
            percentage("in these calls", time, "the time", limit["time"], "flagged_from"),
        ),
        steps=(
            pytorch.allocator("expandable_segments:True"),
            "Pad or bucket batches to a few shapes; remove empty_cache() from the loop.",
        ),
        lost_share=idle,
        idle=True,
    )


@signature("T21", "memory-limit", "Is device memory nearly full?", share=0.90)
def memory_limit(view: TraceView, limit: Limits) -> Iterator[TraceVerdict]:
    """Peak allocation relative to the GPU's memory."""
    memory = view.trace.memory
    total = next((entry.memory_bytes for entry in view.trace.devices if entry.index == memory.device), 0)
    peak, _ = memory_peak(view)
    if not total or peak < limit["share"] * total:
        return
    share = peak / total
    yield TraceVerdict(
        severity="info",
        headline=f"GPU memory nearly full, {percent(share)} allocated at peak",
        numbers=(percentage("peak allocated", share, "GPU memory", limit["share"], "flagged_from"),),
        steps=("Use bfloat16, activation checkpointing, or a smaller batch with gradient accumulation.",),
    )

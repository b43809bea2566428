"""Device memory: growth from step to step, the limit, repeated driver allocations."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise

from gputop import pytorch, units
from gputop.trace.intervals import union
from gputop.trace.verdict import Limits, TraceVerdict, TraceView, VerdictNumber, memory_peak, signature, stopped


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
        headline=f"Allocated memory grows by {units.decimal(each)} a step: something keeps the graphs of old ones.",
        numbers=(
            VerdictNumber(text="growth a step", value=each / 1e6, unit="MB", limit=limit["growth"] * ends[0][0] / 1e6),
            VerdictNumber(text="allocated at the end", value=ends[-1][0] / 1e6, unit="MB"),
            VerdictNumber(text="reserved at the end", value=ends[-1][1] / 1e6, unit="MB"),
        ),
        steps=(
            "total += loss.item(), not total += loss; .detach() what is kept in a list.",
            "torch.cuda.memory._record_memory_history() names the line that allocates it.",
        ),
    )


@signature("T16", "allocator-churn", "Is memory asked of the driver in every step?", per_step=1, time=0.01)
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
        headline=f"Memory is asked of the driver {count:.1f} times a step"
        + (f"; the GPU idles {idle:.0%} of the time because of it." if idle >= limit["time"] else "."),
        numbers=(
            VerdictNumber(text="cudaMalloc and cudaFree a step", value=count, limit=limit["per_step"]),
            VerdictNumber(text="their time", value=100 * time, unit="%", limit=100 * limit["time"]),
        ),
        steps=(
            pytorch.allocator("expandable_segments:True"),
            "Pad or bucket batches to few shapes; no empty_cache() in the loop.",
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
        headline=f"Allocated memory reaches {share:.0%} of the GPU: the next larger batch fails.",
        numbers=(VerdictNumber(text="most allocated", value=100 * share, unit="%", limit=100 * limit["share"]),),
        steps=("bfloat16, activation checkpointing, or a smaller batch with gradient accumulation.",),
    )

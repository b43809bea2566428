"""The whole picture: a healthy trace, and gaps of the GPU."""

from __future__ import annotations

from collections.abc import Iterator

from gputop.trace.intervals import Spans, union
from gputop.trace.names import Mark
from gputop.trace.verdict import Limits, Number, Verdict, View, signature

LOOK = "Look at what the CPU does there: gputop stack PID, or a trace with_stack=True."
_CHUNKS = 30  # as in NVIDIA's gpu_time_util
_ALL = 0.95  # of a time: what is so of less is not said of all of it
_MEANWHILE = (
    (Mark.DATA, "the loop waits for its DataLoader"),
    (Mark.OPTIMIZER, "the optimizer runs on the CPU"),
    (Mark.BACKWARD, "backward runs on the CPU"),
    (Mark.FORWARD, "forward runs on the CPU"),
)


@signature("T00", "healthy", "Is the GPU kept busy, with work queued ahead?", busy=0.90, host_wait=0.05, delay_us=1000)
def healthy(view: View, limit: Limits) -> Iterator[Verdict]:
    """The ideal profile: kernels packed, the CPU ahead."""
    found = view.found
    busy, host_wait = found.share(found.busy), found.share(found.idle.stream_host_us)
    delay = found.launching.delay_p50_us
    if busy >= limit["busy"] and host_wait < limit["host_wait"] and delay is not None and delay >= limit["delay_us"]:
        yield Verdict(
            severity="info",
            healthy=True,
            headline=f"The GPU is kept busy: {busy:.0%} of the time, with work queued {delay / 1000:.3g} ms ahead.",
            numbers=(
                Number(text="GPU busy", value=100 * busy, unit="%", limit=100 * limit["busy"]),
                Number(text="time from launch to kernel, median", value=delay, unit="us", limit=limit["delay_us"]),
            ),
            steps=("What is left to win is inside the kernels: precision, fusion, shapes.",),
        )


@signature("T22", "gaps", "Does the GPU stand still for long?", gap_ms=500, chunk=0.5, chunks=3, busy=0.6)
def gaps(view: View, limit: Limits) -> Iterator[Verdict]:
    """One long gap, or several parts of a mostly busy trace with little work (nsys gpu_gaps, gpu_time_util)."""
    found = view.found
    gaps = [(end - start, start, end) for start, end in found.gaps if not view.start.spans.holds(start)]
    longest = max(gaps, default=(0.0, 0.0, 0.0))
    least_us = 1000 * limit["gap_ms"]
    if longest[0] >= least_us:
        cause = meanwhile(view, Spans([longest[1:]]))
        yield Verdict(
            severity="warn",
            headline=f"The GPU stands still for {longest[0] / 1e6:.2f} s at once{cause}.",
            numbers=(Number(text="longest gap", value=longest[0] / 1000, unit="ms", limit=limit["gap_ms"]),),
            steps=(LOOK,),
            lost_share=found.share(sum(took for took, _, _ in gaps if took >= least_us)),
            idle=bool(cause),  # else what names what the CPU was in says more
        )
        return
    seen = found.window
    width = seen.span_us / _CHUNKS
    parts = [(seen.start + number * width, seen.start + (number + 1) * width) for number in range(_CHUNKS)]
    slack = [
        (start, end)
        for start, end in parts
        if found.busy.within(start, end).total + view.start.spans.within(start, end).total < limit["chunk"] * width
    ]
    if len(slack) >= limit["chunks"] and found.share(found.busy) >= limit["busy"]:
        where = found.gaps.shared(Spans(slack))
        yield Verdict(
            severity="info",
            headline=f"In {len(slack)} of {_CHUNKS} parts of the trace the GPU is busy for less than half of the "
            f"time{meanwhile(view, where)}.",
            numbers=(Number(text="parts less than half busy", value=len(slack), limit=limit["chunks"]),),
            steps=(LOOK,),
            lost_share=found.share(where),
        )


def meanwhile(view: View, gaps: Spans) -> str:
    """What the CPU does in most of some gaps, as the end of a sentence."""
    shares = [(gaps.shared(view.host(mark)).total, text) for mark, text in _MEANWHILE]
    calls = view.trace.calls
    shares.append((gaps.shared(union(calls.wait_start, calls.wait_took)).total, "the CPU waits for the GPU"))
    shares.append((gaps.shared(union(calls.made_at, calls.made_took)).total, "memory is allocated or freed"))
    longest, text = max(shares)
    return f": {part_of(longest, gaps.total)}{text}" if longest >= gaps.total / 2 > 0 else ""


def part_of(us: float, total_us: float) -> str:
    """How much of some time is meant, in words before what is so then; empty where that is all of it."""
    share = us / total_us
    return "" if share >= _ALL else f"in {share:.0%} of that time "

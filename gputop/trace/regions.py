"""Regions that a program names itself with record_function: data_transfer, forward, backward, optimizer."""

from __future__ import annotations

from gputop.declare import record
from gputop.trace.breakdown import Breakdown
from gputop.trace.intervals import Spans
from gputop.trace.read import Trace

_MOST = 16
_NOTHING = 0.001  # of the window; a region that takes less is no phase


@record(frozen=True, slots=True, kw_only=True)
class Region:
    """One name: how often it was entered in the window, the time of the CPU in it, of the GPU in what it launched."""

    name: str
    count: int
    host_us: float
    gpu_us: float
    spans: Spans


def regions(trace: Trace, found: Breakdown) -> tuple[Region, ...]:
    """The regions of the window in the order in which they first began; work launched in several counts in each."""
    seen, host = found.window, trace.host
    launched = [
        (trace.calls.start[call] if call >= 0 else trace.activity.start[index], trace.activity.took[index])
        for index in found.inside
        for call in (found.launch_of[index],)
    ]
    made = []
    for name, entered in host.regions.items():
        inside = sorted((start, start + took) for start, took in entered if seen.start <= start < seen.end)
        spans = Spans(inside).within(seen.start, seen.end)
        if found.share(spans) >= _NOTHING:
            gpu_us = sum(took for at, took in launched if spans.holds(at))
            made.append(
                Region(name=host.names.texts[name], count=len(inside), host_us=spans.total, gpu_us=gpu_us, spans=spans)
            )
    made.sort(key=lambda one: one.spans.starts[0])
    return tuple(made[:_MOST])

"""How far the CPU is ahead of the GPU: launch delay, depth of the queue, and why the GPU stands still.

Formulas of HolisticTraceAnalysis. Its kernel-to-kernel delay is 30 in a unit that its manual and its code give
differently; here it is 5 microseconds.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from math import inf

from gputop.declare import record
from gputop.trace.intervals import Spans, order
from gputop.trace.names import Kind
from gputop.trace.read import Trace

NEXT_KERNEL_US = 5.0  # two kernels in a row are never closer than this by much
LAUNCH_US = 20.0  # from the end of a launch call to its kernel, where nothing was queued before it
_SAMPLE = 50_000


@record(frozen=True, slots=True, kw_only=True)
class Idle:
    """Why nothing ran, in microseconds of the window."""

    host_us: float  # the next kernel was not launched yet, or its launch call had not ended
    kernel_us: float  # the pause between two kernels
    other_us: float  # launched and not begun, though nothing ran: it waited for an event, a process, code to be loaded
    unknown_us: float  # the launch of the next kernel is not in the trace
    stream_host_us: float  # the host wait of HolisticTraceAnalysis: of the stream that computes most


@record(frozen=True, slots=True, kw_only=True)
class Launching:
    """From a launch to its kernel; None where no launch is known."""

    delay_p50_us: float | None
    delay_p90_us: float | None
    depth_p50: int | None  # launched and not yet begun, when a kernel begins
    depth_max: int | None
    known: int  # kernels whose launch is known


def idle(trace: Trace, inside: Sequence[int], launch_of: Sequence[int], gaps: Spans) -> Idle:
    """Why the gaps are there, by the launch of what ends each of them.

    A kernel may begin when its launch call has ended: the first launch of a kernel loads its code, for 300 ms and more.
    After the last kernel nothing was launched any more.
    """
    host = kernel = other = unknown = 0.0
    for start, end, place in _ended(trace, inside, gaps):
        waited = _unlaunched(trace, inside, launch_of, (start, end, place))
        rest = end - start - waited
        host += waited
        if rest < NEXT_KERNEL_US:
            kernel += rest
        elif launch_of[inside[place]] >= 0:
            other += rest
        else:
            unknown += rest
    return Idle(
        host_us=host,
        kernel_us=kernel,
        other_us=other,
        unknown_us=unknown,
        stream_host_us=_stream_host(trace, inside, launch_of),
    )


def stopped(trace: Trace, inside: Sequence[int], launch_of: Sequence[int], gaps: Spans, stops: Spans) -> float:
    """Idle time that would go if the CPU did not stop: of each gap no more than the time that it stopped.

    Only stops between the last launch before the gap and the launch that ends it make that one late.
    """
    calls, seen, launched, total = trace.calls, 0, -inf, 0.0
    for gap in _ended(trace, inside, gaps):
        start, end, place = gap
        for index in inside[seen:place]:
            call = launch_of[index]
            launched = max(launched, calls.start[call] + calls.took[call] if call >= 0 else -inf)
        seen = place
        call = launch_of[inside[place]] if place < len(inside) else -1
        stop = stops.within(min(start, launched) if launched > -inf else start, calls.start[call] if call >= 0 else end)
        total += min(stop.total, _unlaunched(trace, inside, launch_of, gap))
    return total


def _ended(trace: Trace, inside: Sequence[int], gaps: Spans) -> Iterator[tuple[float, float, int]]:
    """Each gap with the place of what ends it in `inside`; its length for the last one, which nothing ends."""
    place, begins = 0, trace.activity.start
    for start, end in gaps:
        while place < len(inside) and begins[inside[place]] < end:
            place += 1
        yield start, end, place


def _unlaunched(trace: Trace, inside: Sequence[int], launch_of: Sequence[int], gap: tuple[float, float, int]) -> float:
    """How much of a gap passed until what ends it was launched: all of the last one."""
    start, end, place = gap
    if place == len(inside):
        return end - start
    calls, call = trace.calls, launch_of[inside[place]]
    launched = min(calls.start[call] + calls.took[call], end) if call >= 0 else start
    waited = max(launched - start, 0.0)
    return end - start if waited and end - start - waited <= LAUNCH_US else waited


def _stream_host(trace: Trace, inside: Sequence[int], launch_of: Sequence[int]) -> float:
    """Idle time of the stream that computes most in which the next kernel was not yet launched."""
    activity, calls = trace.activity, trace.calls
    computes = Counter[int]()
    for index in inside:
        if activity.names.meanings[activity.name[index]] == Kind.COMPUTE:
            computes[activity.stream[index]] += round(activity.took[index] * 1000)
    stream = max(computes, key=lambda one: (computes[one], -one), default=-1)
    ended, host = -inf, 0.0
    for index in inside:
        if activity.stream[index] != stream:
            continue
        start, call = activity.start[index], launch_of[index]
        if start > ended > -inf and call >= 0 and calls.start[call] + calls.took[call] > ended:
            host += start - ended
        ended = max(ended, start + activity.took[index])
    return host


def launching(trace: Trace, inside: Sequence[int], launch_of: Sequence[int]) -> Launching:
    """Delays and depth over the kernels whose launch is known."""
    activity, calls, kinds = trace.activity, trace.calls, trace.activity.names.meanings
    known = array("I", (index for index in inside if launch_of[index] >= 0))
    kernels = array("I", (index for index in known if kinds[activity.name[index]] == Kind.COMPUTE))
    if not kernels:
        return Launching(delay_p50_us=None, delay_p90_us=None, depth_p50=None, depth_max=None, known=0)
    delays = []
    for index in kernels[:: 1 + len(kernels) // _SAMPLE]:
        call = launch_of[index]
        delays.append(max(0.0, activity.start[index] - calls.start[call] - calls.took[call]))
    delays.sort()
    launched = array("d", (calls.start[launch_of[index]] for index in known))
    depths, ahead, at = array("I"), 0, order(launched)
    for begun, index in enumerate(known):
        while ahead < len(at) and launched[at[ahead]] <= activity.start[index]:
            ahead += 1
        depths.append(max(0, ahead - begun - 1))
    middle = sorted(depths[:: 1 + len(depths) // _SAMPLE])
    return Launching(
        delay_p50_us=delays[len(delays) // 2],
        delay_p90_us=delays[len(delays) * 9 // 10],
        depth_p50=middle[len(middle) // 2],
        depth_max=max(depths),
        known=len(known),
    )

"""How far the CPU runs ahead of the GPU: launch delay, queue depth, and causes of idle time.

Formulas of HolisticTraceAnalysis. Its kernel-to-kernel delay is 30 in a unit that its manual and code disagree about;
here it is 5 microseconds.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from math import inf

from gputop.frozen_dataclass import frozen_dataclass
from gputop.trace.intervals import Spans, order
from gputop.trace.names import ActivityKind
from gputop.trace.read import Trace

NEXT_KERNEL_US = 5.0  # consecutive kernels are never much closer
LAUNCH_US = 20.0  # from the end of a launch call to its kernel with an empty queue
_SAMPLE = 50_000


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """Causes of idle time within the window, in microseconds."""

    host_us: float  # the next kernel was not launched yet, or its launch call had not returned
    kernel_us: float  # between two kernels
    other_us: float  # launched but not started while nothing ran: waiting for an event, a process, or code loading
    unknown_us: float  # the launch of the next kernel is not in the trace
    stream_host_us: float  # host wait by HolisticTraceAnalysis: of the stream with most computation


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class LaunchGap:
    """A gap in GPU activity, and the launches around it."""

    start: float
    end: float
    since: float  # end of the last launch before it; its start if that is unknown
    until: float  # start of the launch of the activity that ends it
    index: int  # of the activity that ends it; -1 if there is none
    call: int  # its launch call; -1 if unknown
    host_us: float  # time until the launch had returned


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Launching:
    """From launch to kernel; None if no launch is known."""

    delay_p50_us: float | None
    delay_p90_us: float | None
    depth_p50: int | None  # launched but not started, at the start of a kernel
    depth_max: int | None
    known: int  # kernels with a known launch


def idle(trace: Trace, inside: Sequence[int], launch_of: Sequence[int], gaps: Spans) -> Idle:
    """Causes of the gaps, by the launch of the activity that ends each.

    A kernel can start when its launch call has returned: a first launch loads code, for 300 ms and more. No launches
    follow the last kernel.
    """
    host = kernel = other = unknown = 0.0
    for pause in pauses(trace, inside, launch_of, gaps):
        rest = pause.end - pause.start - pause.host_us
        host += pause.host_us
        if rest < NEXT_KERNEL_US:
            kernel += rest
        elif pause.call >= 0:
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


def stop_idle_us(trace: Trace, inside: Sequence[int], launch_of: Sequence[int], gaps: Spans, stops: Spans) -> float:
    """Idle time avoided if the CPU did not stop, at most the stop time per gap.

    Only stops between the last launch before the gap and the launch that ends it delay the latter.
    """
    return sum(
        min(pause.host_us, stops.within(pause.since, pause.until).total)
        for pause in pauses(trace, inside, launch_of, gaps)
    )


def pauses(trace: Trace, inside: Sequence[int], launch_of: Sequence[int], gaps: Spans) -> Iterator[LaunchGap]:
    """Each gap with the launches around it. No launches follow the last kernel."""
    calls, begins, place, launched = trace.calls, trace.activity.start, 0, -inf
    for start, end in gaps:
        while place < len(inside) and begins[inside[place]] < end:
            if (call := launch_of[inside[place]]) >= 0:
                launched = max(launched, calls.start[call] + calls.took[call])
            place += 1
        index = inside[place] if place < len(inside) else -1
        call = launch_of[index] if index >= 0 else -1
        host, until = (0.0, end) if index >= 0 else (end - start, end)
        if call >= 0:
            until = calls.start[call]
            host = max(0.0, min(until + calls.took[call], end) - start)
            if host and end - start - host <= LAUNCH_US:
                host = end - start
        since = min(start, launched) if launched > -inf else start
        yield LaunchGap(start=start, end=end, since=since, until=until, index=index, call=call, host_us=host)


def _stream_host(trace: Trace, inside: Sequence[int], launch_of: Sequence[int]) -> float:
    """Idle time of the stream with most computation while its next kernel was not launched."""
    activity, calls = trace.activity, trace.calls
    computes = Counter[int]()
    for index in inside:
        if activity.names.meanings[activity.name[index]] == ActivityKind.COMPUTE:
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
    """Delays and queue depth over kernels with a known launch."""
    activity, calls, kinds = trace.activity, trace.calls, trace.activity.names.meanings
    known = array("I", (index for index in inside if launch_of[index] >= 0))
    kernels = array("I", (index for index in known if kinds[activity.name[index]] == ActivityKind.COMPUTE))
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

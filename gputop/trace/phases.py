"""What a step is made of: its phases, the regions that the program names itself (record_function), one row a step."""

from __future__ import annotations

from array import array
from bisect import bisect_left

from gputop.declare import record
from gputop.trace.breakdown import Breakdown, host_spans
from gputop.trace.intervals import Spans
from gputop.trace.names import Kind, Mark
from gputop.trace.read import Trace
from gputop.trace.steps import Window

_MARKED = (
    ("waiting for data", Mark.DATA),
    ("backward", Mark.BACKWARD),
    ("optimizer", Mark.OPTIMIZER),
    ("zero_grad", Mark.ZERO_GRAD),
)
_MOST_REGIONS = 16
_NO_REGION = 0.001  # of the window; a region that takes less is no phase
FORWARD = "forward and the rest"
COMMUNICATION = "communication"
_ON_CPU = ("gloo:", "mpi:")  # collectives whose spans are their whole time: those of NCCL only launch them


@record(frozen=True, slots=True, kw_only=True)
class Phase:
    """A part of the steps: the time of the CPU in it, and the time of the GPU in what it launched."""

    name: str
    host_us: float | None  # None for what is no phase of the CPU
    gpu_us: float


@record(frozen=True, slots=True, kw_only=True)
class Row:
    """One step."""

    number: int
    took_us: float
    busy: float  # shares of the step, 0 to 1
    data: float
    kernels: int  # launched in it, or else begun


def phases(trace: Trace, found: Breakdown) -> tuple[Phase, ...]:
    """The phases of the window, those that are there."""
    seen = found.window
    spans = [(name, host_spans(trace, mark, seen)) for name, mark in _MARKED]
    spans.append((COMMUNICATION, _collectives(trace, seen)))
    gpu = dict.fromkeys([FORWARD, *(name for name, _ in spans), "copies from the CPU"], 0.0)
    activity = trace.activity
    for index in found.inside:
        kind, call = activity.names.meanings[activity.name[index]], found.launch_of[index]
        at = trace.calls.start[call] if call >= 0 else activity.start[index]
        if kind == Kind.COMM:
            where = COMMUNICATION
        elif kind == Kind.TO_DEVICE:
            where = "copies from the CPU"
        else:
            where = next((name for name, part in spans[:-1] if part.holds(at)), FORWARD)
        gpu[where] += activity.took[index]
    covered = Spans(sorted(span for _, part in spans for span in part)).total
    host: dict[str, float] = {name: part.total for name, part in spans} | {FORWARD: seen.span_us - covered}
    rows = (Phase(name=name, host_us=host.get(name), gpu_us=us) for name, us in gpu.items())
    return tuple(row for row in rows if row.host_us or row.gpu_us)


def _collectives(trace: Trace, seen: Window) -> Spans:
    """When the CPU itself exchanges tensors with other ranks."""
    texts = trace.host.names.texts
    spans = (
        (start, start + took) for start, took, name in trace.host.spans[Mark.COMM] if texts[name].startswith(_ON_CPU)
    )
    return Spans(sorted(spans)).within(seen.start, seen.end)


def rows(trace: Trace, found: Breakdown) -> tuple[Row, ...]:
    """The steps, one row each."""
    data = host_spans(trace, Mark.DATA, found.window)
    calls, launch_of, activity = trace.calls, found.launch_of, trace.activity
    begun = array(
        "d",
        sorted(
            calls.start[launch_of[index]] if launch_of[index] >= 0 else activity.start[index]
            for index in found.inside
            if activity.names.meanings[activity.name[index]] in (Kind.COMPUTE, Kind.COMM)
        ),
    )
    made = []
    for step in found.window.steps:
        took = step.end - step.start
        made.append(
            Row(
                number=step.number,
                took_us=took,
                busy=found.busy.within(step.start, step.end).total / took,
                data=data.within(step.start, step.end).total / took,
                kernels=bisect_left(begun, step.end) - bisect_left(begun, step.start),
            )
        )
    return tuple(made)


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
        if found.share(spans) >= _NO_REGION:
            gpu_us = sum(took for at, took in launched if spans.holds(at))
            made.append(
                Region(name=host.names.texts[name], count=len(inside), host_us=spans.total, gpu_us=gpu_us, spans=spans)
            )
    made.sort(key=lambda one: (one.spans.starts[0], one.name))
    return tuple(made[:_MOST_REGIONS])

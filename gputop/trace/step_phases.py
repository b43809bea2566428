"""Contents of a step: phases, the program's own regions (record_function), one row per step."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable

from gputop.frozen_dataclass import frozen_dataclass
from gputop.trace.breakdown import Breakdown, all_host_spans, host_spans, inside_us
from gputop.trace.intervals import Spans
from gputop.trace.names import EXCHANGES, RECORDED, ActivityKind, SpanMeaning, region
from gputop.trace.read import Trace
from gputop.trace.threads import traced_threads as seen_threads

_MARKED = (
    ("waiting for data", SpanMeaning.DATA),
    ("backward", SpanMeaning.BACKWARD),
    ("optimizer", SpanMeaning.OPTIMIZER),
    ("zero_grad", SpanMeaning.ZERO_GRAD),
)
_PHASE, _MOST_PHASES = 0.05, 8  # of the window: a longer region of the program is a phase, up to this number
_AROUND = 0.1  # of a region: covered by other phases to this share, it only encloses them
_NO_REGION = 0.001  # of the window; a shorter region is no phase
FORWARD = "forward and other"
COMMUNICATION = "communication"
_ON_CPU = ("gloo:", "mpi:", "ucc:")  # collectives whose spans are their whole duration: those of NCCL only launch them


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A part of the steps: its CPU time, and the GPU time of what it launched."""

    name: str
    host_us: float | None  # None for a phase without CPU time
    gpu_us: float


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """One step."""

    number: int
    took_us: float
    busy: float  # shares of the step (0-1)
    data: float
    kernels: int  # launched in it, or else started


def phases(trace: Trace, found: Breakdown) -> tuple[Phase, ...]:
    """The phases present in the window."""
    seen = found.window
    spans = [(name, host_spans(trace, mark, seen)) for name, mark in _MARKED]
    begun = [(name, all_host_spans(trace, mark)) for name, mark in _MARKED]  # launched before activities in the window
    talking = _exposed_collectives(trace, _collectives(trace, found))
    apart = talking.gaps(seen.start, seen.end)  # each time belongs to one phase
    spans = [*((name, part.shared(apart)) for name, part in spans), (COMMUNICATION, talking)]
    regions = _regions(trace)
    own = _named(regions, found, Spans(sorted(span for _, part in spans for span in part)))
    spans = [*own.items(), *spans]
    begun += ((name, part) for name, part in regions.items() if name in own)
    gpu = dict.fromkeys([*own, FORWARD, *(name for name, _ in spans), "host-to-device copies"], 0.0)
    activity = trace.activity
    for index in found.inside:
        kind, call = activity.names.meanings[activity.name[index]], found.launch_of[index]
        at = trace.calls.start[call] if call >= 0 else activity.start[index]
        if kind == ActivityKind.COMM:
            where = COMMUNICATION
        elif kind == ActivityKind.TO_DEVICE:
            where = "host-to-device copies"
        else:
            where = next((name for name, part in begun if part.covers(at)), FORWARD)
        gpu[where] += inside_us(activity, index, seen)
    covered = Spans(sorted(span for _, part in spans for span in part)).total
    host = {FORWARD: seen.span_us - covered}
    for name, part in spans:
        host[name] = host.get(name, 0.0) + part.total
    rows = (Phase(name=name, host_us=host.get(name), gpu_us=us) for name, us in gpu.items())
    return tuple(row for row in rows if row.host_us or row.gpu_us)


def _regions(trace: Trace) -> dict[str, Spans]:
    """Spans of the program's own regions on training threads, the shortest first.

    A region named forward is the forward pass.
    """
    host, threads, entered = trace.host, _training(trace), dict[str, list[tuple[float, float]]]()
    for name, each in host.regions.items():
        if host.names.meanings[name] != SpanMeaning.FORWARD:
            known = entered.setdefault(region(host.names.texts[name]), [])
            known += [(start, start + took) for start, took, thread in each if thread in threads]
    spans = {name: Spans(sorted(each)) for name, each in entered.items()}
    return dict(sorted(spans.items(), key=lambda item: (item[1].total, item[0])))


def _named(regions: dict[str, Spans], found: Breakdown, known: Spans) -> dict[str, Spans]:
    """Parts of regions outside the known phases: of nested ones the innermost counts."""
    seen, taken, made = found.window, known, dict[str, Spans]()
    for name, spans in regions.items():
        part = spans.within(seen.start, seen.end)
        own = part.shared(taken.gaps(seen.start, seen.end))
        if part.shared(known).total < _AROUND * part.total and found.share(own) >= _PHASE:
            made[name] = own
            taken = Spans(sorted([*taken, *own]))
    longest = sorted(made, key=lambda name: -made[name].total)[:_MOST_PHASES]
    return dict(sorted(((name, made[name]) for name in longest), key=lambda item: item[1].starts[0]))


def _training(trace: Trace) -> set[int]:
    """The training threads: the main one, and those of the backward pass."""
    return {one.number for place, one in enumerate(seen_threads(trace.host)) if not place or one.functions}


def _collectives(trace: Trace, found: Breakdown) -> Spans:
    """CPU time exchanging tensors with other ranks; without a GPU, all its time in collectives."""
    seen, texts = found.window, trace.host.names.texts
    names = _ON_CPU if found.of_gpu else (*RECORDED, *EXCHANGES)
    spans = (
        (start, start + took)
        for start, took, name in trace.host.spans[SpanMeaning.COMM]
        if texts[name].startswith(names)
    )
    return Spans(sorted(spans)).within(seen.start, seen.end)


def _exposed_collectives(trace: Trace, talking: Spans) -> Spans:
    """Collective time not hidden by computation on the training threads."""
    if not len(talking):
        return talking
    training = _training(trace)
    computing = Spans(sorted(span for one in trace.host.threads if one.number in training for span in one.computing))
    return talking.shared(computing.gaps(talking.starts[0], talking.ends[-1]))


def rows(trace: Trace, found: Breakdown) -> tuple[StepRow, ...]:
    """The steps, one row each."""
    data = host_spans(trace, SpanMeaning.DATA, found.window)
    calls, launch_of, activity = trace.calls, found.launch_of, trace.activity
    begun = array(
        "d",
        sorted(
            calls.start[launch_of[index]] if launch_of[index] >= 0 else activity.start[index]
            for index in found.inside
            if activity.names.meanings[activity.name[index]] in (ActivityKind.COMPUTE, ActivityKind.COMM)
        ),
    )
    made = []
    for step in found.window.steps:
        took = step.end - step.start
        made.append(
            StepRow(
                number=step.number,
                took_us=took,
                busy=found.busy.within(step.start, step.end).total / took,
                data=data.within(step.start, step.end).total / took,
                kernels=bisect_left(begun, step.end) - bisect_left(begun, step.start),
            )
        )
    return tuple(made)


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """One name: entries in the window, its CPU time, and the GPU time of what it launched."""

    name: str
    count: int
    host_us: float
    gpu_us: float
    spans: Spans


def regions(trace: Trace, found: Breakdown) -> tuple[Region, ...]:
    """The regions of the window by first start; work launched inside several counts for each."""
    seen, host, activity = found.window, trace.host, trace.activity
    launched = [
        (trace.calls.start[call] if call >= 0 else activity.start[index], inside_us(activity, index, seen))
        for index in found.inside
        for call in (found.launch_of[index],)
    ]
    entered: dict[str, list[tuple[float, float]]] = {}
    for name, each in host.regions.items():
        known = entered.setdefault(region(host.names.texts[name]), [])
        known += [(start, start + took) for start, took, _ in each]
    made = []
    for text, inside in entered.items():
        begun = Spans(sorted(inside))
        spans = begun.within(seen.start, seen.end)
        if found.share(spans) >= _NO_REGION:
            count = sum(start < seen.end and end > seen.start for start, end in inside)
            gpu_us = sum(took for at, took in launched if begun.covers(at))
            made.append(Region(name=text, count=count, host_us=spans.total, gpu_us=gpu_us, spans=spans))
    return tuple(sorted(made, key=lambda one: (one.spans.starts[0], one.name)))


def communication_us(found: Iterable[Phase]) -> float:
    """CPU time in collectives while nothing else runs."""
    return sum(phase.host_us or 0.0 for phase in found if phase.name == COMMUNICATION)

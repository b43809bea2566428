"""Time breakdown of a trace, after HolisticTraceAnalysis: busy, compute, communication, and the reasons for idle time.

Shares (0-1) are of the window of the most used GPU; all rest on unions of spans.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from math import inf
from typing import Any

from gputop.frozen_dataclass import frozen_dataclass
from gputop.trace.gpu import GpuActivity
from gputop.trace.intervals import Spans, join, order, union
from gputop.trace.launches import Idle, Launching, idle, launching, pauses
from gputop.trace.names import ActivityKind, SpanMeaning
from gputop.trace.read import Trace
from gputop.trace.steps import GPUTOP_STEP, TraceWindow, window

_SAMPLE = 50_000  # durations used for a median


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """All kernels of one name within the window."""

    name: str
    kind: ActivityKind
    count: int
    took_us: float


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """One GPU of one trace. Shares are None if unknown."""

    window: TraceWindow
    device: int  # -1: no GPU was traced
    devices: int  # active GPUs
    busy: Spans
    compute: Spans
    comm: Spans
    to_device: Spans  # copies from the host
    gaps: Spans  # intervals without activity
    kernels: tuple[Named, ...]  # longest first, including copies
    kernel_count: int  # without copies and memsets
    median_us: float | None  # of kernel durations
    filled: float | None  # share of the window with blocks for every SM
    occupancy: float | None  # estimated, over kernel time
    idle: Idle
    launching: Launching
    launch_of: array[int]  # by activity: its launch call; -1 if unknown
    inside: Sequence[int]  # activities of the window, by start

    @property
    def of_gpu(self) -> bool:
        """Whether a GPU was traced: without one, GPU values are unknown."""
        return self.device >= 0

    def share(self, spans: Spans | float) -> float:
        """A time as a share of the window."""
        taken = spans.total if isinstance(spans, Spans) else spans
        return min(1.0, taken / self.window.span_us) if self.window.span_us > 0 else 0.0

    @property
    def overlap(self) -> float | None:
        """Share of communication hidden behind computation; None without communication."""
        return self.comm.shared(self.compute).total / self.comm.total if self.comm.total else None

    @property
    def exposed(self) -> float:
        """Communication not hidden, as a share of the window."""
        return self.share(self.comm.total - self.comm.shared(self.compute).total)

    @property
    def per_step(self) -> float | None:
        """Kernels per step; None without steps."""
        return self.kernel_count / len(self.window.steps) if self.window.steps else None

    @property
    def compute_us(self) -> float:
        """Total time of compute kernels: reference for shares of them."""
        return sum(entry.took_us for entry in self.kernels if entry.kind == ActivityKind.COMPUTE)


def devices(trace: Trace, seen: TraceWindow | None = None) -> tuple[int, ...]:
    """The GPUs active in the window, by busy time; the lower index first if equal."""
    activity, took = trace.activity, dict[int, float]()
    seen = seen or window(trace.host, activity, trace.calls)
    for index, device in enumerate(activity.device):
        if us := inside_us(activity, index, seen):
            took[device] = took.get(device, 0.0) + us
    return tuple(sorted(took, key=lambda device: (-took[device], device)))


def breakdown(trace: Trace, device: int | None = None) -> Breakdown:
    """The breakdown of a GPU, by default the main one of the trace; its spans are empty without a GPU."""
    activity, seen = trace.activity, window(trace.host, trace.activity, trace.calls)
    busiest = devices(trace, seen)
    if device is None:
        device = busiest[0] if busiest else min(activity.device, default=-1)
    launch_of = join(activity.launch_id, trace.calls.id, trace.calls.start)
    kept = _activities_in(trace, device, seen, launch_of)
    spans = {kind: Spans() for kind in ActivityKind}
    busy, kinds = Spans(), activity.names.meanings
    for index in kept:
        start, end = seen.clip(activity.start[index], activity.took[index])
        busy.add(start, end)
        spans[ActivityKind(kinds[activity.name[index]])].add(start, end)
    gaps = busy.gaps(seen.start, seen.end)
    count, median_us, filled, occupancy = _kernels(trace, kept, seen)
    return Breakdown(
        window=seen,
        device=device,
        devices=len(busiest),
        busy=busy,
        compute=spans[ActivityKind.COMPUTE],
        comm=spans[ActivityKind.COMM],
        to_device=spans[ActivityKind.TO_DEVICE],
        gaps=gaps,
        kernels=_kernel_groups(trace, kept, seen),
        kernel_count=count,
        median_us=median_us,
        filled=filled,
        occupancy=occupancy,
        idle=idle(trace, kept, launch_of, gaps),
        launching=launching(trace, kept, launch_of),
        launch_of=launch_of,
        inside=kept,
    )


def _activities_in(trace: Trace, device: int, seen: TraceWindow, launch_of: Sequence[int]) -> array[int]:
    """The activities of a device that touch the window, by start, then by launch."""
    start, took, devices = trace.activity.start, trace.activity.took, trace.activity.device
    names, calls = trace.activity.names.texts, trace.calls

    def rank(index: int) -> tuple[Any, ...]:
        call = launch_of[index]
        launched = calls.start[call] + calls.took[call] if call >= 0 else inf
        return launched, trace.activity.stream[index], -took[index], names[trace.activity.name[index]]

    touching = (
        index
        for index in order(start)
        if devices[index] == device and start[index] < seen.end and start[index] + took[index] > seen.start
    )
    kept = array("I")
    for _, together in groupby(touching, key=start.__getitem__):
        places = list(together)
        kept.extend(sorted(places, key=rank) if len(places) > 1 else places)
    return kept


def _kernel_groups(trace: Trace, inside: Sequence[int], seen: TraceWindow) -> tuple[Named, ...]:
    activity, count, took = trace.activity, Counter[int](), dict[int, float]()
    for index in inside:
        name = activity.name[index]
        count[name] += 1
        took[name] = took.get(name, 0.0) + inside_us(activity, index, seen)
    texts, kinds = activity.names.texts, activity.names.meanings
    ranked = sorted(took.items(), key=lambda item: (-item[1], texts[item[0]]))
    return tuple(Named(name=texts[n], kind=ActivityKind(kinds[n]), count=count[n], took_us=us) for n, us in ranked)


def _kernels(
    trace: Trace, inside: Sequence[int], seen: TraceWindow
) -> tuple[int, float | None, float | None, float | None]:
    """Of the kernels: number, median duration, SM fill, occupancy."""
    activity = trace.activity
    real = (ActivityKind.COMPUTE, ActivityKind.COMM)
    count, full_us, known_us, warm_us, warm = 0, 0.0, 0.0, 0.0, 0.0
    times = array("d")
    for index in inside:
        if activity.names.meanings[activity.name[index]] not in real:
            continue
        count += 1
        times.append(activity.took[index])
        took = inside_us(activity, index, seen)
        if activity.filling[index] >= 0:
            known_us += took
            full_us += activity.filling[index] * took
        if activity.occupancy[index] >= 0:
            warm_us += took
            warm += activity.occupancy[index] / 100 * took
    middle = sorted(times[:: 1 + len(times) // _SAMPLE])
    return (
        count,
        middle[len(middle) // 2] if middle else None,
        min(1.0, full_us / seen.span_us) if known_us and seen.span_us else None,
        warm / warm_us if warm_us else None,
    )


def inside_us(activity: GpuActivity, index: int, seen: TraceWindow) -> float:
    """GPU time of an activity within the window, in microseconds."""
    start, end = seen.clip(activity.start[index], activity.took[index])
    return max(0.0, end - start)


def all_host_spans(trace: Trace, mark: SpanMeaning) -> Spans:
    """CPU time covered by spans of one kind, over the whole trace."""
    if mark == SpanMeaning.BACKWARD:
        return trace.host.backward
    return Spans(sorted((start, start + took) for start, took, _ in trace.host.spans[mark]))


def host_spans(trace: Trace, mark: SpanMeaning, seen: TraceWindow) -> Spans:
    """CPU time within the window covered by spans of one kind."""
    return all_host_spans(trace, mark).within(seen.start, seen.end)


_LOADS_US = 20_000.0  # a first launch of this length loads the kernel's code
_FIRST, _FEW = 1, 2  # highest step number that may be a program's first, and number of steps that may be setup
_LATE = 0.5  # of the time: a program ready later shows nothing else
LEAST_SHOWN = 0.05  # of the time: below, startup is not mentioned
_IDLE, _MOST = 0.05, 0.5  # of the time and of the idle time: below, startup does not dominate


@frozen_dataclass(frozen=True, slots=True)
class StartUp:
    """Program startup in a trace: GPU idle time, or CPU time without a GPU."""

    spans: Spans
    alone: bool  # most of the window and of the idle time: no conclusions are drawn

    @property
    def ready_us(self) -> float:
        """The end of startup: earlier copies are weights."""
        return self.spans.ends[-1] if len(self.spans) else -inf


def startup(trace: Trace, found: Breakdown) -> StartUp:
    """One-time work in the first steps, or without marked steps; empty if steps preceded the trace."""
    start, seen = StartUp(_starting(trace, found), alone=False), found.window
    idle, once = found.share(found.gaps), found.share(start.spans)
    late = start.ready_us - seen.start >= _LATE * seen.span_us
    return StartUp(start.spans, alone=late and idle >= _IDLE and once >= _MOST * idle)


def _starting(trace: Trace, found: Breakdown) -> Spans:
    """Gaps due to one-time work in the first steps, or without marked steps; empty if steps preceded.

    Without a GPU: the time spent compiling.
    """
    seen, calls, host, names = found.window, trace.calls, trace.host, trace.activity.name
    if seen.steps and (
        seen.steps[0].number > _FIRST or len(seen.steps) > _FEW or seen.begun or seen.named.startswith(GPUTOP_STEP)
    ):
        return Spans()
    if not found.of_gpu:
        return union(host.once_at, host.once_took).within(seen.start, seen.end)
    once = union([*calls.made_at, *calls.load_at, *host.once_at], [*calls.made_took, *calls.load_took, *host.once_took])
    known, place, of_start = set[int](), 0, Spans()
    for pause in pauses(trace, found.inside, found.launch_of, found.gaps):
        while place < len(found.inside) and found.inside[place] != pause.index:
            known.add(names[found.inside[place]])
            place += 1
        first = pause.index >= 0 and names[pause.index] not in known
        loads = first and pause.call >= 0 and calls.took[pause.call] >= _LOADS_US
        if loads or len(once.within(pause.since, pause.until)):
            of_start.add(pause.start, pause.end)
    return of_start

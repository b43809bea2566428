"""The steps of a trace: begin and end of each on the CPU, and the window they form."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from heapq import nsmallest
from itertools import chain, pairwise
from statistics import median

from gputop.frozen_dataclass import frozen_dataclass
from gputop.trace.gpu import Calls, GpuActivity
from gputop.trace.host import HostTimes
from gputop.trace.intervals import Spans, union
from gputop.trace.names import STEP, ActivityKind, SpanMeaning, region

GPUTOP_STEP = "gputop.step#"
_CUT = 0.5  # of any other step: a shorter first or last step was cut
_LONGER = 1.5  # multiple of later steps, from which a step is startup
_MUCH_LONGER, _ENOUGH, _OWN = 2.5, 3, 0.5  # than the others, of so many: most of that is profiler startup
_EDGE = 0.01  # of a step: one that begins this soon after the first event begins with it
_ALIKE, _FEWER = 0.05, 0.10  # variation of kernel counts between steps; a cut one has this share less
_UNSEEN = 0.02  # of all steps: a longer unseen time before the first kernel does not count
_MANY = 20  # kernels per step from which their number is meaningful
_SOME = 5  # launches in each other step, from which a shorter one at the edge without any was cut
_FIRST_KERNELS = 100  # kernels that show the initial queue
_FEWEST_KERNELS = 5
_QUEUED_US = 1000.0  # from launch to kernel: an idle GPU starts within microseconds
_DELAYED_ALIKE = 0.5  # of the first kernel's delay: if later ones have less, it waited for something else
_BUSY_SINCE = 0.8  # of the time of those kernels: a GPU that drains a queue does nothing else
_AFTER = 0.5  # of the steps: a GPU this far behind within them makes the time after them count
_PARTS = (SpanMeaning.DATA, SpanMeaning.FORWARD, SpanMeaning.BACKWARD, SpanMeaning.OPTIMIZER, SpanMeaning.ZERO_GRAD)


@frozen_dataclass(frozen=True, slots=True)
class TraceStep:
    """One step: its number in the program, start and end in microseconds of the trace."""

    number: int
    start: float
    end: float


@frozen_dataclass(frozen=True, slots=True)
class TraceWindow:
    """The analyzed part of a trace: its complete steps, or the time of GPU activity."""

    start: float
    end: float
    steps: tuple[TraceStep, ...]
    named: str  # what marks the end of a step; empty if nothing does
    begun: int = 0  # steps before them in which the program starts
    profiler_us: float = 0.0  # duration of the step before them in which the profiler starts

    @property
    def after_us(self) -> float:
        """GPU time on them after the last one ended, in microseconds."""
        return self.end - max(step.end for step in self.steps) if self.steps else 0.0

    @property
    def span_us(self) -> float:
        """Its length in microseconds."""
        return self.end - self.start

    def clip(self, start: float, took: float) -> tuple[float, float]:
        """Start and end of the part of a span inside it: the end precedes the start if there is none."""
        return max(start, self.start), min(start + took, self.end)


def window(host: HostTimes, activity: GpuActivity, calls: Calls) -> TraceWindow:
    """The complete steps of a trace; without steps, the span of its GPUs, else of its annotations."""
    steps, named = _steps(host)
    begun = _starting(host, calls, steps)
    profiler_us = 0.0
    if not begun and _profiler_starts(calls, steps):
        profiler_us, steps = _length(steps[0]), steps[1:]
    if host.counted:  # the file was read again for these steps only
        begin, stop = host.counted
        steps = tuple(step for step in steps if step.start >= begin and step.end <= stop) or steps
    else:
        steps = _whole(host, calls, steps[begun:])
    unseen = _unseen_until(activity, calls)
    if steps:
        begin = steps[0].start
        if unseen is not None:
            steps, begin = _seen(steps, unseen)
        end = _worked_until(activity, calls, begin, max(step.end for step in steps))
        return TraceWindow(begin, end, steps, named, begun, profiler_us)
    if len(activity):
        ends = (start + took for start, took in zip(activity.start, activity.took, strict=True))
        # annotated work may precede the first kernel or follow the last: data loading, a checkpoint
        own = [*chain.from_iterable(host.regions.values()), *host.spans[SpanMeaning.DATA]]
        first = min(chain(activity.start, (start for start, _, _ in own))) if unseen is None else unseen
        return TraceWindow(first, max(chain(ends, (start + took for start, took, _ in own))), (), "")
    known = host.last_end >= host.first_start
    return TraceWindow(host.first_start, host.last_end, (), "") if known else TraceWindow(0.0, 0.0, (), "")


def _seen(steps: tuple[TraceStep, ...], unseen: float) -> tuple[tuple[TraceStep, ...], float]:
    """The steps with GPU activity seen throughout, and the start of the window."""
    begin, end = steps[0].start, steps[-1].end
    if unseen - begin <= _UNSEEN * (end - begin) or unseen >= end:
        return steps, begin
    whole = tuple(step for step in steps if step.start >= unseen)
    return (whole, whole[0].start) if whole else (steps, unseen)


def _worked_until(activity: GpuActivity, calls: Calls, begin: float, end: float) -> float:
    """The end of a window of steps; if the GPU did most of them after the last one, the end of that work.

    A CPU that never waits launches a few steps within milliseconds: their marks say nothing about the GPU.
    """
    ends = (start + took for start, took in zip(activity.start, activity.took, strict=True))
    if max(ends, default=end) - end < _AFTER * (end - begin):
        return end
    of_steps = {number for number, at in zip(calls.id, calls.start, strict=True) if begin <= at < end} - {0}
    own = [place for place, number in enumerate(activity.launch_id) if number in of_steps]
    first = min((activity.start[place] for place in own), default=begin)
    last = max((activity.start[place] + activity.took[place] for place in own), default=end)
    least = _AFTER * (end - begin)
    return last if first - begin < least <= last - end - (first - begin) else end  # not of a queue filled earlier


def _starting(host: HostTimes, calls: Calls, steps: Sequence[TraceStep]) -> int:
    """Number of first steps that start the program: longer, with one-time allocation, loading or compilation."""
    once = sorted(chain(calls.made_at, calls.load_at, host.once_at))
    made = [bisect_left(once, step.end) - bisect_left(once, step.start) for step in steps]
    for count in range(max((len(steps) - 1) // 2, len(steps) == 2), 0, -1):
        longer = _LONGER * median(_length(step) for step in steps[count:])
        if sum(made[count:]) < len(steps) - count and all(
            made[place] and _length(steps[place]) >= longer for place in range(count)
        ):
            return count
    return 0


def much_longer(steps: Sequence[TraceStep]) -> float | None:
    """The median of the steps after the first, if the first is several times as long; else None."""
    if len(steps) < _ENOUGH:
        return None
    usual = median(_length(step) for step in steps[1:])
    return usual if _length(steps[0]) > _MUCH_LONGER * usual else None


def _profiler_starts(calls: Calls, steps: Sequence[TraceStep]) -> bool:
    """Whether the first step is long because CUPTI creates its buffers: 3 ms each, per thread."""
    usual = much_longer(steps)
    if usual is None or not len(calls.profile_at):
        return False
    own = union(calls.profile_at, calls.profile_took)
    in_others = median(own.within(step.start, step.end).total for step in steps[1:])
    in_first = own.within(steps[0].start, steps[0].end).total
    return in_first - in_others >= _OWN * (_length(steps[0]) - usual)


def _whole(host: HostTimes, calls: Calls, steps: tuple[TraceStep, ...]) -> tuple[TraceStep, ...]:
    """Without the first and last step if the recording cut them."""
    if len(steps) < 2:
        return steps
    parts = _step_contents(host, calls, steps)
    end = len(steps) - 1
    first = _was_cut(host, steps, parts, 0, range(1, max(2, end)))
    last = _was_cut(host, steps, parts, end, range(first and end > 1, end))
    kept = steps[first : len(steps) - last]
    return kept or steps


@frozen_dataclass(frozen=True, slots=True)
class StepContents:
    """Contents of a step: first start of each phase and region, and number of launches."""

    begin: dict[str, float]
    launched: int


def _was_cut(
    host: HostTimes, steps: Sequence[TraceStep], parts: Sequence[StepContents], place: int, others: range
) -> bool:
    """Whether a step at the edge of the trace was cut, by comparison with the others there.

    A cut step lacks the start or end of the others. Without phases it is shorter than any of them or launches less, and
    touches the first or last event. On a busy machine a complete one may be short.
    """
    step, first = steps[place], place == 0
    common = set[str].intersection(*(set(parts[other].begin) for other in others))
    if common:
        begin = parts[others[0]].begin
        edge = min(common, key=begin.__getitem__) if first else max(common, key=begin.__getitem__)
        return edge not in parts[place].begin
    if str(SpanMeaning.DATA if first else SpanMeaning.OPTIMIZER) in parts[place].begin:
        return False
    shortest_us = min(_length(steps[other]) for other in others)
    slack_us = _EDGE * shortest_us
    at_edge = step.start <= host.first_start + slack_us if first else step.end >= host.last_end - slack_us
    if not at_edge:
        return False
    if _length(step) < _CUT * shortest_us:
        return True
    counts = [parts[other].launched for other in others]
    if not parts[place].launched and min(counts) >= _SOME and _length(step) < shortest_us:
        return True
    steady = len(counts) > 1 and min(counts) >= _MANY and max(counts) - min(counts) <= _ALIKE * min(counts)
    return steady and parts[place].launched < (1 - _FEWER) * min(counts)


def _step_contents(host: HostTimes, calls: Calls, steps: Sequence[TraceStep]) -> list[StepContents]:
    """The contents of each step; steps are ordered by start and hardly overlap."""
    starts = [step.start for step in steps]
    begin: list[dict[str, float]] = [{} for _ in steps]
    launched = [0] * len(steps)

    def within(at: float) -> int:
        place = bisect_right(starts, at) - 1
        return place if place >= 0 and at < steps[place].end else -1

    backward = (("backward", start, end - start) for start, end in host.backward)
    marks = ((str(mark), *span[:2]) for mark in _PARTS if mark != SpanMeaning.BACKWARD for span in host.spans[mark])
    named = ((region(host.names.texts[name]), *span[:2]) for name, spans in host.regions.items() for span in spans)
    for name, at, took in chain(backward, marks, named):
        for place in {within(at), within(at + took)} - {-1}:
            step = steps[place]
            around = at < step.start and at + took > step.end
            if not around and at + took > step.start:
                since = max(0.0, at - step.start)
                begin[place][name] = min(begin[place].get(name, since), since)
    # launches; without a GPU the outermost operators, if all are known
    for at in calls.start or (() if host.outer.shortest_us else host.outer.start):
        if (place := within(at)) >= 0:
            launched[place] += 1
    return [StepContents(*each) for each in zip(begin, launched, strict=True)]


def _length(step: TraceStep) -> float:
    return step.end - step.start


def _steps(host: HostTimes) -> tuple[tuple[TraceStep, ...], str]:
    """Steps by the first available: our annotation, the profiler's, ends of optimizer steps."""
    named = [(start, took, host.names.texts[name]) for start, took, name in host.spans[SpanMeaning.STEP]]
    ours = [span for span in named if span[2].startswith(GPUTOP_STEP)]
    found, by = [], ""
    for start, took, text in sorted(ours or named):
        match = STEP.match(text)
        if match and took > 0:
            found.append(TraceStep(int(match[2][:9]), start, start + took))
            by = match[1]
    if found:
        return tuple(found), by
    ends = sorted(start + took for start, took, _ in host.spans[SpanMeaning.OPTIMIZER])
    pairs = enumerate(pairwise(ends), 1)
    return tuple(TraceStep(number, a, b) for number, (a, b) in pairs if b > a), "Optimizer.step" if len(
        ends
    ) > 1 else ""


def _unseen_until(activity: GpuActivity, calls: Calls) -> float | None:
    """Time until which the GPU ran work launched before the trace; None if it was not behind.

    Its first kernel starts long after its launch, as later ones do, and it is never idle from then on.
    """
    kinds = activity.names.meanings
    kernels = (
        place for place, name in enumerate(activity.name) if kinds[name] in (ActivityKind.COMPUTE, ActivityKind.COMM)
    )
    first = nsmallest(_FIRST_KERNELS, kernels, key=activity.start.__getitem__)
    if len(first) < _FEWEST_KERNELS:
        return None
    wanted = {activity.launch_id[place] for place in first} - {0}
    launched = {number: calls.start[at] + calls.took[at] for at, number in enumerate(calls.id) if number in wanted}
    if activity.launch_id[first[0]] not in launched:
        return None
    delays = [
        activity.start[place] - launched[activity.launch_id[place]]
        for place in first
        if activity.launch_id[place] in launched
    ]
    begin, last = activity.start[first[0]], first[-1]
    ran = Spans((activity.start[place], activity.start[place] + activity.took[place]) for place in first)
    over = activity.start[last] + activity.took[last]
    behind = delays[0] >= _QUEUED_US and median(delays) >= _DELAYED_ALIKE * delays[0]
    return begin if behind and ran.within(begin, over).total >= _BUSY_SINCE * (over - begin) else None

"""The steps of a trace: where each begins and ends on the CPU, and the window they make."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from heapq import nsmallest
from itertools import chain, pairwise
from statistics import median

from gputop.frozen_dataclass import frozen_dataclass
from gputop.trace.gpu import Activity, Calls
from gputop.trace.host import Host
from gputop.trace.intervals import Spans, union
from gputop.trace.names import STEP, Kind, Mark, region

OURS = "gputop.step#"
_CUT = 0.5  # a step at the edge of what was recorded is cut where it is shorter than this part of any other
_LONGER = 1.5  # times as long as those after them are steps in which a program starts
_MUCH_LONGER, _ENOUGH, _OWN = 2.5, 3, 0.5  # than the others, of so many: most of that is the profiler's own start
_EDGE = 0.01  # of a step: what begins so soon after the first event begins with it
_ALIKE, _FEWER = 0.05, 0.10  # steps that launch as many kernels differ by so much; a cut one has so many less
_UNSEEN = 0.02  # of all steps: what was not seen of the GPU before its first kernel and is longer does not count
_MANY = 20  # kernels a step, from which their number says something
_SOME = 5  # launches in each of the others, from which a shorter step at the edge with none of them is cut
_FIRST_KERNELS = 100  # kernels by which the queue at the beginning is judged
_FEWEST_KERNELS = 5
_QUEUED_US = 1000.0  # from launch to kernel: a GPU with nothing before it begins within microseconds
_DELAYED_ALIKE = 0.5  # of the first kernel's delay; where those after it have less, that one waited for something else
_BUSY_SINCE = 0.8  # of the time of those kernels: a GPU that works off a queue does nothing else
_AFTER = 0.5  # of the steps: where the GPU falls behind by so much in them, what it works off after them counts
_PARTS = (Mark.DATA, Mark.FORWARD, Mark.BACKWARD, Mark.OPTIMIZER, Mark.ZERO_GRAD)


@frozen_dataclass(frozen=True, slots=True)
class Step:
    """One step: its number as the program counts, its start and end in microseconds of the trace."""

    number: int
    start: float
    end: float


@frozen_dataclass(frozen=True, slots=True)
class Window:
    """What of a trace is looked at: its whole steps, or the time its GPUs were seen."""

    start: float
    end: float
    steps: tuple[Step, ...]
    named: str  # what says where a step ends; empty if nothing does
    begun: int = 0  # steps before them in which the program starts
    profiler_us: float = 0.0  # how long the step before them took, in which the profiler starts

    @property
    def after_us(self) -> float:
        """How long the GPU still works on them after the last one."""
        return self.end - max(step.end for step in self.steps) if self.steps else 0.0

    @property
    def span_us(self) -> float:
        """How long it is."""
        return self.end - self.start

    def clip(self, start: float, took: float) -> tuple[float, float]:
        """Start and end of what of a span lies in it: the end before the start where nothing does."""
        return max(start, self.start), min(start + took, self.end)


def window(host: Host, activity: Activity, calls: Calls) -> Window:
    """The whole steps of a trace; without any the span of its GPUs, else of its annotations."""
    steps, named = _steps(host)
    begun = _starting(host, calls, steps)
    profiler_us = 0.0
    if not begun and _profiler_starts(calls, steps):
        profiler_us, steps = _length(steps[0]), steps[1:]
    if host.counted:  # it was read once more for these steps only
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
        return Window(begin, end, steps, named, begun, profiler_us)
    if len(activity):
        ends = (start + took for start, took in zip(activity.start, activity.took, strict=True))
        # what the program names may lie before the first kernel or after the last: data that are loaded, a checkpoint
        own = [*chain.from_iterable(host.regions.values()), *host.spans[Mark.DATA]]
        first = min(chain(activity.start, (start for start, _, _ in own))) if unseen is None else unseen
        return Window(first, max(chain(ends, (start + took for start, took, _ in own))), (), "")
    known = host.last_end >= host.first_start
    return Window(host.first_start, host.last_end, (), "") if known else Window(0.0, 0.0, (), "")


def _seen(steps: tuple[Step, ...], unseen: float) -> tuple[tuple[Step, ...], float]:
    """The steps in all of which the GPU was seen, and the start of the window."""
    begin, end = steps[0].start, steps[-1].end
    if unseen - begin <= _UNSEEN * (end - begin) or unseen >= end:
        return steps, begin
    whole = tuple(step for step in steps if step.start >= unseen)
    return (whole, whole[0].start) if whole else (steps, unseen)


def _worked_until(activity: Activity, calls: Calls, begin: float, end: float) -> float:
    """The end of a window of steps; where the GPU worked off most of them after the last one, when it had done so.

    A CPU that nothing holds back launches a few steps within milliseconds: their marks say nothing of the GPU then.
    """
    ends = (start + took for start, took in zip(activity.start, activity.took, strict=True))
    if max(ends, default=end) - end < _AFTER * (end - begin):
        return end
    of_steps = {number for number, at in zip(calls.id, calls.start, strict=True) if begin <= at < end} - {0}
    own = [place for place, number in enumerate(activity.launch_id) if number in of_steps]
    first = min((activity.start[place] for place in own), default=begin)
    last = max((activity.start[place] + activity.took[place] for place in own), default=end)
    least = _AFTER * (end - begin)
    return last if first - begin < least <= last - end - (first - begin) else end  # not of a queue that was full before


def _starting(host: Host, calls: Calls, steps: Sequence[Step]) -> int:
    """How many of the first steps start the program: they alone allocate, load or compile, and are longer."""
    once = sorted(chain(calls.made_at, calls.load_at, host.once_at))
    made = [bisect_left(once, step.end) - bisect_left(once, step.start) for step in steps]
    for count in range(max((len(steps) - 1) // 2, len(steps) == 2), 0, -1):
        longer = _LONGER * median(_length(step) for step in steps[count:])
        if sum(made[count:]) < len(steps) - count and all(
            made[place] and _length(steps[place]) >= longer for place in range(count)
        ):
            return count
    return 0


def much_longer(steps: Sequence[Step]) -> float | None:
    """The median of the steps after the first one, where that is several times as long; None elsewhere."""
    if len(steps) < _ENOUGH:
        return None
    usual = median(_length(step) for step in steps[1:])
    return usual if _length(steps[0]) > _MUCH_LONGER * usual else None


def _profiler_starts(calls: Calls, steps: Sequence[Step]) -> bool:
    """Whether the first step is that much longer because CUPTI makes its buffers in it: 3 ms each, for each thread."""
    usual = much_longer(steps)
    if usual is None or not len(calls.profile_at):
        return False
    own = union(calls.profile_at, calls.profile_took)
    in_others = median(own.within(step.start, step.end).total for step in steps[1:])
    in_first = own.within(steps[0].start, steps[0].end).total
    return in_first - in_others >= _OWN * (_length(steps[0]) - usual)


def _whole(host: Host, calls: Calls, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Without the first and the last step, where the recording began or ended within them."""
    if len(steps) < 2:
        return steps
    parts = _parts(host, calls, steps)
    end = len(steps) - 1
    first = _cut(host, steps, parts, 0, range(1, max(2, end)))
    last = _cut(host, steps, parts, end, range(first and end > 1, end))
    kept = steps[first : len(steps) - last]
    return kept or steps


@frozen_dataclass(frozen=True, slots=True)
class Parts:
    """What a step is made of: where each of its phases and regions first begins, and how much it launches."""

    begin: dict[str, float]
    launched: int


def _cut(host: Host, steps: Sequence[Step], parts: Sequence[Parts], place: int, others: range) -> bool:
    """Whether a step at one end of the trace was cut, by what the others have at that end.

    One that was cut lacks what the others begin with, or end with. Without phases it is shorter than any of them or
    launches less, and it begins with the first event or ends with the last. On a busy machine a whole one may be short.
    """
    step, first = steps[place], place == 0
    common = set[str].intersection(*(set(parts[other].begin) for other in others))
    if common:
        begin = parts[others[0]].begin
        edge = min(common, key=begin.__getitem__) if first else max(common, key=begin.__getitem__)
        return edge not in parts[place].begin
    if str(Mark.DATA if first else Mark.OPTIMIZER) in parts[place].begin:
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


def _parts(host: Host, calls: Calls, steps: Sequence[Step]) -> list[Parts]:
    """The parts of each step; steps come by their start and do not overlap by much."""
    starts = [step.start for step in steps]
    begin: list[dict[str, float]] = [{} for _ in steps]
    launched = [0] * len(steps)

    def within(at: float) -> int:
        place = bisect_right(starts, at) - 1
        return place if place >= 0 and at < steps[place].end else -1

    backward = (("backward", start, end - start) for start, end in host.backward)
    marks = ((str(mark), *span[:2]) for mark in _PARTS if mark != Mark.BACKWARD for span in host.spans[mark])
    named = ((region(host.names.texts[name]), *span[:2]) for name, spans in host.regions.items() for span in spans)
    for name, at, took in chain(backward, marks, named):
        for place in {within(at), within(at + took)} - {-1}:
            step = steps[place]
            around = at < step.start and at + took > step.end
            if not around and at + took > step.start:
                since = max(0.0, at - step.start)
                begin[place][name] = min(begin[place].get(name, since), since)
    # what is launched; without a GPU the outermost operators, where all of them are known
    for at in calls.start or (() if host.outer.shortest_us else host.outer.start):
        if (place := within(at)) >= 0:
            launched[place] += 1
    return [Parts(*each) for each in zip(begin, launched, strict=True)]


def _length(step: Step) -> float:
    return step.end - step.start


def _steps(host: Host) -> tuple[tuple[Step, ...], str]:
    """Steps by the first of: our annotation, the profiler's, the ends of the optimizer's steps."""
    named = [(start, took, host.names.texts[name]) for start, took, name in host.spans[Mark.STEP]]
    ours = [span for span in named if span[2].startswith(OURS)]
    found, by = [], ""
    for start, took, text in sorted(ours or named):
        match = STEP.match(text)
        if match and took > 0:
            found.append(Step(int(match[2][:9]), start, start + took))
            by = match[1]
    if found:
        return tuple(found), by
    ends = sorted(start + took for start, took, _ in host.spans[Mark.OPTIMIZER])
    pairs = enumerate(pairwise(ends), 1)
    return tuple(Step(number, a, b) for number, (a, b) in pairs if b > a), "Optimizer.step" if len(ends) > 1 else ""


def _unseen_until(activity: Activity, calls: Calls) -> float | None:
    """Until when the GPU ran work that is not in the trace; None where it was not behind when the trace began.

    Its first kernel begins long after its launch, as those after it do, and from then on it never stands still.
    """
    kinds = activity.names.meanings
    kernels = (place for place, name in enumerate(activity.name) if kinds[name] in (Kind.COMPUTE, Kind.COMM))
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

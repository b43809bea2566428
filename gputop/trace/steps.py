"""The steps of a trace: where each begins and ends on the CPU, and the window they make."""

from __future__ import annotations

from itertools import pairwise

from gputop.declare import record
from gputop.trace.gpu import Activity
from gputop.trace.host import Host
from gputop.trace.names import STEP, Mark

_OURS = "gputop.step#"
_CUT = 0.5  # a last step shorter than this part of any other was cut, if it has no optimizer's step in it


@record(frozen=True, slots=True)
class Step:
    """One step: its number as the program counts, its start and end in microseconds of the trace."""

    number: int
    start: float
    end: float


@record(frozen=True, slots=True)
class Window:
    """What of a trace is looked at: its whole steps, or the time its GPUs were seen."""

    start: float
    end: float
    steps: tuple[Step, ...]
    named: str  # what says where a step ends; empty if nothing does

    @property
    def span_us(self) -> float:
        """How long it is."""
        return self.end - self.start


def window(host: Host, activity: Activity) -> Window:
    """The whole steps of a trace; without any the span of its GPUs, else of its annotations."""
    steps, named = _steps(host)
    if len(steps) > 2:
        # of steps between the first and the last, where there are some: these two may both be cut
        shortest_us = min(map(_length, steps[1:-1]))
        last = _cut(host, steps[-1], shortest_us)
        first = len(steps) > 3 and _length(steps[0]) < _CUT * shortest_us  # the recording began within it
        steps = steps[first : len(steps) - last]
    if steps:
        return Window(steps[0].start, max(step.end for step in steps), steps, named)
    if len(activity):
        ends = (start + took for start, took in zip(activity.start, activity.took, strict=True))
        return Window(min(activity.start), max(ends), (), "")
    known = host.last_end >= host.first_start
    return Window(host.first_start, host.last_end, (), "") if known else Window(0.0, 0.0, (), "")


def _length(step: Step) -> float:
    return step.end - step.start


def _cut(host: Host, last: Step, shortest_us: float) -> bool:
    """Whether the trace ended within its last step; on a busy machine a whole one may be as short."""
    ended = any(last.start <= start < last.end for start, _, _ in host.spans[Mark.OPTIMIZER])
    return not ended and _length(last) < _CUT * shortest_us


def _steps(host: Host) -> tuple[tuple[Step, ...], str]:
    """Steps by the first of: our annotation, the profiler's, the ends of the optimizer's steps."""
    named = [(start, took, host.names.texts[name]) for start, took, name in host.spans[Mark.STEP]]
    ours = [span for span in named if span[2].startswith(_OURS)]
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

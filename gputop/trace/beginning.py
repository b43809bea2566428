"""What of the idle time of a GPU is of a program that starts: memory is allocated, code is loaded or compiled.

Nothing of that is so in the steps that follow, so that nothing is concluded from it.
"""

from __future__ import annotations

from math import inf

from gputop.declare import record
from gputop.trace.breakdown import Breakdown
from gputop.trace.intervals import Spans, union
from gputop.trace.launches import pauses
from gputop.trace.read import Trace
from gputop.trace.steps import OURS

_LOADS_US = 20_000.0  # the first launch of a kernel that takes so long loads its code
_FIRST, _FEW = 1, 2  # the number of a step that may be the first of a program, and how many may set things up
_LATE = 0.5  # of the time: a program that is ready later shows nothing else
TOLD = 0.05  # of the time: of less it is not said that the program starts
_IDLE, _MOST = 0.05, 0.5  # of the time, of the idle time: what explains less of it is not all that is seen


@record(frozen=True, slots=True)
class Start:
    """What of a trace is the start of the program: idle time of the GPU; without one the time itself."""

    spans: Spans
    alone: bool  # it is most of what is seen, and of the idle time: nothing is concluded

    @property
    def ready_us(self) -> float:
        """When it is over: what is copied before that are weights."""
        return self.spans.ends[-1] if len(self.spans) else -inf


def beginning(trace: Trace, found: Breakdown) -> Start:
    """What is done once, in first steps or where no step is marked; nothing where steps went before."""
    start, seen = Start(_starting(trace, found), alone=False), found.window
    idle, once = found.share(found.gaps), found.share(start.spans)
    late = start.ready_us - seen.start >= _LATE * seen.span_us
    return Start(start.spans, alone=late and idle >= _IDLE and once >= _MOST * idle)


def _starting(trace: Trace, found: Breakdown) -> Spans:
    """Gaps for what is done once, in first steps or where no step is marked; none where steps went before.

    Without a GPU the time in which code is compiled.
    """
    seen, calls, host, names = found.window, trace.calls, trace.host, trace.activity.name
    if seen.steps and (
        seen.steps[0].number > _FIRST or len(seen.steps) > _FEW or seen.begun or seen.named.startswith(OURS)
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

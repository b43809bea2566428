"""What of the idle time of a GPU is of a program that starts: memory is allocated, code is loaded or compiled.

Nothing of that is so in the steps that follow, so that nothing is concluded from it.
"""

from __future__ import annotations

from gputop.trace.breakdown import Breakdown
from gputop.trace.intervals import Spans, union
from gputop.trace.launches import pauses
from gputop.trace.read import Trace
from gputop.trace.steps import OURS

_LOADS_US = 20_000.0  # the first launch of a kernel that takes so long loads its code
_FIRST, _FEW = 1, 2  # the number of a step that may be the first of a program, and how many may set things up


def starting(trace: Trace, found: Breakdown) -> Spans:
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

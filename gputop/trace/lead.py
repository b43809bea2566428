"""The beginning of a trace that says nothing of the GPU: it still ran what was launched before the recording."""

from __future__ import annotations

from heapq import nsmallest
from statistics import median

from gputop.trace.gpu import Activity, Calls
from gputop.trace.intervals import Spans
from gputop.trace.names import Kind

_FIRST = 100  # kernels by which the queue at the beginning is judged
_FEWEST = 5
_QUEUED_US = 1000.0  # from launch to kernel: a GPU with nothing before it begins within microseconds
_ALIKE = 0.5  # of the first kernel's delay; where those after it have less, that one waited for something else
_BUSY = 0.8  # of the time of those kernels: a GPU that works off a queue does nothing else


def unseen_until(activity: Activity, calls: Calls) -> float | None:
    """Until when the GPU ran work that is not in the trace; None where it was not behind when the trace began.

    Its first kernel begins long after its launch, as those after it do, and from then on it never stands still.
    """
    kinds = activity.names.meanings
    kernels = (place for place, name in enumerate(activity.name) if kinds[name] in (Kind.COMPUTE, Kind.COMM))
    first = nsmallest(_FIRST, kernels, key=activity.start.__getitem__)
    if len(first) < _FEWEST:
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
    behind = delays[0] >= _QUEUED_US and median(delays) >= _ALIKE * delays[0]
    return begin if behind and ran.within(begin, over).total >= _BUSY * (over - begin) else None

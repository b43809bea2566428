"""Launches whose kernel is not in the trace: the profiler lost records, so that an idle GPU is not known to be idle.

Four kinds of launch have no kernel in a trace that is complete: those that were recorded into a CUDA graph, those whose
kernel would have run after the end of the trace, calls of a name that never has one, and memsets of no bytes.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from math import inf

from gputop.trace.gpu import Activity, Calls
from gputop.trace.intervals import Spans, join, order
from gputop.trace.names import Kind

_LATEST = 100  # launches from which the queue at the end of the trace is known


def without_kernel(activity: Activity, calls: Calls, last_us: float, begin: float, end: float) -> tuple[int, int]:
    """Of the launches between two times: how many lack their kernel or copy, and how many there are.

    `last_us` is the end of the trace.
    """
    kernel_of = join(calls.id, activity.launch_id, activity.start)
    matched = Counter(calls.name[place] for place, index in enumerate(kernel_of) if index >= 0)
    texts, kinds = calls.names.texts, activity.names.meanings
    # without correlation ids nothing is known; without a single kernel every launch of one counts
    bare = bool(matched) and not any(kinds[name] in (Kind.COMPUTE, Kind.COMM) for name in set(activity.name))
    counted = {
        name
        for name in set(calls.name)
        if "memset" not in texts[name].lower()
        and (name in matched or (bare and "launch" in texts[name].lower() and "HostFunc" not in texts[name]))
    }
    last_us = max((last_us, *(start + took for start, took in zip(activity.start, activity.took, strict=True))))
    in_order, captured = order(calls.start), _captured(calls)
    until = _pending_from(activity, calls, kernel_of, in_order, last_us)
    lost = launches = 0
    for at, place in enumerate(in_order):
        start = calls.start[place]
        if not calls.id[place] or calls.name[place] not in counted or not begin <= start < end:
            continue
        if kernel_of[place] >= 0:
            launches += 1
        elif start < until and not captured.holds(start) and not _of_another(calls, kernel_of, in_order, at):
            launches += 1
            lost += 1
    return lost, launches


def _captured(calls: Calls) -> Spans:
    """When launches were recorded into a graph instead of run."""
    spans, since = Spans(), None
    for at, begins in sorted(calls.captures):
        if begins:
            since = at if since is None else since
        elif since is not None:
            spans.add(since, at)
            since = None
    if since is not None:
        spans.add(since, inf)
    return spans


def _pending_from(
    activity: Activity, calls: Calls, kernel_of: array[int], in_order: Sequence[int], last_us: float
) -> float:
    """From when on a launch may still be queued, or its kernel not over, at the end of the trace."""
    known = (place for place in reversed(in_order) if kernel_of[place] >= 0)
    longest = 0.0
    for place in islice(known, _LATEST):
        index = kernel_of[place]
        longest = max(longest, activity.start[index] + activity.took[index] - calls.start[place])
    return last_us - longest


def _of_another(calls: Calls, kernel_of: array[int], in_order: Sequence[int], at: int) -> bool:
    """Whether it is the driver's half of a call into the runtime, or the reverse: the kernel names only one of both."""
    place = in_order[at]
    start, end = calls.start[place], calls.start[place] + calls.took[place]
    for beside in (at - 1, at + 1):
        if 0 <= beside < len(calls.start):
            other = in_order[beside]
            if (
                kernel_of[other] >= 0
                and calls.thread[other] == calls.thread[place]
                and calls.start[other] < end
                and start < calls.start[other] + calls.took[other]
            ):
                return True
    return False

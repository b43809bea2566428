"""Timeline lanes: phases of the main thread, other threads, streams of the GPU.

A lane may have a million spans; coverage of an interval comes from cumulative sums, not iteration.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import field
from itertools import accumulate

from gputop.frozen_dataclass import frozen_dataclass
from gputop.trace.intervals import Spans
from gputop.trace.names import ActivityKind, SpanMeaning
from gputop.trace.threads import TracedThread, traced_threads
from gputop.trace.verdict import TraceView

MOST_THREADS = 12
_SAMPLE = 200  # spans that determine a name
_JOINED_US = 50.0  # operators this close belong to one forward pass
_FAMILIES = (
    ("attn", re.compile(r"flash|fmha|attention|_attn", re.IGNORECASE)),
    ("gemm", re.compile(r"gemm|gemv|cutlass|nvjet|gmma|cijk_|xmma", re.IGNORECASE)),
    ("conv", re.compile(r"convol|conv\d|_conv|dgrad|wgrad|fprop|winograd|implicit|scudnn", re.IGNORECASE)),
    ("adam", re.compile(r"adam|multi_tensor_apply|fused.*optim|sgd", re.IGNORECASE)),
    ("norm", re.compile(r"norm", re.IGNORECASE)),
    ("softmax", re.compile(r"softmax", re.IGNORECASE)),
    ("reduce", re.compile(r"reduce", re.IGNORECASE)),
    ("elementwise", re.compile(r"elementwise|copy|fill|cat", re.IGNORECASE)),
)
_COLLECTIVE = re.compile(r"(?:nccl|rccl)\w*?Kernel_?([A-Za-z]+)", re.IGNORECASE)

OuterSpan = tuple[float, float, int]  # start, end, name


class SpanTrack:
    """Disjoint spans of one kind, with cumulative coverage."""

    def __init__(self, kind: str, spans: Spans, name: Callable[[float, float], str]) -> None:
        self.kind, self.spans, self.name = kind, spans, name
        took = (end - start for start, end in spans)
        self._sums = array("d", accumulate(took, initial=0.0))

    def covered(self, start: float, end: float) -> float:
        """Covered microseconds of an interval."""
        starts, ends = self.spans.starts, self.spans.ends
        first, last = bisect_right(ends, start), bisect_left(starts, end)
        if first >= last:
            return 0.0
        whole = self._sums[last] - self._sums[first]
        return whole - max(0.0, start - starts[first]) - max(0.0, ends[last - 1] - end)

    def within(self, start: float, end: float) -> tuple[int, float, float]:
        """Number of spans that touch an interval, start of the first and end of the last."""
        first, last = bisect_right(self.spans.ends, start), bisect_left(self.spans.starts, end)
        if first >= last:
            return 0, start, end
        return last - first, self.spans.starts[first], self.spans.ends[last - 1]


@frozen_dataclass(frozen=True)
class TimelineLane:
    """A line of the timeline showing the dominant span at each time; `area`: show coverage."""

    title: str
    tracks: Sequence[SpanTrack]
    area: bool = False
    gpu: bool = False


@frozen_dataclass(frozen=True)
class Lanes:
    """All lanes; `gaps` are idle intervals of the GPU, or of the main thread without one."""

    start: float
    end: float
    lanes: Sequence[TimelineLane]
    steps: Sequence[tuple[int, float, float]]  # number, start, end
    gaps: Spans
    gaps_of: str
    main: TimelineLane | None = field(default=None)


def lanes(view: TraceView) -> Lanes:
    """The lanes of a trace within its window."""
    found = view.found
    window, threads, outer = found.window, traced_threads(view.trace.host), _outer(view)
    main = _main(view, outer.get(threads[0].number, [])) if threads else None
    rows = [main] if main else []
    rows += [_thread(view, thread, outer.get(thread.number, [])) for thread in threads[1:MOST_THREADS]]
    busy = found.of_gpu
    if busy:
        rows += _gpu(view)
        rows.append(TimelineLane("GPU busy", (SpanTrack("busy", found.busy, lambda *_: "busy"),), area=True, gpu=True))
    covered = Spans(sorted(span for track in main.tracks for span in track.spans)) if main else Spans()
    return Lanes(
        start=window.start,
        end=window.end,
        lanes=[row for row in rows if any(len(track.spans) for track in row.tracks)],
        steps=[(step.number, step.start, step.end) for step in window.steps],
        gaps=found.gaps if busy else covered.gaps(window.start, window.end),
        gaps_of="GPU" if busy else "main thread",
        main=main,
    )


def _main(view: TraceView, outer: Sequence[OuterSpan]) -> TimelineLane:
    """Its phases; operators in none of them are the forward pass."""
    marks = (
        ("data", SpanMeaning.DATA, "DataLoader.__next__"),
        ("backward", SpanMeaning.BACKWARD, "backward"),
        ("optimizer", SpanMeaning.OPTIMIZER, "optimizer"),
        ("zero", SpanMeaning.ZERO_GRAD, "zero_grad"),
        ("comm", SpanMeaning.COMM, "collective"),
    )
    phases = [(kind, view.host(mark), text) for kind, mark, text in marks]
    known = Spans(sorted(span for _, spans, _ in phases for span in spans))
    seen = view.found.window
    rest = Spans()
    for start, end, _ in outer:
        rest.add(start, end, within=_JOINED_US)
    free = known.gaps(seen.start, seen.end)
    tracks = [SpanTrack(kind, spans, _constant(text)) for kind, spans, text in phases if len(spans)]
    forward = rest.shared(free)
    if len(forward):
        tracks.append(SpanTrack("forward", forward, _named(view, outer, "forward")))
    return TimelineLane("main", tracks)


def _thread(view: TraceView, thread: TracedThread, outer: Sequence[OuterSpan]) -> TimelineLane:
    """Activity of another thread, by its outermost spans."""
    spans = Spans((start, end) for start, end, _ in outer)
    kind = "backward" if thread.functions else "thread"
    name = _constant("backward") if thread.functions else _named(view, outer, thread.name)
    return TimelineLane(thread.name, (SpanTrack(kind, spans, name),))


def _outer(view: TraceView) -> dict[int, list[OuterSpan]]:
    """The outermost spans of each thread by start."""
    outer, found = view.trace.host.outer, dict[int, list[OuterSpan]]()
    for number, start, took, name in zip(outer.thread, outer.start, outer.took, outer.name, strict=True):
        found.setdefault(number, []).append((start, start + took, name))
    for rows in found.values():
        rows.sort()
    return found


def _constant(text: str) -> Callable[[float, float], str]:
    return lambda *_: text


def _named(view: TraceView, rows: Sequence[OuterSpan], default: str) -> Callable[[float, float], str]:
    """Name of an interval: its dominant span if that is an annotation; else the default."""
    starts = array("d", (start for start, _, _ in rows))
    texts = view.trace.host.names.texts

    def name(start: float, end: float) -> str:
        first, last = max(0, bisect_left(starts, start) - 1), bisect_left(starts, end)
        took: dict[int, float] = {}
        for place in range(first, last, 1 + (last - first) // _SAMPLE):
            begin, finish, number = rows[place]
            took[number] = took.get(number, 0.0) + max(0.0, min(end, finish) - max(start, begin))
        if not took:
            return default
        number, most = max(took.items(), key=lambda item: item[1])
        text = texts[number]
        if default == "forward" and (text.startswith("aten::") or most < 0.6 * sum(took.values())):
            return default
        return text.removeprefix("aten::")

    return name


def _gpu(view: TraceView) -> list[TimelineLane]:
    """GPU compute, communication and copies within the window."""
    rows = (("GPU compute", "compute", (ActivityKind.COMPUTE,)), ("GPU comm", "comm", (ActivityKind.COMM,)),
            ("GPU copy", "copy", (ActivityKind.TO_DEVICE, ActivityKind.TO_HOST, ActivityKind.COPY,
                                  ActivityKind.SET)))  # fmt: skip
    found, activity = view.found, view.trace.activity
    kinds = activity.names.meanings
    made = []
    for title, kind, wanted in rows:
        inside = array("I", (index for index in found.inside if kinds[activity.name[index]] in wanted))
        spans = Spans()
        for index in inside:
            spans.add(activity.start[index], activity.start[index] + activity.took[index])
        if inside:
            made.append(TimelineLane(title, (SpanTrack(kind, spans, _kernels(view, inside)),), gpu=True))
    return made


def _kernels(view: TraceView, inside: Sequence[int]) -> Callable[[float, float], str]:
    """The two kinds of kernels with most time in an interval."""
    activity = view.trace.activity
    starts = array("d", (activity.start[index] for index in inside))

    def name(start: float, end: float) -> str:
        first, last = max(0, bisect_left(starts, start) - 1), bisect_left(starts, end)
        took: dict[str, float] = {}
        for place in range(first, last, 1 + (last - first) // _SAMPLE):
            index = inside[place]
            text = family(activity.names.texts[activity.name[index]])
            took[text] = took.get(text, 0.0) + activity.took[index]
        return " ".join(sorted(took, key=lambda text: -took[text])[:2])

    return name


def family(name: str) -> str:
    """A kernel or copy in one word: gemm, attn, all_reduce, HtoD."""
    if match := _COLLECTIVE.search(name):
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", match[1]).lower()
    if name.startswith(("Memcpy", "Memset")):
        return name.removeprefix("Memcpy ").partition(" ")[0]
    for text, pattern in _FAMILIES:
        if pattern.search(name):
            return text
    return name.removeprefix("void ").partition("<")[0].rpartition("::")[2][:24] or name[:24]

"""CPU activity of a trace: operators, annotations and Python functions, aggregated as they arrive.

Kineto writes the spans of a thread by start time, so one stack per thread gives self times. Of spans with equal starts
the longer one comes first, then the step, then the lower id: a file in another order is sorted.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

from gputop.safe.text import clean
from gputop.trace.gpu import LOW, duration
from gputop.trace.intervals import Spans, order, union
from gputop.trace.names import COMPILES, COMPUTES, Names, SpanMeaning, is_region, mark

MOST_OUTER = 100_000


class OutermostSpans:
    """The outermost spans: starts and durations in microseconds in file order; the shortest are dropped first."""

    def __init__(self) -> None:
        self.start, self.took = array("d"), array("f")
        self.name, self.thread = array("I"), array("H")
        self.shortest_us = 0.0  # shorter ones are dropped

    def __len__(self) -> int:
        return len(self.start)

    def add(self, thread: int, start: float, took: float, name: int) -> None:
        """Add a span."""
        if took < self.shortest_us:
            return
        self.start.append(start)
        self.took.append(took)
        self.name.append(name)
        self.thread.append(thread)
        if len(self.start) >= MOST_OUTER:
            self._drop_short()

    def _drop_short(self) -> None:
        """Drop the shorter half."""
        self.shortest_us = max(sorted(self.took)[len(self.took) // 2], 2 * self.shortest_us)
        kept = [place for place, took in enumerate(self.took) if took > self.shortest_us]
        self.start = array("d", (self.start[place] for place in kept))
        self.name = array("I", (self.name[place] for place in kept))
        self.thread = array("H", (self.thread[place] for place in kept))
        self.took = array("f", (self.took[place] for place in kept))


MOST_PATHS = 60_000  # call paths; below one without space, time counts as its own
NAME_BITS = 17  # more than there are names


class Nesting:
    """Call paths as numbers: parent, name and self time (microseconds) of each.

    `known` maps parent and name, combined into one number, to a path.
    """

    def __init__(self) -> None:
        self.parent, self.name = array("i"), array("I")
        self.self_us = array("d")
        self.known: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.name)

    def root(self) -> int:
        """A new tree; its name has no meaning."""
        return self._new(-1, 0)

    def add(self, parent: int, name: int) -> int:
        """The path of a call that is not known yet; the parent's own if there is no space."""
        if len(self.name) >= MOST_PATHS:
            return parent
        found = self.known[parent << NAME_BITS | name] = self._new(parent, name)
        return found

    def totals(self) -> array[float]:
        """Total time of each path, including its callees."""
        totals = array("d", self.self_us)
        for path in range(len(totals) - 1, -1, -1):  # a parent precedes its children
            if self.parent[path] >= 0:
                totals[self.parent[path]] += totals[path]
        return totals

    def _new(self, parent: int, name: int) -> int:
        self.parent.append(parent)
        self.name.append(name)
        self.self_us.append(0.0)
        return len(self.name) - 1


MOST_SHAPES = 20_000
LONGEST_SHAPE = 600
MOST_OPS = 1_500_000  # shapes distinguished for GPU time
MOST_SPANS = 200_000  # of one kind
MOST_THREADS = 4_096
# raised by an event of an unexpected structure
ODD = (TypeError, ValueError, KeyError, AttributeError, OverflowError, RecursionError)
MOST_REGIONS = 200  # names
MOST_KEPT = 10_000_000  # spans that can be sorted, of 33 bytes each
# step ends, and the phases that launch kernels: kept in full even if only a part of the trace counts
_KEPT = (
    SpanMeaning.STEP,
    SpanMeaning.OPTIMIZER,
    SpanMeaning.DATA,
    SpanMeaning.ZERO_GRAD,
    SpanMeaning.BACKWARD,
    SpanMeaning.FORWARD,
)
_ROUNDED_US = 1.0  # tolerance between the ends of nested spans
_BREATH_US = 50.0  # between two functions of one backward pass, or two operators
Span = tuple[float, float, int]  # start, duration, name; the thread instead of the name for spans kept by name
Shape = tuple[int, str, str]  # name of the operator, dims of its inputs, their types


class ThreadTimes:
    """One thread: totals, and its stack of open spans.

    Its Python functions form a separate thread: Kineto writes them after its operators.
    """

    __slots__ = (
        "backward", "base", "computing", "covered_us", "fresh", "functions", "last", "last_event", "last_took", "marks",
        "number", "open", "pid", "python", "root", "tid",
    )  # fmt: skip

    def __init__(self, key: tuple[Any, Any, int], number: int, root: int) -> None:
        self.pid, self.tid, self.python = key
        self.number = number
        self.root = root  # of its call paths
        self.base: list[Any] = [0, 0.0, math.inf, 0.0, SpanMeaning.NONE, root, 0]  # the parent of all its spans
        self.covered_us = 0.0  # in any span
        self.marks = 0  # steps, batches and optimizer steps: these identify the training thread
        self.functions = 0  # of the backward pass
        self.open: list[list[Any]] = []  # name, start, end, time in children, meaning, call path, enclosing spans
        self.last = -math.inf  # start of the previous span
        self.last_took, self.last_event = 0.0, dict[str, Any]()
        self.fresh = False  # the previous operator created numbers
        self.backward = Spans()
        self.computing = Spans()  # in ATen operators, whatever encloses them


def _id(event: dict[str, Any]) -> int:
    """The number that orders spans by entry; 0 is none."""
    args = event.get("args")
    if not isinstance(args, dict):
        return 0
    number = args.get("External id", args.get("external id", args.get("Python id")))
    return number if type(number) is int and 0 <= number < 1 << 63 else 0


class SpanStore:
    """Spans in any order, in little memory."""

    def __init__(self) -> None:
        self.start, self.took = array("d"), array("d")
        self.name, self.thread, self.id = array("I"), array("H"), array("Q")
        self.annotation, self.region = array("b"), array("b")

    def __len__(self) -> int:
        return len(self.start)

    def add(
        self, thread: int, start: float, took: float, name: int, number: int, *, annotation: bool, region: bool
    ) -> None:
        """Add a span."""
        self.thread.append(thread)
        self.start.append(start)
        self.took.append(took)
        self.name.append(name)
        self.id.append(number)
        self.annotation.append(annotation)
        self.region.append(region)

    def sorted(self, inner: Callable[..., tuple[Any, ...]]) -> Iterator[int]:
        """Indices by start; of one thread's spans with equal starts the outermost first."""

        def rank(at: int) -> tuple[Any, ...]:
            within = inner(self.name[at], self.id[at], annotation=bool(self.annotation[at]))
            return self.thread[at], -self.took[at], *within

        for _, together in groupby(order(self.start), key=self.start.__getitem__):
            places = list(together)
            yield from sorted(places, key=rank) if len(places) > 1 else places


class HostTimes:
    """Times by name, and the spans with a meaning."""

    def __init__(self) -> None:
        self.names = Names(mark)
        self.count, self.total_us, self.self_us = array("Q"), array("d"), array("d")  # by name
        self.python = array("b")  # by name: 1 for Python functions
        self._computes = array("b")  # by name: 1 for ATen operators, forward and backward
        self._compiles = array("b")  # by name: 1 for parts of torch.compile
        self._may_be_region = array("b")  # by name: an annotation of it comes from the program (record_function)
        self._may_be_old_region = array("b")  # the same for old Kineto, where these are among the operators
        self.spans: dict[int, list[Span]] = {kind: [] for kind in SpanMeaning}
        self.backward = Spans()
        self.op_id, self.op_shape = array("I"), array("I")
        self.shapes: list[Shape] = []
        self.reads, self.read_took = array("d"), array("d")  # reads of a single number from the GPU
        self.once_at, self.once_took = array("d"), array("d")  # compilations
        self.made = Spans()  # copies of data just created on the CPU
        self._made_at, self._made_took = array("d"), array("d")
        self.zeroed = self.nan_checks = self.functions = 0  # gradient zeroing; checks; backward functions
        self.disorder = self.dropped = 0
        self.first_start, self.last_end = math.inf, -math.inf
        self.nesting, self.outer = Nesting(), OutermostSpans()
        self.python_spans = OutermostSpans()  # spans of Python functions, the longest ones
        self.regions: dict[int, list[Span]] = {}  # annotations of the program, each with its thread
        self.thread_names: dict[tuple[Any, Any], str] = {}
        self._threads: dict[tuple[Any, Any, int], ThreadTimes] = {}
        self._within = (-math.inf, math.inf)  # only the part of spans within it counts
        self._kept: SpanStore | None = None  # for sorting, if required
        self._shapes: dict[Shape | int, int] = {}  # an operator without dims by its name alone
        self._step = -1  # the common name of all steps in call paths

    def restrict(self, start: float, end: float) -> None:
        """Restrict the totals to this interval; step ends outside it are still recorded."""
        self._within = start, end

    @property
    def counted(self) -> tuple[float, float] | None:
        """The interval that counts, if it is only a part of the trace."""
        return None if math.isinf(self._within[0]) else self._within

    def store_unsorted(self) -> None:
        """Accept spans in any order: they are stored and sorted."""
        self._kept = SpanStore()

    def add(self, event: dict[str, Any], start: float) -> None:
        """Add a span with a start time in our time base."""
        took, name, kind = duration(event), self.names.number(event["name"]), event.get("cat")
        python = kind == "python_function"
        if len(self.count) <= name:
            self._named(self.names.texts[name], self.names.meanings[name], python=python)
        elif self.python[name] and not python:
            self.python[name] = 0
        key = event.get("pid"), event.get("tid"), int(python)
        thread = self._threads.get(key) or self._thread(key)
        if thread is None:
            return
        region = (kind == "user_annotation" and self._may_be_region[name] > 0) or (
            kind == "Operator" and self._may_be_old_region[name] > 0
        )
        if self._kept is not None:
            if len(self._kept) >= MOST_KEPT:
                self.dropped += 1
                return
            self._kept.add(
                thread.number, start, took, name, _id(event), annotation=kind == "user_annotation", region=region
            )
        else:
            if start <= thread.last:
                self.disorder += start < thread.last or (
                    self._rank(took, name, event) < self._rank(thread.last_took, None, thread.last_event)
                )
            thread.last, thread.last_took, thread.last_event = start, took, event
            self._fold(thread, start, took, name, region=region)
        if not python:
            self._shape(event.get("args"), name)

    def _rank(self, took: float, name: int | None, event: dict[str, Any]) -> tuple[Any, ...]:
        """Sort key for spans of a thread with equal starts."""
        number = self.names.number(event["name"]) if name is None else name
        return (-took, *self._inner(number, _id(event), annotation=event.get("cat") == "user_annotation"))

    def _inner(self, name: int, number: int, *, annotation: bool) -> tuple[Any, ...]:
        """Sort key for nested spans with equal times: the step, then the order of entry."""
        return self.names.meanings[name] != SpanMeaning.STEP, number, not annotation, self.names.texts[name]

    def _fold(self, thread: ThreadTimes, start: float, took: float, name: int, *, region: bool) -> None:
        """Process the next span of a thread."""
        meaning = self.names.meanings[name]
        if self._compiles[name] and len(self.once_at) < MOST_SPANS:
            self.once_at.append(start)
            self.once_took.append(took)
        begin, stop = self._within
        whole = start, took
        if start < begin or start + took > stop:
            took, start = min(start + took, stop) - max(start, begin), max(start, begin)
            if meaning in _KEPT or region:
                self._keep_outside(thread, meaning, (*whole, name), region=region)
                meaning, region = SpanMeaning.NONE, False
            if took <= 0:
                return
        opened, end = thread.open, start + took
        while opened and opened[-1][2] <= start:
            self._close(opened)
        if meaning:
            self._mark(meaning, (start, took, name), thread)
        elif not thread.python:
            thread.fresh = False
        if end > self.last_end:
            self.last_end = end
        if start < self.first_start:
            self.first_start = start
        self._open(thread, name, start, end, meaning)
        if self._computes[name] and len(thread.computing) < MOST_SPANS:
            thread.computing.add(start, end, within=_BREATH_US)
        if region:
            self._region(name, start, took, thread)
        self.count[name] += 1
        self.total_us[name] += took

    def _open(self, thread: ThreadTimes, name: int, start: float, end: float, meaning: int) -> None:
        """Open a span inside the open ones, or after them."""
        opened = thread.open
        if opened:
            above = opened[-1]
            until = above[2]
            above[3] += (end if end < until else until) - start
            if until + _ROUNDED_US < end:
                # a step may begin before the last call of the previous one has ended, and is not part of it
                above = next((each for each in reversed(opened) if each[2] + _ROUNDED_US >= end), thread.base)
        else:
            above = thread.base
            thread.covered_us += end - start
        path, around = above[5], above[6]
        called = name
        if meaning == SpanMeaning.STEP:
            called = self._step = name if self._step < 0 else self._step
        elif thread.python:
            self.python_spans.add(thread.number, start, end - start, name)
        else:
            if not around:
                self.outer.add(thread.number, start, end - start, name)
            around += 1
        at = self.nesting.known.get(path << NAME_BITS | called)
        if at is None:
            at = self.nesting.add(path, called)
        opened.append([name, start, end, 0.0, meaning, at, around])

    def drop_steps_without_length(self) -> int:
        """Drop steps with no length left by rounding, far from the first event; return their number."""
        steps = self.spans[SpanMeaning.STEP]
        self.spans[SpanMeaning.STEP] = [(start, took, name) for start, took, name in steps if start + took > start]
        return len(steps) - len(self.spans[SpanMeaning.STEP])

    @property
    def threads(self) -> tuple[ThreadTimes, ...]:
        """Every thread, by its number."""
        return tuple(self._threads.values())

    def add_name(self, event: dict[str, Any]) -> None:
        """Record a thread's name."""
        if len(self.thread_names) < MOST_THREADS:
            self.thread_names[event.get("pid"), event.get("tid")] = clean(str(event["args"]["name"]), 80)

    def finish(self) -> None:
        """Close all open spans at the end."""
        kept, self._kept = self._kept, None
        threads = self.threads
        for at in kept.sorted(self._inner) if kept else ():
            name = kept.name[at]  # type: ignore[union-attr]
            self._fold(threads[kept.thread[at]], kept.start[at], kept.took[at], name, region=bool(kept.region[at]))  # type: ignore[union-attr]
        for thread in self._threads.values():
            while thread.open:
                self._close(thread.open)
        starts, took = array("d"), array("d")
        for thread in self._threads.values():
            for start, end in thread.backward:
                starts.append(start)
                took.append(end - start)
        self.backward = union(starts, took)
        self.made = union(self._made_at, self._made_took)

    def _thread(self, key: tuple[Any, Any, int]) -> ThreadTimes | None:
        if len(self._threads) >= MOST_THREADS:
            self.dropped += 1
            return None
        number = len(self._threads)
        return self._threads.setdefault(key, ThreadTimes(key, number, self.nesting.root()))

    def _named(self, text: str, meaning: int, *, python: bool) -> None:
        self.count.append(0)
        self.total_us.append(0.0)
        self.self_us.append(0.0)
        self.python.append(python)
        self._computes.append(COMPUTES.match(text) is not None)
        self._compiles.append(text.endswith(COMPILES))
        self._may_be_region.append(is_region(text, meaning))
        self._may_be_old_region.append(is_region(text, meaning, old=True))

    def _keep_outside(self, thread: ThreadTimes, meaning: int, span: Span, *, region: bool) -> None:
        """Keep a phase or region that is partly outside the interval: its kernels may run inside."""
        start, took, name = span
        if region:
            self._region(name, start, took, thread)
        if meaning == SpanMeaning.BACKWARD:
            if len(thread.backward) < MOST_SPANS:
                thread.backward.add(start, start + took, within=_BREATH_US)
        elif meaning in _KEPT and len(self.spans[meaning]) < MOST_SPANS:
            self.spans[meaning].append(span)

    def _region(self, name: int, start: float, took: float, thread: ThreadTimes) -> None:
        if name not in self.regions and len(self.regions) >= MOST_REGIONS:
            return
        spans = self.regions.setdefault(name, [])
        if len(spans) < MOST_SPANS:
            spans.append((start, took, thread.number))

    def _close(self, opened: list[list[Any]]) -> None:
        name, start, end, inner, _, path, _ = opened.pop()
        own = end - start - inner
        if own > 0:
            self.self_us[name] += own
            self.nesting.self_us[path] += own

    def _mark(self, meaning: int, span: Span, thread: ThreadTimes) -> None:
        """Record the meaning of a span beyond its time."""
        start, took, _ = span
        if meaning in (SpanMeaning.STEP, SpanMeaning.DATA, SpanMeaning.OPTIMIZER):
            thread.marks += 1
        if meaning == SpanMeaning.MOVE:
            if thread.fresh and len(self._made_at) < MOST_SPANS:
                self._made_at.append(start)
                self._made_took.append(took)
        elif meaning == SpanMeaning.READ:
            if len(self.reads) < MOST_SPANS:
                self.reads.append(start)
                self.read_took.append(took)
            else:
                self.dropped += 1
        elif meaning == SpanMeaning.NAN_CHECK:
            self.nan_checks += 1
        elif meaning == SpanMeaning.BACKWARD:
            self.functions += 1
            thread.functions += 1
            if not any(entry[4] == SpanMeaning.BACKWARD for entry in thread.open) and len(thread.backward) < MOST_SPANS:
                thread.backward.add(start, start + took, within=_BREATH_US)
        elif meaning in (SpanMeaning.ZERO, SpanMeaning.CREATE):
            self.zeroed += meaning == SpanMeaning.ZERO and any(
                entry[4] == SpanMeaning.ZERO_GRAD for entry in thread.open
            )
        elif len(self.spans[meaning]) < MOST_SPANS:
            self.spans[meaning].append(span)
        else:
            self.dropped += 1
        thread.fresh = meaning in (SpanMeaning.ZERO, SpanMeaning.CREATE)

    def _shape(self, args: Any, name: int) -> None:
        """Store an operator's input shapes by id, for the kernels that refer to it."""
        if not isinstance(args, dict):
            return
        number = args.get("External id", args.get("external id"))
        if type(number) is not int or len(self.op_id) >= MOST_OPS:
            return
        dims = args.get("Input Dims")
        shape = (name, str(dims), str(args.get("Input type"))) if dims else name
        found = self._shapes.get(shape)
        if found is None:
            entry = (name, "", "") if isinstance(shape, int) else shape
            if len(self.shapes) >= MOST_SHAPES or len(entry[1]) + len(entry[2]) > LONGEST_SHAPE:
                return
            found = self._shapes[shape] = len(self.shapes)
            self.shapes.append((name, clean(entry[1]), clean(entry[2])))
        self.op_id.append(number & LOW)
        self.op_shape.append(found)

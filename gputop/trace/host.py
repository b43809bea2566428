"""What ran on the CPU of a trace: operators, annotations and Python functions, folded while they arrive.

Kineto writes the spans of a thread in the order of their starts, so that one stack a thread gives self times.
"""

from __future__ import annotations

import math
from array import array
from typing import Any

from gputop.safe.text import clean
from gputop.trace.gpu import LOW, duration
from gputop.trace.intervals import Spans, union
from gputop.trace.names import Mark, Names, is_region, mark
from gputop.trace.nesting import NAME_BITS, Nesting
from gputop.trace.outer import Outer

MOST_SHAPES = 20_000
LONGEST_SHAPE = 600
MOST_OPS = 1_500_000  # whose GPU time can be told apart by shape
MOST_SPANS = 200_000  # of one kind
MOST_THREADS = 4_096
# what an event of a shape that nobody foresaw raises
ODD = (TypeError, ValueError, KeyError, AttributeError, OverflowError, RecursionError)
MOST_REGIONS = 200  # names
MOST_KEPT = 500_000  # spans that can be sorted
_ENDS = (Mark.STEP, Mark.OPTIMIZER)  # what says where steps end
_ROUNDED_US = 1.0  # spans within each other may end so far apart
_BREATH_US = 50.0  # between two functions of one backward pass
Span = tuple[float, float, int]  # start, duration, name
Shape = tuple[int, str, str]  # name of the operator, dims of its inputs, their types


class Thread:
    """One thread: what was seen of it, and its spans that are open, innermost last.

    Its Python functions are a thread of their own: Kineto writes them after its operators.
    """

    __slots__ = (
        "backward", "base", "covered_us", "fresh", "functions", "last", "marks", "number", "open", "pid", "python",
        "root", "tid",
    )  # fmt: skip

    def __init__(self, key: tuple[Any, Any, int], number: int, root: int) -> None:
        self.pid, self.tid, self.python = key
        self.number = number
        self.root = root  # of its call paths
        self.base: list[Any] = [0, 0.0, math.inf, 0.0, Mark.NONE, root, 0]  # what is around all of its spans
        self.covered_us = 0.0  # in any span
        self.marks = 0  # steps, batches and optimizer steps: the thread that trains has them
        self.functions = 0  # of the backward pass
        self.open: list[list[Any]] = []  # name, start, end, time in spans within, meaning, call path, spans around
        self.last = -math.inf  # start of the span before
        self.fresh = False  # the operator before made numbers
        self.backward = Spans()


class Host:
    """Times by name, and the spans that mean something."""

    def __init__(self) -> None:
        self.names = Names(mark)
        self.count, self.total_us, self.self_us = array("Q"), array("d"), array("d")  # by name
        self.python = array("b")  # by name: 1 for Python functions
        self.named_by_user = array("b")  # by name: 1 for regions of the program itself (record_function)
        self.spans: dict[int, list[Span]] = {kind: [] for kind in Mark}
        self.backward = Spans()
        self.op_id, self.op_shape = array("I"), array("I")
        self.shapes: list[Shape] = []
        self.reads, self.read_took = array("d"), array("d")  # when the host asked for one number of the GPU
        self.made = Spans()  # copies of what was just made on the CPU
        self.zeroed = self.nan_checks = self.functions = 0  # gradients set to zero; checks; functions of backward
        self.disorder = self.dropped = 0
        self.first_start, self.last_end = math.inf, -math.inf
        self.nesting, self.outer = Nesting(), Outer()
        self.python_spans = Outer()  # when each Python function ran, those that took longest
        self.regions: dict[int, list[tuple[float, float]]] = {}  # start and duration of what the program named itself
        self.thread_names: dict[tuple[Any, Any], str] = {}
        self._threads: dict[tuple[Any, Any, int], Thread] = {}
        self._within = (-math.inf, math.inf)  # spans are counted for what of them lies in there
        self._kept: list[tuple[float, float, int, dict[str, Any]]] | None = None  # to be sorted, if it must be
        self._shapes: dict[Shape | int, int] = {}  # an operator without dims by its name alone
        self._step = -1  # the name that all steps have in call paths

    def only(self, start: float, end: float) -> None:
        """Count what lies between these times and nothing else; where steps end is taken in all the same."""
        self._within = start, end

    def keep(self) -> None:
        """Take spans in any order: they are kept and sorted, which a large trace has no memory for."""
        self._kept = []

    def take(self, event: dict[str, Any], start: float) -> None:
        """One span that begins at a time of ours."""
        if self._kept is None:
            self._take(event, start)
        elif len(self._kept) < MOST_KEPT:
            # of two that begin together the longer one is around the other
            self._kept.append((start, -duration(event), len(self._kept), event))
        else:
            self.dropped += 1

    def _take(self, event: dict[str, Any], start: float) -> None:
        took, name = duration(event), self.names.number(event["name"])
        if len(self.count) <= name:
            self._named(event.get("cat"), self.names.texts[name], self.names.meanings[name])
        meaning = self.names.meanings[name]
        begin, stop = self._within
        if start < begin or start + took > stop:
            if meaning in _ENDS and len(self.spans[meaning]) < MOST_SPANS:
                self.spans[meaning].append((start, took, name))
                meaning = Mark.NONE
            took, start = min(start + took, stop) - max(start, begin), max(start, begin)
            if took <= 0:
                return
        key = event.get("pid"), event.get("tid"), self.python[name]
        thread = self._threads.get(key) or self._thread(key)
        if thread is None:
            return
        if start < thread.last:
            self.disorder += 1
        thread.last = start
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
        if self.named_by_user[name]:
            self._region(name, start, took)
        self.count[name] += 1
        self.total_us[name] += took
        if not thread.python and event.get("args"):
            self._shape(event["args"], name)

    def _open(self, thread: Thread, name: int, start: float, end: float, meaning: int) -> None:
        """A span within those that are open, or beside them."""
        opened = thread.open
        if opened:
            above = opened[-1]
            until = above[2]
            above[3] += (end if end < until else until) - start
            if until + _ROUNDED_US < end:
                # a step may begin before the last call of the one before it has ended, and is no part of that
                above = next((each for each in reversed(opened) if each[2] + _ROUNDED_US >= end), thread.base)
        else:
            above = thread.base
            thread.covered_us += end - start
        path, around = above[5], above[6]
        called = name
        if meaning == Mark.STEP:
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
        """Leave out steps whose length vanishes in the numbers of a time far from the first event; how many."""
        steps = self.spans[Mark.STEP]
        self.spans[Mark.STEP] = [(start, took, name) for start, took, name in steps if start + took > start]
        return len(steps) - len(self.spans[Mark.STEP])

    @property
    def threads(self) -> tuple[Thread, ...]:
        """Every thread, by its number."""
        return tuple(self._threads.values())

    def take_name(self, event: dict[str, Any]) -> None:
        """The name of a thread."""
        if len(self.thread_names) < MOST_THREADS:
            self.thread_names[event.get("pid"), event.get("tid")] = clean(str(event["args"]["name"]), 80)

    def finish(self) -> int:
        """Close what is open: no more spans come. How many of those that were kept make no sense."""
        kept, self._kept = self._kept, None
        odd = 0
        for start, _, _, event in sorted(kept or (), key=lambda one: one[:3]):
            try:
                self._take(event, start)
            except ODD:
                odd += 1
        for thread in self._threads.values():
            while thread.open:
                self._close(thread.open)
        starts, took = array("d"), array("d")
        for thread in self._threads.values():
            for start, end in thread.backward:
                starts.append(start)
                took.append(end - start)
        self.backward = union(starts, took)
        return odd

    def _thread(self, key: tuple[Any, Any, int]) -> Thread | None:
        if len(self._threads) >= MOST_THREADS:
            self.dropped += 1
            return None
        number = len(self._threads)
        return self._threads.setdefault(key, Thread(key, number, self.nesting.root()))

    def _named(self, kind: Any, text: str, meaning: int) -> None:
        self.count.append(0)
        self.total_us.append(0.0)
        self.self_us.append(0.0)
        self.python.append(kind == "python_function")
        self.named_by_user.append(kind == "user_annotation" and is_region(text, meaning))

    def _region(self, name: int, start: float, took: float) -> None:
        if name not in self.regions and len(self.regions) >= MOST_REGIONS:
            return
        spans = self.regions.setdefault(name, [])
        if len(spans) < MOST_SPANS:
            spans.append((start, took))

    def _close(self, opened: list[list[Any]]) -> None:
        name, start, end, inner, _, path, _ = opened.pop()
        own = end - start - inner
        if own > 0:
            self.self_us[name] += own
            self.nesting.self_us[path] += own

    def _mark(self, meaning: int, span: Span, thread: Thread) -> None:
        """What one span means beyond its time."""
        start, took, _ = span
        if meaning in (Mark.STEP, Mark.DATA, Mark.OPTIMIZER):
            thread.marks += 1
        if meaning == Mark.MOVE:
            if thread.fresh and len(self.made) < MOST_SPANS:
                self.made.add(start, start + took)
        elif meaning == Mark.READ:
            if len(self.reads) < MOST_SPANS:
                self.reads.append(start)
                self.read_took.append(took)
        elif meaning == Mark.NAN_CHECK:
            self.nan_checks += 1
        elif meaning == Mark.BACKWARD:
            self.functions += 1
            thread.functions += 1
            if not any(entry[4] == Mark.BACKWARD for entry in thread.open) and len(thread.backward) < MOST_SPANS:
                thread.backward.add(start, start + took, within=_BREATH_US)
        elif meaning in (Mark.ZERO, Mark.CREATE):
            self.zeroed += meaning == Mark.ZERO and any(entry[4] == Mark.ZERO_GRAD for entry in thread.open)
        elif len(self.spans[meaning]) < MOST_SPANS:
            self.spans[meaning].append(span)
        else:
            self.dropped += 1
        thread.fresh = meaning in (Mark.ZERO, Mark.CREATE)

    def _shape(self, args: dict[str, Any], name: int) -> None:
        """Remember an operator and the shapes of its inputs by its id, for the kernels that name it."""
        number = args.get("External id", args.get("external id"))
        if type(number) is not int or len(self.op_id) >= MOST_OPS:
            return
        dims = args.get("Input Dims")
        shape = (name, str(dims), str(args.get("Input type"))) if dims else name
        found = self._shapes.get(shape)
        if found is None:
            told = (name, "", "") if isinstance(shape, int) else shape
            if len(self.shapes) >= MOST_SHAPES or len(told[1]) + len(told[2]) > LONGEST_SHAPE:
                return
            found = self._shapes[shape] = len(self.shapes)
            self.shapes.append((name, clean(told[1]), clean(told[2])))
        self.op_id.append(number & LOW)
        self.op_shape.append(found)

"""What ran on the CPU of a trace: operators, annotations and Python functions, folded while they arrive.

Kineto writes the spans of a thread in the order of their starts, so that one stack a thread gives self times.
"""

from __future__ import annotations

from array import array
from typing import Any

from gputop.safe.text import clean
from gputop.trace.gpu import LOW, duration
from gputop.trace.intervals import Spans, union
from gputop.trace.names import Mark, Names, mark

MOST_SHAPES = 20_000
LONGEST_SHAPE = 600
MOST_OPS = 1_500_000  # whose GPU time can be told apart by shape
MOST_SPANS = 200_000  # of one kind
MOST_THREADS = 4_096
_BREATH_US = 50.0  # between two functions of one backward pass
Span = tuple[float, float, int]  # start, duration, name
Shape = tuple[int, str, str]  # name of the operator, dims of its inputs, their types


class Thread:
    """The spans of one thread that are open, innermost last."""

    __slots__ = ("backward", "fresh", "last", "open")

    def __init__(self) -> None:
        self.open: list[list[Any]] = []  # name, start, end, time in spans within, meaning
        self.last = 0.0  # start of the span before
        self.fresh = False  # the operator before made numbers
        self.backward = Spans()


class Host:
    """Times by name, and the spans that mean something."""

    def __init__(self) -> None:
        self.names = Names(mark)
        self.count, self.total_us, self.self_us = array("Q"), array("d"), array("d")  # by name
        self.python = array("b")  # by name: 1 for Python functions
        self.spans: dict[int, list[Span]] = {kind: [] for kind in Mark}
        self.backward = Spans()
        self.op_id, self.op_shape = array("I"), array("I")
        self.shapes: list[Shape] = []
        self.reads, self.read_took = array("d"), array("d")  # when the host asked for one number of the GPU
        self.made = Spans()  # copies of what was just made on the CPU
        self.zeroed = self.nan_checks = self.functions = 0  # gradients set to zero; checks; functions of backward
        self.disorder = self.dropped = 0
        self.last_end = 0.0
        self._threads: dict[tuple[Any, Any], Thread] = {}
        self._shapes: dict[Shape, int] = {}

    def take(self, event: dict[str, Any], start: float) -> None:
        """One span that begins at a time of ours."""
        took, name = duration(event), self.names.number(event["name"])
        if len(self.count) <= name:
            self._named(event.get("cat") == "python_function")
        key = event.get("pid"), event.get("tid")
        thread = self._threads.get(key) or self._thread(key)
        if thread is None:
            return
        if start < thread.last:
            self.disorder += 1
        thread.last = start
        opened = thread.open
        while opened and opened[-1][2] <= start:
            self._close(opened)
        if opened:
            opened[-1][3] += took
        meaning = self.names.meanings[name]
        if meaning:
            self._mark(meaning, (start, took, name), thread)
        elif not self.python[name]:
            thread.fresh = False
        end = start + took
        if end > self.last_end:
            self.last_end = end
        opened.append([name, start, end, 0.0, meaning])
        self.count[name] += 1
        self.total_us[name] += took
        if event.get("args") and not self.python[name]:
            self._shape(event["args"], name)

    def finish(self) -> None:
        """Close what is open: no more spans come."""
        for thread in self._threads.values():
            while thread.open:
                self._close(thread.open)
        starts, took = array("d"), array("d")
        for thread in self._threads.values():
            for start, end in thread.backward:
                starts.append(start)
                took.append(end - start)
        self.backward = union(starts, took)

    def _thread(self, key: tuple[Any, Any]) -> Thread | None:
        if len(self._threads) >= MOST_THREADS:
            self.dropped += 1
            return None
        return self._threads.setdefault(key, Thread())

    def _named(self, python: bool) -> None:
        self.count.append(0)
        self.total_us.append(0.0)
        self.self_us.append(0.0)
        self.python.append(python)

    def _close(self, opened: list[list[Any]]) -> None:
        name, start, end, inner, _ = opened.pop()
        self.self_us[name] += max(0.0, end - start - inner)

    def _mark(self, meaning: int, span: Span, thread: Thread) -> None:
        """What one span means beyond its time."""
        start, took, _ = span
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
        shape = (name, str(dims), str(args.get("Input type"))) if dims else (name, "", "")
        found = self._shapes.get(shape)
        if found is None:
            if len(self.shapes) >= MOST_SHAPES or len(shape[1]) + len(shape[2]) > LONGEST_SHAPE:
                return
            found = self._shapes[shape] = len(self.shapes)
            self.shapes.append((name, clean(shape[1]), clean(shape[2])))
        self.op_id.append(number & LOW)
        self.op_shape.append(found)

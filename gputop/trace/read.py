"""Reads a trace of torch.profiler or TensorFlow: one pass over its events, of which little is kept."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gputop.declare import record
from gputop.safe.files import Refused
from gputop.safe.text import clean
from gputop.trace.beside import decoded
from gputop.trace.events import EARLY, NoTrace
from gputop.trace.gpu import MOST_DEVICES, Activity, Calls
from gputop.trace.host import ODD, Host
from gputop.trace.memory import Memory
from gputop.trace.steps import window
from gputop.trace.tensorflow import Planes
from gputop.trace.text import Text

_LATEST = 1e18  # microseconds; what is later has been made up
_GPU = ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset")
_CALLS = ("cuda_runtime", "cuda_driver", "Runtime", "hip_runtime", "xpu_runtime")
_SPANS = ("cpu_op", "user_annotation", "python_function", "Operator", "Operation")
# what devices of other kinds do, as Kineto's plug-ins write it; the runtime calls of some are called so too
_ELSEWHERE = re.compile(r"mtia|hpu|xpu|npu|tpu|mps|ipu|privateuse|glow", re.IGNORECASE)
_MOST_KINDS = 100
_BEYOND = 0.02  # of the time of all steps: what lies further before or after them is read once more without it
_PAIRED = 10  # events that begin or end something, from which they are what a file is made of


@record(frozen=True, slots=True, kw_only=True)
class Device:
    """A GPU as the head of a trace describes it; 0 is unknown."""

    index: int
    name: str
    memory_bytes: int = 0
    capability: tuple[int, int] = (0, 0)


class Trace:
    """What one file says. Times are microseconds since its first event."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.size_bytes = 0
        self.activity, self.calls, self.host, self.memory = Activity(), Calls(), Host(), Memory()
        self.devices: tuple[Device, ...] = ()
        self.rank: int | None = None
        self.ranks: int | None = None  # how many there are
        self.backend = ""
        self.origin_us: float | None = None  # the first event, on the clock of the machine
        self.base_ns = 0  # what that clock counts from
        self.events = self.odd = 0
        self._planes = Planes()
        self.notes: list[str] = []
        self.problems: list[str] = []  # what was repaired or left out: said before anything else
        self.whole = True  # all was read: where not, nothing is concluded from what is missing
        self.elsewhere = False  # something ran on an accelerator of another kind, which is not read
        self._texts = 0  # times that are written as text
        self._kinds: Counter[str] = Counter()  # categories of events that are not taken

    def take(self, batch: list[Any]) -> None:
        """Events as they come; what is none is counted."""
        takers = dict.fromkeys(_GPU, self.activity.take)
        takers |= dict.fromkeys(_CALLS, self.calls.take)
        takers |= dict.fromkeys(_SPANS, self.host.take)
        planes = self._planes
        self.events += len(batch)
        for event in filter(None, batch):  # TensorFlow ends with an empty one
            try:
                kind = event["ph"]
                if kind == "X":
                    if planes.gpus and "cat" not in event:
                        event = planes.told(event) or event
                    taker = takers.get(event.get("cat"))
                    if taker:
                        taker(event, self._since(event["ts"]))
                    else:
                        self._other(event)
                elif kind == "i" and event["name"] == "[memory]":
                    self.memory.take(event, self._since(event["ts"]))
                elif kind == "M" and event["name"] == "thread_name":
                    planes.name(event)
                    self.host.take_name(event)
                elif kind == "M" and event["name"] == "process_name":
                    planes.name(event)
                elif kind in ("B", "E"):
                    self._kinds["B/E"] += 1
            except ODD:
                self.odd += 1

    def finish(self, head: dict[str, Any], notes: list[str]) -> None:
        """All events are there: the head of the file, and what went wrong."""
        self.odd += self.host.finish()
        self._head(head)
        self.problems += notes
        self.whole = not any(note.endswith(EARLY) for note in notes)
        found = len(self.activity) or self.host.count or self.calls.count
        if self._planes:
            self.notes.append("TensorFlow or JAX wrote it: what is said and advised is in PyTorch's words")
        elif not found:
            self.whole = False
            pairs = self._kinds["B/E"] >= _PAIRED
            of = (
                "its spans are pairs of begin and end events (B, E), which gputop does not read"
                if pairs
                else ("other programs write such files too")
            )
            self.problems.append(f"nothing in it is of torch.profiler: {of}")
        elif not len(self.activity) and (others := [kind for kind in self._kinds if _ELSEWHERE.search(kind)]):
            self.elsewhere = True
            kinds = ", ".join(sorted(others)[:3])
            self.problems.append(f"what ran on this accelerator is not read ({kinds}): only the CPU is told of")
        if vanished := self.host.drop_steps_without_length():
            self.problems.append(f"{_count(vanished, 'step')} without a length left out")
        if self._texts:
            self.problems.append(f"{_count(self._texts, 'time')} written as text, taken as a number")
        if self.odd:
            self.problems.append(f"{_count(self.odd, 'event')} left out: no sense in them")
        if self.memory.untotalled:
            self.notes.append("its memory events are of an old Kineto, without totals: they are not shown")
        if self.activity.dropped or self.calls.dropped:
            self.whole = False
            self.problems.append("it has more kernels than fit: only the first are looked at; trace fewer steps")

    @property
    def disordered(self) -> bool:
        """Whether the spans of a thread do not come in the order of their starts, as of Kineto before 2022."""
        return self.host.disorder > 10 and self.host.disorder * 100 > sum(self.host.count)

    def _other(self, event: dict[str, Any]) -> None:
        kind = event.get("cat")
        if isinstance(kind, str) and (kind in self._kinds or len(self._kinds) < _MOST_KINDS):
            self._kinds[clean(kind, 40)] += 1

    def _since(self, time: float | str) -> float:
        if isinstance(time, str):
            time = float(time)
            self._texts += 1
        if not -_LATEST < time < _LATEST:
            raise ValueError("a time out of range")
        if self.origin_us is None:
            self.origin_us = float(time)
        return time - self.origin_us

    def _head(self, head: dict[str, Any]) -> None:
        base, about = head.get("baseTimeNanoseconds"), head.get("distributedInfo")
        self.base_ns = base if type(base) is int and 0 <= base < 1 << 63 else 0
        if isinstance(about, dict):
            rank, ranks = about.get("rank"), about.get("world_size")
            self.rank = rank if type(rank) is int and 0 <= rank < 1 << 24 else None
            self.ranks = ranks if type(ranks) is int and 0 < ranks < 1 << 24 else None
            self.backend = clean(str(about.get("backend") or ""), 40)
        listed = head.get("deviceProperties")
        for entry in listed[:MOST_DEVICES] if isinstance(listed, list) else ():
            if isinstance(entry, dict) and type(entry.get("id")) is int:
                self.devices += (_device(entry),)


def _count(number: int, of: str) -> str:
    return f"{number} {of}{'s' * (number != 1)}"


def _device(entry: dict[str, Any]) -> Device:
    def whole(key: str) -> int:
        value = entry.get(key)
        return value if type(value) is int and 0 <= value < 1 << 50 else 0

    return Device(
        index=entry["id"],
        name=clean(str(entry.get("name") or ""), 80),
        memory_bytes=whole("totalGlobalMem"),
        capability=(whole("computeMajor"), whole("computeMinor")),
    )


def read(path: str, progress: Callable[[float], None] | None = None) -> Trace:
    """The trace in a file, plain or packed; Refused says in one line why it is none.

    `progress` is told the share that is read, 0 to 1; what it raises ends the reading. A file is read once more where
    its spans are out of order, to sort them, and where much lies outside of its steps, to leave it out.
    """
    trace = _read(path, progress, Trace(clean(Path(path).name, 200)))
    beyond = _beyond(trace)
    if not trace.disordered and beyond is None:
        return trace
    again = Trace(trace.name)
    if trace.disordered:
        again.host.keep()
    if beyond is not None:
        again.host.only(*beyond)
    again = _read(path, progress, again)
    if trace.disordered:
        again.notes.append("its spans are out of order, as old versions of Kineto wrote them: they were sorted")
    return again


def _beyond(trace: Trace) -> tuple[float, float] | None:
    """The steps of a trace, where much of the CPU lies before or after them: all tables are of the same time."""
    seen, host = window(trace.host, trace.activity), trace.host
    most = _BEYOND * seen.span_us
    if not seen.steps or (host.first_start >= seen.start - most and host.last_end <= seen.end + most):
        return None
    return seen.start, seen.end


def _read(path: str, progress: Callable[[float], None] | None, trace: Trace) -> Trace:
    text = Text(path)
    try:
        events = decoded(text)
        for batch in events.batches():
            trace.take(batch)
            if progress:
                progress(min(1.0, text.read_bytes / text.size_bytes))
        trace.size_bytes = text.size_bytes
        trace.finish(events.head, text.notes + events.notes)
    except NoTrace as reason:
        raise Refused(f"{path}: {reason}: use a trace that torch.profiler wrote") from None
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}: it cannot be read") from None
    finally:
        text.close()
    return trace

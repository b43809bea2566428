"""Read a trace of torch.profiler or TensorFlow in one pass over its events, keeping little."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any

from gputop.frozen_dataclass import frozen_dataclass
from gputop.safe.files import Refused
from gputop.safe.text import clean
from gputop.trace.events import DAMAGED, EARLY, NoTrace, decoded
from gputop.trace.gpu import MOST_DEVICES, Calls, GpuActivity, duration
from gputop.trace.host import ODD, HostTimes
from gputop.trace.intervals import Spans, join, order
from gputop.trace.memory import AllocatorMemory
from gputop.trace.names import ActivityKind, SpanMeaning
from gputop.trace.pairs import PHASES, Pairs
from gputop.trace.steps import window
from gputop.trace.tensorflow import Planes
from gputop.trace.text import Text

_LATEST_LAUNCHES = 100  # launches that show the queue at the end of the trace


def without_kernel(activity: GpuActivity, calls: Calls, last_us: float, begin: float, end: float) -> tuple[int, int]:
    """Number of launches between two times that lack their kernel or copy, and number of all.

    `last_us` is the end of the trace.
    """
    kernel_of = join(calls.id, activity.launch_id, activity.start)
    matched = Counter(calls.name[place] for place, index in enumerate(kernel_of) if index >= 0)
    texts, kinds = calls.names.texts, activity.names.meanings
    # nothing is known without correlation ids; without any kernel, every kernel launch counts
    bare = bool(matched) and not any(
        kinds[name] in (ActivityKind.COMPUTE, ActivityKind.COMM) for name in set(activity.name)
    )
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
        elif start < until and not captured.covers(start) and not _is_other_half(calls, kernel_of, in_order, at):
            launches += 1
            lost += 1
    return lost, launches


def _captured(calls: Calls) -> Spans:
    """Intervals of graph captures, in which launches do not run."""
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
    activity: GpuActivity, calls: Calls, kernel_of: array[int], in_order: Sequence[int], last_us: float
) -> float:
    """Time from which a launch may still be queued, or its kernel running, at the end of the trace."""
    known = (place for place in reversed(in_order) if kernel_of[place] >= 0)
    longest = 0.0
    for place in islice(known, _LATEST_LAUNCHES):
        index = kernel_of[place]
        longest = max(longest, activity.start[index] + activity.took[index] - calls.start[place])
    return last_us - longest


def _is_other_half(calls: Calls, kernel_of: array[int], in_order: Sequence[int], at: int) -> bool:
    """Whether it is the driver part of a runtime call, or the reverse: the kernel refers to only one of both."""
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


_LATEST = 1e18  # microseconds; later times are invented
_GPU = ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset")
_CALLS = ("cuda_runtime", "cuda_driver", "Runtime", "hip_runtime", "xpu_runtime", "overhead")
_SPANS = ("cpu_op", "user_annotation", "python_function", "Operator", "Operation")
_FLOWS = frozenset("stfMC")  # flow arrows and counters may have the category of their subject
# other accelerators, by category and process name; some share the names of runtime calls
_ELSEWHERE = re.compile(
    r"(?<![a-z])(?:mtia|hpu|xpu|npu|tpu|mps|ipu|mlu|privateuse(?:one)?|glow|gaudi|habana|synapse|ascend|cann|neuron(?:core)?|"
    r"trainium|inferentia|cambricon|musa|device:(?!cpu)\w+)(?![a-z])",
    re.IGNORECASE,
)
_A_GPU = re.compile(r"(?<![a-z])gpu(?![a-z])", re.IGNORECASE)
# Kineto's other categories: of the CPU, or duplicates
_KNOWN = frozenset(
    (
        "gpu_user_annotation", "cuda_sync", "cuda_event", "cuda_profiler_range", "trace", "fwdbwd", "ac2g",
        "async_cpu", "async_gpu", "cpu_instant_event", "external_correlation", "hardware_counters", "collective_comm",
        "gpu_pm_counter", "hip_driver", "xpu_driver",
    )
)  # fmt: skip
_ONNX_RUNTIME = frozenset(("Session", "Node"))  # its categories; kernels have the one of old Kineto
_MOST_RECORDINGS = 100
_MOST_KINDS = 1000
_MOST_PROCESSES = 10_000
_BEYOND = 0.02  # of the time a GPU was active: shorter CPU time beside it is reported where no step is marked
_PAIRED = 10  # spans of two events, from which a file consists of them
_MOST_ODD = 0.01  # of CPU spans: above, no conclusions are drawn from the rest
_MOST_LOST = 0.02  # of launches: if more lack a kernel, GPU busy is unknown
_MOST_READS = 4  # of one file
_GRID_US = 2.0**32  # times count from a multiple of it, independent of the first event of the file


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class TraceDevice:
    """A GPU as described in the trace header; 0 is unknown."""

    index: int
    name: str
    memory_bytes: int = 0
    capability: tuple[int, int] = (0, 0)


class Trace:
    """The contents of one file. Times are microseconds since shortly before the first event."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.size_bytes = 0
        self.activity, self.calls, self.host, self.memory = GpuActivity(), Calls(), HostTimes(), AllocatorMemory()
        self.devices: tuple[TraceDevice, ...] = ()
        self.rank: int | None = None
        self.ranks: int | None = None  # number of each
        self.backend = ""
        self.origin_us: float | None = None  # zero of the times on the machine's clock
        self.base_ns = 0  # epoch of that clock
        self.events = self.odd = 0
        self.notes: list[str] = []
        self.problems: list[str] = []  # repairs and omissions: reported first
        self.whole = True  # completely read: otherwise nothing is concluded from what is missing
        self.several = False  # contains more than one recording
        self.missing = False  # some CPU events were omitted
        self.foreign = False  # nothing in it is from a known program
        self.elsewhere = False  # another kind of accelerator was used, which is not read
        self.planes = Planes()
        self.late = False  # process names came after the events they apply to
        self._pairs = Pairs()
        self._texts = 0  # times given as text
        self._bare = False  # an event without a category was seen
        self._odd_gpu = 0  # omitted events that may have been of a GPU
        self._recorded: list[tuple[float, float]] = []  # start and end of Kineto's recording
        self._others: Counter[tuple[str, Any]] = Counter()  # category and process of events not used
        self._processes: dict[Any, list[str]] = {}  # their names and labels
        self._takers = dict.fromkeys(_GPU, self.activity.add)
        self._takers |= dict.fromkeys(_CALLS, self.calls.add)
        self._takers |= dict.fromkeys(_SPANS, self.host.add)

    def add(self, batch: list[Any]) -> None:
        """Add events; invalid ones are counted."""
        span, takers = self._span, self._takers
        self.events += len(batch)
        for event in filter(None, batch):  # TensorFlow ends with an empty one
            try:
                kind = event["ph"]
                if kind == "X":
                    span(event)
                elif kind == "i" and event["name"] == "[memory]":
                    self.memory.add(event, self._since(event["ts"]))
                elif kind == "M":
                    self._name(event)
                elif kind in PHASES:
                    self._pairs.add(event)
                elif kind not in _FLOWS and event.get("cat") in takers:
                    raise ValueError("unknown kind of event")
            except ODD:
                self._add_invalid(event)

    def finish(self, head: dict[str, Any], notes: list[str]) -> None:
        """Complete the trace with the file's header and the reader's notes."""
        for event in self._pairs.spans():
            try:
                self._span(event)
            except ODD:
                self._add_invalid(event)
        self.host.finish()
        self.memory.finish()
        self._head(head)
        self.problems += notes
        self.whole = not any(note.endswith((*EARLY, DAMAGED)) for note in notes)
        self._find_program()
        self._recordings()
        self._report_losses()
        self._kernels_missing()
        if self.memory.untotalled:
            self.notes.append("memory events of an old Kineto have no totals: memory is not shown")

    def _span(self, event: dict[str, Any]) -> None:
        """Add a complete span of any kind."""
        if "cat" not in event:
            self._bare = True
            if self.planes.gpus:
                event = self.planes.converted(event) or event
        taker = self._takers.get(event.get("cat", ""))
        if taker:
            taker(event, self._since(event["ts"]))
        else:
            self._other(event)

    def _name(self, event: dict[str, Any]) -> None:
        """Record the name or labels of a process, or a thread's name."""
        name, pid = event["name"], event.get("pid")
        if name == "process_name" or name == "thread_name":
            known = bool(self.planes)
            self.planes.name(event)
            self.late |= self._bare and (known or bool(self.planes))
        if name == "thread_name":
            self.host.add_name(event)
        elif name in ("process_name", "process_labels") and len(self._processes) < _MOST_PROCESSES:
            text = event["args"]["name" if name == "process_name" else "labels"]
            self._processes.setdefault(pid, []).append(str(text))

    def _add_invalid(self, event: Any) -> None:
        """Record an invalid event: it may have been of a GPU unless it is marked as CPU."""
        self.odd += 1
        kind = event.get("cat") if isinstance(event, dict) else None
        of_cpu = isinstance(kind, str) and (kind in _CALLS or kind in _SPANS or kind.lower() in _KNOWN)
        self._odd_gpu += not of_cpu

    def _find_program(self) -> None:
        """Determine the program that wrote it, and whether its accelerator is supported."""
        found = len(self.activity) or self.host.count or self.calls.count
        others = self._other_accelerators()
        if not self.host.count and not self.calls.count and any(kind in _ONNX_RUNTIME for kind, _ in self._others):
            self.whole, self.foreign = False, True
            self.problems.append("not a torch.profiler trace: written by ONNX Runtime")
        elif self.planes:
            self.notes.append("written by TensorFlow or JAX: verdicts and advice use PyTorch's terms")
        elif not found:
            self.whole, self.foreign = False, not others
            pairs = self._pairs.count + len(self._pairs.single) >= _PAIRED
            of = (
                "its spans are begin/end event pairs (B, E), which gputop does not read"
                if pairs
                else "other programs write this format too"
            )
            self.problems.append(f"not a torch.profiler trace: {of}")
        if others:
            self.elsewhere = not len(self.activity)
            covered = "only the CPU is covered" if self.elsewhere else "only the CPU and the GPUs are covered"
            self.problems.append(f"activity of this accelerator is not read ({', '.join(others[:3])}): {covered}")
        elif found and not len(self.activity):
            self._check_missing_gpu()

    def _recordings(self) -> None:
        """Detect a file concatenated from several recordings: the time between them is not idle time."""
        again, ended = False, inf
        for start, took in sorted(self._recorded):
            again |= start >= ended
            ended = max(start + took, ended if ended < inf else -inf)
        known, ended = set[int](), inf
        for start, took, name in () if self.planes else sorted(self.host.spans[SpanMeaning.STEP]):
            again |= name in known and start > ended  # the same number again, after a pause
            ended = max(start + took, ended if ended < inf else -inf)
            known.add(name)
        if again:
            self.whole, self.several = False, True
            self.problems.append(
                "the file contains several recordings: the time between them would look like idle time"
            )

    def _check_missing_gpu(self) -> None:
        """For a trace without a GPU: whether one was active anyway."""
        kinds = {kind for kind, _ in self._others if kind.lower() not in _KNOWN}
        if kinds:
            self.elsewhere = True
            texts = ", ".join(sorted(kind or "none" for kind in kinds)[:3])
            self.problems.append(
                f"events of unknown categories are not read ({texts}): accelerator activity is unknown"
            )
        elif launched := len(self.calls.start):
            self.elsewhere = True
            self.problems.append(
                f"{_count(launched, 'launch', 'es')} and no kernels in the trace: GPU activity is missing"
            )

    def _other_accelerators(self) -> list[str]:
        """Categories and processes of unsupported accelerators."""
        kinds = {kind for kind, _ in self._others if _ELSEWHERE.search(kind) and kind.lower() not in _KNOWN}
        if len(self.activity):
            return sorted(kind for kind in kinds if not kind.lower().endswith(("runtime", "driver")))
        names = {
            clean(text, 40)
            for kind, pid in self._others
            if kind.lower() not in _KNOWN
            for text in self._processes.get(pid, ())
            if _ELSEWHERE.search(text) or _A_GPU.search(text)
        }
        return sorted(kinds) or sorted(names)

    def _report_losses(self) -> None:
        """Report repairs and omissions, and whether the rest allows conclusions."""
        if vanished := self.host.drop_steps_without_length():
            self.problems.append(f"{_count(vanished, 'step')} without a duration left out")
        if self._texts:
            self.problems.append(f"{_count(self._texts, 'time')} written as text, read as a number")
        if self.activity.texts:
            what = "with GPU, stream or launch written as text, read as a number"
            self.problems.append(f"{_count(self.activity.texts, 'event')} {what}")
        pairs = self._pairs
        if pairs.count and self.whole:
            self.problems.append(f"{_count(pairs.count, 'span')} written as begin/end events (B, E), combined")
        if pairs.single:
            self.problems.append(
                f"{_count(len(pairs.single), 'begin or end event')} left out: the matching event is missing"
            )
            for event in pairs.single:
                self._add_invalid(event)
            self.odd -= len(pairs.single)
        if self.odd:
            self.problems.append(f"{_count(self.odd, 'event')} left out as invalid")
        odd = self.odd + len(pairs.single)
        self.missing = odd > 0
        if self._odd_gpu or odd - self._odd_gpu > _MOST_ODD * (sum(self.host.count) + sum(self.calls.count)):
            self.whole = False
        if self.activity.dropped or self.calls.dropped:
            self.whole = False
            self.problems.append("too many kernels: only the first are read; trace fewer steps")
        if self.host.dropped or pairs.dropped:
            self.whole = False
            self.problems.append("too many CPU spans: only the first are read; trace fewer steps")

    def _kernels_missing(self) -> None:
        """Detect launches without kernels: the profiler lost some GPU activity."""
        if not self.whole or not len(self.activity) or not len(self.calls.start) or self.planes:
            return
        seen = window(self.host, self.activity, self.calls)
        begin, end = (seen.start, seen.end) if seen.steps else (-inf, inf)
        ended = max(start + took for start, took in zip(self.calls.start, self.calls.took, strict=True))
        lost, launches = without_kernel(self.activity, self.calls, max(ended, self.host.last_end), begin, end)
        if lost > _MOST_LOST * launches:
            self.whole = False
            verb = "has" if lost == 1 else "have"
            self.problems.append(f"{lost:,} of {_count(launches, 'launch', 'es')} {verb} no kernel in the trace")

    def _other(self, event: dict[str, Any]) -> None:
        kind, pid = event.get("cat", ""), event.get("pid")
        if kind == "Trace" and "PyTorch Profiler" in event["name"] and len(self._recorded) < _MOST_RECORDINGS:
            self._recorded.append((self._since(event["ts"]), duration(event)))
        key = clean(kind, 40) if isinstance(kind, str) else "", pid if isinstance(pid, (int, str)) else None
        if key in self._others or len(self._others) < _MOST_KINDS:
            self._others[key] += 1

    def _since(self, time: float | str) -> float:
        if isinstance(time, str):
            time = float(time)
            self._texts += 1
        if not -_LATEST < time < _LATEST:
            raise ValueError("a time out of range")
        if self.origin_us is None:
            self.origin_us = _GRID_US * ((time + _GRID_US / 2) // _GRID_US)
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


def _count(number: int, of: str, several: str = "s") -> str:
    return f"{number} {of}{several * (number != 1)}"


def _device(entry: dict[str, Any]) -> TraceDevice:
    def whole(key: str) -> int:
        value = entry.get(key)
        return value if type(value) is int and 0 <= value < 1 << 50 else 0

    return TraceDevice(
        index=entry["id"],
        name=clean(str(entry.get("name") or ""), 80),
        memory_bytes=whole("totalGlobalMem"),
        capability=(whole("computeMajor"), whole("computeMinor")),
    )


def read(path: str, progress: Callable[[float], None] | None = None) -> Trace:
    """The trace in a file, plain or compressed; Refused says in one line why it is not one.

    `progress` is called with the share read (0-1); an exception from it ends reading. The file is read again if spans
    are out of order (to sort them), if names follow the events they apply to, or if there is activity outside the steps
    (to exclude it).
    """
    name = clean(Path(path).name, 200)
    trace = _read(path, progress, Trace(name))
    sort, named, beyond = False, False, None
    for _ in range(_MOST_READS - 1):
        before = sort, named, beyond
        sort, named = sort or trace.host.disorder > 0, named or (trace.late and bool(trace.planes))
        beyond = beyond or _restricted_window(trace)
        if (sort, named, beyond) == before:
            break
        again = Trace(name)
        if sort:
            again.host.store_unsorted()
        if named:
            again.planes = trace.planes
            again.planes.restart()
        if beyond is not None and not (named and not before[1]):  # without the other events the steps may differ
            again.host.restrict(*beyond)
        elif beyond is not None:
            beyond = None
        trace = _read(path, progress, again)
    return trace


def _restricted_window(trace: Trace) -> tuple[float, float] | None:
    """The window of a trace with CPU activity before or after it, so that all tables cover the same time."""
    seen, host = window(trace.host, trace.activity, trace.calls), trace.host
    most = 0.0 if seen.steps else _BEYOND * seen.span_us if trace.whole else inf  # missing events may be there
    if host.first_start >= seen.start - most and host.last_end <= seen.end + most:
        return None
    return seen.start, seen.end


def _read(path: str, progress: Callable[[float], None] | None, trace: Trace) -> Trace:
    text = Text(path)
    try:
        events = decoded(text)
        for batch in events.batches():
            trace.add(batch)
            if progress:
                progress(min(1.0, text.read_bytes / text.size_bytes))
        trace.size_bytes = text.size_bytes
        trace.finish(events.head, text.notes + events.notes)
    except NoTrace as reason:
        raise Refused(f"{path}: {reason}: use a trace that torch.profiler wrote") from None
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}: cannot be read") from None
    finally:
        text.close()
    return trace

"""GPU activities of a trace and the calls that launched them, as arrays: a million kernels take 40 MB."""

from __future__ import annotations

from array import array
from typing import Any

from gputop.trace.names import CudaCall, Names, call, kind

MOST = 1_500_000  # kernels and copies; the same number of launches
MOST_DEVICES = 1_024
MOST_CAPTURES = 100_000
LOW_ID = 0xFFFF  # bits kept of thread and stream ids
LOW = 0xFFFFFFFF  # ids are 32 bits wide; larger ones are invented


def duration(event: dict[str, Any]) -> float:
    """The duration of an event in microseconds; ValueError unless it is plausible."""
    raw = event["dur"]
    value: float = float(raw) if isinstance(raw, str) else raw
    if not 0 <= value < 1e12:
        raise ValueError("a duration out of range")
    return value


def whole(value: Any) -> int | None:
    """An integer, possibly given as text; None otherwise."""
    if type(value) is int:
        return value
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20 else None


class GpuActivity:
    """Kernels, copies and memsets: start and duration in microseconds, name, stream, ids of launch and operator."""

    def __init__(self) -> None:
        self.names = Names(kind)
        self.start, self.took = array("d"), array("d")
        self.name, self.stream, self.device = array("I"), array("H"), array("H")
        self.launch_id, self.op_id = array("I"), array("I")
        self.filling = array("f")  # blocks per SM if known, at most 1; else -1
        self.occupancy = array("b")  # percent, estimated by Kineto; else -1
        self.size = array("f")  # bytes copied; 0 if unknown
        self.dropped = self.texts = 0  # invalid events; events with a GPU, stream or launch given as text

    def __len__(self) -> int:
        return len(self.start)

    def add(self, event: dict[str, Any], start: float) -> None:
        """Add a GPU event with a start time in our time base."""
        given = event.get("args")
        args: dict[str, Any] = given if isinstance(given, dict) else {}
        took, name = duration(event), self.names.number(event["name"])
        stream, device = args.get("stream", event.get("tid")), args.get("device", event.get("pid"))
        launch, op = args.get("correlation", 0), args.get("External id", args.get("external id", 0))
        filling, occupancy = args.get("blocks per SM"), args.get("est. achieved occupancy %")
        if len(self.start) >= MOST:
            self.dropped += 1
            return
        self.texts += str in (type(args.get("stream")), type(args.get("device")), type(launch))
        place, card = (whole(stream) or 0) & LOW_ID, whole(device) or 0
        card = card if 0 <= card < MOST_DEVICES else 0
        launch, op = (whole(launch) or 0) & LOW, (whole(op) or 0) & LOW
        full = min(1.0, filling) if isinstance(filling, (int, float)) and filling >= 0 else -1.0
        self.start.append(start)
        self.took.append(took)
        self.name.append(name)
        self.stream.append(place)
        self.device.append(card)
        self.launch_id.append(launch)
        self.op_id.append(op)
        self.filling.append(full)
        known = isinstance(occupancy, (int, float)) and 0 <= occupancy <= 100
        self.occupancy.append(int(occupancy) if known else -1)  # type: ignore[arg-type]
        size = args.get("bytes")
        self.size.append(size if type(size) is int and 0 <= size < 1e15 else 0.0)


class Calls:
    """CUDA runtime and driver calls: launches, waits and allocations individually, others only counted."""

    def __init__(self) -> None:
        self.names = Names(call)
        self.count, self.took_us = array("Q"), array("d")  # by name
        self.start, self.took = array("d"), array("f")  # of launches
        self.id, self.thread, self.name = array("I"), array("H"), array("I")
        self.captures: list[tuple[float, bool]] = []  # time at which a graph capture begins (True) or ends
        self.wait_start, self.wait_took = array("d"), array("d")
        self.made_at = array("d")  # of calls that allocate or free
        self.made_took = array("d")
        self.load_at, self.load_took = array("d"), array("d")  # code loading and context creation
        self.profile_at, self.profile_took = array("d"), array("d")  # overhead of CUPTI itself
        self.dropped = 0
        self._spans = {
            CudaCall.WAIT: (self.wait_start, self.wait_took),
            CudaCall.ALLOCATE: (self.made_at, self.made_took),
            CudaCall.LOAD: (self.load_at, self.load_took),
            CudaCall.PROFILE: (self.profile_at, self.profile_took),
        }

    def add(self, event: dict[str, Any], start: float) -> None:
        """Add a call with a start time in our time base."""
        took, name = duration(event), self.names.number(event["name"])
        thread = event.get("tid")
        while len(self.count) <= name:
            self.count.append(0)
            self.took_us.append(0.0)
        self.count[name] += 1
        self.took_us[name] += took
        does = self.names.meanings[name]
        if does == CudaCall.OTHER:
            return
        if does == CudaCall.CAPTURE:
            if len(self.captures) < MOST_CAPTURES:
                begins = "begin" in self.names.texts[name].lower()
                self.captures.append((start, True) if begins else (start + took, False))
            return
        if len(self.start) + sum(len(starts) for starts, _ in self._spans.values()) >= MOST:
            self.dropped += 1
        elif does == CudaCall.LAUNCH:
            args = event.get("args")
            number = args.get("correlation", 0) if isinstance(args, dict) else 0
            number = (whole(number) or 0) & LOW
            self.start.append(start)
            self.took.append(took)
            self.id.append(number)
            self.name.append(name)
            self.thread.append((whole(thread) or 0) & LOW_ID)
        else:
            starts, durations = self._spans[CudaCall(does)]
            starts.append(start)
            durations.append(took)

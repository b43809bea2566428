"""Which processes use a GPU: the driver's three lists, and how busy each process kept it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from ctypes import byref, c_uint, c_ulonglong, create_string_buffer
from struct import Struct
from typing import Any, NamedTuple

from gputop.collect.nvml.activity import percent
from gputop.collect.nvml.device import Device
from gputop.collect.nvml.gate import ABSENT, OK, NoValue, Unanswered
from gputop.collect.nvml.probe import Answers, probe
from gputop.model import GpuShare, Kind

OLD_DRIVER = "old_driver"  # in what a card keeps: the lists came the way of an older driver
_MOST_BYTES = 1 << 50  # beyond it, memory is "not available"
_RETRIES = 3
_MOST = 1 << 16  # entries of a list: room for more is not allocated
_SPARE = 8

LISTS = frozenset({"processes", "processes_graphics", "processes_mps", "processes_busy"})  # what becomes shares

Listed = Mapping[int, int | None]  # pid to bytes of device memory
Used = tuple[float | None, float | None, float | None, float | None]  # percent of time: GPU, memory, encoder, decoder
Busy = Mapping[int, Used]  # by pid


class _Record(NamedTuple):
    """How busy a process was until a time stamp, in percent."""

    pid: int
    stamp_us: int
    gpu: int
    memory: int
    encoder: int
    decoder: int


_RECORD = Struct("=I4xQIIII")
_ENTRY = Struct("=I4xQ")  # what every layout begins with: pid, bytes; instances and protected memory may follow
_LONGEST = 32
_STRIDES = (16, 24, _LONGEST)
_UNTOUCHED = b"\xa5"  # the last byte of no entry: it is that of a size or of the number of an instance
# nvidia-ml-py has a wrapper for the newest only. Bytes from one entry to the next as documented: drivers 535.43 to
# 535.86 have longer ones under the same name, some libraries of others shorter ones
_LAYOUTS = (("_v3", 24), ("_v2", 24), ("", 16))


@probe(every_s=2, fills=("processes",))
def compute_processes(card: Device) -> Answers:
    """Processes with a compute context."""
    return {"processes": _listed(card, "nvmlDeviceGetComputeRunningProcesses")}


@probe(every_s=10, fills=("processes_graphics",))
def graphics_processes(card: Device) -> Answers:
    """Processes with a graphics context."""
    return {"processes_graphics": _listed(card, "nvmlDeviceGetGraphicsRunningProcesses")}


@probe(every_s=10, fills=("processes_mps",))
def mps_processes(card: Device) -> Answers:
    """Clients of the multi-process service."""
    return {"processes_mps": _listed(card, "nvmlDeviceGetMPSComputeRunningProcesses")}


def _listed(card: Device, function: str) -> Listed:
    for suffix, stride in _LAYOUTS:
        try:
            entries = _entries(card, function + suffix, stride)
        except Unanswered as silent:
            if silent.no.reason != "unsupported" or silent.no.passing or not suffix:
                raise  # an older form of the same list would be refused too
            continue
        card.kept[OLD_DRIVER] = card.kept.get(OLD_DRIVER, False) or suffix != "_v3"
        return entries
    return {}


def _entries(card: Device, function: str, documented: int) -> Listed:
    count, content = _filled(card, function, _LONGEST, lambda count, buffer: (byref(count), buffer))
    written = len(content.rstrip(_UNTOUCHED))
    stride = next((one for one in _STRIDES if one * count == written), documented)
    return _merged(_ENTRY.unpack_from(content, place * stride) for place in range(count))


def _filled(card: Device, function: str, size: int, order: Callable[..., tuple[Any, ...]]) -> tuple[int, bytes]:
    """What a call fills a buffer of ours with: one call where the wrapper makes two, more only while it grows.

    `order` makes the call's arguments of the number of entries and the buffer, `size` is the longest of an entry. Some
    calls want room for all that there can be, however little there is: room that was enough is kept.
    """
    room = card.kept.get(function, _SPARE)
    for _ in range(1 + _RETRIES):
        count, buffer = c_uint(room), create_string_buffer(_UNTOUCHED * (size * room), size * room)
        if card.symbol(function, *order(count, buffer)) == OK:
            card.kept[function] = max(room, count.value + _SPARE)
            return min(count.value, room), buffer.raw
        room = max(2 * room, count.value + _SPARE)
        if room > _MOST:
            break
    raise Unanswered(NoValue("stale"))


def _merged(entries: Iterable[tuple[int, int]]) -> Listed:
    """One entry a pid; of one that is listed twice the memory is summed where it is known."""
    found: dict[int, int | None] = {}
    for pid, size in entries:
        held = size if size < _MOST_BYTES else None
        before = found.get(pid)
        found[pid] = held if before is None else before + (held or 0)
    return found


@probe(every_s=2, fills=("processes_busy",))
def process_utilization(card: Device) -> Answers:
    """How busy each process kept the GPU; one that is not in the answer did nothing."""
    running = _lists(card)
    if not running:
        return {"processes_busy": ABSENT}
    # a window shorter than the driver's own would find no process at work
    a_second_ago_us = int((time.time() - 1) * 1e6)
    last_us = min(card.kept.get("utilization_us", a_second_ago_us), a_second_ago_us)
    fresh = [record for record in _records(card, last_us) if record.stamp_us > last_us]
    fresh.sort(key=lambda record: record.stamp_us)
    if fresh:
        card.kept["utilization_us"] = fresh[-1].stamp_us
    busy = {
        one.pid: (percent(one.gpu), percent(one.memory), percent(one.encoder), percent(one.decoder)) for one in fresh
    }
    if busy and not busy.keys() & running.keys():
        return {"processes_busy": ABSENT}  # these pids are of another namespace than the list's
    return {"processes_busy": busy}


def _records(card: Device, last_us: int) -> list[_Record]:
    """One record of each process that worked since then; often several of one."""
    function, since_us = "nvmlDeviceGetProcessUtilization", c_ulonglong(last_us)
    try:
        count, content = _filled(card, function, _RECORD.size, lambda count, buffer: (buffer, byref(count), since_us))
        return [_Record(*one) for one in _RECORD.iter_unpack(content[: count * _RECORD.size])]
    except Unanswered as silent:
        if silent.no is ABSENT:  # no process worked
            return []
        raise


_KINDS: tuple[tuple[str, str, Kind], ...] = (
    ("compute_processes", "processes", "compute"),
    ("mps_processes", "processes_mps", "mps"),
    ("graphics_processes", "processes_graphics", "graphics"),
)


def _lists(card: Device) -> dict[int, tuple[Kind, int | None]]:
    """Every listed pid with its kind and memory; of a pid in two lists the first kind counts, but mps before all.

    A client of the multi-process service is listed among the compute processes, too.
    """
    found: dict[int, tuple[Kind, int | None]] = {}
    for source, name, kind in _KINDS:
        listed = card.answers.get(source, {}).get(name)
        if listed is not None and not isinstance(listed, NoValue):
            for pid, held in listed.items():
                first, known = found.get(pid, (kind, held))
                found[pid] = kind if kind == "mps" else first, known
    return found


_UNKNOWN: Used = (None, None, None, None)
_IDLE: Used = (0.0, 0.0, 0.0, 0.0)


def shares(card: Device) -> Mapping[int, GpuShare]:
    """What each process has of this GPU."""
    busy: Busy | NoValue = card.answers.get("process_utilization", {}).get("processes_busy", ABSENT)
    found = {}
    for pid, (kind, held) in _lists(card).items():
        used = _UNKNOWN if isinstance(busy, NoValue) else busy.get(pid, _IDLE)
        found[pid] = GpuShare(
            uuid=card.uuid,
            kind=kind,
            busy_percent=used[0],
            memory_busy_percent=used[1],
            encoder_percent=used[2],
            decoder_percent=used[3],
            vram_bytes=held,
        )
    return found

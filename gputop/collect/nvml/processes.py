"""Which processes use a GPU: the driver's three lists, and how busy each process kept it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from ctypes import Structure, byref, c_uint, c_ulonglong
from typing import Any

from gputop.collect.nvml.activity import percent
from gputop.collect.nvml.card import Card
from gputop.collect.nvml.gate import ABSENT, OK, No, Unanswered
from gputop.collect.nvml.probe import Answers, probe
from gputop.model import GpuShare, Kind

OLD_DRIVER = "old_driver"  # in what a card keeps: the lists came the way of an older driver
_MOST_BYTES = 1 << 50  # beyond it, memory is "not available"
_RETRIES = 3
_SPARE = 8

LISTS = frozenset({"processes", "processes_graphics", "processes_mps", "processes_busy"})  # what becomes shares

Listed = Mapping[int, int | None]  # pid to bytes of device memory
Used = tuple[float | None, float | None, float | None, float | None]  # percent of time: GPU, memory, encoder, decoder
Busy = Mapping[int, Used]  # by pid


class _Entry(Structure):
    _fields_ = (
        ("pid", c_uint),
        ("bytes", c_ulonglong),
        ("gpu_instance", c_uint),
        ("compute_instance", c_uint),
    )


class _OldEntry(Structure):
    _fields_ = (("pid", c_uint), ("bytes", c_ulonglong))


class _Record(Structure):
    _fields_ = (
        ("pid", c_uint),
        ("stamp_us", c_ulonglong),
        *((name, c_uint) for name in ("gpu", "memory", "encoder", "decoder")),
    )


# nvidia-ml-py has a wrapper for the newest only
_LAYOUTS: tuple[tuple[str, type[Structure]], ...] = (("_v3", _Entry), ("_v2", _Entry), ("", _OldEntry))


@probe(every_s=2, fills=("processes",))
def compute_processes(card: Card) -> Answers:
    """Processes with a compute context."""
    return {"processes": _listed(card, "nvmlDeviceGetComputeRunningProcesses")}


@probe(every_s=10, fills=("processes_graphics",))
def graphics_processes(card: Card) -> Answers:
    """Processes with a graphics context."""
    return {"processes_graphics": _listed(card, "nvmlDeviceGetGraphicsRunningProcesses")}


@probe(every_s=10, fills=("processes_mps",))
def mps_processes(card: Card) -> Answers:
    """Clients of the multi-process service."""
    return {"processes_mps": _listed(card, "nvmlDeviceGetMPSComputeRunningProcesses")}


def _listed(card: Card, function: str) -> Listed:
    for suffix, layout in _LAYOUTS:
        try:
            entries = _entries(card, function + suffix, layout)
        except Unanswered as silent:
            if silent.no.reason != "unsupported" or not suffix:
                raise
            continue
        card.kept[OLD_DRIVER] = card.kept.get(OLD_DRIVER, False) or suffix != "_v3"
        return entries
    return {}


def _entries(card: Card, function: str, layout: type[Structure]) -> Listed:
    return _merged(_filled(card, function, layout, lambda count, buffer: (byref(count), buffer)))


def _filled(card: Card, function: str, layout: type[Structure], order: Callable[..., tuple[Any, ...]]) -> list[Any]:
    """What a call fills a buffer of ours with: one call where the wrapper makes two, more only while it grows.

    `order` makes the call's arguments of the number of entries and the buffer.
    """
    room = card.kept.get(function, 0) + _SPARE
    for _ in range(1 + _RETRIES):
        count, buffer = c_uint(room), (layout * room)()
        if card.symbol(function, *order(count, buffer)) == OK:
            card.kept[function] = min(count.value, room)
            return list(buffer[: min(count.value, room)])
        room = max(2 * room, count.value + _SPARE)
    raise Unanswered(No("stale"))


def _merged(entries: Iterable[Any]) -> Listed:
    """One entry a pid; of one that is listed twice the memory is summed where it is known."""
    found: dict[int, int | None] = {}
    for entry in entries:
        held = entry.bytes if entry.bytes < _MOST_BYTES else None
        before = found.get(entry.pid)
        found[entry.pid] = held if before is None else before + (held or 0)
    return found


@probe(every_s=2, fills=("processes_busy",))
def process_utilization(card: Card) -> Answers:
    """How busy each process kept the GPU; who is not in the answer did nothing."""
    running = _lists(card)
    if not running:
        return {"processes_busy": ABSENT}
    # a window shorter than the driver's own would find nobody at work
    a_second_ago_us = int((time.time() - 1) * 1e6)
    last_us = min(card.kept.get("utilization_us", a_second_ago_us), a_second_ago_us)
    fresh = [record for record in _records(card, last_us) if record.stamp_us > last_us]
    fresh.sort(key=lambda record: int(record.stamp_us))
    if fresh:
        card.kept["utilization_us"] = fresh[-1].stamp_us
    busy = {
        one.pid: (percent(one.gpu), percent(one.memory), percent(one.encoder), percent(one.decoder)) for one in fresh
    }
    if busy and not busy.keys() & running.keys():
        return {"processes_busy": ABSENT}  # these pids are of another namespace than the list's
    return {"processes_busy": busy}


def _records(card: Card, last_us: int) -> list[Any]:
    """One record of each process that worked since then; often several of one."""
    function, since_us = "nvmlDeviceGetProcessUtilization", c_ulonglong(last_us)
    try:
        return _filled(card, function, _Record, lambda count, buffer: (buffer, byref(count), since_us))
    except Unanswered as silent:
        if silent.no is ABSENT:  # nobody worked
            return []
        raise


_KINDS: tuple[tuple[str, str, Kind], ...] = (
    ("compute_processes", "processes", "compute"),
    ("mps_processes", "processes_mps", "mps"),
    ("graphics_processes", "processes_graphics", "graphics"),
)


def _lists(card: Card) -> dict[int, tuple[Kind, int | None]]:
    """Every listed pid with its kind and memory; of a pid in two lists the first kind counts."""
    found: dict[int, tuple[Kind, int | None]] = {}
    for source, name, kind in _KINDS:
        listed = card.answers.get(source, {}).get(name)
        if listed is not None and not isinstance(listed, No):
            for pid, held in listed.items():
                found.setdefault(pid, (kind, held))
    return found


_UNKNOWN: Used = (None, None, None, None)
_IDLE: Used = (0.0, 0.0, 0.0, 0.0)


def shares(card: Card) -> Mapping[int, GpuShare]:
    """What each process has of this GPU."""
    busy: Busy | No = card.answers.get("process_utilization", {}).get("processes_busy", ABSENT)
    found = {}
    for pid, (kind, held) in _lists(card).items():
        used = _UNKNOWN if isinstance(busy, No) else busy.get(pid, _IDLE)
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

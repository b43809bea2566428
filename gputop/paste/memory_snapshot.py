"""PyTorch memory snapshots (torch.cuda.memory._dump_snapshot): what holds GPU memory, and how it got there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from gputop import pytorch, units
from gputop.frozen_dataclass import frozen_dataclass
from gputop.paste.pasted import LONGEST_NAME, LimitTable, Pasted, by_severity
from gputop.phrases import held_against, percent
from gputop.report import Do, Point, ReportTable
from gputop.safe.files import Refused
from gputop.safe.plain_pickle import plain
from gputop.safe.text import clean

_LIMIT = LimitTable("paste-memory")

FEWER = "record fewer events (max_entries=100000)"
_ROWS = 15
_MOST_FRAMES = 128  # frames read of a stack
_MOST_SEGMENTS = 1_000_000
_MOST_BLOCKS = 4_000_000  # and events: a hostile file may repeat one list many times
_MOST_GPUS = 64
_BEGINS = re.compile(r"\ufffd[\x02-\x05]")  # a pickle of protocol 2 to 5 as text
_LIBRARY = re.compile(r"site-packages|dist-packages|/lib/python\d|/torch/|^<|^\?\?$|^$|\.(?:cpp|cc|cu|h|hpp|c)$")
_NOWHERE = "(no Python frame was recorded)"
_ACTIVE, _PENDING = "active_allocated", ("active_pending_free", "active_awaiting_free")


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """One GPU's memory in bytes, its allocation sites, and its history."""

    device: int
    reserved: int
    allocated: int
    pending: int  # freed, but still used by a stream
    split: int  # free, in partly used segments: only available to smaller requests
    empty: int  # free, in whole segments
    largest: int  # the largest free block
    segments: int
    sites: tuple[tuple[str, int, int], ...]  # location, bytes, blocks
    events: int
    grown: tuple[tuple[str, int, int], ...]  # from the events: allocated and never freed
    failed: tuple[tuple[int, int | None], ...]  # out of memory: bytes requested, bytes free on the GPU


def looks_like(beginning: str) -> bool:
    """Whether a file with this beginning is a pickle."""
    return _BEGINS.match(beginning) is not None


def read(data: bytes) -> Pasted:
    """The report on the bytes of a snapshot; Refused if it is none, or contains more than plain values."""
    return report(plain(data, again="dump the snapshot again", fewer=FEWER))


def report(found: Any) -> Pasted:
    """The report on the value of a snapshot; Refused if it is none."""
    segments = found.get("segments") if isinstance(found, dict) else found
    if isinstance(segments, list) and len(segments) > _MOST_SEGMENTS:
        raise Refused("too many segments")
    if not isinstance(segments, list) or not all(isinstance(one, dict) and "blocks" in one for one in segments):
        raise Refused("a pickle, but not a memory snapshot: use torch.cuda.memory._dump_snapshot")
    traces = found.get("device_traces") if isinstance(found, dict) else None
    traces = traces if isinstance(traces, list) else []
    numbers = sorted({_whole(one, "device") for one in segments} | {at for at, one in enumerate(traces) if one})
    places = Places()
    memories = [_memory(gpu, segments, traces, places) for gpu in numbers[:_MOST_GPUS]]
    recorded = any(memory.events for memory in memories)
    return Pasted(
        kind="memory-snapshot",
        about=f"A memory snapshot of PyTorch: {len(segments)} segment{'s' if len(segments) != 1 else ''}"
        + (f", {sum(one.events for one in memories)} events" if recorded else ", no history of events"),
        words=tuple(_words(memories, recorded)),
        points=by_severity(point for memory in memories for point in _points(memory)),
        tables=tuple(table for memory in memories for table in _tables(memory)),
        notes=("read without unpickling: no code in it was run",),
        numbers={"gpus": [_numbers(memory) for memory in memories]},
    )


def _whole(entry: Any, name: str) -> int:
    value = entry.get(name) if isinstance(entry, dict) else None
    return value if type(value) is int and 0 <= value < 1 << 62 else 0


def _memory(gpu: int, segments: Sequence[Any], traces: Sequence[Any], places: Places) -> DeviceMemory:
    sums = dict.fromkeys(("reserved", "allocated", "pending", "split", "empty", "largest", "segments"), 0)
    sites: dict[str, list[int]] = {}
    for segment in segments:
        if _whole(segment, "device") != gpu or not isinstance(segment["blocks"], list):
            continue
        sums["reserved"] += _whole(segment, "total_size")
        sums["segments"] += 1
        used = any(isinstance(one, dict) and one.get("state") != "inactive" for one in segment["blocks"])
        for block in segment["blocks"]:
            _count(block, "split" if used else "empty", sums, sites, places)
    trace = traces[gpu] if gpu < len(traces) and isinstance(traces[gpu], list) else []
    grown, failed = _history(trace, places)
    return DeviceMemory(device=gpu, **sums, sites=_largest(sites), events=len(trace), grown=grown, failed=failed)


def _count(block: Any, free: str, sums: dict[str, int], sites: dict[str, list[int]], places: Places) -> None:
    size = _whole(block, "size")
    places.count()
    state = block.get("state") if isinstance(block, dict) else None
    if state == _ACTIVE:
        sums["allocated"] += size
        _add(sites, places.of(block), size)
    elif state in _PENDING:
        sums["pending"] += size
    else:
        sums[free] += size
        sums["largest"] = max(sums["largest"], size)


def _add(sites: dict[str, list[int]], where: str, size: int) -> None:
    entry = sites.setdefault(where, [0, 0])
    entry[0] += size
    entry[1] += 1


def _largest(sites: dict[str, list[int]]) -> tuple[tuple[str, int, int], ...]:
    rows = sorted(sites.items(), key=lambda item: -item[1][0])[:_ROWS]
    return tuple((where, size, count) for where, (size, count) in rows)


class Places:
    """Finds the program line that allocated a block, once per stack; Refused after too many blocks."""

    def __init__(self) -> None:
        self._known: dict[int, str] = {}
        self._left = _MOST_BLOCKS

    def count(self) -> None:
        """Count a block or event; Refused if there are too many."""
        self._left -= 1
        if self._left < 0:
            raise Refused(f"too many blocks and events: {FEWER}")

    def of(self, block: Any) -> str:
        """The innermost line of the program's own code; else the innermost Python line."""
        frames = block.get("frames")
        if not frames and isinstance(history := block.get("history"), list) and history:
            frames = history[0].get("frames") if isinstance(history[0], dict) else None
        if not isinstance(frames, list):
            return _NOWHERE
        if id(frames) not in self._known:  # keeps them all alive
            self._known[id(frames)] = _innermost(frames[:_MOST_FRAMES])
        return self._known[id(frames)]


def _innermost(frames: Sequence[Any]) -> str:
    python = None
    for frame in frames:
        file = frame.get("filename") if isinstance(frame, dict) else None
        if not isinstance(file, str):
            continue
        if not _LIBRARY.search(file[-1000:]):
            return _place(file, frame)
        if python is None and file.endswith(".py"):
            python = _place(file, frame)
    return python or _NOWHERE


def _place(file: str, frame: dict[Any, Any]) -> str:
    name = frame.get("name")
    called = name[:80] if isinstance(name, str) else ""
    return clean(f"{file[-300:].rpartition('/')[2]}:{_whole(frame, 'line')} {called}", LONGEST_NAME)


def _history(
    trace: Sequence[Any], places: Places
) -> tuple[tuple[tuple[str, int, int], ...], tuple[tuple[int, int | None], ...]]:
    """Allocations never freed in the recorded time, by line; and each out-of-memory event."""
    alive: dict[int, tuple[str, int]] = {}
    failed = []
    for event in trace:
        places.count()
        action = event.get("action") if isinstance(event, dict) else None
        if action == "alloc":
            alive[_whole(event, "addr")] = (places.of(event), _whole(event, "size"))
        elif action in ("free_requested", "free_completed", "free"):
            alive.pop(_whole(event, "addr"), None)
        elif action == "oom":
            left = event.get("device_free")
            failed.append((_whole(event, "size"), left if type(left) is int and left >= 0 else None))
    sites: dict[str, list[int]] = {}
    for where, size in alive.values():
        _add(sites, where, size)
    return _largest(sites), tuple(failed[:100])


def _words(memories: Sequence[DeviceMemory], recorded: bool) -> Iterator[str]:
    for memory in memories:
        yield (
            f"GPU {memory.device}: PyTorch reserved {units.size(memory.reserved)}, {units.size(memory.allocated)} of "
            f"it is allocated."
        )
        if memory.sites and memory.allocated:
            where, size, count = memory.sites[0]
            part = size / memory.allocated
            yield f"Most of that, {units.size(size)} ({percent(part)}) in {count} blocks, was allocated at {where}."
    if not memories:
        yield "It has no segments: PyTorch held no GPU memory."
    if not recorded:
        yield (
            "Growth over time is not in it: call torch.cuda.memory._record_memory_history(max_entries=100000) "
            "before the steps."
        )
    yield "It covers PyTorch's memory only: other processes, the CUDA context and NCCL are in nvidia-smi."


def _points(memory: DeviceMemory) -> Iterator[Point]:
    gpu = f"GPU {memory.device}"
    if memory.failed:
        wanted, left = memory.failed[-1]
        yield Point(
            severity="crit",
            text=f"{gpu}: CUDA out of memory, {units.size(wanted)} requested.",
            facts=(
                *((f"{units.size(left)} free on the GPU",) if left is not None else ()),
                f"largest free block of the cache {units.size(memory.largest)}",
                f"{len(memory.failed)} times during the recording",
            ),
            steps=() if memory.split >= wanted else ("Lower the batch size, or use activation checkpointing.",),
        )
    yield from _cache(gpu, memory)
    yield from _growth(memory)


def _cache(gpu: str, memory: DeviceMemory) -> Iterator[Point]:
    """Memory reserved by PyTorch but unused."""
    free, reserved = memory.split + memory.empty, max(1, memory.reserved)
    if memory.split >= _LIMIT["split"] * reserved:
        yield Point(
            severity="warn",
            text=f"{gpu}: the allocator's cache is fragmented.",
            facts=(
                f"{units.size(memory.split)} free in partly used segments, {percent(memory.split / reserved)} of "
                f"what is reserved ({held_against(percent(_LIMIT['split']), 'flagged_from')})",
                f"largest free block {units.size(memory.largest)}",
            ),
            steps=(
                Do("Let segments grow, which avoids fragmentation.", pytorch.allocator("expandable_segments:True")),
                "Keep batch shapes fixed: pad to a few lengths.",
            ),
        )
    elif memory.empty >= _LIMIT["empty"] * reserved:
        yield Point(
            severity="info",
            text=f"{gpu}: {units.size(memory.empty)} is cached and unused.",
            facts=(f"{percent(memory.empty / reserved)} of what is reserved",),
            steps=("Call torch.cuda.empty_cache() between phases, never inside the loop.",),
        )
    elif not memory.failed and free < _LIMIT["split"] * reserved and memory.reserved:
        yield Point(
            severity="fine", text=f"{gpu}: the cache is not fragmented.", facts=(f"free {percent(free / reserved)}",)
        )


def _growth(memory: DeviceMemory) -> Iterator[Point]:
    many = [(where, size, count) for where, size, count in memory.grown if count >= _LIMIT["alive"]]
    if not many:
        return
    where, size, count = many[0]
    yield Point(
        severity="warn",
        text=f"GPU {memory.device}: {count} allocations of {where} were never freed.",
        facts=(f"{units.size(size)} alive at the end of the recording",),
        steps=(
            "If it is in the training loop, keep loss.item() instead of loss, and .detach() what is stored.",
            "Weights and optimizer states look the same in a recording that begins before the first step.",
        ),
    )


def _tables(memory: DeviceMemory) -> Iterator[ReportTable]:
    head = ("name", "bytes", "blocks")
    for title, rows in (("What holds it", memory.sites), ("Allocated during the recording, not freed", memory.grown)):
        cells = tuple((where, units.size(size), str(count)) for where, size, count in rows)
        yield ReportTable(f"GPU {memory.device}: {title[0].lower()}{title[1:]}", head, cells)


def _numbers(memory: DeviceMemory) -> dict[str, Any]:
    return {
        "gpu": memory.device,
        "reserved_bytes": memory.reserved,
        "allocated_bytes": memory.allocated,
        "pending_bytes": memory.pending,
        "free_in_used_segments_bytes": memory.split,
        "free_segments_bytes": memory.empty,
        "largest_free_bytes": memory.largest,
        "segments": memory.segments,
        "events": memory.events,
        "sites": [{"where": where, "bytes": size, "blocks": count} for where, size, count in memory.sites],
        "not_freed": [{"where": where, "bytes": size, "blocks": count} for where, size, count in memory.grown],
        "out_of_memory": [{"wanted_bytes": wanted, "free_bytes": left} for wanted, left in memory.failed],
    }

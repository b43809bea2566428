"""CUDA out-of-memory errors in a log: requested and free bytes, and whether the cache is fragmented."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from gputop import pytorch, units
from gputop.frozen_dataclass import frozen_dataclass
from gputop.paste.pasted import LimitTable, torch_version
from gputop.report import Do, Point

_LIMIT = LimitTable("paste-log")

_AMOUNT = r"(\d{1,9}(?:\.\d{1,6})?) ?(bytes|[KMGT]i?B)"
_OOM = re.compile(
    r"(?:CUDA|HIP|XPU) out of memory\. (?:Tried to allocate|Allocation)|(?:CUDA|HIP) error: out of memory|"
    r"CUDA_ERROR_OUT_OF_MEMORY|OutOfMemoryError|RESOURCE_EXHAUSTED: Out of memory|CUBLAS_STATUS_ALLOC_FAILED"
)
_TRIED = re.compile(rf"(?:Tried|trying) to allocate {_AMOUNT}", re.IGNORECASE)
_GPU = re.compile(r"GPU (\d{1,3})\b")
_TOTAL = re.compile(rf"total capacity of {_AMOUNT}|{_AMOUNT} total capacity")
_FREE = re.compile(rf"of which {_AMOUNT} is free|{_AMOUNT} free")
_OWN = re.compile(rf"this process has {_AMOUNT} memory in use")
_OTHER = re.compile(rf"Process (\d{{1,10}}) has {_AMOUNT} memory in use")
_ALLOCATED = re.compile(rf"{_AMOUNT} is allocated by PyTorch|{_AMOUNT} already allocated")
_RESERVED_ALL = re.compile(rf"{_AMOUNT} reserved in total by PyTorch")
_CACHED = re.compile(rf"{_AMOUNT} is reserved by PyTorch but unallocated")
_POOLS = re.compile(rf"{_AMOUNT} allocated in private pools")
_PHASES = (
    ("the optimizer", re.compile(r"optimizer\.step|_init_group|torch/optim/")),
    ("backward", re.compile(r"\.backward\(|autograd/")),
    ("evaluation", re.compile(r"\b(?:eval|evaluate|validat\w+|test_step)\b")),
)
_BYTES = {"bytes": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40, "kb": 2**10, "mb": 2**20, "gb": 2**30}
_ROUNDING = 2**30 // 100  # bytes: amounts have two decimals
_BEFORE = 120  # lines of a traceback read


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class OutOfMemory:
    """The values of the message in bytes; None if missing."""

    gpu: str | None
    tried: float | None
    total: float | None
    free: float | None
    own: float | None
    pid: int | None  # of this process, if only its size tells: in a container the driver lists PIDs of the host
    allocated: float | None
    cached: float | None  # reserved by PyTorch but unallocated
    pools: float | None
    others: tuple[tuple[int, float], ...]

    @property
    def fragmented(self) -> bool:
        """Whether the free part of the cache would have sufficed in one piece."""
        if not self.cached or not self.tried or self.cached < self.tried:
            return False
        return self.cached >= _LIMIT["cached"] * (self.cached + (self.allocated or 0.0))

    @property
    def elsewhere(self) -> float | None:
        """Bytes held by other processes on the GPU."""
        if self.others or self.pid is not None:
            return sum(held for _, held in self.others)
        if self.total is None or self.free is None or self.own is None:
            return None
        return max(0.0, self.total - self.free - self.own)


def find(text: Sequence[str]) -> Iterator[tuple[int, str, Point, dict[str, Any]]]:
    """The first message with numbers, else the first of all."""
    found = [at for at, line in enumerate(text) if _OOM.search(line)]
    if not found:
        return
    at = next((at for at in found if _TRIED.search(text[at])), found[0])
    said = parse(" ".join(text[at : at + 3]))
    version = torch_version(text)
    phase = _phase(text[max(0, at - _BEFORE) : at])
    yield (
        found[0],
        "CUDA out of memory",
        Point(
            severity="crit",
            text=_headline(said, phase),
            facts=tuple(_facts(said)),
            steps=tuple(_steps(said, version, phase)),
        ),
        {
            "gpu": said.gpu,
            "tried_bytes": said.tried,
            "total_bytes": said.total,
            "free_bytes": said.free,
            "process_bytes": said.own,
            "allocated_bytes": said.allocated,
            "reserved_unallocated_bytes": said.cached,
            "other_bytes": said.elsewhere,
            "fragmented": said.fragmented,
        },
    )


def parse(message: str) -> OutOfMemory:
    """The numbers of one message, of old and new releases."""
    allocated, reserved = _bytes(_ALLOCATED, message), _bytes(_RESERVED_ALL, message)
    cached = _bytes(_CACHED, message)
    if cached is None and reserved is not None and allocated is not None:
        cached = max(0.0, reserved - allocated)
    gpu, own, pid = _GPU.search(message), _bytes(_OWN, message), None
    others = tuple(
        (int(pid), float(amount) * _BYTES[unit.lower()])
        for pid, amount, unit in _OTHER.findall(message)[:32]
        if unit.lower() in _BYTES
    )
    if own is None and (itself := _itself(others, (allocated or 0.0) + (cached or 0.0))):
        pid, own = itself
        others = tuple(each for each in others if each != itself)
    return OutOfMemory(
        gpu=gpu[1] if gpu else None,
        tried=_bytes(_TRIED, message),
        total=_bytes(_TOTAL, message),
        free=_bytes(_FREE, message),
        own=own,
        pid=pid,
        allocated=allocated,
        cached=cached,
        pools=_bytes(_POOLS, message),
        others=others,
    )


def _itself(listed: Sequence[tuple[int, float]], held: float) -> tuple[int, float] | None:
    """The process that failed, among all on the GPU if none is named so: the smallest that can hold its memory."""
    return min((each for each in listed if each[1] >= held - _ROUNDING), key=lambda each: each[1], default=None)


def _bytes(pattern: re.Pattern[str], message: str) -> float | None:
    found = pattern.search(message)
    if not found:
        return None
    amount, unit = [group for group in found.groups() if group is not None][:2]
    return float(amount) * _BYTES.get(unit.lower(), 1)


def _phase(before: Sequence[str]) -> str | None:
    """The phase of a step in which it was raised, by the traceback, innermost frames first."""
    for line in reversed(before):
        for name, pattern in _PHASES:
            if pattern.search(line):
                return name
    return None


def _headline(said: OutOfMemory, phase: str | None) -> str:
    gpu = f"GPU {said.gpu}: " if said.gpu is not None else ""
    during = f" in {phase}" if phase else ""
    if said.fragmented:
        return f"{gpu}CUDA out of memory{during}: memory is fragmented."
    if _shared(said):
        return f"{gpu}CUDA out of memory{during}: other processes use {units.size(said.elsewhere)} of it."
    return f"{gpu}CUDA out of memory{during}."


def _shared(said: OutOfMemory) -> bool:
    return bool(said.elsewhere and said.elsewhere >= _LIMIT["others"] * (said.total or said.elsewhere))


def _facts(said: OutOfMemory) -> Iterator[str]:
    if said.tried is not None:
        room = f" ({units.size(said.free)} free)" if said.free is not None else ""
        yield f"tried to allocate {units.size(said.tried)}{room}"
    if said.total is not None:
        yield f"total {units.size(said.total)}"
    if said.allocated is not None:
        yield f"allocated by PyTorch {units.size(said.allocated)}"
    if said.cached is not None:
        yield f"reserved by PyTorch but unused {units.size(said.cached)}"
    if said.pools:
        yield f"in private pools (CUDA graphs) {units.size(said.pools)}"
    if said.own is not None:
        itself = "" if said.pid is None else f" (PID {said.pid} on the host, judging by its size)"
        yield f"this process uses {units.size(said.own)}{itself}"
    for pid, held in said.others[:4]:
        yield f"other process {pid} uses {units.size(held)}"


def _steps(said: OutOfMemory, version: str | None, phase: str | None) -> Iterator[str | Do]:
    if said.fragmented:
        yield Do(
            "Avoid fragmentation: let PyTorch extend its memory blocks instead of adding new ones.",
            pytorch.allocator("expandable_segments:True", version),
        )
        yield "Pad batches to a few lengths: each new shape needs blocks of another size."
    if _shared(said):
        gpu = f" -i {said.gpu}" if said.gpu is not None else ""
        yield Do(
            "See which other processes use the memory.",
            f"nvidia-smi{gpu} --query-compute-apps=pid,used_memory --format=csv",
        )
    if phase == "evaluation":
        yield "Evaluate under torch.inference_mode()."
    if phase == "the optimizer":
        yield "Optimizer states are allocated at the first step: use fewer bytes (8-bit Adam, FSDP, ZeRO)."
    if said.cached is not None and not said.fragmented and said.tried is not None:
        yield "The memory is in use: lower the batch size and accumulate gradients."
    else:
        yield "Lower the batch size, and accumulate gradients to keep the global batch."
    yield "Save activation memory: bf16 autocast, activation checkpointing."
    yield "If memory grew over many steps, keep loss.item() instead of loss, and .detach() what is stored."
    yield Do(
        "See what uses it: record allocations, then gputop explain snapshot.pickle.",
        "torch.cuda.memory._record_memory_history(max_entries=100000); "
        '...; torch.cuda.memory._dump_snapshot("snapshot.pickle")',
    )

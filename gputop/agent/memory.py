"""What PyTorch holds: the numbers of its CUDA allocators, and on request the live tensors, counted by what they are.

The numbers are the allocators' own: no call reaches the driver, and nothing of CUDA is asked before the program uses
it. Of tensors only what runs no code of the program. No module beside it is imported: the lab loads it by its path.
"""

from __future__ import annotations

import gc
import sys
from itertools import chain, compress, repeat
from operator import is_
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .meter import Meter

MOST_BLOCKS = 3_000_000  # of memory that Python has given out: with more, looking at all live objects is felt
_MOST_DEVICES, _MOST_TENSORS = 64, 200_000
_GROUPS = 60  # reported by their bytes, and as many by their number
_MOST_SIZES = 8  # of a shape
_NUMBERS = {
    "allocated": ("allocated_bytes", "current"),
    "peak_allocated": ("allocated_bytes", "peak"),
    "reserved": ("reserved_bytes", "current"),
    "peak_reserved": ("reserved_bytes", "peak"),
    "inactive_split": ("inactive_split_bytes", "current"),  # free, in segments of which another part is used
    "segments": ("segment", "current"),
}
_COUNTS = {"retries": "num_alloc_retries", "ooms": "num_ooms"}


def memory(torch: Any, meter: Meter | None, tensors: bool = False) -> dict[str, Any]:
    """The reply; without CUDA in use there are no devices, and `cuda` says why. It takes some 10 us a device.

    `tensors`: also the live tensors, for which the program stands still up to a third of a second.
    """
    if torch is None:
        return {"torch": None, "cuda": "torch is not imported", "devices": []}
    try:
        found, why = devices(torch), _unused(torch)
    except Exception as error:  # another allocator, or another torch
        found, why = [], f"{type(error).__name__}: {error}"[:200]
    on = meter is not None and meter.installed and not meter.off
    count = meter.ring.count if meter is not None and on else None
    reply = {"torch": str(getattr(torch, "__version__", ""))[:40], "cuda": why, "devices": found, "steps": count}
    return {**reply, **(census(torch) if tensors else {})}


def devices(torch: Any) -> list[dict[str, Any]]:
    """Each device that PyTorch has had memory of; none where the program has not begun to use CUDA."""
    if _unused(torch):
        return []
    found = []
    for device in range(min(_MOST_DEVICES, torch.cuda.device_count())):
        said = torch.cuda.memory_stats_as_nested_dict(device)
        if said.get("reserved_bytes", {}).get("all", {}).get("peak"):
            numbers = {name: said.get(key, {}).get("all", {}).get(which) for name, (key, which) in _NUMBERS.items()}
            counts = {name: said.get(key) for name, key in _COUNTS.items()}
            found.append({"device": device, **numbers, **counts})
    return found


def _unused(torch: Any) -> str | None:
    """Why the allocators say nothing; None where they can be asked."""
    if not torch.cuda.is_initialized():
        return "the program has not used CUDA"
    backend = getattr(torch.cuda, "get_allocator_backend", lambda: "native")()
    if backend != "native":  # to ask another one is a call into the driver
        return f"its CUDA allocator is {str(backend)[:40]}, which is not supported"
    return None


def census(torch: Any) -> dict[str, Any]:
    """The live tensors by type, shape and device, with their bytes; memory that several share counts once.

    What only the graph of autograd holds has no object of Python, and is not in it. `others`: the highest number of
    a kind that is not listed. `untold`: why nothing is listed.
    """
    if not hasattr(torch.Tensor, "untyped_storage"):
        return {"tensors": None, "untold": "torch is older than 2.0", "others": 0}
    if sys.getallocatedblocks() > MOST_BLOCKS:
        why = f"Python holds more than {MOST_BLOCKS // 10**6} million objects"
        return {"tensors": None, "untold": why, "others": 0}
    groups: dict[tuple[Any, ...], list[int]] = {}
    seen: set[int] = set()
    for tensor in _live(torch):
        try:
            key, size, storage = _kind(torch, tensor)
        except Exception:  # sparse, or of another backend
            continue
        entry = groups.setdefault(key, [0, 0])
        entry[0] += 1
        if storage not in seen:
            seen.add(storage)
            entry[1] += size
    large = sorted(groups, key=lambda key: -groups[key][1])[:_GROUPS]
    many = sorted(groups, key=lambda key: -groups[key][0])[:_GROUPS]
    shown = {key: groups.pop(key) for key in dict.fromkeys(large + many)}
    names = ("type", "dtype", "shape", "device", "graph")
    listed = [{**dict(zip(names, key)), "count": count, "bytes": size} for key, (count, size) in shown.items()]
    return {"tensors": listed, "untold": None, "others": max((count for count, _ in groups.values()), default=0)}


def _live(torch: Any) -> list[Any]:
    """The tensors among all live objects, found without a pause in which the program could change them."""
    objects = gc.get_objects()
    kinds = list(map(type, objects))  # a subclass may run code when it is asked
    tensors = compress(objects, map(is_, kinds, repeat(torch.Tensor)))
    return list(chain(tensors, compress(objects, map(is_, kinds, repeat(torch.nn.Parameter)))))[:_MOST_TENSORS]


def _kind(torch: Any, tensor: Any) -> tuple[tuple[Any, ...], int, int]:
    """What it is, its bytes, and which storage they are in."""
    graph = not tensor.is_leaf  # grad_fn would make one again for a view that was written to
    shape = [int(size) for size in tensor.shape[:_MOST_SIZES]]
    name = "Parameter" if type(tensor) is torch.nn.Parameter else "Tensor"
    storage = tensor.untyped_storage()
    device = str(tensor.device)
    size = 0 if device == "meta" else int(storage.nbytes())
    # not data_ptr(), which would copy what is only copied when it is written to
    return (name, str(tensor.dtype)[6:], tuple(shape), device, graph), size, int(storage._cdata)

"""GPU names short enough for a header: `8×H100-80G` from `NVIDIA H100 80GB HBM3`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from gputop.model import Gpu

_NOISE = re.compile(r"\b(NVIDIA|Tesla|Quadro|GeForce|Graphics Device|Generation|SXM\d?|PCIe|HBM\d\w?|NVL)\b", re.I)
_MEMORY = re.compile(r"\b(\d+) ?GB\b", re.I)
_SLICE = re.compile(r"\bMIG (\S+)")


@lru_cache(maxsize=256)
def short_name(name: str) -> str:
    """The model, with its memory only where the name tells two variants apart by it; of a MIG instance its profile."""
    if profile := _SLICE.search(name):
        return profile[1]
    memory = _MEMORY.search(name)
    model = " ".join(_NOISE.sub(" ", _MEMORY.sub(" ", name)).replace("-", " ").split())
    return f"{model}-{memory[1]}G" if memory and model else model or name


def inventory(gpus: Iterable[Gpu], *, memory: bool = True) -> str:
    """How many of which, MIG instances aside: `8×H100-80G`, `2×A100-40G 1×T400`."""
    names = (short_name(gpu.name) for gpu in gpus if gpu.parent_uuid is None)
    counts = Counter(name if memory else name.partition("-")[0] for name in names)
    return " ".join(f"{count}×{name}" for name, count in counts.items())


def with_instances(gpus: Iterable[Gpu]) -> list[Gpu]:
    """GPUs in order, each followed by its MIG instances."""
    cards = [gpu for gpu in gpus if gpu.parent_uuid is None]
    uuids = {gpu.uuid for gpu in cards}
    instances: dict[str, list[Gpu]] = {}
    for gpu in gpus:
        if gpu.parent_uuid is not None:
            instances.setdefault(gpu.parent_uuid, []).append(gpu)
    ordered = [each for gpu in cards for each in (gpu, *instances.get(gpu.uuid, ()))]
    return ordered + [gpu for parent, orphans in instances.items() if parent not in uuids for gpu in orphans]

"""What the GPU pane is drawn from: the GPUs, the host, the past, and what must be equal in every row."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property, lru_cache

from gputop import units
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Gpu, Host
from gputop.ui.gpus.state import GpuHistory, State, judged, state
from gputop.ui.theme import Ground, Look

_NOISE = re.compile(r"\b(NVIDIA|Tesla|Quadro|GeForce|Graphics Device|Generation|SXM\d?|PCIe|HBM\d\w?|NVL)\b", re.I)
_MEMORY = re.compile(r"\b(\d+) ?GB\b", re.I)
_SLICE = re.compile(r"\bMIG (\S+)")


@lru_cache(maxsize=256)
def short_name(name: str) -> str:
    """The model, with its memory only where that distinguishes two variants; of a MIG instance its profile."""
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


GIB = 1024**3


@frozen_dataclass(frozen=True, kw_only=True)
class GpuScene:
    """All that a row is drawn from; widths are taken over all GPUs, so that units stand below each other."""

    gpus: Sequence[Gpu]
    host: Host
    past: GpuHistory
    look: Look
    verdicts: Mapping[str, State] = field(default_factory=dict)  # what the rules say, by uuid
    marked: Collection[str] = ()  # those that what is chosen elsewhere is about
    chosen: str | None = None  # the one that the keys are about

    @cached_property
    def states(self) -> dict[str, State]:
        """The state of each GPU, by uuid."""
        return {gpu.uuid: judged(state(gpu, self.past), self.verdicts.get(gpu.uuid)) for gpu in self.gpus}

    @property
    def ground(self) -> Ground:
        """The background of the selected one: where that would be reversed, bars would merge with their tracks."""
        return "selected" if self.look.palette.selected else "background"

    @cached_property
    def index_width(self) -> int:
        """Cells of the longest index, instances indented."""
        return max([2, *(len(gpu.index) + 2 * bool(gpu.parent_uuid) for gpu in self.gpus)])

    @cached_property
    def vram_digits(self) -> int:
        """Digits of the largest memory, in GiB."""
        return max([2, *(len(whole_gib(memory(gpu, self.host)[1])) for gpu in self.gpus)])

    @cached_property
    def watt_digits(self) -> int:
        """Digits of the highest power limit or power."""
        return max([3, *(len(units.percent(gpu.power_limit_watts or gpu.power_watts or 0)) for gpu in self.gpus)])

    def offered(self, name: str) -> bool:
        """Whether any GPU has this metric, now or soon: columns neither blink nor stay for nothing."""
        for gpu in self.gpus:
            if getattr(gpu, name) is not None or all(missing.metric != name for missing in gpu.missing):
                return True
        return False


def memory(gpu: Gpu, host: Host) -> tuple[float | None, float | None]:
    """Bytes used and in all; of the host where the GPU shares its memory."""
    if gpu.unified_memory and gpu.vram_total_bytes is None:
        return host.memory_used_bytes, host.memory_total_bytes
    return gpu.vram_used_bytes, gpu.vram_total_bytes


def whole_gib(size: float | None) -> str:
    """Bytes as a whole number of GiB."""
    return "0" if size is None else f"{size / GIB:.0f}"


def load(gpu: Gpu) -> float | None:
    """Busy weighed by power: 100 % busy at a third of the power limit is a third of the card's effort (as in nvtop)."""
    if gpu.busy_percent is None or gpu.power_watts is None or not gpu.power_limit_watts:
        return None
    return min(100.0, gpu.busy_percent * gpu.power_watts / gpu.power_limit_watts)

"""What the GPU pane is drawn from: the GPUs, the host, the past, and what must be equal in every row."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from functools import cached_property

from gputop import units
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Gpu, Host
from gputop.ui.gpus.state import Past, State, judged, state
from gputop.ui.look import Ground, Look

GIB = 1024**3


@frozen_dataclass(frozen=True, kw_only=True)
class Scene:
    """All that a row is drawn from; widths are taken over all GPUs, so that units stand below each other."""

    gpus: Sequence[Gpu]
    host: Host
    past: Past
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
        """What the chosen one stands on: where that would be reversed, bars could not be told from their tracks."""
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

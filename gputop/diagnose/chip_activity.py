"""Activity of the chip's units as evidence, and the conditions under which these metrics can be trusted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from gputop.diagnose.finding import Evidence
from gputop.diagnose.trainer import Trainer
from gputop.model import Gpu
from gputop.phrases import Sense

TENSOR_PEAK, DRAM_PEAK = 0.93, 0.8  # reachable in practice [DCGM]
BY_UNITS = "unit activity needs Hopper or newer (GPM); a torch trace shows it on every GPU"


def tensor_share(trainer: Trainer) -> float | None:
    """Tensor core activity as a share (0-1) of what is reachable in practice."""
    return None if trainer.tensor is None else trainer.tensor / TENSOR_PEAK


def dram_share(trainer: Trainer) -> float | None:
    """Memory bandwidth as a share (0-1) of what is reachable in practice."""
    return None if trainer.dram is None else trainer.dram / DRAM_PEAK


def partitioned(trainer: Trainer) -> bool:
    """Whether the trainer runs on a GPU partition: power and clocks are those of the whole card."""
    return any(gpu.parent_uuid is not None or gpu.mig_mode for gpu in trainer.gpus)


def pcie_capacity(gpu: Gpu) -> float | None:
    """PCIe bandwidth in bytes/s per direction; None if the link's width or speed is unknown."""
    lane, width = gpu.pcie_lane_bytes_per_s, gpu.pcie_width
    return lane * width if lane and width else None


def unit_activity(
    trainer: Trainer, *, memory: bool = True, limits: Mapping[str, float] = MappingProxyType({})
) -> Iterator[Evidence]:
    """Activity of the chip's units, where known; `memory` adds memory bandwidth.

    `limits`: by unit name, the limits (0-1) that a rule decided by.
    """
    moved = trainer.dram if memory else None
    names = "tensor activity", "SM activity", "memory bandwidth"
    for name, share in zip(names, (trainer.tensor, trainer.sm, moved), strict=True):
        if share is not None:
            limit = 100 * limits[name] if name in limits else None
            yield Evidence(
                text=f"{name} {100 * share:.0f} %", value=100 * share, unit="%", limit=limit, sense="healthy_from"
            )
    if trainer.sm is None and trainer.power_share is None and trainer.memory_busy is not None:
        busy = 100 * trainer.memory_busy
        most = 100 * limits["memory busy"] if "memory busy" in limits else None
        text = f"memory busy {busy:.0f} % of the time (SM activity and power unavailable)"
        yield Evidence(text=text, value=busy, unit="%", limit=most, sense="healthy_from")
    if trainer.power_share is not None and trainer.works_on:
        watts, limit = trainer.works_on[0].power_watts or 0.0, trainer.works_on[0].power_limit_watts or 0.0
        yield Evidence(
            text=f"power {watts:.0f} of {limit:.0f} W", value=watts, unit="W", limit=limit, sense="healthy_from"
        )


def duty(
    trainer: Trainer, busy: float | None, limit: float | None = None, sense: Sense | None = "healthy_from"
) -> Evidence:
    """GPU busy in percent over the rule's window."""
    value = 100 * (trainer.duty or 0.0) if busy is None else busy
    return Evidence(text=trainer.reading(value), value=value, unit="%", limit=limit, sense=sense)

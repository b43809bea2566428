"""Whether GPU and host share one memory: told by what the chip is, not by one call that a driver refuses."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from gputop.model.frame import Frame
from gputop.model.gpu import Gpu
from gputop.model.metric import Missing

_ALIKE = 0.001  # by which two sizes differ that are one and the same memory
# chips on which GPU and CPU share one memory, by CUDA compute capability and by name; and names of all others
_SHARED_CAPABILITY = {(5, 3), (6, 2), (7, 2), (8, 7), (10, 1), (11, 0), (12, 1)}
_SHARED = re.compile(r"\b(GB10|DGX Spark|Thor|Orin|Xavier|Tegra\w*|Jetson|N1X)\b", re.IGNORECASE)
_OWN = re.compile(r"GeForce|RTX|GTX|Quadro|Tesla|TITAN|\b(GH|GB|[ABHKLPTV])\d{1,3}\w*\b")
_PCIE = (
    "pcie_generation", "pcie_generation_max", "pcie_generation_device_max", "pcie_width", "pcie_width_max",
    "pcie_slot_generation", "pcie_slot_width", "pcie_lane_bytes_per_s", "pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s",
)  # fmt: skip
_VRAM = ("vram_total_bytes", "vram_used_bytes", "vram_reserved_bytes")
_UNREPORTED, _SHARES = "the driver does not report the memory of this card", "it shares the memory of the host"


def integrated(name: str, capability: tuple[int, int] | None) -> bool | None:
    """Whether a GPU shares the memory of the host, by what it is; None where that does not tell."""
    if _SHARED.search(name):
        return True
    if _OWN.search(name):
        return False
    return capability in _SHARED_CAPABILITY if capability else None


def whose_memory(gpu: Gpu, frame: Frame) -> Gpu:
    """Device memory, where the GPU has one: unified memory is decided by what the GPU is, not by one refused call."""
    if gpu.parent_uuid is not None:
        return gpu
    shares, of_host = integrated(gpu.name, gpu.compute_capability), frame.host.memory_total_bytes or 0
    alike = of_host > 0 and abs((gpu.vram_total_bytes or 0) - of_host) <= _ALIKE * of_host
    if shares or (shares is None and (gpu.unified_memory or alike)):
        return _unified(gpu, frame)
    if not gpu.unified_memory:
        return gpu
    said = (Missing(metric=name, reason="unsupported", unlock=_UNREPORTED) for name in _VRAM)
    missing = (*(one for one in gpu.missing if one.metric not in _VRAM), *said)
    return replace(gpu, unified_memory=False, missing=missing)


def _unified(gpu: Gpu, frame: Frame) -> Gpu:
    """A GPU that uses the memory of the host: in use is what its processes hold, and PCIe is a placeholder."""
    held = [share.vram_bytes for process in frame.processes for share in process.gpus if share.uuid == gpu.uuid]
    used = sum(one or 0 for one in held) if held and None not in held else None
    unknown = ["vram_total_bytes", "vram_reserved_bytes", *_PCIE]
    unknown += [] if used is not None else ["vram_used_bytes"]
    unknown += [] if gpu.memory_busy_percent else ["memory_busy_percent"]  # some of them always say 0
    if gpu.unified_memory and gpu.vram_used_bytes == used and all(getattr(gpu, name) is None for name in unknown):
        return gpu
    said = [Missing(metric=name, reason="unsupported", unlock=_SHARES) for name in unknown]
    missing = (*(one for one in gpu.missing if one.metric not in {*_VRAM, *unknown}), *said)
    changes: dict[str, Any] = dict.fromkeys(unknown)
    return replace(gpu, **changes | {"vram_used_bytes": used}, unified_memory=True, missing=missing)

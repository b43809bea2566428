"""The cards of a simulated server: what never changes about one, and which job keeps it busy when."""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Any

from gputop.declare import record
from gputop.demo.generator import Activity, Gated, Phases, Pulse, Scaled
from gputop.demo.server import MIB, Card, Dip, Job, Server, Work
from gputop.model import Engine, NvLink, PcieErrors

IDLE_WATTS = 71.0
FULL_WATTS = 700.0
FULL_MHZ, IDLE_MHZ = 1980.0, 345.0
_QUIET = Pulse(1.0, 0.0)
_NVLINK_BYTES_PER_S = 26_562e6
_BUSES = (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF)


def uuid(card: int) -> str:
    """The identity of a card of the simulated server."""
    return f"GPU-{0x5EED0000 + card * 0x1F31:08x}-6770-7574-6f70-{card:012x}"


def activity(work: Work, seed: int) -> Activity:
    """When a GPU is on with this work."""
    steps = Pulse(work.period_s, work.duty, work.jitter, seed)
    if work.dip is None:
        return steps
    return Gated(gate(work.dip, seed), steps, Pulse(2 * work.period_s, work.dip.duty, work.jitter, seed + 1))


def gate(dip: Dip, seed: int) -> Pulse:
    """When the work is not in one of its dips."""
    return Pulse(dip.every_s, 1 - dip.for_s / dip.every_s, dip.jitter, seed + 2)


@record(frozen=True)
class Tenant:
    """A job on one card, and when it keeps that card busy."""

    job: Job
    card: Card
    seed: int

    @cached_property
    def activity(self) -> Activity:
        """Seconds of work on this card, from the job's first phase to its end."""
        return _phases(self._phases, self.job.ended_s, self.seed)

    @cached_property
    def energy(self) -> Activity:
        """Joules above idle that this work used on this card."""
        parts = (
            (start, Scaled(activity(work, self.seed), above_idle_watts(self.card, work)))
            for start, work in self._phases
        )
        return Phases((*parts, (self.job.ended_s, _QUIET)))

    @property
    def _phases(self) -> tuple[tuple[float, Work], ...]:
        starts = (self.job.phase(start)[0] for start, _ in self.job.work)
        return tuple((start, self.job.on_card(start, self.card.index)) for start in starts)

    def work(self, t: float) -> Work:
        """What it does at t."""
        return self.job.on_card(t, self.card.index)

    def vram_bytes(self, t: float) -> int:
        """Device memory of this job on this card."""
        if not self.job.runs(t):
            return 0
        work = self.work(t)
        since = t - max(0.0, self.job.phase(t)[0])
        grown = max(0.0, min(since, work.vram_grows_for_s)) * work.vram_per_s
        return int(work.vram_bytes + grown // work.vram_step_bytes * work.vram_step_bytes)


@lru_cache(maxsize=256)
def _phases(work: tuple[tuple[float, Work], ...], ended_s: float, seed: int) -> Phases:
    """One object for all cards that do the same: what it remembers serves them all."""
    parts = tuple((start, activity(phase, seed)) for start, phase in work)
    return Phases((*parts, (ended_s, _QUIET)))


def above_idle_watts(card: Card, work: Work) -> float:
    """Power above idle while on, at the clock that the card's limit and its cooling leave."""
    watts = min(work.watts, card.limit_watts) - IDLE_WATTS
    if card.heat:
        watts = min(watts, (work.watts - IDLE_WATTS) * card.heat.clock_mhz / FULL_MHZ)
    return watts


def settings(server: Server, card: Card) -> dict[str, Any]:
    """What the driver says about a card whatever it does."""
    index, per_node = card.index, server.cpus // 2
    node = int(index >= (len(server.cards) + 1) // 2)
    return _H100 | {
        "uuid": uuid(index),
        "index": str(index),
        "pci_bus_id": f"{index // 8:08x}:{_BUSES[index % 8]:02x}:00.0",
        "numa_node": node,
        "local_cpus": f"{per_node * node}-{per_node * (1 + node) - 1}",
        "peers": tuple((uuid(other.index), "switch") for other in server.cards if other.index != index),
    }


_H100: dict[str, Any] = {
    "name": "NVIDIA H100 80GB HBM3",
    "architecture": "hopper",
    "compute_capability": (9, 0),
    "vram_total_bytes": 81_559 * MIB,
    "vram_reserved_bytes": 551 * MIB,
    "slowdown_celsius": 90.0,
    "shutdown_celsius": 95.0,
    "gpu_max_celsius": 87.0,
    "power_default_limit_watts": FULL_WATTS,
    "power_requested_limit_watts": FULL_WATTS,
    "power_min_limit_watts": 200.0,
    "power_max_limit_watts": FULL_WATTS,
    "encoder_percent": 0.0,
    "decoder_percent": 0.0,
    "engines": tuple(
        Engine(name=f"{kind} {number}", busy_percent=0.0) for kind in ("decoder", "jpeg") for number in range(7)
    ),
    "sm_clock_max_mhz": FULL_MHZ,
    "graphics_clock_max_mhz": FULL_MHZ,
    "boost_clock_max_mhz": FULL_MHZ,
    "memory_clock_mhz": 2619.0,
    "memory_clock_max_mhz": 2619.0,
    "performance_state": 0,
    "throttled_brake_percent": 0.0,
    "throttled_board_percent": 0.0,
    "throttled_sync_percent": 0.0,
    "throttled_reliability_percent": 0.0,
    "throttled_low_use_percent": 0.0,
    "throttled_base_percent": 0.0,
    "pcie_generation_max": 5,
    "pcie_generation_device_max": 5,
    "pcie_slot_generation": 5,
    "pcie_slot_width": 16,
    "pcie_errors": PcieErrors(replay_rollovers=0, recoveries=0, correctable=0, non_fatal=0, fatal=0),
    "pcie_width": 16,
    "pcie_width_max": 16,
    "pcie_replays": 0,
    "nvlink_max_bytes_per_s": 18 * _NVLINK_BYTES_PER_S,
    "nvlinks_active": 18,
    "nvlinks": (
        NvLink(numbers="0-17", up=True, speed_bytes_per_s=_NVLINK_BYTES_PER_S, replays=0, recoveries=0, crc_errors=0),
    ),
    "nvlink_errors": 0,
    "ecc_corrected": 0,
    "ecc_uncorrected": 0,
    "remapped_corrected": 0,
    "remapped_uncorrected": 0,
    "remap_pending": False,
    "remap_failed": False,
    "recovery_action": "none",
    "tensor_integer_percent": 0.0,
    "tensor_double_percent": 0.0,
    "tensor_double_fma_percent": 0.0,
    "mma_stall_percent": 0.0,
    "context_switch_percent": 0.0,
    "persistence_mode": True,
    "compute_mode": "default",
    "mig_mode": False,
    "ecc_mode": True,
    "virtualization": "none",
}

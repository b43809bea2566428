"""A simulated GPU: utilisation, power, heat, clocks and links from the work its tenants do."""

from __future__ import annotations

import math
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import Any

from gputop.demo.generator import WINDOW_S, DutyCycle, Gated, PhaseSchedule, Pulse, Scaled, around, noise, share, shares
from gputop.demo.server import MIB, DemoGpu, DemoJob, DemoServer, Dip, Work
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Engine, Gpu, NvLink, PcieErrors, Throttle

IDLE_WATTS = 71.0
FULL_WATTS = 700.0
FULL_MHZ, IDLE_MHZ = 1980.0, 345.0
_QUIET = Pulse(1.0, 0.0)
_NVLINK_BYTES_PER_S = 26_562e6
_BUSES = (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF)


def uuid(card: int) -> str:
    """The identity of a card of the simulated server."""
    return f"GPU-{0x5EED0000 + card * 0x1F31:08x}-6770-7574-6f70-{card:012x}"


def activity(work: Work, seed: int) -> DutyCycle:
    """When a GPU is on with this work."""
    steps = Pulse(work.period_s, work.duty, work.jitter, seed)
    if work.dip is None:
        return steps
    return Gated(gate(work.dip, seed), steps, Pulse(2 * work.period_s, work.dip.duty, work.jitter, seed + 1))


def gate(dip: Dip, seed: int) -> Pulse:
    """When the work is not in one of its dips."""
    return Pulse(dip.every_s, 1 - dip.for_s / dip.every_s, dip.jitter, seed + 2)


@frozen_dataclass(frozen=True)
class Tenant:
    """A job on one card, and when it keeps that card busy."""

    job: DemoJob
    card: DemoGpu
    seed: int

    @cached_property
    def activity(self) -> DutyCycle:
        """Seconds of work on this card, from the job's first phase to its end."""
        return _phases(self._phases, self.job.ended_s, self.seed)

    @cached_property
    def energy(self) -> DutyCycle:
        """Joules above idle that this work used on this card."""
        parts = (
            (start, Scaled(activity(work, self.seed), above_idle_watts(self.card, work)))
            for start, work in self._phases
        )
        return PhaseSchedule((*parts, (self.job.ended_s, _QUIET)))

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
def _phases(work: tuple[tuple[float, Work], ...], ended_s: float, seed: int) -> PhaseSchedule:
    """One object for all cards that do the same: what it remembers serves them all."""
    parts = tuple((start, activity(phase, seed)) for start, phase in work)
    return PhaseSchedule((*parts, (ended_s, _QUIET)))


def above_idle_watts(card: DemoGpu, work: Work) -> float:
    """Power above idle while on, at the clock that the card's limit and its cooling leave."""
    watts = min(work.watts, card.limit_watts) - IDLE_WATTS
    if card.heat:
        watts = min(watts, (work.watts - IDLE_WATTS) * card.heat.clock_mhz / FULL_MHZ)
    return watts


def settings(server: DemoServer, card: DemoGpu) -> dict[str, Any]:
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


_A_SECOND, _KEPT = 6, 96  # samples: in a second, in the driver's buffer
_HEAT_S = 42.0  # time constant of the heat sink
_WEIGHTS = (0.14, 0.23, 0.63)  # of the power three, two and one time constants ago: an exponential in steps
_STEP_MHZ = 15
_UNITS = ("sm", "occupancy", "tensor", "dram", "fp32", "fp16", "fp64", "integer")
_RATES = ("pcie_rx", "pcie_tx", "nvlink")
_done = attrgetter(*_UNITS, *_RATES)


@lru_cache(maxsize=64)
def _ages(newest_s: float) -> tuple[float, ...]:
    """How old each sample of the buffer is."""
    return tuple(round(newest_s + number * WINDOW_S, 3) for number in reversed(range(_KEPT)))


@frozen_dataclass(frozen=True, slots=True)
class _Moment:
    t: float
    seen: float
    now: tuple[tuple[Tenant, Work, float], ...]  # tenants, what they do, the part of the last second they were on
    on: float
    awake: bool
    celsius: float


class DemoSlot:
    """One card of the server with everything that runs on it."""

    def __init__(self, server: DemoServer, card: DemoGpu) -> None:
        self.card = card
        self.uuid = uuid(card.index)
        self.tenants = tuple(
            Tenant(job, card, 100 * number + 1)
            for number, job in enumerate(server.jobs)
            if any(card.index in rank for rank in job.ranks)
        )
        # ranks step together; each card sees it a fraction of a step later
        self._behind_s = server.behind_s * (card.index % 4)
        self._settings = settings(server, card)
        self._buffer: tuple[int, list[float]] = (0, [])  # its newest number, values

    def gpu(self, t: float) -> Gpu:
        """Everything the driver would say about this card at t."""
        moment = self._moment(t)
        clock, slowed = self._clock(moment)
        seen: dict[str, Any] = {
            **self._settings,
            **self._utilisation(moment),
            **self._power(moment, clock),
            **self._units(moment),
            **slowed,
            "vram_used_bytes": 4 * MIB + sum(tenant.vram_bytes(t) for tenant in self.tenants),
            "sm_clock_mhz": clock,
            "graphics_clock_mhz": clock,
            "pcie_generation": 5 if moment.awake else 1,
            "pcie_lane_bytes_per_s": 4e9 if moment.awake else 312.5e6,
        }
        seen.update((name, value) for from_s, name, value in self.card.settings if t >= from_s)
        return Gpu(**seen)

    def glance(self, t: float, window_s: float) -> Gpu:
        """What a chart of the far past needs, as means of the window before t."""
        parts = [(tenant.work(t), share(tenant.activity, t, window_s)) for tenant in self.tenants]
        return Gpu(
            **self._settings,
            busy_percent=100 * min(1.0, sum(part for _, part in parts)),
            vram_used_bytes=4 * MIB + sum(tenant.vram_bytes(t) for tenant in self.tenants),
            power_watts=IDLE_WATTS + sum(part * above_idle_watts(self.card, work) for work, part in parts),
            power_limit_watts=self._limit(t),
            temperature_celsius=float(round(self._celsius(t))),
        )

    def _moment(self, t: float) -> _Moment:
        seen = t - self._behind_s
        now = tuple((tenant, tenant.work(t), share(tenant.activity, seen, 1.0)) for tenant in self.tenants)
        awake = any(share(tenant.activity, seen, 12.0) for tenant in self.tenants)
        return _Moment(t, seen, now, min(1.0, sum(part for _, _, part in now)), awake, self._celsius(t))

    def _utilisation(self, moment: _Moment) -> dict[str, Any]:
        last = math.floor(moment.t / WINDOW_S)
        values = self._samples(last)
        dram = sum(part * work.dram for _, work, part in moment.now)
        return {
            "busy_samples": tuple(zip(_ages(round(moment.t - last * WINDOW_S, 3)), values, strict=True)),
            "busy_percent": sum(values[-_A_SECOND:]) / _A_SECOND,
            "memory_busy_percent": min(100.0, 1.35 * dram),
        }

    def _samples(self, last: int) -> list[float]:
        """The driver's buffer up to the sample with this number: whole percents, the newest last."""
        before, values = self._buffer
        fresh = last - before if values and 0 <= last - before < _KEPT else _KEPT
        if fresh:
            edges = [number * WINDOW_S - self._behind_s for number in range(last - fresh, last + 1)]
            busy = [0.0] * fresh
            for tenant in self.tenants:
                busy = [so_far + part for so_far, part in zip(busy, shares(tenant.activity, edges), strict=True)]
            values = values[fresh:] + [float(round(100 * min(1.0, part))) for part in busy]
            self._buffer = last, values
        return values

    def _clock(self, moment: _Moment) -> tuple[float, dict[str, Any]]:
        """The clock, what holds it down, and for how much of the last second."""
        t, card, seed = moment.t, self.card, self.card.index
        soft = hard = power = 0.0
        reasons: set[Throttle] = set() if moment.awake else {"idle"}
        clock = FULL_MHZ if moment.awake else IDLE_MHZ
        wanted = max((work.watts for _, work, part in moment.now if part > 0), default=0.0)
        if wanted > self._limit(t):
            # at nearly constant voltage power above idle follows the clock
            clock *= around((self._limit(t) - IDLE_WATTS) / (wanted - IDLE_WATTS), 0.004, seed, t)
            power = 100 * moment.on
            reasons.add("power cap")
        if card.heat and moment.awake and moment.celsius > card.heat.celsius - 3:
            clock = min(clock, around(card.heat.clock_mhz, 0.01, seed, t))
            soft = around(card.heat.soft_percent, 0.1, seed, t)
            hard = around(card.heat.hard_percent, 0.1, seed + 1, t)
            power = 0.0
            reasons = {"hw thermal"} if hard else {"thermal"}
        return clock - clock % _STEP_MHZ, {
            "throttle_reasons": frozenset(reasons),
            "throttled_power_percent": power,
            "throttled_heat_percent": soft,
            "throttled_heat_hard_percent": hard,
        }

    def _power(self, moment: _Moment, clock: float) -> dict[str, Any]:
        t, seed = moment.t, self.card.index
        mean = instant = 0.0
        joules = IDLE_WATTS * (t + 86400)
        for tenant, work, part in moment.now:
            above = (work.watts - IDLE_WATTS) * min(1.0, clock / FULL_MHZ)
            mean += part * above
            instant += share(tenant.activity, moment.seen, 0.1) * above
            joules += tenant.energy.busy_s(moment.seen)
        return {
            "power_watts": IDLE_WATTS + mean,
            "power_instant_watts": around(IDLE_WATTS + instant, 0.01, seed + 9, t),
            "power_limit_watts": self._limit(t),
            "energy_joules": joules,
            "temperature_celsius": float(round(moment.celsius)),
            "memory_temperature_celsius": float(round(moment.celsius + (11 if moment.awake else 5))),
            "temperature_margin_celsius": float(round(90 - moment.celsius)),
        }

    def _limit(self, t: float) -> float:
        return self.card.limit_watts if t >= self.card.limit_from_s else FULL_WATTS

    def _celsius(self, t: float) -> float:
        """Core temperature: it follows the power of the last minutes, the latest most."""
        card = self.card
        watts = IDLE_WATTS
        edges = [t - ago for ago in (3 * _HEAT_S, 2 * _HEAT_S, _HEAT_S, 0.0)]
        for tenant in self.tenants:
            parts = shares(tenant.activity, edges)
            watts += sum(
                weight * part * above_idle_watts(card, tenant.work(end))
                for weight, part, end in zip(_WEIGHTS, parts, edges[1:], strict=True)
            )
        celsius = card.ambient + 0.6 * (card.index % 4) + card.kelvin_per_watt * watts
        if card.heat and t >= card.heat.from_s:
            celsius += (card.heat.celsius - celsius) * (1 - math.exp((card.heat.from_s - t) / _HEAT_S))
        return celsius + 0.4 * noise(card.index + 50, t / 8)

    def _units(self, moment: _Moment) -> dict[str, Any]:
        t, seed = moment.t, self.card.index
        wobble, done = around(1.0, 0.03, seed + 3, t), [0.0] * len(_UNITS + _RATES)
        for _, work, part in moment.now:
            done = [so_far + part * each for so_far, each in zip(done, _done(work), strict=True)]
        sm, occupancy, tensor, dram, fp32, fp16, fp64, integer = (
            min(100.0, each * wobble) for each in done[: len(_UNITS)]
        )
        rx, tx, nvlink = (around(rate, 0.05, seed, t) for rate in done[len(_UNITS) :])
        return {
            "graphics_active_percent": 100 * moment.on,
            "sm_active_percent": sm,
            "sm_occupancy_percent": occupancy,
            "tensor_percent": tensor,
            "tensor_half_percent": tensor,
            "dram_percent": dram,
            "fp32_percent": fp32,
            "fp16_percent": fp16,
            "fp64_percent": fp64,
            "integer_percent": integer,
            "pcie_rx_bytes_per_s": rx,
            "pcie_tx_bytes_per_s": tx,
            "nvlink_tx_bytes_per_s": nvlink,
            "nvlink_rx_bytes_per_s": nvlink,
        }

"""GPM: how busy the units inside a GPU are (Hopper and newer), from two samples a second apart."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gputop.collect.nvml.card import Card
from gputop.collect.nvml.gate import ABSENT, OK, DriverGone, Gate, No, Unanswered, refusal
from gputop.collect.nvml.probe import Answers, probe
from gputop.model import Note
from gputop.safe.text import decode

_MIB = 1024 * 1024
_MOST_BYTES_PER_S = 4e12
_OFF = No("absent", "--gpm on")
_LOOK_EVERY = 300  # ticks between two looks for a DCGM host engine

SHARES = {
    1: "graphics_active_percent",
    2: "sm_active_percent",
    3: "sm_occupancy_percent",
    4: "integer_percent",
    5: "tensor_percent",
    7: "tensor_half_percent",
    8: "tensor_double_percent",
    9: "tensor_integer_percent",
    10: "dram_percent",
    11: "fp64_percent",
    12: "fp32_percent",
    13: "fp16_percent",
    174: "context_switch_percent",
}
RATES = {
    20: "pcie_tx_bytes_per_s",
    21: "pcie_rx_bytes_per_s",
    60: "nvlink_rx_bytes_per_s",
    61: "nvlink_tx_bytes_per_s",
}
_ALL = SHARES | RATES


@dataclass(slots=True)
class Samples:
    """The two samples of a GPU, which take turns, and the request that compares them."""

    before: Any
    now: Any
    request: Any
    primed: bool = False  # `before` holds a sample


@probe(every_s=1, fills=tuple(SHARES.values()), backs=tuple(RATES.values()))
def gpm(card: Card) -> Answers:
    """What the units did since the last look: one call takes a sample, one compares it with the one before."""
    if card.gpm is not None:
        card.kept.pop("gpm", None)
        return dict.fromkeys(_ALL.values(), card.gpm)
    samples: Samples | None = card.kept.get("gpm")
    if samples is None:
        question = "nvmlGpmQueryDeviceSupport"
        if not card.call(question).isSupportedDevice:
            refused = Unanswered(No("unsupported", "Hopper or newer"))
            card.hush((question,), refused)
            raise refused
        samples = card.kept["gpm"] = _allocate(card.gate)
    _take(card, samples.now)
    try:
        return _compare(card, samples) if samples.primed else dict.fromkeys(_ALL.values(), ABSENT)
    finally:
        samples.before, samples.now, samples.primed = samples.now, samples.before, True


def _allocate(gate: Gate) -> Samples:
    request = gate.binding.c_nvmlGpmMetricsGet_t()
    request.version = gate.binding.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = len(_ALL)
    for place, number in enumerate(_ALL):
        request.metrics[place].metricId = number
    return Samples(gate.call("nvmlGpmSampleAlloc"), gate.call("nvmlGpmSampleAlloc"), request)


def _take(card: Card, sample: Any) -> None:
    if card.parent is None or card.instance is None:
        card.call("nvmlGpmSampleGet", since=(sample,))
    else:
        card.parent.call("nvmlGpmMigSampleGet", card.instance, since=(sample,))


def _compare(card: Card, samples: Samples) -> Answers:
    request = samples.request
    request.sample1, request.sample2 = samples.before, samples.now
    card.gate.call("nvmlGpmMetricsGet", request, gpu=card.index)
    return {_ALL[metric.metricId]: _value(metric) for metric in request.metrics[: len(_ALL)]}


def _value(metric: Any) -> float | No | None:
    if metric.nvmlReturn != OK:
        return refusal(metric.nvmlReturn).no
    value: float = metric.value
    if metric.metricId in RATES:
        value *= _MIB
        return value if 0 <= value <= _MOST_BYTES_PER_S else None
    # a mean over a second may stand a little above its maximum; NaN is no value
    return min(value, 100.0) if 0 <= value <= 101 else None


def release(card: Card) -> None:
    """Give the samples back before the driver is closed."""
    samples: Samples | None = card.kept.pop("gpm", None)
    if samples is not None:
        for sample in (samples.before, samples.now):
            try:
                card.gate.call("nvmlGpmSampleFree", sample)
            except (Unanswered, DriverGone):
                pass


class Switch:
    """Whether GPM is read: on, off, or auto, which is when somebody wants it and no DCGM measures on this host."""

    def __init__(self, mode: str, proc_root: str) -> None:
        self.mode = mode
        self.wanted = False
        self.note: Note | None = None
        self._proc_root = proc_root
        self._looked_at: int | None = None

    def no(self, tick: int) -> No | None:
        """Why it is not read now; None if it is."""
        if self.mode == "auto" and self.wanted:
            if self._looked_at is None or tick - self._looked_at >= _LOOK_EVERY:
                self._looked_at = tick
                self.note = self._conflict()
            return _OFF if self.note else None
        self.note, self._looked_at = None, None
        return None if self.mode == "on" else _OFF

    def _conflict(self) -> Note | None:
        engine = next(_named(self._proc_root, ("nv-hostengine", "dcgm-exporter")), None)
        if engine is None:
            return None
        return Note(
            subject="driver",
            key="dcgm",
            text=f"GPM is off: {engine} reads the same counters.",
            help=("gputop --gpm on reads them all the same.",),
        )


def _named(proc_root: str, names: tuple[str, ...]) -> Iterator[str]:
    try:
        pids = [entry for entry in os.listdir(proc_root) if entry.isdigit()]
    except OSError:
        return
    for pid in pids:
        try:
            with open(f"{proc_root}/{pid}/comm", "rb") as file:
                name = decode(file.read(64).rstrip(b"\n"))
        except OSError:
            continue
        if name in names:
            yield f"{name} (pid {pid})"

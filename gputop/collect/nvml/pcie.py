"""PCIe: how wide, how fast, how faulty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gputop.collect.nvml.card import Card
from gputop.collect.nvml.fields import count, field, read, tally
from gputop.collect.nvml.gate import No
from gputop.collect.nvml.probe import Answers, probe
from gputop.collect.nvml.traffic import LANE_BYTES_PER_S
from gputop.model import PcieErrors

_MOST_LANES = 32
_NEWEST_GENERATION = 10


_GENERATIONS = {
    "2.5": 1,
    "5.0": 2,
    "5": 2,
    "8.0": 3,
    "16.0": 4,
    "32.0": 5,
    "64.0": 6,
}  # by GT/s, as the kernel writes it


def _small(value: int, high: int) -> int | None:
    return value if 0 < value <= high else None


@probe(every_s=10, fills=("pcie_generation", "pcie_lane_bytes_per_s"))
def pcie_generation(card: Card) -> Answers:
    """PCIe generation now, and how fast it makes a lane; both drop while the GPU idles."""
    generation: int = card.call("nvmlDeviceGetCurrPcieLinkGeneration")
    return {
        "pcie_generation": _small(generation, _NEWEST_GENERATION),
        "pcie_lane_bytes_per_s": LANE_BYTES_PER_S.get(generation),
    }


@probe(every_s=10, fills=("pcie_width",))
def pcie_width(card: Card) -> Answers:
    """PCIe lanes now."""
    return {"pcie_width": _small(card.call("nvmlDeviceGetCurrPcieLinkWidth"), _MOST_LANES)}


@probe(every_s=0, fills=("pcie_generation_max",))
def pcie_generation_max(card: Card) -> Answers:
    """Highest generation that device and slot can do together."""
    return {"pcie_generation_max": _small(card.call("nvmlDeviceGetMaxPcieLinkGeneration"), _NEWEST_GENERATION)}


@probe(every_s=0, fills=("pcie_width_max",))
def pcie_width_max(card: Card) -> Answers:
    """Most lanes that the device can do; some drivers do not know how many the slot is wired for."""
    return {"pcie_width_max": _small(card.call("nvmlDeviceGetMaxPcieLinkWidth"), _MOST_LANES)}


@probe(every_s=0, fills=("pcie_slot_generation", "pcie_slot_width"))
def slot(card: Card) -> Answers:
    """What the port can do that the card is plugged into, from the kernel; no call."""
    port = card.slot.port if card.slot else None
    if port is None:
        return dict.fromkeys(("pcie_slot_generation", "pcie_slot_width"), No("absent"))
    speed, lanes = port.read("max_link_speed") or "", port.read("max_link_width") or ""
    return {
        "pcie_slot_generation": _GENERATIONS.get(speed.partition(" ")[0]),
        "pcie_slot_width": _small(int(lanes), _MOST_LANES) if lanes.isdigit() else None,
    }


@probe(every_s=0, fills=("pcie_generation_device_max",))
def pcie_generation_device_max(card: Card) -> Answers:
    """Highest generation of the device alone, in whatever slot."""
    newest: int = card.call("nvmlDeviceGetGpuMaxPcieLinkGeneration")
    return {"pcie_generation_device_max": _small(newest, _NEWEST_GENERATION)}


_PCIE = {
    "replay_rollovers": 95,
    "recoveries": 169,
    "correctable": 173,
    "naks_received": 174,
    "receiver_errors": 175,
    "bad_packets": 176,
    "naks_sent": 177,
    "bad_link_packets": 178,
    "non_fatal": 179,
    "fatal": 180,
    "unsupported_requests": 181,
    "checksum_errors": 182,
    "lane_errors": 183,
}
_ERRORS = (field("pcie_replays", tally, 94), *(field(name, count(), one) for name, one in _PCIE.items()))


@probe(every_s=10, fills=("pcie_replays", "pcie_errors"))
def pcie_errors(card: Card) -> Answers:
    """What went wrong on PCIe, in one call."""
    given = read(card, _ERRORS)
    return {"pcie_replays": given.pop("pcie_replays"), "pcie_errors": _counted(given)}


def _counted(given: Mapping[str, Any]) -> PcieErrors | No | None:
    """The counters this card has; if it has none, why."""
    known = {name: value for name, value in given.items() if isinstance(value, int)}
    if known:
        return PcieErrors(**known)
    return next((value for value in given.values() if isinstance(value, No)), None)


@probe(every_s=10, backs=("pcie_replays",))
def pcie_replays(card: Card) -> Answers:
    """PCIe replays from the call of older drivers."""
    return {"pcie_replays": card.call("nvmlDeviceGetPcieReplayCounter")}

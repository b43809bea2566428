"""The links of a GPU: PCIe and NVLink, how wide, how fast, how faulty."""

from __future__ import annotations

from gputop.collect.nvml.card import Card
from gputop.collect.nvml.fields import EACH, Field, count, field, read, tally
from gputop.collect.nvml.probe import Answers, probe

_MOST_LANES = 32
_NEWEST_GENERATION = 10


def _small(value: int, high: int) -> int | None:
    return value if 0 < value <= high else None


@probe(every_s=10, fills=("pcie_generation",))
def pcie_generation(card: Card) -> Answers:
    """PCIe generation now; it drops while the GPU idles."""
    return {"pcie_generation": _small(card.call("nvmlDeviceGetCurrPcieLinkGeneration"), _NEWEST_GENERATION)}


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
    """Most lanes that device and slot can do together."""
    return {"pcie_width_max": _small(card.call("nvmlDeviceGetMaxPcieLinkWidth"), _MOST_LANES)}


LINKS = (
    field("pcie_replays", tally, 94),
    Field("nvlinks_active", count(), ((165, EACH),)),
)
# replay, recovery and CRC; from Blackwell on there are recovery events instead
ERRORS = (161, 162, 163)
EVENTS = (215,)


@probe(every_s=10, fills=("pcie_replays", "nvlinks_active", "nvlink_errors"))
def links(card: Card) -> Answers:
    """Errors of both links and the NVLinks that are up, in one call."""
    faults = [Field(str(one), tally, ((one, EACH),)) for one in (*ERRORS, *EVENTS)]
    given = read(card, (*LINKS, *faults))
    known = [given[str(one)] for one in ERRORS if isinstance(given[str(one)], int)]
    given["nvlink_errors"] = sum(known) if known else given[str(EVENTS[0])]
    return {name: given[name] for name in ("pcie_replays", "nvlinks_active", "nvlink_errors")}


@probe(every_s=10, backs=("pcie_replays",))
def pcie_replays(card: Card) -> Answers:
    """PCIe replays from the call of older drivers."""
    return {"pcie_replays": card.call("nvmlDeviceGetPcieReplayCounter")}

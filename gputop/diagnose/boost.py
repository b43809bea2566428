"""The clock that a card is made to hold at work, which is not always the highest that its driver names.

On GeForce and workstation cards nvmlDeviceGetMaxClockInfo answers the end of the voltage curve (3105 MHz of an RTX
4090, whose boost clock is 2520), which no card reaches under load, and nvmlDeviceGetMaxCustomerBoostClock is not
supported. There the boost clock of the data sheet is used, or none.
"""

from __future__ import annotations

import re
from functools import lru_cache

from gputop.model import Gpu

# boost clocks in MHz by NVIDIA's data sheets; partners' cards run somewhat faster, laptops by their power limit: there
# is none for these, whose names go on with "Laptop GPU" or "with Max-Q Design"
_GEFORCE = {
    "RTX 5090": 2407, "RTX 5080": 2617, "RTX 5070 Ti": 2452, "RTX 5070": 2512, "RTX 5060 Ti": 2572, "RTX 5060": 2497,
    "RTX 4090": 2520, "RTX 4090 D": 2520, "RTX 4080 SUPER": 2550, "RTX 4080": 2505, "RTX 4070 Ti SUPER": 2610,
    "RTX 4070 Ti": 2610, "RTX 4070 SUPER": 2475, "RTX 4070": 2475, "RTX 4060 Ti": 2535, "RTX 4060": 2460,
    "RTX 3090 Ti": 1860, "RTX 3090": 1695, "RTX 3080 Ti": 1665, "RTX 3080": 1710, "RTX 3070 Ti": 1770,
    "RTX 3070": 1725, "RTX 3060 Ti": 1665, "RTX 3060": 1777,
    "RTX 2080 Ti": 1545, "RTX 2080 SUPER": 1815, "RTX 2080": 1710, "RTX 2070 SUPER": 1770, "RTX 2070": 1620,
    "RTX 2060 SUPER": 1650, "RTX 2060": 1680,
}  # fmt: skip
_WORKSTATION = {
    "RTX 6000 Ada Generation": 2505, "RTX 5000 Ada Generation": 2550, "RTX A6000": 1800, "RTX A5000": 1695,
    "RTX A4000": 1560, "TITAN RTX": 1770, "Quadro RTX 8000": 1770, "Quadro RTX 6000": 1770,
}  # fmt: skip
_BOOST = {f"GeForce {name}": float(mhz) for name, mhz in _GEFORCE.items()} | _WORKSTATION
# cards and chips whose highest clock is the end of their curve; what the data center runs reaches its own
_BEYOND_REACH = re.compile(
    r"GeForce|\b(RTX|GTX|TITAN|Quadro|CMP|T[1-9]\d{2,3}|GB10|DGX Spark|Thor|Orin|Xavier|Tegra\w*|Jetson|N1X)\b", re.I
)


@lru_cache(maxsize=256)
def _advertised(name: str) -> float | None:
    return _BOOST.get(name.removeprefix("NVIDIA ").strip())


@lru_cache(maxsize=256)
def reaches_its_highest(name: str) -> bool:
    """Whether a card of this name reaches its highest clock at work."""
    return _BEYOND_REACH.search(name) is None


def advertised_mhz(gpu: Gpu) -> float | None:
    """The boost clock of the data sheet, of a card whose highest clock says nothing; None if that is not known."""
    found = None if reaches_its_highest(gpu.name) else _advertised(gpu.name)
    return found if found is None or gpu.sm_clock_max_mhz is None else min(found, gpu.sm_clock_max_mhz)


def at_work_mhz(gpu: Gpu) -> float | None:
    """MHz that it holds at work when nothing slows it; None where nobody can tell."""
    if gpu.boost_clock_max_mhz or reaches_its_highest(gpu.name):
        return gpu.boost_clock_max_mhz or gpu.sm_clock_max_mhz
    return advertised_mhz(gpu)


def highest_mhz(gpu: Gpu) -> float | None:
    """What shares of its clock are of: the boost clock of the data sheet where its highest clock says nothing."""
    return (None if gpu.boost_clock_max_mhz else advertised_mhz(gpu)) or gpu.sm_clock_max_mhz

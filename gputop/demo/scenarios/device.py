"""Cards that are hot, set low, badly seated, broken, or cut in parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gputop.demo.gpu import uuid
from gputop.demo.scenarios.parts import BEFORE_S, HEALTHY, ONSET_S, card_fault, each, llama, workstation
from gputop.demo.server import GIB, DemoGpu, PoorCooling, Scenario
from gputop.model import Missing


def _from(onset_s: float, **settings: Any) -> tuple[tuple[float, str, Any], ...]:
    return tuple((onset_s, name, value) for name, value in settings.items())


_OF_UNITS = "MIG instances have no utilization counter: on Hopper and newer, GPM shows their activity"


def instances() -> Scenario:
    """A card cut in two, of which the driver says little."""
    absent = ("busy_percent", "memory_busy_percent", "graphics_active_percent", "sm_active_percent", "tensor_percent",
              "dram_percent")  # fmt: skip
    mute = dict.fromkeys(absent) | {"busy_samples": ()}
    whole, part = (
        tuple(Missing(metric=name, reason="unsupported", unlock=unlock) for name in absent)
        for unlock in ("see its MIG instances", _OF_UNITS)
    )
    card = DemoGpu(index=0, settings=_from(-1e9, mig_mode=True, missing=whole, **mute))
    parts = tuple(
        DemoGpu(
            index=number,
            settings=_from(
                -1e9, **mute, missing=part, mig_mode=True, parent_uuid=uuid(0), index=f"0:{number - 1}",
                name="NVIDIA H100 80GB HBM3 MIG 3g.40gb", vram_total_bytes=39 * GIB, vram_reserved_bytes=0,
            ),
        )
        for number in (1, 2)
    )  # fmt: skip
    work = replace(HEALTHY, nvlink=0, vram_bytes=24 * GIB, watts=300)
    server = workstation(llama(each(1), (BEFORE_S, work), loaders=2))
    title = "a GPU split into two MIG instances that report no utilization"
    return Scenario(name="mig-visibility", title=title, server=replace(server, cards=(card, *parts)))


def forgetful() -> Scenario:
    """A driver that is unloaded whenever it is unused."""
    scenario = card_fault(
        "persistence-off",
        "persistence mode off: the driver unloads between jobs",
        settings=_from(ONSET_S, persistence_mode=False),
    )
    others = tuple(one for one in scenario.server.others if "persistenced" not in one[3])
    return replace(scenario, server=replace(scenario.server, others=others))


def scenarios() -> Iterator[Scenario]:
    """Each plants the rule it is named after."""
    hot = PoorCooling(celsius=90, clock_mhz=1410, soft_percent=45, from_s=ONSET_S)
    yield card_fault("thermal", "a GPU at 90 °C: hardware thermal slowdown", heat=hot)
    yield card_fault(
        "power", "a GPU with its power limit at 300 W (default 700 W)", limit_watts=300, limit_from_s=ONSET_S
    )
    yield card_fault(
        "clocks-low", "a GPU with SM clocks locked at 1200 MHz (maximum 1980 MHz)",
        settings=_from(ONSET_S, sm_clock_mhz=1200.0, graphics_clock_mhz=1200.0, power_watts=410.0),
    )  # fmt: skip
    yield forgetful()
    yield card_fault(
        "pcie-degraded", "a GPU with 8 of 16 PCIe lanes",
        settings=_from(ONSET_S, pcie_width=8, pcie_generation=4),
    )  # fmt: skip
    yield card_fault(
        "hw-errors", "a GPU with uncorrectable memory (ECC) errors",
        settings=_from(ONSET_S, ecc_uncorrected=2, remapped_uncorrected=1, remap_pending=True),
    )  # fmt: skip
    yield instances()

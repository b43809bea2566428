"""The PCIe link of a card: the rule fires, just does not, and abstains."""

from __future__ import annotations

import pytest

from tests.rule_cases import Machine, found, refused, silent


def machine(**gpu: object) -> Machine:
    return Machine(gpu=gpu)


@pytest.mark.parametrize(
    ("gpu", "severity"),
    [
        ({"pcie_width": 8}, "warn"),
        ({"pcie_width": 8, "pcie_slot_width": None}, "info"),  # its slot may be wired for so many
        ({"pcie_width": 8, "pcie_slot_width": 8}, "info"),  # as most slots of a workstation but the first are
        ({"pcie_width": 4, "pcie_slot_width": 8}, "warn"),
        ({"pcie_width": 8, "pcie_slot_width": 1}, "info"),  # an emulated port says what cannot be
        ({"pcie_width": 8, "pcie_width_max": 16, "pcie_slot_width": 8, "pcie_generation": 4}, "warn"),
        ({"pcie_generation": 4, "pcie_slot_generation": 4}, None),
        ({"pcie_generation": 3, "pcie_slot_generation": 4}, "warn"),
        ({"pcie_generation": 4, "pcie_slot_generation": None}, "warn"),
        ({"pcie_generation": 4}, "warn"),
        ({"pcie_generation": 4, "performance_state": 2}, "warn"),
        ({"pcie_generation": 1, "performance_state": 5}, None),  # it saves power, though it has a little to do
        ({"pcie_width": 8, "pcie_generation": 1, "performance_state": 8}, "warn"),
        ({"pcie_width": 8, "pcie_width_max": 8}, None),
        ({"pcie_width": 8, "busy_percent": 19.0}, None),  # at rest it saves power
        ({"pcie_generation_device_max": 6}, "info"),
        ({"pcie_replays": lambda t: int(t * 32 / 60)}, "warn"),
        ({"pcie_replays": lambda t: int(t * 29 / 60)}, None),
        ({"pcie_replays": lambda t: 5000}, None),  # from before
    ],
)
def test_pcie_degraded(gpu: dict[str, object], severity: str | None) -> None:
    finding = found(machine(**gpu).verdict(240), "pcie-degraded")
    assert (finding and finding.severity) == severity


def test_pcie_degraded_says_what_is_lost() -> None:
    told = found(machine(pcie_width=8, pcie_generation=4, pci_bus_id="00000000:1B:00.0").verdict(90), "pcie-degraded")
    assert told is not None
    assert told.headline == "degraded PCIe link, 25 % of rated speed"
    assert told.evidence[0].text == "25 % of rated speed under load: 8 of 16 lanes, Gen4 of Gen5"
    assert told.steps[0].command == "sudo lspci -vv -s 0000:1b:00.0 | grep -E 'LnkCap|LnkSta'"
    assert told.steps[0].needs_root
    assert told.primary


def test_a_card_that_is_lent_to_a_virtual_machine_is_not_seated_anew() -> None:
    lent = {"pcie_width": 8, "virtualization": "passthrough"}
    told = found(machine(**lent).verdict(90), "pcie-degraded")
    assert told is not None
    assert (told.severity, [step.text.partition(" of this")[0] for step in told.steps]) == (
        "info",
        ["Compare with another instance"],
    )
    faulty = found(machine(**lent, pcie_replays=lambda t: 20 * int(t)).verdict(240), "pcie-degraded")
    assert faulty is not None
    assert faulty.severity == "warn"
    assert not any(step.command for step in faulty.steps)


def test_pcie_degraded_leaves_out_the_generation_of_a_card_that_saves_power() -> None:
    told = found(machine(pcie_width=8, pcie_generation=1, performance_state=8).verdict(90), "pcie-degraded")
    assert told is not None
    assert told.headline == "degraded PCIe link, 50 % of rated speed"
    assert told.evidence[0].text == "50 % of rated speed under load: 8 of 16 lanes, Gen1 of Gen5 (power saving)"


def test_a_slot_that_is_wired_for_fewer_lanes_is_no_fault_of_the_link() -> None:
    told = found(machine(pcie_width=8, pcie_slot_width=8).verdict(90), "pcie-degraded")
    assert told is not None
    assert told.headline == "narrow PCIe slot, x8 for an x16 GPU"
    assert told.evidence[0].text == "8 of 16 lanes, all that the slot has"
    assert not any(step.command for step in told.steps)


def test_lanes_are_told_of_those_that_the_slot_has() -> None:
    told = found(machine(pcie_width=4, pcie_slot_width=8).verdict(90), "pcie-degraded")
    assert told is not None
    assert told.headline == "degraded PCIe link, 50 % of rated speed"
    assert told.evidence[0].text == "50 % of rated speed under load: 4 of 8 lanes, Gen5 of Gen5"


def test_nothing_is_said_of_the_placeholder_of_unified_memory() -> None:
    """GB10 answers generation 1 with one lane, with success."""
    chip = {"name": "NVIDIA GB10", "compute_capability": (12, 1), "pcie_width": 1, "pcie_generation": 1}
    assert found(machine(**chip).verdict(90), "pcie-degraded") is None


def test_pcie_degraded_abstains_without_the_link() -> None:
    assert silent(machine(**refused("pcie_width")).verdict(5), "pcie-degraded") is not None

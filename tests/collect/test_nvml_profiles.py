"""Each class of devices under the fake driver: what is there is right, and what is not has its reason."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from gputop.model import Gpu, metrics
from tests.device_profiles import each, frame, gpus, seen
from tests.fakenvml import WORKER, Fake
from tests.fakenvml.profiles import GB10, LAPTOP, PROFILES, Profile
from tests.nvml_child import Child

REASONS = {"unsupported", "denied", "absent", "implausible"}  # "stale" would be a question that is asked in vain

# what must be there, whatever else is: at work
BUSY = {
    "rtx4090-550": {
        "busy_percent": 97, "vram_used_bytes": 18 << 30, "power_watts": 392, "power_instant_watts": 401,
        "temperature_celsius": 66, "sm_clock_mhz": 2610, "memory_clock_mhz": 10251, "memory_clock_max_mhz": 10501,
        "fan_percent": 46, "pcie_rx_bytes_per_s": 5e8, "pcie_slot_width": 16, "ecc_mode": False,
    },
    "rtx5090-610": {
        "busy_percent": 97, "power_watts": 498, "slowdown_celsius": 93, "shutdown_celsius": 96, "gpu_max_celsius": 90,
        "temperature_margin_celsius": 28, "memory_clock_mhz": 13801, "pcie_rx_bytes_per_s": 5e8,
    },
    "h100-550": {
        "busy_percent": 97, "tensor_percent": 51, "sm_active_percent": 88, "ecc_corrected": 3, "ecc_uncorrected": 0,
        "memory_temperature_celsius": 66, "power_limit_watts": 310, "pcie_rx_bytes_per_s": 480 << 20,
    },
    "h100-580": {
        "busy_percent": 97, "tensor_percent": 51, "ecc_corrected": 3, "slowdown_celsius": 90,
        "throttled_power_percent": 3, "recovery_action": "none", "power_limit_watts": 700,
    },
    "h200-580": {
        "busy_percent": 99, "memory_busy_percent": 24, "tensor_percent": 93.2, "dram_percent": 17, "power_watts": 691,
        "power_memory_watts": 57.5, "throttled_power_percent": 100, "slowdown_celsius": 89, "shutdown_celsius": 95,
        "gpu_max_celsius": 87, "pcie_rx_bytes_per_s": 13.3 * 2**20, "virtualization": "passthrough", "ecc_corrected": 0,
        "sm_clock_mhz": 1425, "recovery_action": "none",
    },
    "gb10": {"busy_percent": 97, "power_watts": 68, "temperature_celsius": 72, "unified_memory": True},
    "thor": {"busy_percent": 97, "unified_memory": True, "mig_mode": False, "persistence_mode": False},
    "laptop": {"busy_percent": 97, "power_watts": 71, "shutdown_celsius": 100, "pcie_width": 8, "pcie_slot_width": 8},
    "mig-container": {"power_watts": 402, "mig_mode": True, "temperature_celsius": 55},
    "wsl": {"busy_percent": 97, "vram_used_bytes": 6000 << 20, "power_watts": 52, "pcie_rx_bytes_per_s": 5e8},
    "cc-h200": {
        "busy_percent": 97, "vram_used_bytes": 120 << 30, "temperature_celsius": 57, "power_watts": 590,
        "virtualization": "passthrough",
    },
}  # fmt: skip
# what must not be told of it, and why
GONE = {
    "rtx4090-550": dict.fromkeys(
        ("temperature_margin_celsius", "slowdown_celsius", "recovery_action", "tensor_percent", "boost_clock_max_mhz",
         "memory_temperature_celsius", "throttled_heat_hard_percent", "ecc_corrected", "nvlink_tx_bytes_per_s"),
        "unsupported",
    ),
    "rtx5090-610": dict.fromkeys(("boost_clock_max_mhz", "memory_max_celsius", "memory_temperature_celsius"),
                                 "unsupported"),
    "h100-550": dict.fromkeys(("c2c_tx_bytes_per_s", "context_switch_percent", "power_memory_watts"), "unsupported"),
    "h100-580": {"fan_percent": "unsupported"},
    "h200-580": dict.fromkeys(
        ("fan_percent", "retired_pages", "mma_stall_percent", "nvlink_rx_bytes_per_s", "nvlinks", "power_module_watts",
         "pcie_slot_width"),
        "unsupported",
    ) | {"pcie_slot_width": "absent"},
    "gb10": dict.fromkeys(
        ("vram_total_bytes", "power_limit_watts", "memory_clock_mhz", "fan_percent", "ecc_uncorrected",
         "pcie_generation", "pcie_width", "memory_busy_percent"),
        "unsupported",
    ),
    "thor": dict.fromkeys(
        ("vram_used_bytes", "power_watts", "temperature_celsius", "memory_busy_percent"), "unsupported"
    ),
    "laptop": {"power_instant_watts": "implausible", "gpu_max_celsius": "implausible", "ecc_corrected": "unsupported",
               "fan_percent": "unsupported", "remapped_corrected": "unsupported"},
    "mig-container": {"vram_used_bytes": "denied", "busy_percent": "unsupported"},
    "wsl": {"fan_percent": "unsupported", "ecc_mode": "unsupported"},
    "cc-h200": {"tensor_percent": "unsupported"},
}  # fmt: skip


def told(name: str, idle: bool = False) -> Gpu:
    """The first card of a class, as every screen and rule gets it."""
    return frame(gpus(name, idle)).gpus[0]


def reasons(gpu: Gpu) -> dict[str, str]:
    return {one.metric: one.reason for one in gpu.missing}


@pytest.mark.parametrize("idle", [False, True], ids=["at work", "at rest"])
@each
def test_n34_runs_with_what_there_is_and_says_why_the_rest_is_not(name: str, idle: bool) -> None:
    cards = frame(gpus(name, idle)).gpus
    assert len([one for one in cards if one.parent_uuid is None]) == PROFILES[name].gpus
    assert {one.condition for one in cards} == {"ok"}
    assert seen(name, idle).notes.keys() <= {"slow"}, "and nothing is wrong with the driver"
    for gpu in cards:
        why = reasons(gpu)
        for metric in metrics(Gpu):
            assert why.get(metric.name, "absent") in REASONS, metric.name
            assert (getattr(gpu, metric.name) is None) == (metric.name in why), metric.name


@each
def test_what_is_there_is_right(name: str) -> None:
    gpu = told(name)
    for metric, value in BUSY[name].items():
        wanted = value if isinstance(value, str) else pytest.approx(value, rel=0.06)
        assert getattr(gpu, metric) == wanted, metric
    assert {one: reasons(gpu).get(one) for one in GONE[name]} == GONE[name]


@each
def test_a_card_at_rest_is_at_rest(name: str) -> None:
    gpu = told(name, idle=True)
    assert gpu.busy_percent in (0, None)
    assert (gpu.busy_percent is None) == (name == "mig-container")
    assert {percent for _, percent in gpu.busy_samples} <= {0}
    for metric in ("tensor_percent", "sm_active_percent", "dram_percent", "nvlink_rx_bytes_per_s"):
        assert getattr(gpu, metric) in (0, None), metric
    assert (gpu.power_watts or 0) < 90
    assert gpu.throttle_reasons in (frozenset({"idle"}), None)


def test_the_instance_of_a_card_whose_memory_may_not_be_read_has_its_own() -> None:
    _, child = gpus("mig-container")
    assert child.vram_used_bytes == 2 << 30
    assert child.sm_active_percent == pytest.approx(45.5, abs=1)
    assert seen("mig-container").shares[WORKER][0]["uuid"] == child.uuid


def test_a_card_of_a_pool_that_lists_nobody_is_read_all_the_same(fake: Fake) -> None:
    """A container without the host's processes on a GB10: the lists are empty, with success."""
    fake.play(GB10)
    fake.processes.clear()
    fake.write()
    with Child(fake) as child:
        said = child.sweep(4)
    assert (said.shares, said.notes, said.conditions) == ({}, {}, {"0": "ok"})
    assert said.gpu(0)["busy_percent"] == 97


def test_processes_of_unified_memory_have_theirs() -> None:
    (share,) = seen("gb10").shares[WORKER]
    assert (share["vram_bytes"], share["busy_percent"]) == (2 << 30, 96)


def test_a_buffer_that_has_run_dry_is_not_what_it_said_last(fake: Fake) -> None:
    """A GB10 that goes to rest stores no sample for minutes."""
    fake.play(GB10)
    with Child(fake) as child:
        assert child.sweep(2).gpu(0)["busy_percent"] == 97
        fake.play(GB10, idle=True)
        child.rest_and_sweep(1.2)
        last = child.rest_and_sweep(0.3).gpu(0)
    assert last["busy_percent"] == 0
    assert last["busy_samples"][-1][1] == 0


def test_a_card_comes_from_its_rest(fake: Fake) -> None:
    fake.play(LAPTOP, idle=True)
    with Child(fake) as child:
        child.sweep(3)
        fake.play(LAPTOP)
        child.sweep(11)
        child.rest_and_sweep(1.5)  # the mean is that of a second
        gpu = child.rest_and_sweep(0.5).gpu(0)
    assert (gpu["busy_percent"], gpu["pcie_generation"], gpu["memory_clock_mhz"]) == (97, 4, 6000)


def test_a_profile_is_whole() -> None:
    wanted = {one.name for one in fields(Profile)}
    assert all(wanted == set(vars(profile)) for profile in PROFILES.values())
    assert list(PROFILES) == list(BUSY) == list(GONE)
    assert all(profile.seen <= {metric.name for metric in metrics(Gpu)} for profile in PROFILES.values())
    states: list[dict[str, Any]] = [profile.state for profile in PROFILES.values()]
    assert len({state["gpu.*.name"] for state in states}) == len(PROFILES) - 2, "two are one card, twice"

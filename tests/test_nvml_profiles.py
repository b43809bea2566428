"""Drivers that are not a data centre's: what they lack is missing, what they have is read."""

from __future__ import annotations

import pytest

from gputop.model import Gpu, metrics
from tests.fakenvml import Fake
from tests.nvml_child import Child

NO_POWER = ("power_mw", "power_average_mw", "power_instant_mw", "power_limit_enforced_mw", "energy_mj")
NO_PCIE = ("pcie_gen", "pcie_max_gen", "pcie_width", "pcie_max_width", "pcie_replays", "pcie_tx_bytes", "pcie_rx_bytes")
PROFILES = {  # keys the driver does not answer, functions that fail, metrics that must be there all the same
    "gb10, memory shared with the host": (
        ("memory_total", "memory_temperature", *NO_PCIE, "margin_temperature"),
        (),
        ("busy_percent", "power_watts", "sm_clock_mhz", "tensor_percent"),
    ),
    "jetson": (
        ("memory_total", "temperature", *NO_POWER, *NO_PCIE, "sm_clock", "mem_clock", "pstate"),
        ("nvmlDeviceGetComputeRunningProcesses*", "nvmlGpm*", "nvmlDeviceGetMigMode", "nvmlDeviceGetEccMode"),
        ("busy_percent",),
    ),
    "wsl": (
        (*NO_PCIE, "fan_percent", "ecc_corrected", "ecc_uncorrected", "event_types"),
        ("nvmlDeviceGetComputeRunningProcesses*", "nvmlDeviceGetProcessUtilization", "nvmlDeviceGetTopology*"),
        ("busy_percent", "vram_used_bytes", "temperature_celsius", "power_watts"),
    ),
    "vgpu": (
        (*NO_POWER, *NO_PCIE, "temperature", "event_reasons", "nvlink_count", "margin_temperature"),
        ("nvmlGpm*", "nvmlDeviceGetSamples"),
        ("busy_percent", "vram_used_bytes"),
    ),
    "kepler, without field values": (
        (),
        ("nvmlDeviceGetFieldValues", "nvmlGpm*", "nvmlDeviceGetMarginTemperature", "nvmlEvent*"),
        ("busy_percent", "vram_used_bytes", "temperature_celsius", "power_watts", "pcie_replays"),
    ),
}


@pytest.mark.parametrize("profile", PROFILES)
def test_n34_runs_with_what_there_is(fake: Fake, profile: str) -> None:
    keys, functions, there = PROFILES[profile]
    fake.update({f"gpu.*.{key}": None for key in keys} | {"gpus": 2})
    for function in functions:
        fake.fail(function, 3)
    fake.add_process(gpu=0, pid=101, sm=40)
    with Child(fake, gpm="on") as child:
        seen = child.sweep(4)
    assert set(seen.conditions.values()) == {"ok"}
    assert not seen.notes
    gpu, why = seen.gpu(0), seen.reasons(0)
    assert all(gpu[name] is not None for name in there)
    for metric in metrics(Gpu):
        assert (gpu[metric.name] is None) == (metric.name in why), metric.name

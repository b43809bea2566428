"""What is read of a GPU: every metric against the driver's state, and how it looks when there is none."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from gputop.model import Gpu, metrics
from tests.fakenvml import OLD_DRIVER, Fake
from tests.nvml_child import Child

GIB = 1 << 30
MIB = 1 << 20


@pytest.fixture
def child(fake: Fake) -> Iterator[Child]:
    with Child(fake, gpm="off") as child:
        yield child


def test_every_metric_is_what_the_driver_says(fake: Fake) -> None:
    fake.update(
        {
            "gpus": 2,
            "gpu.1.fan_percent": 37,
            "gpu.1.retired_single": 4,
            "gpu.1.retired_double": 9,
            "gpu.1.retired_pending": 0,
            "gpu.1.memory_max_temperature": 95,
            **{f"gpu.1.power_{kind}_mw": 1000 * number for number, kind in enumerate(SCOPES, 501)},
            **{f"gpu.1.gpm.{number}": value for number, value in UNITS.items()},
            "gpu.1.mma_stall_percent": 14,
            "gpu.1.event_reasons": 0x4 | 0x40,
            "gpu.1.recovery_action": 1,
            "gpu.1.hw_thermal_ns_per_s": 11_000_000,
            "gpu.1.hw_power_brake_ns_per_s": 12_000_000,
            "gpu.1.remapped_pending": 1,
            "gpu.1.compute_mode": 3,
            "gpu.1.virtualization_mode": 1,
        }
    )
    with Child(fake, gpm="on") as child:
        child.sweep(11)
        gpu = child.rest_and_sweep().gpu(1)
    assert {name: gpu[name] for name in EXPECTED} == pytest.approx(EXPECTED, rel=0.02)
    rest = {metric.name for metric in metrics(Gpu)} - set(EXPECTED)
    assert {name: gpu[name] for name in rest} == WORDS


SCOPES = ("average_module", "instant_module", "average_memory", "instant_memory")
UNITS = {174: 8.5, 100: 2048.5, 101: 4096.5, 160: 91.5, 162: 82.5, 164: 73.5}
EXPECTED = {
    "busy_percent": 59,
    "memory_busy_percent": 34,
    "encoder_percent": 3,
    "decoder_percent": 7,
    "vram_total_bytes": 85520809984,
    "vram_used_bytes": 44333793280 + GIB,
    "vram_reserved_bytes": 625999872,
    "temperature_celsius": 62,
    "memory_temperature_celsius": 74,
    "temperature_margin_celsius": 26,
    "slowdown_celsius": 62 + 26 + 2,
    "shutdown_celsius": 62 + 26 + 8,
    "power_watts": 413,
    "power_instant_watts": 432,
    "gpu_max_celsius": 62 + 26,
    "memory_max_celsius": 95,
    "power_module_watts": 501,
    "power_module_instant_watts": 502,
    "power_memory_watts": 503,
    "power_memory_instant_watts": 504,
    "power_limit_watts": 698,
    "power_requested_limit_watts": 699.5,
    "power_min_limit_watts": 200,
    "power_default_limit_watts": 700,
    "power_max_limit_watts": 701,
    "energy_joules": 9123456.8,
    "fan_percent": 37,
    "sm_clock_mhz": 1740,
    "sm_clock_max_mhz": 1965,
    "graphics_clock_mhz": 1755,
    "graphics_clock_max_mhz": 1980,
    "boost_clock_max_mhz": 1935,
    "memory_clock_mhz": 2619,
    "memory_clock_max_mhz": 2625,
    "performance_state": 0,
    "throttled_power_percent": 2.1,
    "throttled_heat_percent": 0.8,
    "throttled_heat_hard_percent": 1.1,
    "throttled_brake_percent": 1.2,
    "throttled_board_percent": 0.3,
    "throttled_sync_percent": 0.2,
    "throttled_reliability_percent": 0.5,
    "throttled_low_use_percent": 0.4,
    "throttled_base_percent": 0.7,
    "pcie_tx_bytes_per_s": 1.21e9,
    "pcie_rx_bytes_per_s": 3.41e9,
    "pcie_generation": 5,
    "pcie_generation_max": 5,
    "pcie_generation_device_max": 5,
    "pcie_lane_bytes_per_s": 4e9,
    "pcie_width": 16,
    "pcie_width_max": 16,
    "pcie_replays": 12,
    "nvlink_tx_bytes_per_s": 18 * 1.1e9,
    "nvlink_rx_bytes_per_s": 18 * 0.9e9,
    "nvlink_max_bytes_per_s": 18 * 26562e6,
    "c2c_tx_bytes_per_s": 2048.5 * MIB,
    "c2c_rx_bytes_per_s": 4096.5 * MIB,
    "nvlinks_active": 18,
    "nvlink_errors": 18 * (2 + 1 + 4),
    "ecc_corrected": 3,
    "ecc_uncorrected": 0,
    "remapped_corrected": 2,
    "remapped_uncorrected": 1,
    "retired_pages": 13,
    "graphics_active_percent": 94.5,
    "sm_active_percent": 84.25,
    "sm_occupancy_percent": 41.5,
    "tensor_percent": 38.5,
    "tensor_half_percent": 36.25,
    "tensor_integer_percent": 1.25,
    "tensor_double_percent": 0.25,
    "tensor_double_fma_percent": 0.5,
    "dram_percent": 53.75,
    "integer_percent": 12.75,
    "fp64_percent": 0.75,
    "fp32_percent": 21.5,
    "fp16_percent": 6.5,
    "mma_stall_percent": 14,
    "context_switch_percent": 8.5,
    "host_cache_hit_percent": 91.5,
    "peer_cache_hit_percent": 82.5,
    "memory_cache_hit_percent": 73.5,
}
WORDS = {
    "pcie_slot_generation": None,
    "pcie_slot_width": None,
    "throttle_reasons": ["hw thermal", "power cap"],
    "retirement_pending": False,
    "numa_node": 0,
    "local_cpus": "0-47,96-143",
    "remap_pending": True,
    "remap_failed": False,
    "recovery_action": "reset",
    "persistence_mode": True,
    "compute_mode": "exclusive",
    "mig_mode": False,
    "ecc_mode": True,
    "virtualization": "passthrough",
}


def test_who_a_gpu_is(child: Child) -> None:
    seen = child.sweep()
    assert seen.indexes == [str(index) for index in range(8)]
    gpu = seen.gpu(3)
    assert gpu["uuid"] == "GPU-3c9d5e1e-71a4-4f0b-9e2d-5b8a6c1f7e1e"
    assert (gpu["name"], gpu["architecture"]) == ("NVIDIA H100 80GB HBM3", "hopper")
    assert (gpu["compute_capability"], gpu["pci_bus_id"]) == ([9, 0], "0000:1e:00.0")
    assert (gpu["condition"], gpu["age_s"], gpu["unified_memory"]) == ("ok", 0.0, False)
    assert (seen.rest["driver_version"], seen.rest["cuda_version"]) == ("580.65.06", "13.0")
    assert not seen.notes
    assert not seen.rest["modules"]


def test_how_gpus_are_joined(fake: Fake, child: Child) -> None:
    fake.update({"gpus": 3, "gpu.0.p2p.1": 5, "gpu.0.topology.1": 20, "gpu.1.p2p.2": 5, "gpu.1.topology.2": 50})
    seen = child.sweep(3)
    uuids = [gpu["uuid"] for gpu in seen.gpus]
    assert seen.gpu(1)["peers"] == [[uuids[0], "switch"], [uuids[2], "system"]]
    assert seen.gpu(0)["peers"] == [[uuids[1], "switch"], [uuids[2], "nvlink"]]


def test_n13_unified_memory(fake: Fake, child: Child) -> None:
    fake.update({"gpu.0.memory_total": None, "gpu.0.name": "NVIDIA GB10", "gpu.1.name": "NVIDIA Thor"})
    seen = child.sweep()
    for index in (0, 1):
        gpu = seen.gpu(index)
        assert gpu["unified_memory"]
        assert (gpu["vram_total_bytes"], gpu["vram_used_bytes"], gpu["vram_reserved_bytes"]) == (None, None, None)
        assert seen.reasons(index)["vram_used_bytes"] == "unsupported"
    assert not seen.gpu(2)["unified_memory"]


def test_a_discrete_card_that_does_not_tell_of_its_memory_is_unknown_not_unified(fake: Fake, child: Child) -> None:
    fake.update({"gpu.0.memory_total": None, "gpu.1.memory_total": 0})
    seen = child.sweep()
    for index in (0, 1):
        assert not seen.gpu(index)["unified_memory"]
        assert seen.gpu(index)["vram_total_bytes"] is None
        assert seen.reasons(index)["vram_total_bytes"] == "unsupported"


def test_memory_that_the_system_runs_as_a_node(fake: Fake, child: Child) -> None:
    fake.update({"gpu.0.numa_node": 4, "gpu.1.numa_node": 4294967295})
    seen = child.sweep()
    assert [gpu["numa_memory"] for gpu in seen.gpus] == [True] + 7 * [False]
    assert "numa_memory" not in seen.reasons(2)


def test_n14_no_power_no_fan_no_temperature(fake: Fake, child: Child) -> None:
    names = ("power_mw", "power_average_mw", "power_instant_mw", "power_limit_enforced_mw", "fan_percent")
    fake.update({f"gpu.0.{name}": None for name in (*names, "temperature", "memory_temperature", "margin_temperature")})
    seen = child.sweep(2)
    for name in (
        *("power_watts", "power_instant_watts", "power_limit_watts", "fan_percent"),
        *("temperature_celsius", "memory_temperature_celsius", "temperature_margin_celsius"),
    ):
        assert seen.gpu(0)[name] is None
        assert seen.reasons(0)[name] == "unsupported", name
        assert name == "fan_percent" or seen.gpu(1)[name] > 0


GARBAGE = {  # key: (value, the metrics that must not believe it)
    "util": (4294967295, "busy_percent"),
    "mem_util": (101, "memory_busy_percent"),
    "encoder_util": (4294967295, "encoder_percent"),
    "memory_used": (18446744073709551615, "vram_used_bytes"),
    "temperature": (4294967295, "temperature_celsius"),
    "memory_temperature": (255, "memory_temperature_celsius"),
    "power_mw": (4294967295, "power_watts"),
    "power_instant_mw": (4294967295, "power_instant_watts"),
    "power_limit_enforced_mw": (4294967295, "power_limit_watts"),
    "sm_clock": (4294967295, "sm_clock_mhz"),
    "pstate": (32, "performance_state"),
    "fan_percent": (4294967295, "fan_percent"),
    "pcie_width": (4294967295, "pcie_width"),
    "pcie_gen": (4294967295, "pcie_lane_bytes_per_s"),
    "boost_graphics_clock": (4294967295, "boost_clock_max_mhz"),
    "power_limit_requested_mw": (4294967295, "power_requested_limit_watts"),
    "gpu_max_temperature": (4294967295, "gpu_max_celsius"),
    "retired_pending": (7, "retirement_pending"),
    "pcie_rx_bytes_per_s": (1e15, "pcie_rx_bytes_per_s"),
    "sw_power_cap_ns_per_s": (9e9, "throttled_power_percent"),
    "persistence_mode": (7, "persistence_mode"),
    "compute_mode": (9, "compute_mode"),
    "recovery_action": (99, "recovery_action"),
    "energy_mj": (18446744073709551615, "energy_joules"),
}


def test_n15_n16_garbage_is_no_value(fake: Fake, child: Child) -> None:
    fake.update({f"gpu.0.{key}": value for key, (value, _) in GARBAGE.items()} | {"gpu.0.pcie_bytes_short": 0})
    child.sweep()
    seen = child.rest_and_sweep()
    # the field value of the average stands in for a call that answers garbage
    expected = {name: None for _, name in GARBAGE.values()} | {"power_watts": 409.5}
    assert {name: seen.gpu(0)[name] for name in expected} == expected
    assert set(expected) - {"power_watts"} <= set(seen.reasons(0))
    assert seen.gpu(1)["busy_percent"] == 59


def test_n31_counters_that_go_backwards_leave_a_gap(fake: Fake, child: Child) -> None:
    counters = {
        "pcie_tx_bytes": "pcie_tx_bytes_per_s",
        "sw_power_cap_ns": "throttled_power_percent",
        "nvlink.*.tx_bytes": "nvlink_tx_bytes_per_s",
    }
    fake.set("gpu.0.pcie_bytes_short", 0)  # one of 32 bits goes backwards all the time
    child.sweep()
    before = child.rest_and_sweep().gpu(0)
    fake.update({f"gpu.0.{key}": 1 for key in counters})
    gap = child.rest_and_sweep().gpu(0)
    after = child.rest_and_sweep().gpu(0)
    for name in counters.values():
        assert before[name] > 0
        assert gap[name] is None, name
        assert after[name] > 0
    fake.set("gpu.0.energy_mj", 1)
    energy = [child.sweep().gpu(0)["energy_joules"] for _ in range(25)]
    assert None in energy
    assert energy[-1] is not None
    assert energy[-1] < before["energy_joules"]
    fake.set("gpu.0.ecc_corrected", 1)
    seen = [before["ecc_corrected"], *(child.sweep().gpu(0)["ecc_corrected"] for _ in range(61))]
    assert list(dict.fromkeys(seen)) == [3, None, 1]


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"NVIDIA \xff\xfe H100", "NVIDIA �� H100"),
        (b"", "GPU"),
        (b"\x1b]0;owned\x07", "␛]0;owned␇"),
        (b"A" * 10_240, "A" * 95),
    ],
)
def test_n22_names_that_are_none(fake: Fake, child: Child, raw: bytes, shown: str) -> None:
    fake.update({"gpu.0.name": raw, "text_cut": 1})
    assert child.sweep().gpu(0)["name"] == shown


@pytest.mark.parametrize(
    ("mask", "words"),
    [(0x204, ["board limit", "power cap"]), (0x400, ["reliability"]), (0x1801, ["idle", "other"]), (0, [])],
)
def test_what_holds_the_clocks_down_has_a_word_for_each_bit(fake: Fake, mask: int, words: list[str]) -> None:
    fake.update({"gpus": 1, "gpu.0.event_reasons": mask})
    with Child(fake, gpm="off") as child:
        assert child.sweep(2).gpu(0)["throttle_reasons"] == words


def test_old_driver_answers_by_older_calls(tmp_path: object) -> None:
    fake = Fake(tmp_path / "old", gpus=1, without=OLD_DRIVER)
    fake.add_process(gpu=0, pid=os.getpid(), vram_bytes=3 * GIB, sm=57)
    fake.update({"gpu.0.slowdown_temperature": 90, "gpu.0.shutdown_temperature": 95})
    with Child(fake) as child:
        seen = child.sweep(3)
    gpu = seen.gpu(0)
    assert (gpu["vram_total_bytes"], gpu["vram_reserved_bytes"]) == (85520809984, None)
    assert (gpu["temperature_celsius"], gpu["slowdown_celsius"], gpu["temperature_margin_celsius"]) == (61, 90, 29)
    assert gpu["throttle_reasons"] == []
    assert seen.shares[os.getpid()][0]["vram_bytes"] == 3 * GIB
    assert "old-driver" in seen.notes

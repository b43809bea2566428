"""Links in detail, and the ways round what an older driver or the kernel does not say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakenvml import Fake
from tests.nvml_child import Child

PCIE = {
    "replay_rollovers": 1,
    "recoveries": 20,
    "correctable": 21,
    "naks_received": 22,
    "receiver_errors": 23,
    "bad_packets": 24,
    "naks_sent": 25,
    "bad_link_packets": 26,
    "non_fatal": 27,
    "fatal": 0,
    "unsupported_requests": 29,
    "checksum_errors": 30,
    "lane_errors": 31,
}


@pytest.fixture
def child(fake: Fake) -> Iterator[Child]:
    fake.set("gpus", 1)
    with Child(fake, gpm="off") as child:
        yield child


def known(group: dict) -> dict:
    return {name: value for name, value in group.items() if value is not None}


def test_links_that_say_the_same_are_one_row(fake: Fake, child: Child) -> None:
    fake.update({"gpu.0.nvlink.3.state": 0, "gpu.0.nvlink.9.crc_errors": 77})
    gpu = child.sweep().gpu(0)
    healthy = {"up": True, "speed_bytes_per_s": 26562e6, "replays": 2, "recoveries": 1, "crc_errors": 4}
    assert [known(row) for row in gpu["nvlinks"]] == [
        {"numbers": "0-2,4-8,10-17", **healthy},
        {"numbers": "3", **healthy, "up": False},
        {"numbers": "9", **healthy, "crc_errors": 77},
    ]
    assert (gpu["nvlinks_active"], gpu["nvlink_max_bytes_per_s"]) == (17, 17 * 26562e6)
    assert gpu["nvlink_errors"] == 18 * (2 + 1 + 4) + 73


def test_links_that_sleep_or_rest_are_up(fake: Fake, child: Child) -> None:
    fake.update({"gpu.0.nvlink.3.state": 0, "gpu.0.nvlink.4.state": 2, "gpu.0.nvlink.5.state": 3})
    gpu = child.sweep().gpu(0)
    assert [(row["numbers"], row["up"]) for row in gpu["nvlinks"]] == [("0-2,4-17", True), ("3", False)]
    assert gpu["nvlinks_active"] == 17


def test_blackwell_counts_other_errors(fake: Fake, child: Child) -> None:
    """Error rates as DCGM's own tests pack them."""
    fake.update({f"gpu.0.nvlink.*.{name}_errors": None for name in ("replay", "recovery", "crc")})
    fake.update({f"gpu.0.nvlink.*.{name}": 5 for name in ("recovery_events", "effective_errors", "symbol_errors")})
    fake.update({"gpu.0.nvlink.*.recovery_failed": 2, "gpu.0.nvlink_count": 4})
    fake.update({"gpu.0.nvlink.*.effective_ber": 1000, "gpu.0.nvlink.*.symbol_ber": 12 << 8 | 15})
    fake.update({"gpu.0.nvlink.1.effective_ber": 1025, "gpu.0.nvlink.2.symbol_ber": 1 << 40})
    rows = {row["numbers"]: known(row) for row in child.sweep().gpu(0)["nvlinks"]}
    assert rows["0,3"] == {
        "numbers": "0,3",
        "up": True,
        "speed_bytes_per_s": 26562e6,
        "recoveries": 5,
        "recoveries_failed": 2,
        "effective_errors": 5,
        "symbol_errors": 5,
        "effective_error_rate": 3e-232,
        "symbol_error_rate": 1.2e-14,
    }
    assert rows["1"]["effective_error_rate"] == 0.4
    assert "symbol_error_rate" not in rows["2"]


def test_no_links_is_no_answer_and_no_call(fake: Fake, child: Child) -> None:
    fake.set("gpu.0.nvlink_count", 0)
    seen = child.sweep()
    assert seen.gpu(0)["nvlinks"] == []
    names = ("nvlinks", "nvlinks_active", "nvlink_errors", "nvlink_max_bytes_per_s")
    assert {name: seen.reasons(0)[name] for name in names} == dict.fromkeys(names, "unsupported")


def test_pcie_errors_one_by_one(fake: Fake, child: Child) -> None:
    assert child.sweep().gpu(0)["pcie_errors"] == PCIE
    fake.update({"gpu.0.pcie_naks_sent": None, "gpu.0.pcie_fatal_errors": 4})
    assert child.sweep(11).gpu(0)["pcie_errors"] == PCIE | {"fatal": 4, "naks_sent": None}


def test_pcie_errors_that_nobody_counts(fake: Fake, child: Child) -> None:
    fake.update({f"gpu.0.field.{number}": None for number in (95, 169, *range(173, 184))})
    seen = child.sweep()
    assert (seen.gpu(0)["pcie_errors"], seen.reasons(0)["pcie_errors"]) == (None, "unsupported")
    assert seen.gpu(0)["pcie_replays"] == 12


def test_time_slowed_from_the_call_of_older_drivers(fake: Fake, child: Child) -> None:
    fake.update({f"gpu.0.field.{number}": None for number in (74, 75, 76, 77, 78, 79, 81, 251, 252, 253)})
    for _ in range(25):
        seen = child.rest_and_sweep(0.02)
    expected = {
        "throttled_power_percent": 2.1,
        "throttled_heat_percent": 0.1,
        "throttled_sync_percent": 0.2,
        "throttled_board_percent": 0.3,
        "throttled_low_use_percent": 0.4,
        "throttled_reliability_percent": 0.5,
        "throttled_base_percent": 0.7,
    }
    assert {name: seen.gpu(0)[name] for name in expected} == pytest.approx(expected, rel=0.05)
    assert fake.counts()["nvmlDeviceGetViolationStatus"] <= 4 * len(expected)
    assert seen.reasons(0)["throttled_brake_percent"] == "unsupported"


@pytest.mark.parametrize(
    ("version", "soft", "hard", "brake"),
    [
        ("595.58.03", 20, 30, 40),
        ("580.82.07", 20, 30, 40),
        ("580.65.06", 20, 30, 40),
        ("575.51.03", 20, 30, 40),
        ("570.172.08", 10, None, None),
        ("535.183.01", 10, None, None),
        ("unheard of", 10, None, None),
    ],
)
def test_time_slowed_is_counted_under_other_numbers_from_driver_to_driver(
    fake: Fake, child: Child, version: str, soft: float, hard: float | None, brake: float | None
) -> None:
    percent = {"thermal": 10, "sw_thermal": 20, "hw_thermal": 30, "hw_power_brake": 40}
    fake.update({f"gpu.0.{name}_ns_per_s": 1e7 * share for name, share in percent.items()})
    fake.set("driver_version", version)
    child.sweep()
    seen = child.rest_and_sweep()
    names = [f"throttled_{name}_percent" for name in ("heat", "heat_hard", "brake")]
    told = [seen.gpu(0)[name] for name in names]
    assert [value and round(value) for value in told] == [soft, hard, brake]
    why = [seen.reasons(0).get(name) for name in names]
    assert why == [None if value else "unsupported" for value in (soft, hard, brake)]


def test_time_slowed_of_a_driver_without_either(fake: Fake, child: Child) -> None:
    fake.update({f"gpu.0.field.{number}": None for number in (74, 75, 251)})
    fake.fail("nvmlDeviceGetViolationStatus", 13)
    seen = child.sweep(12)
    assert seen.gpu(0)["throttled_power_percent"] is None
    assert seen.reasons(0)["throttled_power_percent"] == "unsupported"


def test_limits_from_either_call(fake: Fake, child: Child) -> None:
    fake.fail("nvmlDeviceGetEnforcedPowerLimit", 3)
    gpu = child.sweep().gpu(0)
    assert (gpu["power_limit_watts"], gpu["power_requested_limit_watts"]) == (698, 699.5)


def test_thresholds_that_are_degrees(fake: Fake, child: Child) -> None:
    fake.update({"gpu.0.gpu_max_temperature": 87, "gpu.0.memory_max_temperature": 95})
    gpu = child.sweep().gpu(0)
    assert (gpu["gpu_max_celsius"], gpu["memory_max_celsius"]) == (87, 95)
    assert gpu["slowdown_celsius"] == 61 + 27 + 2


def test_place_is_the_kernels_word_first(fake: Fake, tmp_path) -> None:
    fake.update({"gpus": 2, "gpu.1.memory_nodes": "0-1"})
    slot = tmp_path / "bus/pci/devices/0000:1b:00.0"
    slot.mkdir(parents=True)
    for name, text in {"numa_node": "3", "local_cpulist": "4-7"}.items():
        (slot / name).write_text(f"{text}\n")
    with Child(fake, gpm="off", sys_root=str(tmp_path)) as child:
        seen = child.sweep()
    assert (seen.gpu(0)["numa_node"], seen.gpu(0)["local_cpus"]) == (3, "4-7")
    # two nodes are no place
    assert (seen.gpu(1)["numa_node"], seen.gpu(1)["local_cpus"]) == (None, "0-47,96-143")
    assert fake.counts(0)["nvmlDeviceGetCpuAffinityWithinScope"] == 0


def test_power_by_scope_of_a_driver_that_knows_none(fake: Fake, child: Child) -> None:
    fake.update({"gpu.0.field.185": 409500, "gpu.0.field.186.0": 431000, "gpu.0.field.186.1": 631000})
    seen = child.sweep()
    assert (seen.gpu(0)["power_watts"], seen.gpu(0)["power_module_instant_watts"]) == (412, 631)
    names = ("power_module_watts", "power_memory_watts", "power_memory_instant_watts")
    assert {name: (seen.gpu(0)[name], seen.reasons(0)[name]) for name in names} == dict.fromkeys(
        names, (None, "unsupported")
    )


@pytest.mark.parametrize(
    ("speed", "lanes", "told"),
    [("16.0 GT/s PCIe", "8", (4, 8)), ("32.0 GT/s", "16", (5, 16)), ("Unknown", "255", (None, None))],
)
def test_what_the_slot_can_do_is_that_of_the_port_above(
    fake: Fake, tmp_path: Path, speed: str, lanes: str, told: tuple[int | None, int | None]
) -> None:
    bus, port = tmp_path / "bus/pci/devices", tmp_path / "devices/pci0000:1a/0000:1a:01.0"
    card = port / "0000:1b:00.0"
    for folder in (bus, card):
        folder.mkdir(parents=True)
    (bus / card.name).symlink_to(card)
    (port / "max_link_speed").write_text(f"{speed}\n")
    (port / "max_link_width").write_text(f"{lanes}\n")
    (card / "max_link_width").write_text("16\n")
    fake.set("gpus", 1)
    with Child(fake, gpm="off", sys_root=str(tmp_path)) as child:
        seen = child.sweep()
    assert (seen.gpu(0)["pcie_slot_generation"], seen.gpu(0)["pcie_slot_width"]) == told


def test_without_the_port_nothing_is_known_of_the_slot(fake: Fake, tmp_path: Path) -> None:
    (tmp_path / "bus/pci/devices/0000:1b:00.0").mkdir(parents=True)
    fake.set("gpus", 1)
    with Child(fake, gpm="off", sys_root=str(tmp_path)) as child:
        seen = child.sweep()
    assert (seen.gpu(0)["pcie_slot_width"], seen.reasons(0)["pcie_slot_width"]) == (None, "absent")

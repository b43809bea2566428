"""A value that cannot be is unknown, with the reason, before any rule, history or screen sees it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from gputop.demo import SCENARIOS, Demo
from gputop.model import Disk, Frame, Gpu, Missing, Network
from gputop.model.plausible import integrated, plausible
from tests.cli.test_cli import run
from tests.diagnose_runs import Recorded
from tests.rule_cases import HOST, Machine

SMALL: dict[str, Any] = {"name": "NVIDIA T4", "power_limit_watts": 70.0, "power_default_limit_watts": 70.0,
                         "power_min_limit_watts": 60.0, "power_max_limit_watts": 70.0}  # fmt: skip


def sound(host: dict[str, Any] | None = None, **gpu: Any) -> Frame:
    return plausible(Machine(gpu=gpu, host=host or {}).frame(0))


def why(frame: Frame, metric: str) -> str:
    """Why a value of the GPU cannot be."""
    (gpu,) = frame.gpus
    assert getattr(gpu, metric) is None
    said: Missing = next(one for one in gpu.missing if one.metric == metric)
    assert said.reason == "implausible"
    return said.unlock or ""


@pytest.mark.parametrize(
    ("gpu", "metric", "text"),
    [
        ({**SMALL, "power_watts": 588.0}, "power_watts", "588 W with a power limit of 70 W in force"),
        ({**SMALL, "power_watts": 588.0}, "power_limit_watts", "a limit of 70 W in force while it draws 588 W"),
        (
            {"power_watts": 588.0, "power_limit_watts": 35.0, "power_default_limit_watts": 350.0},
            "power_limit_watts",
            "a limit of 35 W in force while it draws 588 W",
        ),
        ({"power_watts": -3.0}, "power_watts", "-3 is outside 0 to 20000"),
        ({"power_watts": float("nan")}, "power_watts", "nan is outside 0 to 20000"),
        ({"power_limit_watts": 900.0, "power_max_limit_watts": 700.0}, "power_limit_watts", "above the highest limit"),
        (
            {
                "power_watts": 1.0,
                "power_instant_watts": 500.0,
                "power_limit_watts": 80.0,
                "power_max_limit_watts": 175.0,
            },
            "power_instant_watts",
            "500 W at one instant and 1 W over a second",
        ),
        ({**SMALL, "power_instant_watts": 749.0}, "power_instant_watts", "749 W on a card with a power limit of 70 W"),
        ({"sm_clock_mhz": 4100.0}, "sm_clock_mhz", "4100 MHz with a highest clock of 1980 MHz"),
        ({"temperature_celsius": 511.0}, "temperature_celsius", "511 is outside -30 to 130"),
        ({"slowdown_celsius": 0.0}, "slowdown_celsius", "0 °C is not a plausible temperature limit"),
        ({"gpu_max_celsius": 105.0, "shutdown_celsius": 100.0}, "gpu_max_celsius", "above its shutdown temperature"),
        ({"busy_percent": 255.0}, "busy_percent", "255 is outside 0 to 100"),
        ({"tensor_percent": 1400.0}, "tensor_percent", "1400 is outside 0 to 120"),
        ({"vram_used_bytes": 90 * 2**30}, "vram_used_bytes", "90.0 GiB of 80.0 GiB"),
        ({"vram_total_bytes": 0}, "vram_total_bytes", "a memory size of 0 bytes is invalid"),
        ({"pcie_rx_bytes_per_s": 400e9}, "pcie_rx_bytes_per_s", "400.0 GB/s over a PCIe link of 64.0 GB/s"),
        (
            {"nvlink_tx_bytes_per_s": 3e12, "nvlink_max_bytes_per_s": 450e9},
            "nvlink_tx_bytes_per_s",
            "3000 GB/s over NVLinks of 450 GB/s",
        ),
        ({"ecc_uncorrected": -1}, "ecc_uncorrected", "-1 is outside 0 to inf"),
    ],
)
def test_what_cannot_be_is_unknown_with_the_reason(gpu: dict[str, Any], metric: str, text: str) -> None:
    assert text in why(sound(**gpu), metric)


@pytest.mark.parametrize(
    "gpu",
    [
        {},
        {"power_watts": 760.0},  # a little over its limit, for a moment
        {"power_watts": 1.0, "power_limit_watts": 95.0},  # a laptop that sleeps
        {"power_watts": 150.0, "power_limit_watts": 115.0, "power_max_limit_watts": 250.0},
        {"power_watts": 600.0, "power_limit_watts": 300.0},  # the limit was lowered a moment ago
        {"power_instant_watts": 1400.0},
        {"sm_clock_mhz": 2100.0},  # boost
        {"sm_clock_mhz": 345.0},
        {"throttled_power_percent": 101.5},  # counted over a second that was a little long
        {"fan_percent": 130.0},
        {"temperature_margin_celsius": -3.0},
        {"busy_percent": None, "power_watts": None},
        {"pcie_rx_bytes_per_s": 61e9},
        {"pcie_generation": 1, "pcie_rx_bytes_per_s": 40e9},  # it was faster a moment ago
    ],
)
def test_what_can_be_stays(gpu: dict[str, Any]) -> None:
    frame = Machine(gpu=gpu).frame(0)
    assert plausible(frame) is frame


def test_samples_that_cannot_be_are_dropped() -> None:
    (gpu,) = sound(busy_samples=((0.3, 97.0), (0.2, 300.0), (0.1, 95.0))).gpus
    assert gpu.busy_samples == ((0.3, 97.0), (0.1, 95.0))


@pytest.mark.parametrize(
    ("host", "metric"),
    [
        ({"memory_available_bytes": 300 * 2**30}, "memory_available_bytes"),
        ({"swap_total_bytes": 2**30, "swap_used_bytes": 2**31}, "swap_used_bytes"),
        ({"shm_total_bytes": 2**26, "shm_used_bytes": 2**27}, "shm_used_bytes"),
        ({"cpu_percent": 430.0}, "cpu_percent"),
        ({"iowait_percent": -2.0}, "iowait_percent"),
    ],
)
def test_of_the_host_likewise(host: dict[str, Any], metric: str) -> None:
    seen = sound(host).host
    assert getattr(seen, metric) is None
    assert [one.reason for one in seen.missing if one.metric == metric] == ["implausible"]


def test_parts_of_the_host() -> None:
    """A virtual interface may be faster than it says: its speed tells nothing. A disk is not busy for longer."""
    disk = Disk(name="nvme0n1", busy_percent=400.0, read_bytes_per_s=1e9)
    links = (
        Network(name="veth0", speed_bytes_per_s=1.25e9, receive_bytes_per_s=4e9),
        Network(name="eth0", speed_bytes_per_s=1.25e9, receive_bytes_per_s=1.3e9),
    )
    seen = sound({"disks": (disk,), "networks": links}).host
    assert (seen.disks[0].busy_percent, seen.disks[0].read_bytes_per_s) == (None, 1e9)
    assert [one.speed_bytes_per_s for one in seen.networks] == [None, 1.25e9]
    assert seen.networks[0].receive_bytes_per_s == 4e9


def test_of_a_process_likewise() -> None:
    frame = plausible(Machine(trainer={"cpu_percent": 9000.0, "rss_bytes": 2**50}).frame(0))
    process = frame.processes[0]
    assert (process.cpu_percent, process.rss_bytes) == (None, None)
    assert {one.metric for one in process.missing} == {"cpu_percent", "rss_bytes"}
    share = replace(process.gpus[0], vram_bytes=200 * 2**30, busy_percent=130.0)
    frame = plausible(replace(frame, processes=(replace(process, gpus=(share,)),)))
    assert (frame.processes[0].gpus[0].vram_bytes, frame.processes[0].gpus[0].busy_percent) == (None, None)


def frames() -> Iterator[Frame]:
    for name, scenario in SCENARIOS.items():
        demo = Demo(scenario, pace=False, anchor_s=1_795_185_127.0, at_s=0.0)
        if name != "mig-visibility":
            yield demo.frame(min(200.0, demo.scenario.length_s - 1))


def test_nothing_of_a_made_up_server_is_doubted() -> None:
    for frame in frames():
        assert plausible(frame) is frame


@pytest.mark.parametrize(
    ("name", "capability", "shares"),
    [
        ("NVIDIA GB10", (12, 1), True),
        ("NVIDIA GB10", None, True),
        ("NVIDIA Thor", (11, 0), True),
        ("Jetson AGX Thor", None, True),
        ("Orin (nvgpu)", (8, 7), True),
        ("NVIDIA GB200", (10, 0), False),
        ("NVIDIA GH200 480GB", (9, 0), False),
        ("NVIDIA H100 80GB HBM3", None, False),
        ("Tesla T4", (7, 5), False),
        ("NVIDIA GeForce RTX 5090", (12, 0), False),
        ("GPU", None, None),
        ("NVIDIA Graphics", (12, 1), True),
    ],
)
def test_what_a_chip_is_tells_whose_memory_it_uses(
    name: str, capability: tuple[int, int] | None, shares: bool | None
) -> None:
    assert integrated(name, capability) is shares


GB10: dict[str, Any] = {"name": "NVIDIA GB10", "architecture": "blackwell", "compute_capability": (12, 1)}
NO_VRAM: dict[str, Any] = {"vram_total_bytes": None, "vram_used_bytes": None}


@pytest.mark.parametrize(
    "gpu",
    [
        {**GB10, **NO_VRAM, "unified_memory": True},
        {**GB10, **NO_VRAM},  # the driver answers something else than `not supported`
        {**GB10, "vram_total_bytes": HOST["memory_total_bytes"], "vram_used_bytes": 90 * 2**30},
        {**GB10, "name": "NVIDIA Thor", "compute_capability": (11, 0), "vram_total_bytes": 2**37},
        {"name": "GPU", "compute_capability": None, "vram_total_bytes": HOST["memory_total_bytes"]},
    ],
)
def test_unified_memory_is_told_by_the_chip_and_by_the_size_of_the_host(gpu: dict[str, Any]) -> None:
    (seen,) = sound(**gpu, pcie_width=1, pcie_width_max=1, pcie_generation=1, pcie_generation_max=1).gpus
    assert seen.unified_memory
    assert seen.vram_total_bytes is None
    assert seen.vram_used_bytes == 30 * 2**30, "the sum of its processes"
    assert seen.pcie_width is None, "a placeholder"
    frame = replace(sound(**gpu), gpus=(seen,))
    assert plausible(frame) is frame


@pytest.mark.parametrize("name", ["NVIDIA H100 80GB HBM3", "NVIDIA GeForce RTX 4090", "Tesla T4", "NVIDIA GH200 480GB"])
def test_a_discrete_card_whose_memory_is_not_told_is_unknown(name: str) -> None:
    (seen,) = sound(name=name, **NO_VRAM, unified_memory=True).gpus
    assert not seen.unified_memory
    assert {one.metric: one.reason for one in seen.missing if one.metric == "vram_total_bytes"} == {
        "vram_total_bytes": "unsupported"
    }


def test_memory_of_a_card_as_large_as_that_of_the_host_is_its_own() -> None:
    (seen,) = sound({"memory_total_bytes": 80 * 2**30, "memory_available_bytes": 2**33}).gpus
    assert (seen.unified_memory, seen.vram_total_bytes) == (False, 80 * 2**30)
    assert isinstance(seen, Gpu)


WAYS_OUT = {
    "json": ("--json",),
    "jsonl": ("snapshot", "--format", "jsonl"),
    "text": ("--once",),
    "csv": ("snapshot", "--format", "csv"),
    "log": ("log", "-"),
    "diagnose": ("diagnose", "--json"),
}


@pytest.mark.parametrize("way", WAYS_OUT)
@pytest.mark.parametrize(("limit", "watts"), [(95.0, 749.0), (700.0, 4997.0)])
def test_every_way_out_of_gputop_says_unknown(recorded: Recorded, way: str, limit: float, watts: float) -> None:
    limits = dict.fromkeys(("power_limit_watts", "power_default_limit_watts", "power_max_limit_watts"), limit)
    wrong = {**limits, "power_min_limit_watts": 5.0, "power_watts": watts, "power_instant_watts": watts}
    path = recorded(Machine(gpu=wrong).frame, 60)
    printed = run("--source", path, *WAYS_OUT[way])
    assert printed.stdout, printed.stderr
    assert f"{watts:.0f}.0" not in printed.stdout
    assert way != "text" or f"{watts:.0f}" not in printed.stdout
    if way in ("json", "jsonl"):
        frame = json.loads(printed.stdout.splitlines()[-1])["frame"]
        assert frame["gpus"][0].get("power_watts") is None
        assert {"power_watts", "power_instant_watts"} <= {
            one["metric"] for one in frame["gpus"][0]["missing"] if one["reason"] == "implausible"
        }


def test_a_recording_keeps_what_the_driver_said_for_newer_rules_to_judge(recorded: Recorded) -> None:
    path = recorded(Machine(gpu={"power_watts": 5000.0}).frame, 3)
    again = run("--source", path, "record", "-").stdout.splitlines()
    assert json.loads(again[1])["frame"]["gpus"][0]["power_watts"] == 5000.0

"""Rules go by no value that another contradicts, and nothing is called healthy against its own evidence."""

from __future__ import annotations

from typing import Any

import pytest

from gputop.model import GpuShare
from tests.rule_cases import Machine, found, silent

NO_UNITS = dict.fromkeys(("sm_active_percent", "tensor_percent", "dram_percent", "fp32_percent"))
WRONG: dict[str, Any] = {
    "power_watts": 588.0, "power_limit_watts": 35.0, "power_default_limit_watts": 35.0,
    "power_min_limit_watts": 20.0, "power_max_limit_watts": 35.0,
    "throttled_power_percent": 98.0, "sm_clock_mhz": 155.0,
}  # fmt: skip


@pytest.mark.parametrize("default", [35.0, 350.0])
def test_588_watts_of_35_are_no_full_power_and_no_reason_for_350(default: float) -> None:
    gpu = {**WRONG, "power_default_limit_watts": default, "power_max_limit_watts": default}
    said = Machine(gpu=gpu).verdict()
    assert not found(said, "power")
    assert not any("-pl" in (step.command or "") for one in said.findings for step in one.steps)
    assert not any(one.healthy for one in said.findings)
    mute = silent(said, "power")
    assert mute is not None
    assert {one.reason for one in mute.missing} == {"implausible"}
    spots = found(said, "blind-spots")
    assert spots is not None
    assert any("power limit in force implausible (a limit of 35 W in force" in one.text for one in spots.evidence)
    assert not any("in force" in step.text for step in spots.steps), "a reason is no step"


def test_heat_beside_an_impossible_power_names_no_limit() -> None:
    said = Machine(gpu={**WRONG, "throttled_heat_percent": 44.0}).verdict()
    told = found(said, "thermal")
    assert told is not None
    assert not any("-pl" in (step.command or "") for step in told.steps)


@pytest.mark.parametrize(("clock", "healthy"), [(1500.0, True), (900.0, True), (155.0, False)])
def test_power_capped_at_the_default_limit_with_hardly_any_clock_is_not_healthy(clock: float, healthy: bool) -> None:
    gpu = {"power_watts": 695.0, "throttled_power_percent": 98.0, "sm_clock_mhz": clock}
    told = found(Machine(gpu=gpu).verdict(200), "power")
    assert told is not None
    assert told.healthy == healthy
    assert told.severity == ("info" if healthy else "warn")


def test_power_capped_far_below_the_limit_is_not_full_power() -> None:
    assert not found(Machine(gpu={"power_watts": 120.0, "throttled_power_percent": 98.0}).verdict(200), "power")


def test_a_gpu_that_is_busy_because_it_is_slow_is_not_healthy() -> None:
    assert found(Machine(gpu={"sm_clock_mhz": 1600.0}).verdict(200), "gpu-bound-healthy")
    assert not found(Machine(gpu={"sm_clock_mhz": 155.0}).verdict(200), "gpu-bound-healthy")


@pytest.mark.parametrize(
    ("name", "architecture", "limit", "idle"),
    [
        ("Tesla T4", "turing", 70.0, 10.0),
        ("NVIDIA A2", "ampere", 60.0, 7.0),
        ("NVIDIA L4", "ada", 72.0, 13.0),
        ("NVIDIA GeForce RTX 5080 Laptop GPU", "blackwell", 80.0, 8.0),
        ("NVIDIA GeForce RTX 3050 Laptop GPU", "ampere", 35.0, 4.0),
    ],
)
def test_idle_power_of_small_cards_is_that_of_small_cards(
    name: str, architecture: str, limit: float, idle: float
) -> None:
    """At 85 % of its limit a small card works hard; at a fifth of it, it does little; never less than nothing."""
    own = {"name": name, "architecture": architecture, "power_limit_watts": limit, "power_default_limit_watts": limit,
           "power_min_limit_watts": limit / 2, "power_max_limit_watts": limit}  # fmt: skip
    works = Machine(gpu={**NO_UNITS, **own, "power_watts": 0.85 * limit}).verdict(200)
    assert found(works, "gpu-bound-healthy")
    small = {"gpus": (GpuShare(uuid="G", busy_percent=9.0, vram_bytes=2**30),)}
    rests = Machine(gpu={**NO_UNITS, **own, "power_watts": 1.3 * idle, "busy_percent": 9.0}, trainer=small).verdict(
        1100
    )
    told = found(rests, "small-job")
    assert told is not None
    (of,) = rests.classes
    assert not [answer for question, answer in of.path if "power" in question and "-" in answer]


def test_a_card_that_draws_less_than_assumed_teaches_what_it_draws() -> None:
    """A power that falls below the assumed one is the better guess: shares are of what lies above it."""
    falls = lambda t: 25.0 if t < 30 else 240.0  # noqa: E731
    gpu = {**NO_UNITS, "power_watts": falls, "busy_percent": lambda t: 40.0 if t < 30 else 97.0}
    limits = {"power_limit_watts": 400.0, "power_default_limit_watts": 400.0, "power_max_limit_watts": 400.0}
    said = Machine(gpu={**gpu, **limits}).verdict(200)
    power = next(value for one in said.classes for value in one.path if value[0].startswith("power above idle"))
    assert power[1].startswith("57 %")  # (240 - 25) of (400 - 25)


@pytest.mark.parametrize(
    ("busy", "drawn", "lower"),
    [
        (100.0, 620.0, 560),  # 0.9 of what it draws
        (60.0, 400.0, 560),  # while it is busy that is 620 W: 360 would be below what all work takes
        (60.0, 620.0, 595),  # 0.85 of the limit
        (2.0, 90.0, 595),
    ],
)
def test_the_power_limit_against_heat_goes_by_power_while_busy(busy: float, drawn: float, lower: int) -> None:
    gpu = {"throttled_heat_percent": 44.0, "busy_percent": busy, "power_watts": drawn}
    told = found(Machine(gpu=gpu).verdict(70), "thermal")
    assert told is not None
    assert [step.command for step in told.steps if step.needs_root] == [f"sudo nvidia-smi -i 0 -pl {lower}"]


def test_a_limit_below_the_lowest_that_the_card_takes_is_never_named() -> None:
    gpu = {"throttled_heat_percent": 44.0, "power_watts": 330.0, "power_min_limit_watts": 320.0}
    told = found(Machine(gpu=gpu).verdict(70), "thermal")
    assert told is not None
    assert [step.command for step in told.steps if step.needs_root] == ["sudo nvidia-smi -i 0 -pl 320"]

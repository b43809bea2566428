"""Heat, power, clocks: each rule fires, just does not, and abstains."""

from __future__ import annotations

import pytest

from tests.judged import Machine, found, silent


def machine(**gpu: object) -> Machine:
    return Machine(gpu=gpu)


@pytest.mark.parametrize(
    ("gpu", "severity"),
    [
        ({"throttled_heat_percent": 2.1}, "warn"),
        ({"throttled_heat_percent": 1.9}, None),
        ({"throttled_heat_hard_percent": 1.1}, "crit"),
        ({"throttled_heat_hard_percent": 0.9}, None),
        ({"temperature_celsius": 85.0}, "info"),
        ({"temperature_celsius": 84.0}, None),
        ({"temperature_margin_celsius": 2.0}, "info"),
        ({"temperature_margin_celsius": 3.0}, None),
        ({"slowdown_celsius": None, "temperature_margin_celsius": None, "temperature_celsius": 83.0}, "info"),
        ({"slowdown_celsius": None, "temperature_margin_celsius": None, "temperature_celsius": 82.0}, None),
        ({"throttled_heat_percent": None, "throttled_heat_hard_percent": None, "throttle_reasons": {"heat"}}, "warn"),
    ],
)
def test_thermal(gpu: dict[str, object], severity: str | None) -> None:
    finding = found(machine(**gpu).verdict(), "thermal")
    assert (finding and finding.severity) == severity


def test_thermal_says_what_it_costs_and_what_to_do() -> None:
    finding = found(
        machine(throttled_heat_percent=44.0, sm_clock_mhz=1410.0, temperature_celsius=89.0).verdict(), "thermal"
    )
    assert finding is not None
    assert finding.primary
    assert [item.text for item in finding.evidence] == [
        "89 C, slows down at 90 C",
        "slowed by the driver 44 % of the last 30 s",
        "SM clock 1410 of 1980 MHz (-29 %)",
    ]
    assert finding.lost_share == pytest.approx(0.288, abs=0.001)
    assert [step.command for step in finding.steps] == [None, "sudo nvidia-smi -i 0 -pl 600"]


def test_thermal_abstains_without_a_temperature() -> None:
    said = machine(temperature_celsius=None).verdict(5)
    assert silent(said, "thermal") is not None
    assert found(said, "thermal") is None


@pytest.mark.parametrize(
    ("gpu", "severity", "healthy"),
    [
        ({"throttled_power_percent": 100.0, "power_limit_watts": 300.0}, "warn", False),
        ({"throttled_power_percent": 31.0}, "info", True),
        ({"throttled_power_percent": 29.0}, None, None),
        ({"throttled_brake_percent": 1.1}, "crit", False),
        ({"throttled_brake_percent": 0.9}, None, None),
    ],
)
def test_power(gpu: dict[str, object], severity: str | None, healthy: bool | None) -> None:
    finding = found(machine(**gpu).verdict(), "power")
    assert (finding and finding.severity) == severity
    assert (finding and finding.healthy) == healthy


def test_power_abstains_where_the_driver_counts_no_power_cap() -> None:
    said = machine(throttled_power_percent=None).verdict(5)
    assert (one := silent(said, "power")) is not None
    assert [missing.metric for missing in one.missing] == ["throttled_power_percent"]


@pytest.mark.parametrize(
    ("gpu", "fires"),
    [
        ({"sm_clock_mhz": 1480.0}, True),
        ({"sm_clock_mhz": 1490.0}, False),
        ({"sm_clock_mhz": 1400.0, "busy_percent": 49.0}, False),
        ({"sm_clock_mhz": 1400.0, "throttled_power_percent": 3.0}, False),
        ({"sm_clock_mhz": 1400.0, "throttle_reasons": frozenset({"heat"})}, False),
        ({"sm_clock_mhz": 345.0, "performance_state": 8}, False),
    ],
)
def test_clocks_low(gpu: dict[str, object], fires: bool) -> None:
    finding = found(machine(**gpu).verdict(), "clocks-low")
    assert (finding is not None) == fires


def test_clocks_low_abstains_without_a_clock() -> None:
    assert silent(machine(sm_clock_mhz=None).verdict(5), "clocks-low") is not None

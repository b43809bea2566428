"""Heat: the rule fires, just does not, and abstains, and the power limit it names fits the card."""

from __future__ import annotations

import pytest

from tests.rule_cases import Machine, found, silent


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
        (
            {"throttled_heat_percent": None, "throttled_heat_hard_percent": None, "throttle_reasons": {"thermal"}},
            "warn",
        ),
    ],
)
def test_thermal(gpu: dict[str, object], severity: str | None) -> None:
    finding = found(Machine(gpu=gpu).verdict(), "thermal")
    assert (finding and finding.severity) == severity


def test_thermal_says_what_it_costs_and_what_to_do() -> None:
    finding = found(
        Machine(gpu={"throttled_heat_percent": 44.0, "sm_clock_mhz": 1410.0, "temperature_celsius": 89.0}).verdict(),
        "thermal",
    )
    assert finding is not None
    assert finding.primary
    assert [item.text for item in finding.evidence] == [
        "mean SM clock 1410 of 1980 MHz (-29 %)",  # what it costs, before why
        "software thermal slowdown 44 % of the last 30 s",
        "89 °C (slowdown at 90 °C)",
    ]
    assert finding.lost_share == pytest.approx(0.288, abs=0.001)
    assert [step.command for step in finding.steps] == [None, "sudo nvidia-smi -i 0 -pl 540"]


@pytest.mark.parametrize(
    ("drawn", "limit", "least", "lower"),
    [
        (148.0, 150.0, 100.0, 130),
        (69.0, 70.0, 52.5, 60),
        (69.0, 70.0, 60.5, 61),  # its minimum
        (70.0, 70.0, 70.0, None),
        (15.0, 15.0, 10.0, None),
        (None, 350.0, 100.0, 300),
        (300.0, 350.0, 100.0, 270),  # heat holds it below its limit already
        (104.0, 350.0, 100.0, 100),
        (99.0, 350.0, 100.0, None),
        (148.0, None, 100.0, None),
        (148.0, 150.0, None, None),
    ],
)
def test_thermal_limits_the_power_below_what_it_is(
    drawn: float | None, limit: float | None, least: float | None, lower: int | None
) -> None:
    gpu = {"power_watts": drawn, "power_limit_watts": limit, "power_min_limit_watts": least}
    finding = found(Machine(gpu={"throttled_heat_percent": 44.0} | gpu).verdict(70), "thermal")
    assert finding is not None
    told = [step.command for step in finding.steps if step.needs_root]
    assert told == ([] if lower is None else [f"sudo nvidia-smi -i 0 -pl {lower}"])


def test_thermal_abstains_without_a_temperature() -> None:
    said = Machine(gpu={"temperature_celsius": None}).verdict(5)
    assert silent(said, "thermal") is not None
    assert found(said, "thermal") is None

"""Loaders that are too slow, too few or absent, and a GPU that is the limit: fires, just does not, abstains."""

from __future__ import annotations

from typing import Any

import pytest

from gputop.model import Missing, Pressure
from tests.judged import Machine, found, silent

WAITING = {"busy_percent": 40.0}
DENIED = (Missing(metric="blocked_percent", reason="denied", unlock="sudo gputop"),)


def saturated(**changes: dict[str, Any]) -> Machine:
    """Sixteen loaders on sixteen CPUs."""
    trainer = {"cpu_percent": 20.0, "main_thread_percent": 20.0}
    return _machine(Machine(gpu=dict(WAITING), trainer=trainer, loader={"cpu_percent": 96.0}, loaders=16), changes)


def few(**changes: dict[str, Any]) -> Machine:
    """Two busy loaders on sixteen CPUs."""
    trainer = {"cpu_percent": 20.0, "main_thread_percent": 20.0}
    return _machine(Machine(gpu=dict(WAITING), trainer=trainer, loader={"cpu_percent": 97.0}, loaders=2), changes)


def alone(**changes: dict[str, Any]) -> Machine:
    """No loaders, and a main thread that reads."""
    return _machine(Machine(gpu=dict(WAITING), trainer={"read_chars_per_s": 40e6}), changes)


def _machine(machine: Machine, changes: dict[str, dict[str, Any]]) -> Machine:
    for part, dials in changes.items():
        getattr(machine, part).update(dials)
    return machine


@pytest.mark.parametrize(
    ("changes", "severity"),
    [
        ({}, "crit"),
        ({"gpu": {"busy_percent": 79.0}}, "warn"),
        ({"gpu": {"busy_percent": 81.0}}, None),
        ({"gpu": {"busy_percent": 1.0}}, None),
        ({"loader": {"cpu_percent": 84.0}, "trainer": {"cpu_percent": 10.0}}, None),
        ({"trainer": {"busy_threads": 32, "run_wait_percent": 70.0}}, None),
        ({"trainer": {"throttled_percent": 11.0}}, None),
        ({"host": {"steal_percent": 6.0}}, None),
    ],
)
def test_starved_cpu_saturated(changes: dict[str, Any], severity: str | None) -> None:
    finding = found(saturated(**changes).verdict(), "starved-cpu-saturated")
    assert (finding and finding.severity) == severity


def test_starved_cpu_saturated_says_what_could_be_won() -> None:
    finding = found(saturated().verdict(), "starved-cpu-saturated")
    assert finding is not None
    texts = [item.text for item in finding.evidence]
    assert texts[1:] == ["15.6 of 16 CPU cores in use", "16 loaders, each 96 % of a core"]
    assert texts[0].startswith("GPU busy 40 %")
    assert "at most 2.5 times" in finding.steps[0].text
    assert finding.confidence == 0.9
    assert finding.lost_share == pytest.approx(0.6)


@pytest.mark.parametrize("rule", ["starved-cpu-saturated", "starved-cpu-idle", "loader-in-main", "gpu-bound-healthy"])
def test_they_abstain_where_the_gpu_does_not_say_how_busy_it_is(rule: str) -> None:
    unknown = {"busy_percent": None, "missing": (Missing(metric="busy_percent", reason="unsupported"),)}
    machine = Machine(gpu=dict(WAITING), loader={"cpu_percent": 97.0}, loaders=0 if rule == "loader-in-main" else 2)
    machine.gpu["busy_percent"] = lambda t: 40.0 if t < 70 else None
    machine.gpu["missing"] = lambda t: () if t < 70 else unknown["missing"]
    said = machine.verdict(160)
    assert (one := silent(said, rule)) is not None
    assert [missing.reason for missing in one.missing] == ["unsupported"]
    assert found(said, rule) is None or rule != "gpu-bound-healthy"


@pytest.mark.parametrize(
    ("changes", "fires"),
    [
        ({}, True),
        ({"loader": {"cpu_percent": 81.0}}, True),
        ({"loader": {"cpu_percent": 79.0}}, False),
        ({"loader": {"blocked_percent": 11.0}}, False),
        ({"loader": {"blocked_percent": 9.0}}, True),
        ({"host": {"io_pressure": Pressure(some_percent=11.0)}}, False),
        ({"host": {"io_pressure": Pressure(some_percent=9.0)}}, True),
        ({"trainer": {"allowed_cpus": 3.5}}, False),
        ({"gpu": {"busy_percent": 81.0}}, False),
    ],
)
def test_starved_cpu_idle(changes: dict[str, Any], fires: bool) -> None:
    assert (found(few(**changes).verdict(), "starved-cpu-idle") is not None) == fires


@pytest.mark.parametrize(("busy", "workers"), [(50.0, 5), (10.0, 15)])
def test_starved_cpu_idle_prints_a_number_of_loaders_that_fits_the_cpus(busy: float, workers: int) -> None:
    finding = found(few(gpu={"busy_percent": busy}).verdict(), "starved-cpu-idle")
    assert finding is not None
    assert f"num_workers={workers}," in (finding.steps[0].command or "")


def test_an_unknown_signal_makes_it_less_sure() -> None:
    sure = few(host={"io_pressure": Pressure(some_percent=1.0)}).verdict()
    less = few(loader={"blocked_percent": None, "missing": DENIED}).verdict()
    confidences = [finding.confidence for said in (sure, less) if (finding := found(said, "starved-cpu-idle"))]
    assert confidences == pytest.approx([0.7, 0.56])


@pytest.mark.parametrize(
    ("changes", "fires"),
    [
        ({}, True),
        ({"trainer": {"read_chars_per_s": 0.9e6}}, False),
        ({"trainer": {"read_chars_per_s": 0.0}}, False),
        ({"trainer": {"read_chars_per_s": 0.0}, "gpu": {"busy_percent": lambda t: 100.0 * (t % 8 < 4)}}, True),
        ({"trainer": {"main_thread_percent": 84.0}}, False),
        ({"trainer": {"cpu_percent": 170.0}}, False),
        ({"gpu": {"busy_percent": 81.0}}, False),
    ],
)
def test_loader_in_main(changes: dict[str, Any], fires: bool) -> None:
    finding = found(alone(**changes).verdict(), "loader-in-main")
    assert (finding is not None) == fires
    if finding:
        assert "num_workers=8" in (finding.steps[0].command or "")
        assert finding.severity == "warn"


@pytest.mark.parametrize(
    ("gpu", "kind"),
    [
        ({}, "compute-bound"),
        ({"tensor_percent": 40.0}, "a mix of compute and memory"),
        ({"tensor_percent": 30.0, "dram_percent": 50.0}, "bound by its memory"),
        ({"tensor_percent": 10.0, "sm_active_percent": 50.0}, None),
        ({"busy_percent": 89.0}, None),
        ({"busy_percent": lambda t: 100.0 if t % 5 else 70.0}, None),
        ({"fp32_percent": 44.0, "tensor_percent": 0.0}, None),
        ({"dram_percent": 62.0, "tensor_percent": 5.0}, None),
    ],
)
def test_gpu_bound_healthy(gpu: dict[str, Any], kind: str | None) -> None:
    finding = found(Machine(gpu=gpu).verdict(), "gpu-bound-healthy")
    assert (finding and finding.headline) == (kind and f"keeps its GPU busy: {kind}")
    assert finding is None or (finding.healthy and finding.primary and finding.severity == "info")


@pytest.mark.parametrize(
    ("watts", "clock", "fires"), [(600.0, 1980.0, True), (440.0, 1980.0, False), (600.0, 1650.0, False)]
)
def test_without_unit_counters_power_and_clock_decide(watts: float, clock: float, fires: bool) -> None:
    unknown = dict.fromkeys(("sm_active_percent", "tensor_percent", "dram_percent", "fp32_percent"))
    finding = found(
        Machine(gpu={**unknown, "power_watts": watts, "sm_clock_mhz": clock}).verdict(), "gpu-bound-healthy"
    )
    assert (finding is not None) == fires
    assert finding is None or finding.confidence == 0.6

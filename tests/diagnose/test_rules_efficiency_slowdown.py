"""Runs that become slower: by their steps, their GPU, its clock; and what changed with them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gputop.demo.scenarios import SCENARIOS
from gputop.diagnose import Finding
from gputop.diagnose.engine import Verdict
from gputop.model import Frame, Process
from tests.rule_cases import UNTOLD, Machine, found, judged, played, refused, scenario, silent

CHANGE_S, END_S, LOOK_S = 690, 1140, 5


def turn(before: float, after: float, at_s: float = CHANGE_S, back_s: float = END_S) -> Callable[[float], float]:
    """A dial that changes at some time, and perhaps back."""
    return lambda t: after if at_s <= t < back_s else before


def said(machine: Machine, more: Callable[[Frame, float], Frame] | None = None, end_s: int = END_S) -> Verdict:
    frames = (
        machine.frame(float(t)) if more is None else more(machine.frame(float(t)), t) for t in range(0, end_s, LOOK_S)
    )
    *_, (_, verdict) = judged(frames)
    return verdict


def told(verdict: Verdict) -> Finding:
    finding = found(verdict, "slowdown")
    assert finding is not None
    return finding


@pytest.mark.parametrize(
    ("gpu", "severity"),
    [
        ({"busy_percent": turn(97, 85)}, "info"),
        ({"busy_percent": turn(97, 89)}, None),  # by 8 %
        ({"busy_percent": turn(97, 70)}, "info"),  # perhaps it evaluates now
        ({"busy_percent": turn(97, 70), "sm_clock_mhz": turn(1980, 1400)}, "crit"),  # it does not work less by itself
        ({"busy_percent": turn(85, 97)}, None),  # faster
        ({"busy_percent": turn(97, 85, at_s=900)}, None),  # four minutes ago
        ({"busy_percent": turn(97, 85, at_s=480)}, None),  # eight minutes of one speed are few
        ({"busy_percent": turn(97, 85, back_s=960)}, None),  # and back again
        ({"busy_percent": lambda t: 97 - 25 * (t // LOOK_S % 3 == 0)}, None),  # it always varied
        ({"sm_clock_mhz": turn(1980, 1500)}, "warn"),
        ({"sm_clock_mhz": turn(1980, 1850)}, None),
    ],
)
def test_slowdown(gpu: dict[str, Any], severity: str | None) -> None:
    finding = found(said(Machine(gpu=gpu)), "slowdown")
    assert (finding and finding.severity) == severity


@pytest.mark.parametrize(
    "command",
    [
        ("VLLM::EngineCore",),
        ("python", "-m", "ipykernel_launcher", "-f", "kernel.json"),
        ("python", "evaluate.py"),
    ],
)
def test_less_demand_is_not_slower(command: tuple[str, ...]) -> None:
    gpu = {"busy_percent": turn(85, 45), "sm_clock_mhz": turn(1980, 1700)}
    assert found(said(Machine(gpu=gpu, trainer={"command": command})), "slowdown") is None


def test_a_gpu_that_is_less_busy_may_have_something_else_to_do() -> None:
    dials = {"trainer": {"uid": 1}, "loaders": 2, "loader": {"cpu_percent": turn(20, 80)}}
    for more in ({}, dials, {"host": {"cpu_percent": turn(10, 66)}}):  # an evaluation loads more in a second, too
        finding = told(said(Machine(gpu={"busy_percent": turn(97, 55)}, **more)))
        assert finding.severity == "info"
        assert finding.headline.startswith("GPU 43 % less busy than ")
        assert finding.headline.endswith(" ago, slower or different work")
        assert finding.lost_share is None


def test_it_names_what_changed_with_it() -> None:
    gpu = {"busy_percent": turn(97, 85), "sm_clock_mhz": turn(1980, 1700)}
    stress = {"name": "stress-ng", "user": "bob", "uid": 7, "cpu_percent": 900.0}

    def more(frame: Frame, t: float) -> Frame:
        if t < CHANGE_S:
            return frame
        other = Process(pid=9, started_ticks=9, age_s=t - CHANGE_S, **stress)
        return replace(frame, processes=(*frame.processes, other))

    finding = told(said(Machine(gpu=gpu, trainer={"uid": 1}, host={"cpu_percent": turn(10, 66)}), more))
    assert finding.severity == "warn"
    assert finding.headline.startswith("12 % slower for ")
    assert finding.since_s == pytest.approx(END_S - CHANGE_S, abs=30)
    assert finding.headline.endswith("external change")
    assert [item.text for item in finding.evidence] == [
        "GPU busy was 97 %, now 85 % (12 % lower)",
        "SM clock fell from 1980 to 1700 MHz",
        "host CPU busy 66 % (before 10 %)",
        "stress-ng of user bob started then and uses 9.0 CPUs",
    ]


def test_what_changed_leads_where_it_has_a_rule() -> None:
    gpu = {"sm_clock_mhz": turn(1980, 1400), "throttled_heat_percent": turn(0, 50), "temperature_celsius": turn(70, 89)}
    verdict = said(Machine(gpu=gpu))
    assert [finding.rule for finding in verdict.findings if finding.primary] == ["thermal"]
    assert not told(verdict).primary


def test_by_its_steps_it_is_inside_the_program() -> None:
    _, verdict = scenario("slowdown")[-1]
    finding = told(verdict)
    assert finding.headline.endswith("cause inside the program")
    first = finding.evidence[0]
    assert first.text.startswith("step time was 1.")
    assert re.search(r"s, now 1\.\d\d s \(\d\d % fewer steps/s\)$", first.text)
    assert (first.limit, first.value) == (pytest.approx(1.2, rel=0.03), pytest.approx(1.5, rel=0.03))
    assert finding.primary


def test_steps_that_may_be_meant_to_do_more_are_not_critical() -> None:
    """Layers that are unfrozen, longer samples: nothing else changes."""
    made = SCENARIOS["slowdown"]
    (job,) = made.server.jobs
    (first, steps), (from_s, _) = job.work
    slower = replace(job, work=((first, steps), (from_s, replace(steps, period_s=2 * steps.period_s))))
    *_, (_, verdict) = played(replace(made, server=replace(made.server, jobs=(slower,))))
    finding = told(verdict)
    assert finding.lost_share == pytest.approx(0.5, abs=0.03)
    assert finding.severity == "warn"
    assert "Ignore this if steps intentionally do more" in finding.steps[-1].text


def steps_of(before_s: float, after_s: float) -> dict[str, Any]:
    """A GPU whose steps take longer from some time on, and are a fifth empty."""

    def at(t: float) -> float:
        step_s = before_s if t < CHANGE_S else after_s
        return 97.0 if t % step_s < 0.8 * step_s else 3.0

    return {
        "busy_percent": lambda t: (at(t) + at(t - 1)) / 2,
        "busy_samples": lambda t: ((1.0, at(t - 1)), (0.0, at(t))),
    }


@pytest.mark.parametrize(
    ("gpu", "severity", "why"),
    [
        ({}, "warn", "cause inside the program"),
        ({"sm_clock_mhz": turn(1980, 1300)}, "crit", "external change"),
    ],
)
def test_longer_samples_that_keep_its_loaders_busy_are_its_own_doing(
    gpu: dict[str, Any], severity: str, why: str
) -> None:
    loader = {"cpu_percent": turn(30, 60), "age_s": lambda t: 4000.0 + t}
    machine = Machine(gpu=steps_of(8.0, 12.0) | gpu, loader=loader, loaders=8)
    *_, (_, verdict) = judged(machine.frame(float(t)) for t in range(0, END_S, 2))
    finding = told(verdict)
    assert finding.severity == severity
    assert finding.headline.endswith(why)
    assert "workers use 0.6 cores each (before 0.3)" in [item.text for item in finding.evidence]
    assert any("intentionally do more" in step.text for step in finding.steps) == (severity == "warn")


def test_new_loaders_mean_that_it_does_something_else() -> None:
    machine = Machine(gpu={"busy_percent": turn(97, 85)}, loaders=2, loader={"age_s": lambda t: max(1.0, t - CHANGE_S)})
    assert found(said(machine), "slowdown") is None


def test_slowdown_abstains_where_the_gpu_does_not_tell() -> None:
    hidden = refused("busy_percent")["missing"]
    units = {"sm_active_percent": None}  # else they stand in for it
    gpu = {"busy_percent": lambda t: 97.0 if t < 20 else None, "missing": lambda t: () if t < 20 else hidden}
    untold = {"gpus": UNTOLD}
    assert silent(said(Machine(gpu=gpu | units, trainer=untold), end_s=90), "slowdown") is not None

"""What gputop costs, and what it cannot see."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gputop.diagnose.rules import RULES
from gputop.model import Frame, Missing, Note
from tests.rule_cases import Machine, after, found, scenario

SLOW = Note(subject="driver", key="slow", text="the driver is slow: asked every 4 s")


@pytest.mark.parametrize(
    ("frame", "threads", "fires"),
    [
        ({"cost_percent": 3.1}, 60, True),
        ({"cost_percent": 2.9}, 60, False),
        ({"driver_percent": 2.1}, 60, True),
        ({"driver_percent": 1.9}, 60, False),
        ({"notes": (SLOW,)}, 60, True),
        ({}, 1260, True),
        ({}, 1240, False),
        ({"cost_percent": None}, None, False),  # not known
    ],
)
def test_self_overhead(frame: dict[str, Any], threads: int | None, fires: bool) -> None:
    machine = Machine(trainer={"threads": threads})
    finding = found(after(lambda t: replace(machine.frame(t), **frame), 90, each_s=1), "self-overhead")
    assert (finding is not None) == fires
    assert finding is None or (finding.severity == "info" and not finding.primary)


@pytest.mark.parametrize(
    ("frame", "threads", "each_s", "told", "commands"),
    [
        ({"cost_percent": 4.0}, 60, 1, [], ["--interval 5"]),
        ({"cost_percent": 4.0}, 60, 5, [], ["--interval 10"]),
        ({"driver_percent": 3.0}, 60, 1, [], ["--interval 5", "--gpm off", "--no-nvml"]),
        ({}, 4000, 1, ["every 16 s"], [None]),
        ({}, 4000, 5, ["every 80 s"], ["--interval 1", None]),
        ({}, 300, 5, ["every 6 s"], ["--interval 1", None]),
        ({"cost_percent": 4.0}, 4000, 5, ["every 80 s"], ["--interval 10", None]),
    ],
)
def test_steps_against_overhead_fit_what_was_seen_and_the_interval(
    frame: dict[str, Any], threads: int, each_s: int, told: list[str], commands: list[str | None]
) -> None:
    machine = Machine(trainer={"threads": threads})
    finding = found(after(lambda t: replace(machine.frame(t), **frame), 400, each_s), "self-overhead")
    assert finding is not None
    assert [step.command for step in finding.steps] == [one and f"gputop {one}" for one in commands]
    late = [item.text for item in finding.evidence if "threads" in item.text]
    assert [text for text, part in zip(late, told, strict=True) if part not in text] == []


def test_one_expensive_tick_is_no_news() -> None:
    machine = Machine()

    def frame(t: float) -> Frame:
        return replace(machine.frame(t), cost_percent=40.0 if t == 44 else 1.0)

    assert found(after(frame, 90), "self-overhead") is None


def test_to_start_is_no_news_either() -> None:
    machine = Machine()

    def frame(t: float) -> Frame:
        return replace(machine.frame(t), cost_percent=90.0 if t < 10 else 2.0)

    assert found(after(frame, 120), "self-overhead") is None


def test_a_costly_monitor_says_so() -> None:
    _, said = scenario("self-overhead")[-1]
    told = found(said, "self-overhead")
    assert told is not None
    assert [item.text for item in told.evidence] == ["gputop uses 6.5 % of a core"]
    assert [finding.severity for finding in said.findings] == ["info", "info"]


def test_blind_spots_are_told_with_the_rules_they_silence() -> None:
    _, said = scenario("blind-spots")[-1]
    told = found(said, "blind-spots")
    assert told is not None
    assert not told.primary
    hidden = "bytes read by system calls denied; skipped: io-bound, network-fs-bound"
    assert hidden in [item.text for item in told.evidence]
    (root,) = [step for step in told.steps if step.command]
    assert (root.command, root.needs_root) == ("sudo gputop", True)


def test_nobody_names_what_is_in_a_blind_spot() -> None:
    _, said = scenario("blind-spots")[-1]
    assert {one.rule for one in said.findings} == {"starved-cause-unknown", "blind-spots"}


@pytest.mark.parametrize(("reason", "fires"), [("denied", True), ("unsupported", True), ("absent", False)])
def test_blind_spots_are_what_somebody_could_see(reason: Any, fires: bool) -> None:
    missing = (Missing(metric="throttle_reasons", reason=reason),)
    gpu = {"throttle_reasons": None, "throttled_heat_percent": None, "throttled_heat_hard_percent": None}
    finding = found(Machine(gpu=gpu | {"missing": missing}).verdict(60), "blind-spots")
    assert (finding is not None) == fires


def test_it_is_asked_last() -> None:
    assert list(RULES)[-1] == "blind-spots"


def test_rules_that_cannot_judge_a_trainer_on_an_instance_say_so() -> None:
    _, said = scenario("mig-visibility")[-1]
    silent = {one.rule for one in said.abstained if one.subject.kind in ("process", "job")}
    assert all(one.unlock for one in said.abstained), "what would let them judge is said"
    assert {"starved-cpu-idle", "gpu-bound-healthy", "neighbour", "io-bound", "slowdown"} <= silent
    told = found(said, "mig-visibility")
    assert told is not None
    assert "starved-cpu-idle" in told.evidence[-1].text

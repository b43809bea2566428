"""What would make a finding surer, and what would make it leave: told where there is room for all of it."""

from __future__ import annotations

from typing import Any

import pytest

from gputop import thresholds
from gputop.demo import SCENARIOS, Demo
from gputop.diagnose.rules import RULES
from gputop.monitor import Monitor
from gputop.ui.advice.full import leaving, whole
from gputop.ui.advice.scene import Scene
from gputop.ui.look import Look
from tests.advised import NAMES, found, hot, sheet, update
from tests.judged import LIMITS


def lines(finding: Any, width: int = 120, **scene: Any) -> list[str]:
    told = update(finding)
    made = Scene(update=told, sheet=sheet(told), look=Look(), **{"keys": NAMES, **scene})
    return [line.strip(width).text.strip() for line in (*whole(finding, made, width), *leaving(finding, made, width))]


def test_it_says_which_key_looks_and_what_that_would_have_to_see() -> None:
    said = lines(found())
    assert "p a profile of its stacks: often waiting for the DataLoader" in said
    assert "t a trace that says yes to: Does the step wait for its DataLoader?" in said
    assert "surer" not in " ".join(lines(found(grade="profile"))), "it has been seen"
    assert "surer" not in " ".join(lines(found(), keys={})), "no key looks"
    assert "surer" not in " ".join(lines(hot())), "heat is not seen in a process"


@pytest.mark.parametrize("rule", sorted(id for id, rule in RULES.items() if rule.confirmed_by))
def test_whatever_makes_a_rule_surer_has_a_key_that_looks_for_it(rule: str) -> None:
    said = lines(found(rule=rule, causes=()))
    assert "what would make it surer" in said


def test_it_says_for_how_long_and_by_which_limits_it_must_not_hold() -> None:
    limits = {"saturation": (0.6, 0.66), "starved.duty": (0.8, 0.85), "loader_cpu": (0.8, 0.72)}
    limits |= {"starved-cpu-idle.loader_cpu": (0.8, 0.72)}  # the same, as somebody else asks for it
    said = lines(found(), leaving=lambda rule: (45.0, limits if rule == "starved-cpu-idle" else {}))
    at = said.index("it leaves after 45s in which it does not hold")
    assert [line.split()[:5] for line in said[at + 1 :] if "until" in line] == [
        ["saturation", "0.6", "until", "above", "0.66"],
        ["duty", "0.8", "until", "above", "0.85"],
        ["loader_cpu", "0.8", "until", "below", "0.72"],
    ]
    assert "leaves" not in " ".join(lines(found())), "nothing is known of its limits"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_every_rule_has_room_for_its_limits(width: int) -> None:
    for rule in RULES:
        limits = {name: (value, value) for name, value in LIMITS.get(rule, {}).items() if name[-5:] != "_exit"}
        told = update(found(rule=rule))
        scene = Scene(update=told, sheet=sheet(told), look=Look(), keys=NAMES, leaving=lambda _, it=limits: (45.0, it))
        said = [line.strip(width).text.rstrip() for line in leaving(found(rule=rule), scene, width)[1:]]
        assert [line.split()[0] for line in said if line[5:6].strip()] == list(limits), "columns do not run together"
        told_whole = " ".join(" ".join(said).split())
        for number in thresholds.written().get(rule, ()):
            assert number.name not in limits or number.help in told_whole, "what it means is never cut"


def test_the_limits_are_those_that_the_rule_held_values_against() -> None:
    monitor = Monitor(Demo(SCENARIOS["starved-cpu-idle"], pace=False, anchor_s=1_795_185_127.0, at_s=0.0))
    updates = monitor.updates()
    assert monitor.leaving("starved-cpu-idle") == (0.0, {})
    for _ in range(200):
        next(updates)
    updates.close()
    seconds, limits = monitor.leaving("starved-cpu-idle")
    assert seconds == 45
    assert limits["starved.duty"] == pytest.approx((0.8, 0.85)), "it holds where the GPU is less busy"
    assert limits["loader_cpu"][1] < limits["loader_cpu"][0], "and its loaders more"
    assert "more" not in limits, "a factor of the advice"
    assert "window_s" not in limits

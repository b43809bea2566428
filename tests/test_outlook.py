"""What would make a finding surer, and what would make it leave: told where there is room for all of it."""

from __future__ import annotations

from typing import Any

import pytest

from gputop.demo import SCENARIOS, Demo
from gputop.diagnose.limits import Tables
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
    limits = Tables(LIMITS)["starved-cpu-idle"]
    asked = {name: limits[name] for name in ("on_s", "window_s", "saturation", "starved.duty")}
    said = lines(found(), asked=lambda rule: asked if rule == "starved-cpu-idle" else {})
    at = said.index("what would make it leave")
    assert [line.split("  ")[0] for line in said[at + 1 :]] == [
        "45s in which it does not hold, by limits further back than to come:",
        "saturation",
        "starved.duty",
    ]
    assert said[at + 3].split()[1:3] == ["0.8", "±0.05"], "duty_exit is 0.85"
    assert "leave" not in " ".join(lines(found())), "nothing is known of its limits"


def test_the_limits_are_those_that_the_rule_has_asked_for() -> None:
    monitor = Monitor(Demo(SCENARIOS["thermal"], pace=False, anchor_s=1_795_185_127.0, at_s=0.0))
    updates = monitor.updates()
    assert monitor.asked("thermal") == {}
    for _ in range(90):
        next(updates)
    updates.close()
    asked = monitor.asked("thermal")
    assert asked["soft_percent"] == Tables(LIMITS)["thermal"]["soft_percent"]
    assert "on_s" in asked
    assert not any(name.endswith("_exit") for name in asked)

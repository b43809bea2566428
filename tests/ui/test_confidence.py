"""How to confirm a finding, and when it clears: on the page that has all of it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gputop import phrases, thresholds
from gputop.demo import SCENARIOS, Demo
from gputop.diagnose import Evidence, Step
from gputop.diagnose.limits import Tables
from gputop.diagnose.rules import RULES
from gputop.monitor import Monitor
from gputop.ui.advice.full import whole
from gputop.ui.advice.scene import AdviceScene
from gputop.ui.theme import Look
from tests.advice_scenes import NAMES, finding_list, found, hot, update
from tests.rule_cases import LIMITS


def lines(finding: Any, width: int = 120, **scene: Any) -> list[str]:
    told = update(finding)
    made = AdviceScene(update=told, finding_list=finding_list(told), look=Look(), **{"keys": NAMES, **scene})
    return [line.strip(width).text.strip() for line in whole(finding, made, width)]


def test_it_says_which_key_looks_and_what_that_would_have_to_see() -> None:
    said = lines(found())
    assert "p py-spy profile, expected: often waiting for the DataLoader" in said
    assert "t torch.profiler trace, should answer yes: Does the step wait for its DataLoader?" in said
    assert "to confirm" not in " ".join(lines(found(grade="profile"))), "it has been seen"
    assert "to confirm" not in " ".join(lines(found(), keys={})), "no key looks"
    assert "to confirm" not in " ".join(lines(hot())), "heat is not seen in a process"


@pytest.mark.parametrize("rule", sorted(id for id, rule in RULES.items() if rule.confirmed_by))
def test_what_confirms_a_rule_has_a_key_that_finds_it(rule: str) -> None:
    said = lines(found(rule=rule, causes=()))
    assert "to confirm" in said


def test_it_says_after_how_long_and_at_which_values_of_its_evidence_it_clears() -> None:
    limits = {
        "starved.duty": (0.8, 0.85),
        "starved-cpu-idle.io_percent": (10.0, 15.0),
        "starved-cpu-idle.spare": (0.8, 0.72),
    }
    busy = Evidence(text="GPU busy 55 %", value=55.0, unit="%", limit=80.0, sense="healthy_from")
    said = lines(found(evidence=(busy,)), leaving=lambda _: (45.0, limits))
    at = said.index("clears once this holds for 45 s")
    duty = next(number.measure for number in thresholds.written()["starved"] if number.name == "duty")
    assert said[at + 1] == f"{duty}: above 85 %"
    assert not any("PSI" in line for line in said[at:]), "of what else the rule measured nothing is said"
    waits = Evidence(text="PSI io some 20 %", value=20.0, unit="%", limit=10.0, sense="flagged_above")
    assert "clears once one of these holds for 45 s" in lines(
        found(evidence=(busy, waits)), leaving=lambda _: (45.0, limits)
    )
    assert "clears once its evidence is below threshold for 45 s" in lines(found(), leaving=lambda _: (45.0, {}))
    assert "clears" not in " ".join(lines(found())), "nothing is known of its limits"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_what_a_rule_measures_is_never_cut_and_has_neither_name_nor_source_of_a_threshold(width: int) -> None:
    for rule in RULES:
        own = {name: value for name, value in LIMITS.get(rule, {}).items() if name[-5:] != "_exit"}
        limits = {f"{rule}.{name}": (value, value) for name, value in own.items()}
        evidence = tuple(
            Evidence(text=name, limit=value, unit=phrases.threshold_unit(name) or "") for name, value in own.items()
        )
        said = lines(found(rule=rule, evidence=evidence), width, leaving=lambda _, it=limits: (45.0, it))
        at = next(place for place, line in enumerate(said) if line.startswith("clears once"))
        told = " ".join(" ".join(said[at + 1 :]).split())
        for number in thresholds.written().get(rule, ()):
            assert number.name not in own or f"{number.measure}: below" in told
        assert not re.search(r"\[(I|M|S\d|hdr|DCGM|src.*?)\]|\b\w+_(percent|s|bytes|celsius)\b", told)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("busy_percent", 85.0, "85 %"),
        ("margin_celsius", 4.0, "4 °C"),
        ("reads_bytes_per_s", 20e6, "20 MB/s"),
        ("read_bytes", 64e3, "64 kB"),
        ("calls_per_s", 2000.0, "2000/s"),
        ("rtt_s", 0.009, "9 ms"),
        ("hang_s", 100.0, "100 s"),
        ("duty", 0.85, "0.85"),
        ("pool", 2.0, "2"),
    ],
)
def test_the_value_of_a_threshold_has_the_unit_of_its_name(name: str, value: float, text: str) -> None:
    assert phrases.threshold_value(name, value) == text


def test_a_limit_is_one_whether_a_rule_or_what_serves_several_asks_for_it() -> None:
    numbers = Tables({"starved-cpu-idle": {"loader_cpu": 0.8}, "starved": {"duty": 0.8}})["starved-cpu-idle"]
    numbers.held |= {"loader_cpu": 1, "starved.duty": -1, "starved-cpu-idle.loader_cpu": 1}
    assert numbers.clearing() == {
        "starved-cpu-idle.loader_cpu": pytest.approx((0.8, 0.72)),
        "starved.duty": pytest.approx((0.8, 0.88)),
    }


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
    loader_cpu, until = limits["starved-cpu-idle.loader_cpu"]
    assert until < loader_cpu, "and its workers more"
    assert {"starved-cpu-idle.more", "starved-cpu-idle.window_s"}.isdisjoint(limits), "a factor of the advice, a span"


@pytest.mark.parametrize("width", range(60, 100))
def test_what_ends_something_is_said_whole(width: int) -> None:
    let_go = Step(text="carol alone may end it: what it has in memory is lost", destroys=True, needs_root=True)
    look = Step(text="see", command="sudo gputop stack 41207", action="stack", needs_root=True)
    finding = found(steps=(let_go, look))
    told = update(finding)
    made = AdviceScene(update=told, finding_list=finding_list(told), look=Look(), keys=NAMES)
    said = [line.strip(width).text.rstrip() for line in whole(finding, made, width)]
    assert sum("needs root, destructive" in line for line in said) == 1
    assert sum(line.endswith("   or a then s") for line in said) == 1

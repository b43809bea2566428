"""Every simulated fault yields its finding and none that would mislead; a healthy server yields none."""

from __future__ import annotations

import pytest

from gputop.demo import SCENARIOS, Demo
from gputop.diagnose import Finding
from gputop.diagnose.further_reading import CHOICES
from gputop.diagnose.rules import GROUPS, RULES
from gputop.finding_text import subject_name
from gputop.monitor import Update
from tests.advice_scenes import drawn
from tests.rule_cases import LIMITS, ONSET_S, Seen, scenario
from tests.score.truths import BESIDE, EXPECTED, HEALTHY, WELL, Expected

STAYS_S = 60.0  # so much longer it is looked on; `make score` plays them to their ends


def played(name: str, truth: Expected) -> Seen:
    """A scenario as far as its finding must have come, and some time more."""
    return scenario(name, ONSET_S + truth.by_s + STAYS_S)


def rules(findings: tuple[Finding, ...]) -> set[str]:
    return {rule for finding in findings for rule in (finding.rule, *finding.causes)}


@pytest.mark.parametrize("name", EXPECTED, scope="module")  # beside the other test of it: played once
def test_scenario_yields_its_finding(name: str) -> None:
    truth = EXPECTED[name]
    seen = played(name, truth)
    assert seen
    for t, said in seen:
        assert not rules(said.findings) & set(truth.never), f"at {t:.0f} s"
        if t < ONSET_S:
            assert [finding.rule for finding in said.findings if not finding.healthy] == [], f"at {t:.0f} s"
    at = next(said for t, said in seen if t >= ONSET_S + truth.by_s)
    leads = [finding for finding in at.findings if finding.primary]
    assert {truth.primary in (lead.rule, *lead.causes) for lead in leads} == {True}
    assert leads[0].severity == truth.severity
    assert leads[0].steps
    assert [item for item in leads[0].evidence if item.value is not None and item.limit is not None]
    assert leads[0].confidence >= 0.5
    _, end = seen[-1]
    assert truth.primary in rules(end.findings)


@pytest.mark.parametrize("name", BESIDE)
def test_scenario_yields_its_finding_beside_the_first(name: str) -> None:
    truth = BESIDE[name]
    for t, said in played(name, truth):
        assert not rules(said.findings) & set(truth.never), f"at {t:.0f} s"
        assert not rules(tuple(one for one in said.findings if one.severity != "info")) & set(truth.mild)
        if t >= ONSET_S + truth.by_s:
            (told,) = [finding for finding in said.findings if finding.rule == truth.primary]
            assert told.severity == truth.severity
            assert not told.primary or name == "evaluation-phase"  # nothing else is wrong there
            assert told.steps
            assert told.evidence


@pytest.mark.parametrize("name", EXPECTED, scope="module")
def test_the_pane_shows_it(name: str) -> None:
    """Whom it is about, what it says, and from 120 columns on what to do: also on the smallest screen."""
    truth = EXPECTED[name]
    t, said = next((t, said) for t, said in played(name, truth) if t >= ONSET_S + truth.by_s)
    frame = Demo(SCENARIOS[name], pace=False, anchor_s=0.0, at_s=0.0).frame(t)
    update = Update(frame=frame, findings=said.findings, abstained=said.abstained)
    lead = next(finding for finding in said.findings if finding.primary)
    for size in ((80, 24), (120, 40)):
        text = "\n".join(drawn(update, size))
        assert f"{subject_name(lead.subject, frame)}" in text
        assert lead.headline[:30] in text
    assert lead.severity.upper() in text
    assert " because " in text
    assert lead.steps[0].text[:40] in text


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_server_is_no_news(name: str) -> None:
    for t, said in scenario(name):
        assert [finding.rule for finding in said.findings if finding.severity != "info"] == [], f"at {t:.0f} s"
        assert not rules(said.findings) & set(HEALTHY[name])


def test_every_rule_is_planted_somewhere() -> None:
    """Where it must be told, and where a simulated server has what it goes by."""
    assert {truth.primary for truth in (*EXPECTED.values(), *BESIDE.values())} | {WELL} == set(RULES)
    assert set(SCENARIOS) - {*EXPECTED, *BESIDE, *HEALTHY} == {"showcase", "idle", "16gpu", "64gpu"}  # whole servers


def test_every_rule_has_its_numbers_and_its_group() -> None:
    assert {name for name in set(LIMITS) - set(RULES) if not name.startswith("paste-")} <= {
        "engine",
        "starved",
        "storage",
        "classes",
        "experiments",
        "alternation",
        "exhaustion",
        "job-states",
    }
    assert {rule.group for rule in RULES.values()} == {module.__name__.rpartition(".")[2] for module in GROUPS}
    assert all(rule.question.endswith("?") for rule in RULES.values())
    assert set(CHOICES) < set(RULES)


@pytest.mark.parametrize("name", EXPECTED, scope="module")
def test_a_step_that_needs_root_or_destroys_says_so(name: str) -> None:
    """Also by its looks: what begins with sudo needs root, and what ends, takes out or resets something destroys it."""
    _, said = played(name, EXPECTED[name])[-1]
    for step in (step for finding in said.findings for step in finding.steps if step.command):
        words = step.command or ""
        assert step.needs_root == ("sudo " in words), words
        assert step.destroys >= any(
            word in words for word in ("kill ", "uninstall", "--gpu-reset", "smi -r", "-mig ")
        ), words

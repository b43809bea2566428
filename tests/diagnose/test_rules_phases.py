"""What a trainer does next takes back what was found of it: nothing outlives its cause, and nothing flickers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from gputop.diagnose import Finding, Subject
from gputop.diagnose.engine import Verdict
from gputop.diagnose.merge import merge_findings
from gputop.diagnose.phases import PhaseChange
from gputop.diagnose.rule import RULES, Level
from gputop.diagnose.steadying import Steadying, crit_after
from gputop.model import Frame, Host, Identity
from tests.rule_cases import LIMITS, Machine, judged

TRAINS_S = 200.0
STARVED = {rule.id for rule in RULES.values() if rule.level in (Level.STARVED, Level.CAUSE)} | {"overhead-bound"}
LOADERS = ("loaders", 40.0, 97.0)
MAIN = ("main", 40.0, 5.0)


def job(busy: Callable[[float], float], loader: Callable[[float], float], count: int = 4) -> Machine:
    """A trainer whose GPU is so busy, with loaders that use so much of a core."""
    cpu = {"cpu_percent": loader, "main_thread_percent": loader}
    return Machine(gpu={"busy_percent": busy}, loader=cpu, loaders=count)


def noisy(value: float, t: float, by: float) -> float:
    return min(100.0, value + Random(int(t)).uniform(-by, by))


def during(phases: Callable[[float], bool], percent: float, loader: tuple[str, float, float]) -> Machine:
    """Training at 95 %, but for some phases."""
    _, usual, then = loader
    return job(
        lambda t: noisy(percent, t, 8) if phases(t) else noisy(95, t, 3),
        lambda t: then if phases(t) else usual,
    )


def seen(machine: Machine, seconds: int, each_s: int = 1) -> list[tuple[float, Verdict]]:
    return [
        (frame.mono_s - 1000, said)
        for frame, said in judged(machine.frame(float(t)) for t in range(0, seconds, each_s))
    ]


def told(said: Verdict) -> list[Finding]:
    """What is said of waiting."""
    return [one for one in said.findings if {one.rule, *one.causes} & STARVED and one.severity != "info"]


@pytest.mark.parametrize("loader", [LOADERS, MAIN], ids=lambda loader: loader[0])
@pytest.mark.parametrize("percent", [10.0, 30.0, 70.0])
@pytest.mark.parametrize("length_s", [30, 40, 55])
def test_a_phase_of_less_work_is_at_most_a_warning_that_leaves_when_it_ends(
    loader: tuple[str, float, float], percent: float, length_s: int
) -> None:
    machine = during(lambda t: TRAINS_S <= t < TRAINS_S + length_s, percent, loader)
    for t, said in seen(machine, 330):
        assert "crit" not in [one.severity for one in said.findings], f"at {t:.0f} s"
        if t >= TRAINS_S + length_s + 13:
            assert not told(said), f"at {t:.0f} s"


@pytest.mark.parametrize("percent", [30.0, 60.0, 74.0])
def test_starvation_that_lasts_is_told_and_leaves_when_it_is_over(percent: float) -> None:
    machine = during(lambda t: TRAINS_S <= t < 400, percent, LOADERS)
    shown = {t: [one.severity for one in told(said)] for t, said in seen(machine, 480)}
    first = next(t for t in shown if shown[t])
    assert TRAINS_S + 20 <= first <= TRAINS_S + 48
    assert shown[first] == ["warn"]
    assert all(shown[t] for t in shown if first <= t < 400)
    assert not any(shown[t] for t in shown if t >= 413)
    worst = {severity for t in shown for severity in shown[t] if t < TRAINS_S + 60}
    assert worst == {"warn"}
    assert (shown[399] == ["crit"]) == (percent < 50)


@pytest.mark.parametrize(("on_s", "off_s"), [(6, 4), (12, 8), (20, 10), (20, 14), (45, 30)])
def test_gaps_that_come_back_take_nothing_back(on_s: int, off_s: int) -> None:
    """Loaders that keep up for a while, and then do not: however long each lasts."""
    machine = job(lambda t: 96.0 if t % (on_s + off_s) < on_s else 5.0, lambda t: 97.0)
    shown = [bool(told(said)) for _, said in seen(machine, 700)]
    assert sum(before and not now for before, now in pairwise(shown)) <= (2 if off_s >= 30 else 0)
    assert shown[-1]


def test_evidence_that_is_old_says_so() -> None:
    machine = Machine(gpu={"throttled_heat_percent": lambda t: 40.0 if t < 100 else 0.0})
    stale = [
        (t, one.evidence[0].text)
        for t, said in seen(machine, 200)
        for one in said.findings
        if one.rule == "thermal" and one.evidence[0].text.startswith("not confirmed")
    ]
    last = next(float(text.split()[3]) for _, text in stale)
    assert 6 <= last <= 8
    assert stale[0][1].endswith("s; clears after 45 s")
    assert len(stale) > 25


def of_trainer(rule: str, *, severity: Any = "warn", lost: float | None = 0.4, since_s: float = 0.0) -> Finding:
    subject = Subject(kind="process", processes=(Identity(1, 1),))
    return Finding(rule=rule, severity=severity, subject=subject, headline=rule, lost_share=lost, since_s=since_s)


def shown_then(finding: Finding, turn: PhaseChange, *, again: bool = False) -> list[float]:
    """Seconds after a turn in which a finding that was on the screen is still there."""
    steady, here = Steadying(), []
    for second in range(1, 120):
        if second == 61:
            steady.restart({Identity(1, 1): turn}, float(second), 1.0)
        holds = second <= 60 or (again and second >= 70)
        if steady.update([(finding, 30.0)] if holds else [], float(second), 1.0):
            here.append(second - 61.0)
    return [t for t in here if t >= 0]


@pytest.mark.parametrize(
    ("rule", "lost", "turn", "last"),
    [
        ("starved-cpu-idle", 0.4, PhaseChange(52.0, 50.0, 95.0), None),  # it cannot be
        ("io-bound", 0.4, PhaseChange(52.0, 50.0, 95.0), None),
        ("gpu-bound-healthy", 0.0, PhaseChange(52.0, 95.0, 30.0), None),
        ("starved-cpu-idle", 0.4, PhaseChange(52.0, 60.0, 20.0), 8),  # it may be, and does not hold once that is known
        ("numa-misplacement", None, PhaseChange(52.0, 50.0, 95.0), 8),
        ("checkpoint-stall", 0.1, PhaseChange(52.0, 50.0, 95.0), 44),  # it comes back
        ("worker-respawn", 0.1, PhaseChange(52.0, 50.0, 95.0), 44),
        ("gmem-leak", None, PhaseChange(52.0, 50.0, 95.0), 44),  # it is about something else
        ("stack-vs-gpu", None, PhaseChange(52.0, 50.0, 95.0), 44),
    ],
)
def test_what_does_not_hold_of_a_new_phase_leaves(
    rule: str, lost: float | None, turn: PhaseChange, last: int | None
) -> None:
    here = shown_then(of_trainer(rule, lost=lost), turn)
    assert (here[-1] if here else None) == pytest.approx(last, abs=1.5)


def test_what_holds_of_the_new_phase_too_stays() -> None:
    assert shown_then(of_trainer("starved-cpu-idle"), PhaseChange(60.0, 60.0, 20.0), again=True) == list(range(59))


def test_a_finding_that_comes_back_after_every_phase_stays() -> None:
    steady, shown = Steadying(), []
    for second in range(1, 400):
        if second % 40 == 0:
            steady.restart({Identity(1, 1): PhaseChange(second - 10.0, 30.0, 95.0)}, float(second), 1.0)
        holds = second % 40 >= 10
        shown.append(bool(steady.update([(of_trainer("starved-cpu-idle"), 20.0)] if holds else [], float(second), 1.0)))
    assert sum(before and not now for before, now in pairwise(shown)) == 2
    assert all(shown[200:])


def folded(*findings: Finding) -> list[Finding]:
    return merge_findings(findings, Frame(wall_s=0, mono_s=0, hostname="h", host=Host()), {}, LIMITS)


def test_a_cause_makes_nothing_critical_that_has_only_begun() -> None:
    cause = of_trainer("cpu-quota", severity="crit", lost=None, since_s=500)
    young, old = (of_trainer("starved-cpu-idle", since_s=seconds) for seconds in (59.0, 60.0))
    assert [(one.severity, one.causes) for one in folded(young, cause)] == [("warn", ("cpu-quota",))]
    assert [(one.severity, one.causes) for one in folded(old, cause)] == [("crit", ("cpu-quota",))]


def test_a_machine_that_runs_out_of_memory_is_critical_at_once() -> None:
    pressure = Finding(rule="memory-pressure", severity="crit", subject=Subject(kind="host"), headline="swaps")
    assert {one.severity for one in folded(of_trainer("starved-cpu-idle"), pressure)} == {"warn", "crit"}
    assert [one.causes for one in folded(of_trainer("starved-cpu-idle", since_s=60), pressure)] == [
        ("memory-pressure",)
    ]


def test_only_what_a_trainer_does_must_last_before_it_is_critical() -> None:
    assert crit_after("starved-cpu-idle", LIMITS) == 60
    assert crit_after("head-of-line", LIMITS) == 120
    assert [crit_after(rule, LIMITS) for rule in ("hw-errors", "thermal", "collective-wait", "gmem-leak")] == [0] * 4

"""The engine: when a finding comes and goes, what is folded into what, and who leads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from gputop.diagnose import Evidence, Finding, Severity, Subject
from gputop.diagnose.engine import BROKEN, Engine
from gputop.diagnose.limits import leniency
from gputop.diagnose.merge import merge_abstentions, merge_findings
from gputop.diagnose.phases import PhaseChange
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.rules import RULES
from gputop.diagnose.steadying import Steadying
from gputop.diagnose.view import View
from gputop.history import History
from gputop.model import Frame, GpuShare, Host, Identity, Job, Missing, Process, Role
from tests.rule_cases import LIMITS, Machine, found, judged

GPU = Subject(kind="gpu", gpus=("G",))
A, B = Identity(1, 1), Identity(2, 1)
NOWHERE: dict[str, Any] = {"needs": ()}  # of a rule that is none of ours


def finding(name: str, severity: Severity = "warn", subject: Subject = GPU, **more: object) -> Finding:
    return replace(Finding(rule=name, severity=severity, subject=subject, headline=f"has {name}"), **more)  # type: ignore[arg-type]


def of_process(name: str, identity: Identity = A, job: str | None = "j", **more: object) -> Finding:
    gpus = (f"G{identity.pid}",)
    return finding(name, subject=Subject(kind="process", gpus=gpus, processes=(identity,), job=job), **more)


def test_a_change_of_phase_begins_anew_what_is_not_shown() -> None:
    steady = Steadying()
    for second in range(20):
        steady.update([(of_process("starved-cpu-idle"), 30.0)], second + 1.0, 1.0)
    steady.restart({A: PhaseChange(10.0)}, 20.0, 1.0)
    shown = [steady.update([(of_process("starved-cpu-idle"), 30.0)], 21.0 + second, 1.0) for second in range(24)]
    assert [bool(one) for one in shown] == [False] * 23 + [True]


@pytest.mark.parametrize(
    ("name", "limit", "slack"),
    [("x_percent", 30, 5), ("x_percent", 90, 9), ("x_percent", 2, 1), ("share", 0.8, 0.08), ("share", 0.3, 0.05),
     ("margin", -5, 0.5), ("nothing", 0, 0)],
)  # fmt: skip
def test_how_much_more_lenient(name: str, limit: float, slack: float) -> None:
    assert leniency({name: limit}, name) == pytest.approx(slack)
    assert leniency({name: limit, f"{name}_exit": limit + 7}, name) == 7


def frame(ranks: int = 2, job: str = "j") -> Frame:
    identities = tuple(Identity(pid, 1) for pid in range(1, ranks + 1))
    jobs = (Job(key=job, name=job, ranks=identities),)
    return Frame(wall_s=0, mono_s=0, hostname="h", host=Host(), jobs=jobs)


def told(*findings: Finding, tenants: dict[str, list[Process]] | None = None) -> list[Finding]:
    return merge_findings(findings, frame(), tenants or {}, LIMITS)


def test_ranks_with_the_same_finding_are_one_of_the_job() -> None:
    worst = of_process("starved-cpu-idle", B, severity="crit", lost_share=0.6, headline="waits most")
    (one,) = told(of_process("starved-cpu-idle", A, lost_share=0.4, since_s=9.0), worst)
    assert one.subject == Subject(kind="job", gpus=("G1", "G2"), processes=(A, B), job="j")
    assert (one.severity, one.headline, one.since_s) == ("crit", "waits most", 9.0)
    assert one.lost_share == pytest.approx(0.5)
    assert one.evidence[-1].text == "on 2 of 2 ranks"
    assert one.primary


def test_one_rank_stays_one_rank_and_two_jobs_two() -> None:
    alone, other = of_process("starved-cpu-idle", A), of_process("starved-cpu-idle", B, job="k")
    assert [one.subject.kind for one in told(alone, other)] == ["process", "process"]
    assert all(one.primary for one in told(alone, other))


@pytest.fixture
def _cause() -> Iterator[None]:
    """A rule about a cause, whatever rules there are."""
    rule("cause", "Is it this?", level=Level.CAUSE, **NOWHERE)(lambda _: iter(()))
    yield
    del RULES["cause"]


@pytest.mark.usefixtures("_cause")
def test_a_cause_is_told_with_what_it_causes() -> None:
    because = of_process("cause", severity="crit", confidence=0.9, evidence=(Evidence(text="quota"),))
    (one,) = told(of_process("starved-cpu-idle", confidence=0.7, since_s=60.0), because)
    assert (one.rule, one.causes, one.severity, one.confidence) == ("starved-cpu-idle", ("cause",), "crit", 0.9)
    assert one.headline == "has starved-cpu-idle; has cause"
    assert one.evidence[0].text == "quota"
    assert one.primary
    (alone,) = told(because)
    assert (alone.rule, alone.primary) == ("cause", True)


@pytest.mark.parametrize(("lost", "folded"), [(0.55, True), (0.28, True), (None, True), (0.27, False), (0.06, False)])
def test_a_cause_explains_at_least_half_of_what_is_lost(lost: float | None, folded: bool) -> None:
    starved, saves = (
        of_process("starved-cpu-idle", A, lost_share=0.55),
        of_process("checkpoint-stall", A, lost_share=lost),
    )
    first, *others = told(saves, starved)
    assert (first.rule, first.primary) == ("starved-cpu-idle", True)
    assert first.causes == (("checkpoint-stall",) if folded else ())
    assert [(one.rule, one.primary) for one in others] == ([] if folded else [("checkpoint-stall", False)])


@pytest.mark.usefixtures("_cause")
def test_a_cause_of_the_host_explains_every_job_and_is_told_once() -> None:
    host = finding("cause", subject=Subject(kind="host"))
    one, other = told(of_process("starved-cpu-idle", A), of_process("starved-cpu-idle", B, job="k"), host)
    assert one.causes == other.causes == ("cause",)
    assert one.headline == "has starved-cpu-idle; has cause"
    assert [(alone.rule, alone.primary) for alone in told(host)] == [("cause", True)]


def test_what_the_machine_explains_is_not_told_of_each_process() -> None:
    alone = of_process("threads-process", severity="info")
    host = finding("threads-host", subject=Subject(kind="host"))
    assert [one.rule for one in told(alone, host)] == ["threads-host"]
    assert {one.rule for one in told(alone, replace(host, severity="info"))} == {"threads-process", "threads-host"}


@pytest.mark.usefixtures("_cause")
def test_a_suspicion_is_told_beside_what_it_may_cause_and_never_leads() -> None:
    starved = of_process("starved-cpu-idle", evidence=(Evidence(text="loaders"),))
    perhaps = of_process("cause", severity="info", evidence=(Evidence(text="quota"), Evidence(text="loaders")))
    (one,) = told(starved, perhaps)
    assert one.headline == "has starved-cpu-idle; possibly has cause"
    assert [item.text for item in one.evidence] == ["loaders", "quota"]
    assert [(alone.rule, alone.primary) for alone in told(perhaps)] == [("cause", False)]
    of_host = finding("cause", "info", subject=Subject(kind="host"))
    assert {(one.rule, one.causes, one.primary) for one in told(starved, of_host)} == {
        ("starved-cpu-idle", (), True),
        ("cause", (), False),
    }


@pytest.mark.parametrize(("lost", "lead"), [(0.05, "starved"), (0.2, "thermal"), (None, "starved")])
def test_heat_leads_only_where_it_costs_enough(lost: float | None, lead: str) -> None:
    tenants = {"G": [Process(pid=1, started_ticks=1, job="j")]}
    hot, healthy = finding("thermal", "info", lost_share=lost), of_process("gpu-bound-healthy", severity="info")
    leads = [one.rule for one in told(hot, replace(healthy, healthy=True), tenants=tenants) if one.primary]
    assert leads == ["thermal" if lead == "thermal" else "gpu-bound-healthy"]


def test_abstentions_for_the_same_reason_are_one() -> None:
    said = Machine(gpu={"throttled_power_percent": None}).verdict(3)
    (one,) = [silent for silent in said.abstained if silent.rule == "power"]
    assert one.missing == (Missing(metric="throttled_power_percent", reason="absent"),)
    other = replace(one, subject=Subject(kind="gpu", gpus=("H",)))
    assert merge_abstentions([one, other, one]) == [replace(one, subject=Subject(kind="gpu", gpus=("G", "H")))]


def test_history_means_know_gaps() -> None:
    history = History()
    for second in range(20):
        history.add(Machine(gpu={"busy_percent": None if second % 2 else 50.0}).frame(float(second)))
    assert history.mean("G", "busy_percent", 10) == 50
    assert history.mean("G", "busy_percent", 10, 6) is None
    assert history.mean("G", "no such", 10) is None
    assert history.mean("nobody", "busy_percent", 10) is None


def test_nothing_is_judged_in_the_first_minute_of_a_context() -> None:
    young = Machine(
        gpu={"busy_percent": 40.0}, loader={"cpu_percent": 97.0}, loaders=2,
        trainer={"main_thread_percent": 20.0, "age_s": lambda t: 1 + t},
    )  # fmt: skip
    first = next(
        t
        for t, (_, said) in enumerate(judged(young.frame(float(t)) for t in range(200)))
        if found(said, "starved-cpu-idle")
    )
    assert 59 + 23 <= first <= 59 + 30


def test_a_compiler_at_work_explains_an_idle_gpu() -> None:
    compiling = Machine(
        gpu={"busy_percent": 40.0}, loader={"cpu_percent": 97.0, "name": "ptxas"}, loaders=2,
        trainer={"main_thread_percent": 20.0},
    )  # fmt: skip
    assert found(compiling.verdict(), "starved-cpu-idle") is None


def test_the_same_frames_make_the_same_words() -> None:
    machine = Machine(gpu={"throttled_heat_percent": lambda t: 9.0 * (t > 30)})
    first, again = (list(judged(machine.frame(float(t)) for t in range(90))) for _ in range(2))
    assert first == again
    assert first[-1][1].findings


def test_a_rule_that_fails_silences_no_other() -> None:
    @rule("broken", "Is it broken?", level=Level.CAUSE, **NOWHERE)
    def broken(view: View) -> Iterator[Finding]:
        raise ZeroDivisionError("no GPU")

    try:
        engine, history = Engine(lambda: LIMITS), History()
        for second in range(60):
            frame = Machine(gpu={"throttled_heat_percent": 9.0}).frame(float(second))
            history.add(frame)
            engine.remember(frame, history)
            said = engine.judge(frame, history)
    finally:
        del RULES["broken"]
    assert found(said, "thermal")
    (one,) = [silent for silent in said.abstained if silent.rule == "broken"]
    assert one.unlock == f"{BROKEN} (ZeroDivisionError: no GPU): please report it"


@pytest.mark.parametrize(("trainers", "every_s"), [(1, 2), (8, 2), (12, 4), (16, 5), (64, 5)])
def test_many_trainers_are_asked_about_less_often(trainers: int, every_s: int) -> None:
    many = tuple(
        Process(pid=pid, started_ticks=1, role=Role.TRAINER, job="j", gpus=(GpuShare(uuid="G"),))
        for pid in range(1, trainers + 1)
    )
    jobs = (Job(key="j", name="j"),)
    frames = [
        Frame(wall_s=t, mono_s=1000.0 + t, hostname="h", host=Host(), processes=many, jobs=jobs) for t in range(21)
    ]
    said = [verdict for _, verdict in judged(frames)]
    asked = [second for second in range(1, 21) if said[second] is not said[second - 1]]
    assert asked == list(range(every_s, 21, every_s))

"""What is over, and whom a finding concerns: the same for the pane, for the diagnosis and for the questions."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gputop.cli.diagnose import DiagnosisSink
from gputop.diagnose import Finding, Subject
from gputop.diagnose.workload_class import Answers
from gputop.export.diagnosis import Diagnosis, ResolvedFinding, restricted_to
from gputop.history import History
from gputop.model import Frame, Gpu, GpuShare, Host, Identity, Job, Process, Role
from gputop.monitor import Update
from gputop.ui.advice.finding_list import FindingList
from gputop.ui.advice.resolved import ResolvedFindings
from tests.headless_screens import Stage, play

A, A2, B = (Identity(pid, 1) for pid in (100, 101, 200))  # two ranks of a job, and another job
OF_A = Subject(kind="job", gpus=("G0", "G1"), processes=(A, A2), job="a")
OF_B = Subject(kind="job", gpus=("G2",), processes=(B,), job="b")
RANK = Subject(kind="process", gpus=("G0",), processes=(A,), job="a")
CARD, CARDS = Subject(kind="gpu", gpus=("G0",)), Subject(kind="job", gpus=("G0", "G1"), job="a")
MACHINE, CROWD = Subject(kind="host"), Subject(kind="host", gpus=("G2",), processes=(B,))


def found(subject: Subject, rule: str = "io-bound", **more: Any) -> Finding:
    return Finding(**{"rule": rule, "severity": "warn", "subject": subject, "headline": "waits", **more})


def seen(t: float, *findings: Finding) -> Update:
    """Both jobs, and what is said of them."""
    of = {A: ("a", "G0"), A2: ("a", "G1"), B: ("b", "G2")}
    frame = Frame(
        wall_s=t,
        mono_s=1000 + t,
        hostname="h",
        host=Host(),
        gpus=tuple(Gpu(uuid=f"G{n}", index=str(n), name="H100") for n in range(3)),
        processes=tuple(
            Process(pid=one.pid, started_ticks=1, role=Role.TRAINER, job=job, gpus=(GpuShare(uuid=uuid),))
            for one, (job, uuid) in of.items()
        ),
        jobs=(Job(key="a", name="a", ranks=(A, A2)), Job(key="b", name="b", ranks=(B,))),
    )
    return Update(frame=frame, findings=findings)


# what was found, what is found now, and whether that is only told otherwise
CASES = {
    "of another job": (found(OF_A), found(OF_B), False),
    "the same card, another process": (found(RANK), found(replace(OF_B, gpus=("G0",))), False),
    "fewer ranks": (found(OF_A), found(RANK), True),
    "more ranks": (found(RANK), found(OF_A), True),
    "other ranks of the job": (found(OF_A), found(replace(OF_A, processes=(Identity(102, 1),))), True),
    "fewer cards": (found(CARDS), found(CARD), True),
    "of its card": (found(RANK), found(CARD), True),
    "another rule": (found(OF_A), found(OF_A, "neighbour"), False),
    "less": (found(OF_A), found(OF_A, severity="info", confidence=0.2), True),
    "a cause": (found(OF_A), found(OF_A, "starved-cpu-idle", causes=("io-bound",)), True),
    "a cause, in another job": (found(OF_A), found(OF_B, "starved-cpu-idle", causes=("io-bound",)), False),
    "a cause, for another rank": (
        found(RANK),
        found(replace(RANK, processes=(A2,)), "starved-cpu-idle", causes=("io-bound",)),
        True,
    ),
    "the machine as a cause": (found(MACHINE), found(OF_A, "starved-cpu-idle", causes=("io-bound",)), True),
    "a crowd as a cause": (found(CROWD), found(OF_B, "starved-cpu-idle", causes=("io-bound",)), True),
    "the machine, then one job": (found(MACHINE), found(OF_A), False),
}


@pytest.mark.parametrize(("was", "now", "on"), CASES.values(), ids=CASES)
def test_what_is_only_told_otherwise_is_not_over(was: Finding, now: Finding, on: bool) -> None:
    look, clearing = DiagnosisSink(), ResolvedFindings()
    for t, findings in enumerate(((was,), (now,))):
        update = seen(float(t), *findings)
        look.take(update)
        clearing.feed(update, History())
    assert [one.finding for one in look.cleared()] == ([] if on else [was])
    assert [one.finding for one in clearing.cleared] == ([] if on else [was])


def test_what_is_over_of_one_job_is_told_while_it_holds_of_another() -> None:
    look, clearing = DiagnosisSink(), ResolvedFindings()
    for t, findings in enumerate(((found(OF_A), found(OF_B)), (found(OF_B),))):
        look.take(seen(float(t), *findings))
        clearing.feed(seen(float(t), *findings), History())
    assert [one.finding.subject for one in look.cleared()] == [OF_A]
    assert [one.finding.subject for one in clearing.cleared] == [OF_A]


def cleared(*confidences: float, mute: bool = False) -> list[str]:
    """What is called cleared as a finding grows more or less sure, perhaps muted once it is there, and is over."""
    finding_list, clearing = FindingList(), ResolvedFindings()
    rounds = [(found(OF_A, confidence=sure),) for sure in confidences]
    for t, findings in enumerate((*rounds, ())):
        update = seen(float(t), *findings)
        finding_list.feed(update)
        clearing.feed(update, History(), finding_list.muted)
        if mute and t == 0:
            finding_list.mute()
    return [one.finding.rule for one in clearing.cleared]


def test_only_what_was_told_is_cleared() -> None:
    assert cleared(0.9) == ["io-bound"]
    assert cleared(0.3) == [], "a mere suspicion was never told"
    assert cleared(0.9, 0.3) == ["io-bound"], "once it was"
    assert cleared(0.9, 0.9, mute=True) == [], "nobody wants to hear of it"


def test_the_screen_calls_nothing_cleared_that_was_muted() -> None:
    async def scene(stage: Stage) -> None:
        main, was, same = stage.app.main, seen(0.0, found(OF_A), found(OF_B)), seen(1.0, found(OF_A), found(OF_B))
        main.show(was)
        await stage.press("a", "x")
        (muted,) = main.advice.finding_list.muted
        main.show(same)
        main.show(seen(2.0))
        gone = main.advice.clearing.cleared
        assert [one.finding.subject for one in gone] == [OF_B if muted.subject == OF_A else OF_A]

    play(scene, seen(0.0).frame)


def test_what_comes_again_is_no_longer_cleared() -> None:
    clearing = ResolvedFindings()
    for t, findings in enumerate(((found(OF_A),), (), (found(RANK, confidence=0.3),))):
        clearing.feed(seen(float(t), *findings), History())
        assert len(clearing.cleared) == (t == 1)


@pytest.mark.parametrize(
    ("subject", "of_a", "of_b"),
    [
        (OF_A, True, False),
        (RANK, True, False),
        (replace(RANK, gpus=("G1",), processes=(A2,)), True, False),
        (replace(RANK, processes=(Identity(9, 9),)), True, False),
        (CARD, True, False),
        (CARDS, True, False),
        (MACHINE, True, True),
        (CROWD, False, True),
    ],
    ids=["job", "rank", "other-rank", "ended-rank", "card", "cards", "machine", "crowd"],
)
def test_a_process_is_told_what_concerns_its_job(subject: Subject, of_a: bool, of_b: bool) -> None:
    one = found(subject)
    whole = Diagnosis(
        update=seen(0.0, one), seconds=60.0, cleared=(ResolvedFinding(finding=one, sentence="", from_s=0.0, to_s=1.0),)
    )
    for identity, concerned in ((A, of_a), (B, of_b)):
        mine = restricted_to(whole, identity.pid)
        assert (len(mine.update.findings), len(mine.cleared)) == (concerned, concerned)


@pytest.mark.parametrize(
    ("subject", "yes"),
    [(OF_A, True), (RANK, True), (replace(RANK, processes=(A2,)), False), (CARD, True), (OF_B, False), (CROWD, True)],
    ids=["job", "rank", "other-rank", "card", "other-job", "machine"],
)
def test_a_trainer_is_answered_of_itself_and_of_the_machine(subject: Subject, yes: bool) -> None:
    process = seen(0.0).frame.by_identity[A]
    trainer: Any = SimpleNamespace(identity=A, process=process, gpus=(Gpu(uuid="G0", index="0", name="H100"),))
    trainer.uuids = ("G0",)
    assert Answers((found(subject),), ()).denies(trainer, "io-bound") != yes

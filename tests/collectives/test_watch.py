"""The monitor asks a job that seems to hang, seldom and in a thread that nothing waits for, and tells the rules."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from gputop.collectives.report import Collectives, conclude
from gputop.collectives.survey import RankAnswer, Survey
from gputop.collectives.watch import APART_S, RULE, CollectiveWatch, facts_of, follow
from gputop.diagnose import Finding, Subject
from gputop.model import Fact, Identity, Job, Process, Role
from gputop.monitor import Monitor, Update
from gputop.source import Interest
from tests.flight_dumps import entry, pickled, records, until
from tests.real_processes import until as wait_until
from tests.scripted_jobs import frame

RANKS = tuple(
    Process(pid=100 + n, started_ticks=1, parent_pid=1, name="python", rank=n, role=Role.TRAINER, job="job")
    for n in range(2)
)
JOB = Job(
    key="job", name="llama", ranks=tuple(one.identity for one in RANKS), members=tuple(one.identity for one in RANKS)
)


class Source:
    """A live source that is never read."""

    interval_s = 1.0
    label = elsewhere = ""
    interest = Interest()

    def past(self) -> Any:
        return ()

    def frames(self, stop: threading.Event) -> Any:
        return ()


def collectives(*ranks: tuple[Any, ...]) -> Collectives:
    """What a survey of ranks with these collectives says."""
    found = records(*(pickled(*entries, ranks=range(len(ranks))) for entries in ranks))
    answers = tuple(
        RankAnswer(process=process, label=one.label, record=one.record, source="debug server")
        for process, one in zip(RANKS, found, strict=True)
    )
    return conclude(Survey(answers=answers))


HANGS = collectives((*until(4), entry(5, state="started")), until(4))


class Asked:
    """Counts the questions; each waits until it may go on."""

    def __init__(self) -> None:
        self.ranks: list[tuple[int, ...]] = []
        self.may = threading.Event()

    def __call__(self, ranks: Sequence[Process]) -> Collectives:
        self.ranks.append(tuple(one.pid for one in ranks))
        assert self.may.wait(20)
        return HANGS


def update(at_s: float, *rules: str) -> Update:
    """An update with findings of these rules on the job."""
    found = tuple(
        Finding(rule=rule, severity="crit", subject=Subject(kind="job", job="job"), headline="x", confidence=0.7)
        for rule in rules
    )
    return Update(frame=frame((JOB, list(RANKS)), mono_s=at_s), findings=found)


def test_only_a_job_that_waits_is_asked_once_in_half_a_minute() -> None:
    asked, monitor = Asked(), Monitor(Source())
    watch = follow(monitor, ask=asked)
    assert watch is not None
    assert monitor.sinks == (watch.take,)
    watch.take(update(0.0, "straggler"))
    assert asked.ranks == []
    for at_s in range(1, 20):  # the first question is still under way
        watch.take(update(float(at_s), RULE))
    wait_until(lambda: asked.ranks == [(100, 101)])
    asked.may.set()
    wait_until(lambda: not watch.busy)
    watch.take(update(APART_S, RULE))
    assert len(asked.ranks) == 1
    watch.take(update(APART_S + 1.0, RULE))
    wait_until(lambda: len(asked.ranks) == 2 and not watch.busy)


def test_the_rules_are_told_of_the_rank_that_is_missing() -> None:
    asked, monitor = Asked(), Monitor(Source())
    asked.may.set()
    watch = follow(monitor, ask=asked)
    assert watch is not None
    watch.take(update(1.0, RULE))
    wait_until(lambda: asked.ranks and not watch.busy)
    (fact,) = monitor._told.attach(update(2.0).frame).facts
    assert (fact.process, fact.witness, fact.name) == (Identity(101, 1), "recorder", "missing-collective")
    assert fact.text.startswith("rank 1 never entered all_reduce #5 (train.py:88)")


def test_a_later_survey_without_a_discrepancy_withdraws_it() -> None:
    advances = collectives(until(6), until(6))
    assert facts_of(HANGS, RANKS)[Identity(101, 1)] != ()
    assert facts_of(advances, RANKS) == {Identity(100, 1): (), Identity(101, 1): ()}


def test_recordings_and_demos_are_not_asked() -> None:
    source = Source()
    source.elsewhere = "a recording"
    monitor = Monitor(source)
    assert follow(monitor) is None
    assert monitor.sinks == ()


def test_an_error_in_a_question_ends_neither_the_monitor_nor_later_questions() -> None:
    count = 0

    def ask(ranks: Sequence[Process]) -> Collectives:
        nonlocal count
        count += 1
        raise ValueError("hostile")

    watch = CollectiveWatch(Monitor(Source()), ask)
    watch.take(update(1.0, RULE))
    wait_until(lambda: count == 1 and not watch.busy)
    watch.take(update(100.0, RULE))
    wait_until(lambda: count == 2 and not watch.busy)
    assert watch.problem == "collectives are unknown: ValueError: hostile; please report it"


def test_a_fact_is_of_one_rank_of_this_machine() -> None:
    """The rank that is missing may be on another one."""
    waits = (*until(4), entry(5, state="started"))
    found = collectives(waits, waits)
    (told,) = [facts for facts in facts_of(found, RANKS).values() if facts]
    assert isinstance(told[0], Fact)
    assert told[0].name == "stuck-collective"

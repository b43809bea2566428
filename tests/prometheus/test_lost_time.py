"""GPU time lost by cause: what is added up of which finding, and for how long it is kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gputop.diagnose import Finding, Subject
from gputop.model import Frame
from gputop.monitor import Update
from gputop.prometheus.lost_time import ENDED_S, MOST_COUNTERS, LossKey, LostTime, losses
from tests.advice_scenes import found, hot, server
from tests.scrapes import exported, values

JOB = server().jobs[0]
STARVED = LossKey("starved-cpu-idle", "threads-host", JOB.key, JOB.name)


def at(second: float, *findings: Finding, **change: Any) -> Update:
    """The server at a second, with these findings."""
    return Update(frame=replace(server(), mono_s=second, **change), findings=findings)


def total(*updates: Update, interval_s: float = 1.0) -> LostTime:
    lost = LostTime()
    for each in updates:
        lost.add(each, interval_s)
    return lost


@pytest.mark.parametrize(
    ("findings", "expected"),
    [
        ((found(),), {STARVED: 4 * 0.42}),
        ((found(causes=()),), {STARVED._replace(cause="starved-cpu-idle"): 4 * 0.42}),
        ((found(primary=False),), {}),
        ((found(healthy=True),), {}),
        ((found(lost_share=None),), {}),
        ((found(confidence=0.4),), {}),
        ((found(cost="none"),), {}),  # a hang
        ((found(cost="idle"),), {}),  # a small job
        ((found(lost_share=7.0),), {STARVED: 4.0}),
        ((found(), found(rule="other", causes=(), lost_share=0.58)),
         {STARVED: 4 * 0.42, LossKey("other", "other", JOB.key, JOB.name): 4 * 0.58}),
        ((found(lost_share=0.9), found(rule="other", causes=(), lost_share=0.9)),
         {STARVED: 2.0, LossKey("other", "other", JOB.key, JOB.name): 2.0}),
    ],
)  # fmt: skip
def test_a_primary_finding_costs_its_share_of_each_of_its_gpus(
    findings: tuple[Finding, ...], expected: dict[LossKey, float]
) -> None:
    assert losses(at(0.0, *findings)) == pytest.approx(expected)


def test_a_finding_on_a_gpu_is_counted_under_the_job_that_uses_it() -> None:
    (key,) = losses(at(0.0, hot(primary=True)))
    assert (key.rule, key.cause, bool(key.job)) == ("thermal", "thermal", True)
    idle = losses(at(0.0, hot(primary=True), processes=(), jobs=()))
    assert idle == {LossKey("thermal", "thermal"): 0.29}


def test_a_finding_without_gpus_costs_those_of_its_processes() -> None:
    about = Subject(kind="job", job=JOB.key, processes=JOB.ranks)
    assert losses(at(0.0, found(subject=about))) == pytest.approx({STARVED: 4 * 0.42})


def test_time_is_counted_between_updates_and_not_over_a_gap() -> None:
    lost = total(at(100.0, found()), at(101.0, found()), at(103.0, found()), at(103.0, found()))
    assert lost.by_cause == {STARVED: pytest.approx(3 * 4 * 0.42)}
    assert lost.observed_s == pytest.approx(3 * len(server().gpus))
    lost.add(at(4000.0, found()), 1.0)  # a suspend
    lost.add(at(10.0, found()), 1.0)  # a recording goes back
    assert lost.observed_s == pytest.approx(3 * len(server().gpus))
    assert total(at(0.0), at(60.0), interval_s=60.0).observed_s == pytest.approx(60 * len(server().gpus))


def test_the_counter_of_a_job_stays_for_a_last_scrape_and_then_goes() -> None:
    lost = total(at(0.0, found()), at(1.0, found()))
    gone: dict[str, Any] = {"jobs": (), "processes": ()}
    lost.add(at(2.0, **gone), 1.0)
    lost.add(at(ENDED_S, **gone), 1.0)
    assert STARVED in lost.by_cause
    lost.add(at(ENDED_S + 2.1, **gone), 1.0)
    assert lost.by_cause == {}


def test_jobs_that_come_and_go_do_not_add_up() -> None:
    lost = LostTime()
    for second in range(3 * MOST_COUNTERS):
        job = replace(JOB, key=f"{second}.1")
        rename = tuple(replace(one, job=job.key if one.job == JOB.key else one.job) for one in server().processes)
        about = Subject(kind="job", job=job.key, processes=job.ranks)
        lost.add(at(float(second), found(subject=about), jobs=(job,), processes=rename), 1.0)
        assert len(lost.by_cause) <= MOST_COUNTERS
    assert f"{3 * MOST_COUNTERS - 1}.1" in {key.job for key in lost.by_cause}


def test_the_counters_are_exported() -> None:
    series = exported(at(0.0, found()), at(1.0, found()))
    assert values(series, "gputop_lost_gpu_seconds_total", rule="starved-cpu-idle", cause="threads-host",
                  job_name="llama-7b") == [pytest.approx(4 * 0.42)]  # fmt: skip
    assert values(series, "gputop_observed_gpu_seconds_total") == [float(len(server().gpus))]


def test_instances_of_mig_are_not_counted_beside_their_gpu() -> None:
    frame = server()
    parent = frame.gpus[0]
    instance = replace(parent, uuid="MIG-1", index="0:1", parent_uuid=parent.uuid)
    both: Frame = replace(frame, gpus=(parent, instance))
    lost = LostTime()
    for second in (0.0, 1.0):
        lost.add(Update(frame=replace(both, mono_s=second)), 1.0)
    assert lost.observed_s == 1.0

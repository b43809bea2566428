"""Trainers that wait for their loaders on a machine whose CPUs are full: with themselves, or with somebody else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gputop.diagnose import Finding
from gputop.diagnose.engine import Verdict
from gputop.model import Frame, GpuShare, Job, Process
from tests.diagnose.test_experiments import seen
from tests.diagnose.test_rules_feed import alone, few
from tests.rule_cases import Machine, after, found

Made = Callable[[float], Frame]


def sweep(
    count: int, loaders: int, *, one_job: bool = False, host: float = 99.0, trainer: Any = None, **loader: Any
) -> Made:
    """So many trainers with a GPU and loaders each, on sixteen CPUs."""
    machine = Machine(
        gpu={"busy_percent": 40.0}, trainer={"cpu_percent": 20.0, "main_thread_percent": 20.0} | (trainer or {}),
        loader={"cpu_percent": 94.0} | loader, host={"cpu_percent": host}, loaders=loaders,
    )  # fmt: skip

    def frame(t: float) -> Frame:
        now = machine.frame(t)
        gpus = tuple(replace(now.gpus[0], uuid=f"G{n}", index=str(n)) for n in range(count))
        keys = ["j0" if one_job else f"j{n}" for n in range(count)]
        trees = [[_numbered(process, n, keys[n]) for process in now.processes] for n in range(count)]
        ranks = {key: tuple(tree[0].identity for tree in trees if tree[0].job == key) for key in keys}
        jobs = tuple(Job(key=key, name=key, ranks=found) for key, found in ranks.items())
        return replace(now, gpus=gpus, processes=tuple(one for tree in trees for one in tree), jobs=jobs)

    return frame


def _numbered(process: Process, number: int, job: str) -> Process:
    shares = tuple(replace(share, uuid=f"G{number}") for share in process.gpus)
    parent = process.parent_pid and process.parent_pid + 1000 * number
    return replace(process, pid=process.pid + 1000 * number, parent_pid=parent, job=job, gpus=shares)


def beside(made: Made, cores: float) -> Made:
    """The same, and another user's compiler, which has the CPUs it wants."""
    build = Process(pid=9, started_ticks=1, name="cc1plus", user="bob", uid=1002, cpu_percent=100 * cores, age_s=4000.0)

    def frame(t: float) -> Frame:
        now = made(t)
        return replace(now, processes=(*now.processes, build))

    return frame


def all_of(said: Verdict, rule: str) -> list[Finding]:
    return [finding for finding in said.findings if finding.rule == rule]


@pytest.mark.parametrize(
    ("one_job", "findings", "whose"), [(False, 1, "4 experiments"), (True, 1, "4 ranks")]
)  # fmt: skip
def test_several_that_fill_the_machine_are_told_so_and_not_to_load_with_more(
    one_job: bool, findings: int, whose: str
) -> None:
    said = after(sweep(4, 4, one_job=one_job))
    assert not all_of(said, "starved-cpu-idle")
    told = all_of(said, "starved-cpu-saturated")
    assert len(told) == findings
    assert told[0].headline.endswith(f"dataloader-bound, CPU saturated by {whose}")
    assert "all 16 CPUs 99 % busy, 15.8 of them by these trainers (16 workers)" in [
        item.text for item in told[0].evidence
    ]
    assert not any("num_workers" in (step.command or "") for one in told for step in one.steps)
    assert told[0].steps[-1].text.startswith("Run fewer experiments") != one_job


def test_loaders_that_get_less_than_a_cpu_each_as_there_are_more_fill_it_too() -> None:
    (all_six,) = all_of(after(sweep(6, 4, cpu_percent=62.0, run_wait_percent=36.0)), "starved-cpu-saturated")
    assert len(all_six.subject.processes) == 6
    assert not all_of(after(sweep(6, 4, cpu_percent=62.0, run_wait_percent=10.0)), "starved-cpu-saturated")


@pytest.mark.parametrize("made", [beside(few(host={"cpu_percent": 97.0}).frame, 13.0), beside(sweep(2, 3), 9.8)])
def test_where_somebody_else_fills_it_neither_is_said(made: Made) -> None:
    said = after(made)
    rules = {finding.rule for finding in said.findings}
    assert not rules & {"starved-cpu-idle", "starved-cpu-saturated"}
    unknown = found(said, "starved-cause-unknown")
    assert unknown is not None
    assert any(item.text.startswith("not ruled out: CPUs of the machine 9") for item in unknown.evidence)


@pytest.mark.parametrize(
    ("busy", "loaders"),
    [(10.0, 6), (87.0, 4), (89.0, 3), (95.0, None)],  # 14.4, 2.1, 1.8 and 0.8 CPUs are idle
)
def test_what_is_idle_bounds_the_number_of_loaders(busy: float, loaders: int | None) -> None:
    finding = found(few(host={"cpu_percent": busy}).verdict(), "starved-cpu-idle")
    assert (finding and finding.steps[0].command) == (
        loaders
        and f"DataLoader(..., num_workers={loaders}, pin_memory=True, persistent_workers=True, prefetch_factor=4)"
    )


def test_what_is_idle_is_shared_as_the_experiments_page_shares_it() -> None:
    made = sweep(4, 2, host=52.0)
    commands = [finding.steps[0].command or "" for finding in all_of(after(made), "starved-cpu-idle")]
    assert len(commands) == 1  # the same for all of them
    assert "num_workers=3," in commands[0]
    page = seen([made(float(t)) for t in range(40)])
    assert [one.fit.loaders for one in page.experiments if one.fit] == [3] * 4
    assert len(all_of(after(sweep(4, 2, host=80.0)), "starved-cpu-idle")) == 1, "0.8 of a CPU for each"
    assert not all_of(after(sweep(4, 2, host=88.0)), "starved-cpu-idle"), "0.5"


def test_on_two_cpus_one_loader_more_is_worth_while() -> None:
    small = few(host={"cpus_total": 2, "cpu_percent": 55.0}, trainer={"allowed_cpus": 2.0, "cpu_percent": 5.0})
    small.loaders = 1
    assert found(small.verdict(), "starved-cpu-idle") is not None, "0.9 of a CPU is idle"


@pytest.mark.parametrize(("busy", "loaders"), [(10.0, 8), (80.0, 3), (94.0, 1), (None, 8)])
def test_who_loads_alone_is_told_of_no_more_loaders_than_there_are_idle_cpus(busy: float | None, loaders: int) -> None:
    finding = found(alone(host={"cpu_percent": busy}).verdict(), "loader-in-main")
    assert finding is not None
    assert f"num_workers={loaders}," in (finding.steps[0].command or "")


@pytest.mark.parametrize(
    ("host", "trainer"), [({"cpu_percent": 99.0}, {}), ({}, {"allowed_cpus": 1.0, "affinity": "5"})]
)
def test_who_loads_alone_without_an_idle_cpu_is_told_of_no_loaders(host: Any, trainer: Any) -> None:
    """Slurm gives a task one CPU where nobody asks for more."""
    machine = alone(host=host)
    machine.trainer |= trainer
    said = machine.verdict()
    finding = found(said, "loader-in-main")
    assert finding is not None
    assert "0 of" in finding.evidence[1].text
    assert finding.steps[0].text == "Give the job more CPUs, or reduce work per sample: no CPU is idle for workers"
    assert found(said, "starved-cpu-saturated") is None, "one thread fills one CPU whatever it does"


def test_an_optimizer_on_the_cpu_is_no_input() -> None:
    trainer = {"cpu_percent": 1430.0, "busy_threads": 16, "run_wait_percent": 5.0}
    machine = Machine(
        gpu={"busy_percent": 30.0}, trainer=trainer, loader={"cpu_percent": 2.0}, host={"cpu_percent": 92.0}, loaders=4
    )
    assert found(machine.verdict(), "starved-cpu-saturated") is None
    machine.loader, machine.loaders, machine.trainer = {"cpu_percent": 94.0}, 15, {"cpu_percent": 30.0}
    assert found(machine.verdict(), "starved-cpu-saturated") is not None


def test_who_needs_no_more_leaves_what_is_idle_to_who_waits() -> None:
    made = sweep(4, 2, host=60.0)

    def frame(t: float) -> Frame:
        now = made(t)
        first, *others = now.gpus
        return replace(now, gpus=(first, *(replace(gpu, busy_percent=97.0) for gpu in others)))

    (finding,) = all_of(after(frame), "starved-cpu-idle")
    assert "num_workers=3," in (finding.steps[0].command or ""), "a quarter of the CPUs, though more are idle"


def test_a_notebook_that_rests_takes_no_share() -> None:
    made = few().frame

    def frame(t: float) -> Frame:
        now = made(t)
        rests = replace(now.processes[0], pid=7, job="n", gpus=(GpuShare(uuid="N"),), cpu_percent=0.0)
        card = replace(now.gpus[0], uuid="N", index="1", busy_percent=50.0 if t < 20 else 0.0)
        return replace(now, gpus=(*now.gpus, card), processes=(*now.processes, rests))

    finding = found(after(frame), "starved-cpu-idle")
    assert finding is not None
    assert "num_workers=6," in (finding.steps[0].command or "")


def test_it_abstains_where_nobody_says_how_busy_the_machine_is() -> None:
    said = few(host={"cpu_percent": None}).verdict()
    assert found(said, "starved-cpu-idle") is None
    (one,) = [one for one in said.abstained if one.rule == "starved-cpu-idle"]
    assert [missing.metric for missing in one.missing] == ["cpu_percent"]


@pytest.mark.parametrize(("host", "answer"), [(99.0, "yes, 99 % of its CPUs in use"), (50.0, "no, 50 % of its CPUs")])
def test_the_path_asks_whether_the_machine_is_full(host: float, answer: str) -> None:
    (task, *_) = after(sweep(4, 4, host=host)).classes
    assert dict(task.path)["is the host CPU saturated?"].startswith(answer)


def test_who_has_its_share_of_loaders_is_not_told_to_take_that_of_others() -> None:
    said = after(sweep(3, 4, host=80.0))
    assert not all_of(said, "starved-cpu-idle")
    (first, *_) = all_of(said, "starved-cpu-saturated")
    assert first.steps[0].text.startswith("Give the job more CPUs: its CPU share fits no more workers")
    assert not any("num_workers" in (step.command or "") or "not help" in step.text for step in first.steps)


def test_ranks_that_have_their_share_of_loaders_are_not_told_that_these_are_too_few() -> None:
    (one,) = after(sweep(4, 3, one_job=True, host=80.0, cpu_percent=97.0)).findings
    assert one.rule == "starved-cpu-saturated"
    assert one.headline == "dataloader-bound, its CPU share fits no more workers"
    told = [(item.text, item.limit) for item in one.evidence]
    assert ("12.4 of 16 CPU cores in use by 4 ranks", None) in told
    assert ("3 workers on its share of 4 CPUs, which fits 3 workers", 3) in told
    assert one.steps[0].text.startswith("Give the job more CPUs")
    assert not any("num_workers" in (step.command or "") for step in one.steps)


def test_what_ranks_use_of_their_cpus_is_told_of_all_of_them() -> None:
    (one,) = after(sweep(2, 6, one_job=True, host=78.0, cpu_percent=97.0)).findings
    assert one.rule == "starved-cpu-idle"
    assert "num_workers=7," in (one.steps[0].command or "")
    told = [item.text for item in one.evidence]
    assert "12.0 of 16 CPU cores in use by 2 ranks" in told
    assert "6 workers on its share of 8 CPUs, which fits 7 workers" in told


def lone(loaders: int, cpus: float) -> Verdict:
    """Loaders at their limit, on so many CPUs that nobody else uses."""
    used = 100 * (0.97 * loaders + 0.2) / 16
    machine = few(trainer={"allowed_cpus": cpus}, host={"cpu_percent": used})
    machine.loaders = loaders
    return machine.verdict()


LATE = ((13, 16.0), (1, 1.6))


@pytest.mark.parametrize(
    ("loaders", "cpus", "wanted"),
    [
        (8, 16.0, 15), (9, 16.0, 15), (10, 16.0, 15), (11, 16.0, 15), (12, 16.0, 15),
        (13, 16.0, None), (14, 16.0, None), (16, 16.0, None),
        (1, 2.0, 2), (3, 4.0, 4), (2, 3.5, 3), (2, 2.6, None), (2, 2.0, None), (6, 8.0, 7), (7, 8.0, None),
    ],
)  # fmt: skip
def test_busy_loaders_are_too_few_or_too_slow_however_many_cpus_there_are(
    loaders: int, cpus: float, wanted: int | None
) -> None:
    (one,) = (finding for finding in lone(loaders, cpus).findings if finding.primary)
    assert one.rule == ("starved-cpu-saturated" if wanted is None else "starved-cpu-idle")
    command = next((step.command for step in one.steps if "num_workers" in (step.command or "")), None)
    assert command is None if wanted is None else f"num_workers={wanted}," in (command or "")


def test_what_decided_is_listed_with_its_limit_and_what_did_not_without() -> None:
    many, quota = ([(item.text, item.limit) for item in lone(*made).findings[0].evidence] for made in LATE)
    assert ("12.8 of 16 CPU cores in use", None) in many
    assert ("13 workers on 16 CPUs", pytest.approx(12.8)) in many
    assert ("1.2 of 1.6 CPU cores in use", None) in quota
    assert ("0.4 of a core left for another worker", 0.5) in quota
    (first, *_) = all_of(after(sweep(4, 4)), "starved-cpu-saturated")
    limits = {item.text: item.limit for item in first.evidence}
    assert limits["4.0 of 16 CPU cores in use"] is None
    assert limits["all 16 CPUs 99 % busy, 15.8 of them by these trainers (16 workers)"] == 90

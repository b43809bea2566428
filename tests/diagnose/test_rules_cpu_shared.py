"""Experiments that share a quota, as those of one container do: it is divided, not given to each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gputop.diagnose import Finding
from gputop.diagnose.cpu_budget import CpuLimit, united_cpus
from gputop.diagnose.finding import Subject
from gputop.export.diagnosis import subject as as_told
from gputop.model import Frame
from gputop.ui.advice.states import states
from tests.diagnose.test_experiments import seen
from tests.diagnose.test_rules_cpu import experiments
from tests.diagnose.test_rules_feed_full import all_of, sweep
from tests.rule_cases import after, found

CONTAINER: dict[str, Any] = {"container": "exp", "cgroup": "/c", "affinity": "0-63", "allowed_cpus": 8.0}
EVERY = frozenset(range(64))


def test_threads_host_divides_the_quota_of_a_container() -> None:
    finding = found(after(experiments(4, {"cpus_total": 64}, **CONTAINER)), "threads-host")
    assert finding is not None
    assert finding.headline == "CPU oversubscribed, 44 compute threads on 8 CPUs"
    assert finding.steps[1].command == "torch.set_num_threads(2)"


def test_threads_host_names_the_trainers_that_run_the_threads() -> None:
    made = experiments(4)

    def frame(t: float) -> Frame:
        """The last of them needs one thread, so that it has no part in this."""
        now = made(t)
        *others, last = now.processes
        return replace(now, processes=(*others, replace(last, busy_threads=1, omp_threads=1)))

    said, now = after(frame), frame(150.0)
    finding = found(said, "threads-host")
    assert finding is not None
    assert finding.subject.kind == "host"
    about = as_told(finding.subject, now)
    assert about["pids"] == [process.pid for process in now.processes[:-1]]
    assert about["gpus"] == [gpu.index for gpu in now.gpus[:-1]]
    assert finding.primary


def test_who_runs_them_may_change_without_a_new_finding() -> None:
    made = experiments(5)

    def frame(t: float) -> Frame:
        now = made(t)
        rests = int(t / 40) % 5
        processes = (replace(one, busy_threads=1) if n == rests else one for n, one in enumerate(now.processes))
        return replace(now, processes=tuple(processes))

    finding = found(after(frame), "threads-host")
    assert finding is not None
    assert len(finding.subject.processes) == 4
    assert finding.since_s > 100


def test_a_trainer_with_a_word_of_its_own_keeps_it_beside_that_of_the_machine() -> None:
    now = experiments(2)(0.0)
    first, second = (process.identity for process in now.processes)
    host = Finding(
        rule="threads-host", severity="crit", headline="", primary=True, state="threads",
        subject=Subject(kind="host", processes=(first, second), gpus=tuple(gpu.uuid for gpu in now.gpus)),
    )  # fmt: skip
    own = Finding(
        rule="starved-cpu-idle", severity="warn", headline="", primary=True, state="dataloader",
        subject=Subject(kind="process", processes=(first,), job=now.processes[0].job),
    )  # fmt: skip
    told = states((host, own), now)
    assert [state.word for process in now.processes if (state := told.of(process))] == ["dataloader", "threads"]


def test_a_notebook_that_rests_gets_no_threads() -> None:
    busy = experiments(8, {}, busy_threads=11)

    def frame(t: float) -> Frame:
        now = busy(t)
        resting = t > 20
        gpus = (*now.gpus[:2], *(replace(gpu, busy_percent=0.0 if resting else 40.0) for gpu in now.gpus[2:]))
        others = (replace(one, busy_threads=0, run_wait_percent=0.0, cpu_percent=0.0) for one in now.processes[2:])
        return replace(now, gpus=gpus, processes=(*now.processes[:2], *others))

    finding = found(after(frame), "threads-host")
    assert finding is not None
    assert finding.steps[1].command == "torch.set_num_threads(8)", "16 CPUs for the two that work"


def test_loaders_fit_into_the_part_of_the_quota_that_is_left() -> None:
    """Each has three, and four CPUs; on CPUs of its own it would be told of seven."""
    two = after(sweep(2, 3, host=12.0, trainer=CONTAINER, **CONTAINER))
    findings = all_of(two, "starved-cpu-saturated")
    assert [len(one.subject.processes) for one in findings] == [2]
    assert not any("num_workers" in (step.command or "") for one in findings for step in one.steps)
    (alone,) = all_of(after(sweep(1, 3, host=6.0, trainer=CONTAINER, **CONTAINER)), "starved-cpu-idle")
    assert "num_workers=7," in (alone.steps[0].command or "")


def test_the_experiments_page_divides_it_too() -> None:
    made = sweep(2, 3, host=12.0, trainer=CONTAINER, **CONTAINER)
    page = seen([made(float(t)) for t in range(40)])
    assert [one.fit.threads for one in page.experiments if one.fit] == [4, 4], "four CPUs each"


def test_too_few_loaders_is_not_said_of_who_has_used_up_its_quota() -> None:
    held = CONTAINER | {"throttled_percent": 20.0}
    said = after(sweep(1, 4, host=15.0, trainer=held, **CONTAINER))
    assert found(said, "cpu-quota") is not None
    assert found(said, "starved-cpu-idle") is None


@pytest.mark.parametrize(
    ("parts", "total", "cpus"),
    [
        ([CpuLimit(EVERY, 8.0, "a")] * 4, 64, 8.0),
        ([CpuLimit(EVERY, 8.0, "a"), CpuLimit(EVERY, 6.0, "b")], 64, 14.0),
        ([CpuLimit(EVERY, 48.0, "a"), CpuLimit(EVERY, 48.0, "b")], 64, 64.0),
        ([CpuLimit(EVERY, 8.0, "a"), CpuLimit(EVERY, 64.0, "b")], 64, 64.0),  # one of them may use all
        ([CpuLimit(frozenset({0, 1}), 2.0, "a"), CpuLimit(frozenset({2, 3}), 2.0, "b")], 64, 4.0),
        ([CpuLimit(frozenset(), 8.0, "a")], 64, 8.0),
        ([CpuLimit(frozenset(), None, "a")], 64, 64.0),
        ([CpuLimit(frozenset(), 8.0, "a")], None, None),
    ],
)
def test_cpus_that_are_shared(parts: list[CpuLimit], total: int | None, cpus: float | None) -> None:
    assert united_cpus(parts, total) == cpus

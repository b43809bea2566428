"""Limits on CPUs: the rule fires, just does not, and abstains, and what it asks for fits the machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gputop.model import Cgroup, Frame
from tests.diagnose.test_rules_cpu import HUNGRY
from tests.rule_cases import Machine, after, found, judged, refused, silent

DOCKER = "/system.slice/docker-0123456789ab.scope"


def confined(
    throttled_cpus: float | None, loaders: int = 0, ranks: int = 1, quota: float = 4.0, **trainer: Any
) -> Callable[[float], Frame]:
    """Ranks of a job under one quota, on 16 CPUs."""
    own = {"cgroup": DOCKER, "allowed_cpus": quota} | trainer
    machine = Machine(gpu=HUNGRY, trainer=own, host={"cpu_percent": 29.0}, loaders=loaders)
    group = Cgroup(path=own["cgroup"], cpu_quota=quota, throttled_cpus=throttled_cpus)

    def frame(t: float) -> Frame:
        one = machine.frame(t)
        more = tuple(replace(one.processes[0], pid=1000 + n) for n in range(1, ranks))
        job = replace(one.jobs[0], ranks=(*one.jobs[0].ranks, *(rank.identity for rank in more)))
        return replace(one, processes=(*one.processes, *more), jobs=(job,), cgroups=(group,))

    return frame


@pytest.mark.parametrize(
    ("waiting", "trainer", "severity"),
    [
        (None, {"throttled_percent": 10.1}, "warn"),
        (None, {"throttled_percent": 9.9}, None),
        (None, {"throttled_percent": 51.0}, "crit"),
        (0.06, {"throttled_percent": 3.0}, "warn"),
        (0.04, {"throttled_percent": 3.0}, None),
        (0.009, {"throttled_percent": 20.0}, None),  # bursts
    ],
)
def test_cpu_quota(waiting: float | None, trainer: dict[str, Any], severity: str | None) -> None:
    finding = found(after(confined(waiting, **trainer)), "cpu-quota")
    assert (finding and finding.severity) == severity


@pytest.mark.parametrize("every_s", [2.0, 5.0, 8.0])
@pytest.mark.parametrize(("stopped", "fires"), [(0.1, False), (0.3, True)])  # CPUs, in three seconds of ten
def test_cpu_quota_goes_by_the_mean_of_what_was_stopped(stopped: float, fires: bool, every_s: float) -> None:
    at_times, never = (confined(cpus, throttled_percent=3.0) for cpus in (stopped, 0.0))
    frames = ((at_times if t % 10 < 3 else never)(float(t)) for t in range(240))
    *_, (_, said) = judged(frames, every_s=every_s)
    assert (found(said, "cpu-quota") is not None) == fires


def test_cpu_quota_says_what_to_ask_for() -> None:
    told = found(after(confined(2.4, loaders=4, throttled_percent=63.0, container="abc")), "cpu-quota")
    assert told is not None
    assert [item.text for item in told.evidence] == [
        "quota of 4 CPUs exhausted in 63 % of periods",
        "runnable work for 2.4 more CPUs throttled",
        "all CPUs of the machine 71 % idle",
    ]
    assert [step.command for step in told.steps] == [
        "sudo docker update --cpus 8 abc",
        "DataLoader(..., num_workers=3)",
        "torch.set_num_threads(4)",
    ]
    slurm = found(after(confined(2.4, throttled_percent=63.0, slurm_job="7")), "cpu-quota")
    assert slurm is not None
    assert slurm.steps[0].command == "#SBATCH --cpus-per-task=8"


SPINS = {"busy_threads": 8, "run_wait_percent": 70.0, "voluntary_switches_per_s": 300.0}


@pytest.mark.parametrize(
    ("main", "dials", "leads"),
    [
        (95.0, SPINS, "threads-process"),
        (300.0, SPINS, "cpu-quota"),  # little is left to spin with
        (95.0, SPINS | {"voluntary_switches_per_s": 30_000.0}, "cpu-quota"),  # they sleep while they wait
        (95.0, SPINS | {"busy_threads": 4}, "cpu-quota"),  # as many as it has CPUs
    ],
)
def test_a_quota_that_spinning_threads_use_up_is_their_fault(main: float, dials: dict[str, Any], leads: str) -> None:
    trainer = {"throttled_percent": 100.0, "cpu_percent": 390.0, "main_thread_percent": main, **dials}
    said = after(confined(2.4, **trainer))
    first, *_ = said.findings
    assert leads in (first.rule, *first.causes[:1])
    quota = found(said, "cpu-quota")
    if quota is not None and leads == "threads-process":
        assert quota.severity == "warn"
        assert quota.steps[0].command == "torch.set_num_threads(4)"
        assert "76 % of its CPU time in spinning compute threads" in [item.text for item in quota.evidence]


@pytest.mark.parametrize(
    ("dials", "told"),
    [
        ({"ranks": 2, "quota": 8.0}, ["docker update --cpus 16 abc", "num_workers=3", "set_num_threads(4)"]),
        ({"ranks": 4}, ["sudo docker update --cpus 8 abc", "num_workers=1", "set_num_threads(1)"]),
        ({"quota": 12.0}, ["docker update --cpus 16 abc", "set_num_threads(12)"]),
        ({"quota": 15.5}, ["docker update --cpus 16 abc", "set_num_threads(15)"]),
        ({"quota": 16.0}, ["set_num_threads(16)"]),  # the machine has no more
        ({"affinity": "0-5"}, ["docker update --cpus 6 abc", "num_workers=3", "set_num_threads(4)"]),
        ({"affinity": "4-7"}, ["num_workers=3", "set_num_threads(4)"]),
        ({"ranks": 4, "slurm_job": "7"}, ["cpus-per-task=2", "num_workers=1", "set_num_threads(1)"]),
        ({"ranks": 4, "slurm_job": "7", "quota": 14.0}, ["cpus-per-task=4", "num_workers=2", "set_num_threads(3)"]),
        ({"ranks": 4, "slurm_job": "7", "quota": 5.0, "affinity": "0-5"}, ["num_workers=1", "set_num_threads(1)"]),
    ],
)
def test_cpu_quota_shares_it_among_ranks_and_asks_for_what_there_is(dials: dict[str, Any], told: list[str]) -> None:
    finding = found(after(confined(2.4, 4, throttled_percent=63.0, container="abc", **dials)), "cpu-quota")
    assert finding is not None
    assert all(part in (step.command or "") for step, part in zip(finding.steps, told, strict=True))


@pytest.mark.parametrize(("launcher", "cpus"), [("torchrun", 8), ("slurm", 2)])
def test_what_one_launcher_starts_is_one_task_of_slurm(launcher: str, cpus: int) -> None:
    both = confined(2.4, 4, throttled_percent=63.0, ranks=4, slurm_job="7")

    def frame(t: float) -> Frame:
        one = both(t)
        return replace(one, jobs=tuple(replace(job, launcher=launcher) for job in one.jobs))

    finding = found(after(frame), "cpu-quota")
    assert finding is not None
    assert finding.steps[0].command == f"#SBATCH --cpus-per-task={cpus}"


def test_ranks_in_containers_of_their_own_have_a_quota_each() -> None:
    both = confined(2.4, 8, 2, quota=8.0, throttled_percent=63.0, container="abc")

    def frame(t: float) -> Frame:
        one = both(t)
        second = (replace(process, container="def", cgroup="/d") for process in one.processes[-1:])
        return replace(one, processes=(*one.processes[:-1], *second))

    finding = found(after(frame), "cpu-quota")
    assert finding is not None
    assert finding.headline == "CPU quota of 8 CPUs exhausted"
    assert [step.command for step in finding.steps[1:]] == [
        "DataLoader(..., num_workers=7)",
        "torch.set_num_threads(8)",
    ]


@pytest.mark.parametrize(
    ("trainer", "fires"),
    [
        ({}, True),
        ({"affinity": "0-2"}, False),
        ({"cpu_percent": 15.0}, False),  # that CPU is not full
        ({"last_cpu": 7}, False),
    ],
)
def test_an_affinity_of_one_cpu(trainer: dict[str, Any], fires: bool) -> None:
    of_all = {"affinity": "0", "last_cpu": 0, "allowed_cpus": 1.0}
    machine = Machine(
        gpu=HUNGRY, trainer=of_all | {"cpu_percent": 30.0} | trainer, loader=of_all | {"cpu_percent": 17.0}, loaders=4
    )
    told = [finding for finding in machine.verdict().findings if "cpu-quota" in (finding.rule, *finding.causes)]
    assert bool(told) == fires
    if told:
        assert told[0].headline.endswith("; pinned to 1 of 16 CPUs")
        whom = "for p in 100 $(pgrep -P 100); do taskset -acp 0-15 $p; done"
        assert told[0].steps[0].command == whom, "its loaders share that CPU"


def test_cpu_quota_abstains_where_the_group_cannot_be_read() -> None:
    assert silent(Machine(trainer=refused("throttled_percent")).verdict(70), "cpu-quota") is not None

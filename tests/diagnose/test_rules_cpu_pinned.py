"""Affinity, cpuset and binding are quotas: who fills the CPUs it is pinned to while others are idle is told so."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputop.diagnose import Finding
from gputop.model import Cgroup, Frame
from tests.diagnose.test_rules_cpu import HUNGRY
from tests.rule_cases import Machine, after, found

ONE = {"affinity": "3", "last_cpu": 3, "allowed_cpus": 1.0}
ALL = {"affinity": "0-15", "allowed_cpus": 16.0}


def machine(trainer: dict[str, Any], loader: dict[str, Any], loaders: int = 4, **host: Any) -> Machine:
    """A job with loaders on sixteen CPUs, most of which are idle."""
    own = {"cpu_percent": 5.0, "main_thread_percent": 5.0, **trainer}
    return Machine(gpu=HUNGRY, trainer=own, loader=loader, loaders=loaders, host={"cpu_percent": 12.0, **host})


def told(one: Machine | Callable[[float], Frame]) -> Finding | None:
    said = one.verdict() if isinstance(one, Machine) else after(one)
    return next((item for item in said.findings if "cpu-quota" in (item.rule, *item.causes)), None)


BUSY = {"cpu_percent": 24.0, "run_wait_percent": 75.0, "main_run_wait_percent": 75.0}


@pytest.mark.parametrize(
    ("trainer", "loader", "headline"),
    [
        (ONE, BUSY | ONE, "pinned to 1 of 16 CPUs"),
        (ALL, BUSY | ONE, "4 workers pinned to 1 of 16 CPUs"),  # worker_init_fn, or a pinned parent
        (ALL, BUSY | ONE | {"run_wait_percent": None}, "4 workers pinned to 1 of 16 CPUs"),
        (ALL, {"cpu_percent": 97.0, "affinity": "0-3"}, "4 workers pinned to 4 of 16 CPUs"),
        (ONE, BUSY | ONE | {"affinity": None}, "pinned to 1 of 16 CPUs"),  # as its parent
        (ALL, {"cpu_percent": 40.0, "affinity": "0-3"}, None),  # there is room
        (ALL, BUSY | ONE | {"cpu_percent": 15.0}, None),  # that CPU is not full
        (ALL, BUSY | ONE | {"last_cpu": 7}, None),  # it was moved since
        (ALL, BUSY | ALL, None),
    ],
)
def test_who_is_pinned_and_where(trainer: dict[str, Any], loader: dict[str, Any], headline: str | None) -> None:
    finding = told(machine(trainer, loader))
    assert (finding is not None) == (headline is not None)
    if finding and headline:
        assert headline in finding.headline
        assert "CPU saturated by" not in finding.headline
        assert any("11" in item.text or "14" in item.text for item in finding.evidence if "idle outside" in item.text)


def test_a_trainer_alone_may_be_pinned() -> None:
    """As by OpenMP, that pins the main thread; loaders that set their affinity themselves are not."""
    pool = {"cpu_percent": 98.0, "main_thread_percent": 30.0, "busy_threads": 4, "run_wait_percent": 70.0}
    finding = told(machine(pool | ONE, {"cpu_percent": 10.0, **ALL}))
    assert finding is not None
    assert "pinned to 1 of 16 CPUs, its workers are not" in finding.headline
    assert finding.steps[0].command == "taskset -acp 0-15 100"


@pytest.mark.parametrize(("busy", "fires"), [(12.0, True), (70.0, True), (99.0, False), (94.0, False)])
def test_it_is_the_cause_while_other_cpus_are_idle(busy: float, fires: bool) -> None:
    assert (told(machine(ONE, BUSY | ONE, cpu_percent=busy)) is not None) == fires


def test_a_larger_set_is_a_quota_too() -> None:
    """Eight CPUs of sixty-four, as Slurm binds them, and as many loaders."""
    eight = {"affinity": "8-15", "allowed_cpus": 8.0, "slurm_job": "7"}
    job = machine(eight | {"cpu_percent": 30.0}, eight | {"cpu_percent": 95.0}, 8, cpus_total=64, cpu_percent=14.0)
    finding = told(job)
    assert finding is not None
    assert finding.rule == "starved-cpu-saturated"
    assert finding.headline.endswith("; pinned to 8 of 64 CPUs")
    assert finding.severity == "crit"
    commands = [step.command for step in finding.steps]
    assert "srun --cpu-bind=none COMMAND" in commands
    assert "#SBATCH --cpus-per-task=16" in commands
    assert [step for step in finding.steps if "more CPU cores" in step.text] == [], "it has them"
    fed = replace(job, gpu={"busy_percent": 96.0})
    assert found(fed.verdict(), "cpu-quota") is None


def grouped(cpus: str, **process: Any) -> Callable[[float], Frame]:
    own = {"cgroup": "/system.slice/train.service", **process}
    one = machine(ONE | own, BUSY | ONE | own)
    group = Cgroup(path=str(own["cgroup"]), cpus=cpus)
    return lambda t: replace(one.frame(t), cgroups=(group,))


@pytest.mark.parametrize(
    ("cpus", "process", "command"),
    [
        ("0-15", {}, "for p in 100 $(pgrep -P 100); do taskset -acp 0-15 $p; done"),
        ("0-7", {}, "for p in 100 $(pgrep -P 100); do taskset -acp 0-7 $p; done"),
        ("3", {}, "sudo systemctl set-property --runtime train.service AllowedCPUs=0-15"),
        ("3", {"container": "abc", "cgroup": "/system.slice/docker-0123456789ab.scope"},
         "sudo docker update --cpuset-cpus=0-15 abc"),
    ],
)  # fmt: skip
def test_an_affinity_is_widened_within_its_cpuset_else_that_is(
    cpus: str, process: dict[str, Any], command: str
) -> None:
    finding = told(grouped(cpus, **process))
    assert finding is not None
    assert finding.steps[0].command == command


def test_two_jobs_on_the_same_cpus_are_both_pinned() -> None:
    """As by a command line that was copied; each uses half of what both are pinned to."""
    half = {"cpu_percent": 12.0, "run_wait_percent": 88.0, "main_run_wait_percent": 88.0}
    cores = tuple(100.0 if cpu == 3 else 5.0 for cpu in range(16))
    assert told(machine(ONE, half | ONE)) is None
    finding = told(machine(ONE, half | ONE, cpu_cores_percent=cores))
    assert finding is not None
    assert "pinned to 1 of 16 CPUs" in finding.headline


def test_what_it_may_use_is_what_any_of_its_loaders_may() -> None:
    """Four cores in use by four loaders are no four times of the one that the trainer is pinned to."""
    said = machine(ONE, {"cpu_percent": 97.0, **ALL}).verdict()
    assert found(said, "starved-cpu-saturated") is None
    assert found(said, "starved-cpu-idle") is not None


def test_it_is_not_told_to_have_fewer_threads_or_loaders_instead() -> None:
    spinning = {"busy_threads": 8, "run_wait_percent": 80.0, "voluntary_switches_per_s": 5.0, "cpu_percent": 60.0}
    said = machine(spinning | ONE, {**BUSY, **ONE, "cpu_percent": 10.0}).verdict()
    rules = {rule for one in said.findings for rule in (one.rule, *one.causes)}
    assert "cpu-quota" in rules
    assert not rules & {"threads-process", "workers-oversized"}


def test_the_advice_widens_a_real_process(tmp_path: Path) -> None:
    """The command of the first step, on a process and its child that are pinned to one CPU."""
    if (total := os.cpu_count() or 1) < 2 or len(os.sched_getaffinity(0)) < total:
        pytest.skip("one CPU has nothing to widen to")
    code = (
        "import os, subprocess, sys; os.sched_setaffinity(0, {0});"
        "child = subprocess.Popen([sys.executable, '-c', 'print(1, flush=True); input()'], stdin=0);"
        "print(child.pid, flush=True); child.wait()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = max(int(parent.stdout.readline()), int(parent.stdout.readline()))
        assert os.sched_getaffinity(child) == {0}
        pin = {"affinity": "0", "last_cpu": 0, "allowed_cpus": 1.0}
        one = machine({**pin, "pid": parent.pid}, {**BUSY, **pin, "parent_pid": parent.pid}, cpus_total=total)
        one.host["cpu_percent"] = 100 / total * 0.4
        finding = told(one)
        assert finding is not None
        subprocess.run(["sh", "-c", finding.steps[0].command or ""], check=True, stdout=subprocess.DEVNULL)
        assert os.sched_getaffinity(parent.pid) == os.sched_getaffinity(child) == set(range(total))
        parent.communicate("\n")

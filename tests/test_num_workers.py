"""Every number of DataLoader workers that gputop advises is of one computation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import gputop
from gputop import num_workers, thresholds
from gputop.doctor.share import Share
from tests.rule_cases import Machine, found

# CPUs, and what both say: half of them, at most 8, none where the training process needs its only one
MACHINES = [(64, 8), (16, 8), (12, 6), (8, 4), (6, 3), (4, 2), (3, 1), (2, 1), (1, 0)]


@pytest.mark.parametrize(("cpus", "wanted"), MACHINES)
def test_the_doctor_and_the_rules_say_the_same_of_one_machine(cpus: int, wanted: int) -> None:
    machine = Share(online=cpus, affinity=cpus, quota=None, memory_limit=None, memory_total=None, jobs=1)
    assert machine.workers == num_workers.initial(cpus) == wanted
    alone = {
        "libraries": ("torch",),
        "allowed_cpus": float(cpus),
        "cpu_percent": 100.0,
        "main_thread_percent": 99.0,
        "read_chars_per_s": 200e6,
    }
    played = Machine(
        trainer=alone, gpu={"busy_percent": 30.0}, host={"cpus_total": cpus, "cpu_percent": 100.0 / cpus}, loaders=0
    )
    finding = found(played.verdict(), "loader-in-main")
    assert finding is not None
    commands = " ".join(step.command or "" for step in finding.steps)
    assert re.findall(r"num_workers=(\d+)", commands) == ([str(wanted)] if wanted else [])


def test_idle_cpus_are_all_that_workers_get() -> None:
    assert num_workers.initial(16, idle=3.9) == 3
    assert num_workers.initial(16, idle=0.6) == 1
    assert num_workers.initial(16, idle=0.4) == 0
    assert thresholds.shipped()["starved-cpu-idle"]["spare"] == num_workers.LEAST_IDLE


def test_no_advice_names_a_number_of_its_own() -> None:
    pages = {path: path.read_text() for path in Path(gputop.__file__).parent.rglob("*.py")}
    fixed = {str(path): re.findall(r"num_workers=[1-9]\d*", text) for path, text in pages.items()}
    assert {path: numbers for path, numbers in fixed.items() if numbers} == {}

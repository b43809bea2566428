"""What is said of one thing: one loader, one CPU, one rank are not several."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from gputop.diagnose import Subject
from gputop.finding_text import sentence, subject_name, subject_owner
from gputop.labels import amount
from gputop.model import Disk, Frame, Identity, Pressure, Process
from tests.rank_teams import of, team
from tests.rule_cases import Machine, after, found, judged

ONE = re.compile(r"(?<![\d.])1 (loaders|CPUs|cores|CPU cores|ranks|compute threads)\b(?! only)")
DISK = Disk(name="nvme0n1", busy_percent=99.0, read_bytes_per_s=1e9)
OTHER = Process(pid=7, started_ticks=7, name="bash")
CALM = {"cpu_percent": 20.0, "main_thread_percent": 20.0}
POOL = {"busy_threads": 8, "run_wait_percent": 70.0, "voluntary_switches_per_s": 0.0, "cpu_percent": 100.0}

WAITS: dict[str, Any] = {
    "busy_percent": 100.0, "power_watts": 120.0, "sm_active_percent": 12.0, "tensor_percent": 0.0, "dram_percent": 0.5,
    "fp32_percent": 0.0,
    "memory_busy_percent": 1.0, "nvlink_rx_bytes_per_s": 0.0, "pcie_rx_bytes_per_s": 0.0, "pcie_tx_bytes_per_s": 0.0,
}  # fmt: skip


def one_loader(busy: float = 50.0, host: dict[str, Any] | None = None, **loader: float) -> Machine:
    return Machine(trainer=CALM, loader=loader, loaders=1, gpu={"busy_percent": busy}, host=host or {})


@pytest.mark.parametrize(
    ("rule", "machine", "told"),
    [
        (
            "starved-cpu-idle",
            one_loader(cpu_percent=98.0),
            ("dataloader-bound, 1 worker is too few", "1 worker, 98 % of a core"),
        ),
        (
            "io-bound",
            one_loader(30.0, {"disks": (DISK,), "io_pressure": Pressure(some_percent=65.0)}, blocked_percent=70.0),
            ("1 worker waits for storage 70 % of the time",),
        ),
        (
            "threads-process",
            Machine(trainer=POOL | {"allowed_cpus": 1.0}, gpu={"busy_percent": 30.0, "power_watts": 250.0}),
            ("CPU oversubscribed, 8 compute threads on 1 CPU", "Restart with 1 compute thread"),
        ),
    ],
)
def test_one_is_told_as_one(rule: str, machine: Machine, told: tuple[str, ...]) -> None:
    finding = found(machine.verdict(100), rule)
    assert finding is not None
    evidence, steps = ([item.text for item in items] for items in (finding.evidence, finding.steps))
    said = [finding.headline, *evidence, *steps]
    assert set(told) <= set(said)
    assert not [text for text in said if ONE.search(text)]


def test_a_job_of_which_one_rank_is_here_says_so() -> None:
    finding = found(after(team(of({}, WAITS), ranks=1, world=8), 100), "collective-wait")
    assert finding is not None
    assert finding.headline == "collective wait for a rank on another machine, 1 rank waits"


@pytest.mark.parametrize(
    ("number", "noun", "said"),
    [(1, "rank", "1 rank"), (0, "rank", "0 ranks"), (2, "process", "2 processes"), (1.0, "CPU", "1 CPU"),
     (0.5, "CPU", "0.5 CPUs"), (1.5, "CPU", "1.5 CPUs"), (1000000, "thread", "1000000 threads")],
)  # fmt: skip
def test_an_amount(number: float, noun: str, said: str) -> None:
    assert amount(number, noun) == said


def test_a_finding_goes_with_its_process_and_who_has_ended_keeps_its_name() -> None:
    machine = Machine(gpu={"busy_percent": 40.0}, trainer={"read_chars_per_s": 40e6, "user": "alice", "job": "100.1"})

    def frame(t: float) -> Frame:
        one = machine.frame(t)
        job = replace(one.jobs[0], key="100.1", name="llama/train", user="alice")
        return replace(one, jobs=(job,)) if t < 200 else replace(one, processes=(OTHER,))

    *_, (before, lasted), (now, gone) = judged(frame(float(t)) for t in range(0, 202, 2))
    told = found(lasted, "loader-in-main")
    assert told is not None
    for shown in (before, now):
        assert sentence(told, shown).startswith("llama/train (alice, pid 100, GPU 0): ")
    assert found(gone, "loader-in-main") is None
    loose = Subject(kind="process", processes=(Identity(9, 9),), name="train.py", user="bob")
    assert f"{subject_name(loose, now)} of {subject_owner(loose, now)}" == "train.py of bob, pid 9"

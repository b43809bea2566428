"""What the processes of a job send each other through pipes is no data set: environments, and programs that fetch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gputop.model import Frame, Mount, Network, Process, Role
from tests.rule_cases import TRAINER, Machine, after, found

Made = Callable[[float], Frame]
HUNGRY: dict[str, Any] = {
    "busy_percent": 30.0, "power_watts": 180.0, "sm_active_percent": 15.0, "tensor_percent": 3.0, "dram_percent": 8.0,
}  # fmt: skip
GAPS: dict[str, Any] = {**HUNGRY, "busy_percent": lambda t: 100.0 * (t % 8 < 4)}


def beside(machine: Machine, count: int, cpu: float, **dials: Any) -> Made:
    """The same, with so many children that are no loaders."""
    child = {
        **TRAINER,
        "role": Role.OTHER,
        "cpu_percent": cpu,
        "main_thread_percent": cpu,
        "busy_threads": int(cpu >= 10),
    }
    children = tuple(
        Process(pid=300 + n, started_ticks=1, parent_pid=100, **{**child, **dials}) for n in range(count)
    )  # fmt: skip

    def frame(t: float) -> Frame:
        now = machine.frame(t)
        return replace(now, processes=(*now.processes, *children))

    return frame


def many_environments(**trainer: float) -> Made:
    """Fifteen simulators in processes of their own, that send what they see through pipes."""
    sent = {"read_chars_per_s": 20e6, "write_chars_per_s": 1e6, "cpu_percent": 95.0, **trainer}
    machine = Machine(gpu={**HUNGRY, "busy_percent": 12.0}, trainer=sent)
    return beside(machine, 15, 90.0, read_chars_per_s=7e4, write_chars_per_s=1.33e6)


def few_environments(gpu: dict[str, Any], **trainer: float) -> Made:
    sent = {"read_chars_per_s": 5e6, "write_chars_per_s": 1e6, **trainer}
    return beside(Machine(gpu=gpu, trainer=sent), 4, 10.0, read_chars_per_s=3e5, write_chars_per_s=1.3e6)


@pytest.mark.parametrize(
    ("trainer", "loads"),
    [
        ({}, False),
        ({"read_chars_per_s": 20.6e6}, False),  # 0.7 MB/s more than it is sent
        ({"read_chars_per_s": 21.2e6}, True),
        ({"read_bytes_per_s": 2e6}, True),  # from storage
    ],
)
def test_environments_that_fill_the_cpus_are_no_input(trainer: dict[str, float], loads: bool) -> None:
    said = after(many_environments(**trainer))
    assert (found(said, "starved-cpu-saturated") is not None) == loads


@pytest.mark.parametrize(("trainer", "loads"), [({}, False), ({"read_chars_per_s": 8e6}, True)])
def test_a_trainer_of_environments_does_not_load_in_its_own_process(trainer: dict[str, float], loads: bool) -> None:
    said = after(few_environments(HUNGRY, **trainer))
    assert (found(said, "loader-in-main") is not None) == loads


def test_gaps_of_a_trainer_of_environments_may_be_something_else_than_loading() -> None:
    finding = found(after(few_environments(GAPS)), "loader-in-main")
    assert finding is not None
    assert finding.headline.endswith("or other CPU work")
    assert finding.steps[0].action == "stack"
    assert not [item for item in finding.evidence if "reads" in item.text]


FORK: dict[str, Any] = {"name": "python", "command": ("python", "train.py")}
UNSURE = "worker processes (DataLoader or environments)"


def forks(count: int, cpu: float, **loader: Any) -> Machine:
    trainer = {"cpu_percent": 30.0, "main_thread_percent": 30.0}
    return Machine(gpu=HUNGRY, trainer=trainer, loader={"cpu_percent": cpu, **loader}, loaders=count)


@pytest.mark.parametrize(
    ("machine", "rule", "said"),
    [
        (forks(16, 96.0, **FORK), "starved-cpu-saturated", "possibly dataloader-bound, CPU saturated"),
        (forks(4, 96.0, **FORK), "starved-cpu-idle", f"possibly dataloader-bound, 4 {UNSURE} are too few"),
    ],
)
def test_loaders_that_nobody_named_may_be_environments(machine: Machine, rule: str, said: str) -> None:
    finding = found(machine.verdict(100), rule)
    assert finding is not None
    assert (finding.severity, finding.headline) == ("warn", said)
    assert finding.steps[0].action == "stack"
    assert [step for step in finding.steps if step.text.startswith("If they are DataLoader workers, ")]
    assert [item for item in finding.evidence if item.text.startswith(f"{machine.loaders} worker processes, each 96 %")]


@pytest.mark.parametrize(("count", "rule"), [(16, "starved-cpu-saturated"), (4, "starved-cpu-idle")])
def test_loaders_that_torch_named_are_loaders(count: int, rule: str) -> None:
    finding = found(forks(count, 96.0).verdict(100), rule)
    assert finding is not None
    assert finding.severity == "crit"
    assert "possibly" not in finding.headline


def test_worker_processes_that_sleep_may_be_environments() -> None:
    machine = forks(4, 2.0, **FORK)
    machine.trainer = {"cpu_percent": 5.0, "main_thread_percent": 5.0}
    finding = found(machine.verdict(100), "head-of-line")
    assert finding is not None
    assert finding.headline.startswith("possibly dataloader-bound, head-of-line blocking")


HOME = Mount(path="/home", device="ceph:/", file_system="ceph", network=True)
NAS = Mount(path="/nas", device="nas:/", file_system="nfs4", network=True, read_bytes_per_s=30e6, read_rtt_s=0.034)
LINK = Network(name="eth0", speed_bytes_per_s=1.25e9, receive_bytes_per_s=0.95e9)


def streaming(mount: Mount = HOME, **loader: float) -> Made:
    """Eight loaders, each with a program that fetches from an object store and writes into a pipe."""
    reads = {"cpu_percent": 30.0, "read_chars_per_s": 0.118e9, "write_chars_per_s": 0.0, **loader}
    host = {"mounts": (mount,), "networks": (LINK,), "receive_bytes_per_s": 0.95e9, "read_bytes_per_s": 0.0}
    trainer = {"main_thread_percent": 15.0, "cpu_percent": 20.0}
    gpu = {"busy_percent": 45.0, "power_watts": 300.0}
    machine = Machine(gpu=gpu, trainer=trainer, loader=reads, host=host, loaders=8)
    return beside(machine, 8, 30.0, name="curl", read_chars_per_s=0.0, write_chars_per_s=0.118e9)


def test_a_mount_that_does_not_tell_is_not_blamed_for_what_a_program_fetches() -> None:
    finding = found(after(streaming()), "network-fs-bound")
    assert finding is not None
    assert (finding.severity, finding.headline) == ("warn", "I/O-bound, data read over the network")
    assert finding.evidence[0].text == (
        "data arrive over eth0, from a file server or object store; no statistics for /home (ceph)"
    )
    assert not [item for item in finding.evidence if "GB/s from" in item.text or "MB/s from" in item.text]
    assert not [step for step in finding.steps if "WebDataset" in step.text or "page cache" in step.text]


def test_a_mount_that_does_not_tell_is_named_where_more_is_read_than_pipes_bring() -> None:
    finding = found(after(streaming(read_chars_per_s=0.2e9)), "network-fs-bound")
    assert finding is not None
    assert (finding.severity, finding.headline) == ("crit", "I/O-bound, network file system")
    assert finding.evidence[0].text == "reads 656 MB/s from /home (ceph), no further statistics"


def test_a_server_that_others_read_from_is_not_what_a_program_fetches_from() -> None:
    assert found(after(streaming(NAS, blocked_percent=50.0)), "network-fs-bound") is None

"""Clocks, NUMA nodes, neighbours: each rule fires, just does not, and abstains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gputop.model import Disk, Frame, Node, Pressure, Process
from tests.rule_cases import EACH_S, Machine, after, found, refused, silent

HUNGRY: dict[str, Any] = {"busy_percent": 30.0, "power_watts": 250.0}
CROWDED = Pressure(some_percent=60.0)
FAST: dict[str, Any] = {
    "cpu_governor": "performance",
    "cpu_driver": "acpi-cpufreq",
    "cpu_mhz": 3500.0,
    "cpu_max_mhz": 3800.0,
    "cpu_cap_mhz": 3800.0,
    "cpu_preference": "performance",
    "cpu_throttles_per_s": 0.0,
    "cpu_percent": 80.0,
}


@pytest.mark.parametrize(
    ("host", "gpu", "severity"),
    [
        ({}, {}, None),
        ({"cpu_governor": "powersave"}, {}, "info"),
        ({"cpu_governor": "powersave"}, HUNGRY, "warn"),
        ({"cpu_governor": "powersave", "cpu_driver": "intel_pstate"}, HUNGRY, None),
        ({"cpu_governor": "powersave", "cpu_driver": "amd-pstate-epp"}, HUNGRY, None),
        ({"cpu_governor": "schedutil"}, HUNGRY, None),
        ({"cpu_preference": "power"}, {}, "info"),
        ({"cpu_cap_mhz": 2600.0}, {}, "info"),
        ({"cpu_cap_mhz": 2700.0}, {}, None),
        ({"cpu_mhz": 2600.0}, HUNGRY, "info"),
        ({"cpu_mhz": 2700.0}, HUNGRY, None),
        ({"cpu_mhz": 1200.0, "cpu_percent": 69.0}, HUNGRY, None),  # idle cores
        ({"cpu_throttles_per_s": 0.2}, {}, "info"),
        ({"cpu_throttles_per_s": 0.05}, {}, None),
    ],
)
def test_cpu_slow(host: dict[str, Any], gpu: dict[str, Any], severity: str | None) -> None:
    said = Machine(gpu=gpu, host=FAST | host).verdict()  # its main thread is at 100 %
    finding = found(said, "cpu-slow")
    folded = any("cpu-slow" in told.causes for told in said.findings)
    assert (finding and finding.severity) == severity or (folded and severity == "warn")


def test_cpu_slow_abstains_in_a_virtual_machine() -> None:
    one = silent(Machine().verdict(5), "cpu-slow")
    assert one is not None
    assert [missing.metric for missing in one.missing] == ["cpu_governor", "cpu_max_mhz"]


NODES = {"nodes": (Node(number=0, cpus="0-7"), Node(number=1, cpus="8-15"))}
NEAR = {"numa_node": 1, "local_cpus": "8-15", "pcie_rx_bytes_per_s": 5e9}


@pytest.mark.parametrize(
    ("gpu", "far", "host", "severity"),
    [
        (NEAR, 1.0, NODES, "warn"),
        (NEAR, 0.7, NODES, "info"),
        (NEAR, 0.55, NODES, None),
        (NEAR | {"pcie_rx_bytes_per_s": 1e9}, 1.0, NODES, "info"),  # little goes over, and the GPU is busy
        (NEAR, 1.0, {"nodes": NODES["nodes"][:1]}, None),
        (NEAR | {"local_cpus": "0-15"}, 1.0, NODES, None),
    ],
)
def test_numa_misplacement(gpu: dict[str, Any], far: float, host: dict[str, Any], severity: str | None) -> None:
    trainer = {"last_cpu": lambda t: 3 if t % 20 < 20 * far else 11}
    finding = found(Machine(gpu=gpu, trainer=trainer, host=host).verdict(), "numa-misplacement")
    assert (finding and finding.severity) == severity


def test_numa_misplacement_says_where_to_go() -> None:
    machine = Machine(gpu=NEAR, trainer={"last_cpu": 3, "affinity": "0-7"}, host=NODES)
    told = found(machine.verdict(), "numa-misplacement")
    assert told is not None
    assert [item.text for item in told.evidence] == [
        "100 % of its CPU time on CPUs remote to its GPU (local: 8-15)",
        "its affinity allows CPUs 0-7 only",
    ]
    assert [step.command for step in told.steps] == [
        "numactl --cpunodebind=1 --membind=1 python train.py",
        "os.sched_setaffinity(0, range(8, 16))",
    ]


@pytest.mark.parametrize(
    ("loaders", "viewer", "command"),
    [
        (0, 1, "taskset -acp 8-15 100"),
        (2, 1, "for p in 100 $(pgrep -P 100); do taskset -acp 8-15 $p; done"),
        (2, 2, "for p in 100 $(pgrep -P 100); do sudo taskset -acp 8-15 $p; done"),
    ],
)
def test_a_rank_far_from_its_gpu_is_moved_not_started_without_its_launcher(
    loaders: int, viewer: int, command: str
) -> None:
    trainer = {"last_cpu": 3, "affinity": "0-7", "uid": 1, "local_rank": 3}
    machine = Machine(gpu=NEAR, trainer=trainer, loader={"last_cpu": 3}, host=NODES, loaders=loaders)

    def frame(t: float) -> Frame:
        one = machine.frame(t)
        second = replace(one.processes[0], pid=101, local_rank=1, gpus=())
        ranks = (one.processes[0].identity, second.identity)
        job = replace(one.jobs[0], launcher="torchrun", ranks=ranks)
        return replace(one, processes=(*one.processes, second), jobs=(job,), viewer_uid=viewer)

    told = found(after(frame), "numa-misplacement")
    assert told is not None
    assert (told.steps[0].command, told.steps[0].needs_root) == (command, viewer == 2)
    assert [step.command for step in told.steps[1:]] == [
        None, "if os.environ['LOCAL_RANK'] == '3': os.sched_setaffinity(0, range(8, 16))"
    ]  # fmt: skip


EIGHT = {"nodes": tuple(Node(number=n, cpus=f"{2 * n}-{2 * n + 1}") for n in range(8))}


@pytest.mark.parametrize(
    ("affinity", "severity"),
    [
        ("0-15", "info"),  # of eight nodes all but one are far
        (None, "info"),
        ("6-7,0-3", "info"),
        ("4-7", "warn"),  # every second one is near
        ("0-5,8-15", "warn"),  # it may not run near
    ],
)
def test_numa_misplacement_by_chance_is_no_cause(affinity: str | None, severity: str) -> None:
    trainer = {"last_cpu": 4, "affinity": affinity}
    told = found(Machine(gpu=NEAR | {"local_cpus": "6-7"}, trainer=trainer, host=EIGHT).verdict(), "numa-misplacement")
    assert told is not None
    assert told.severity == severity
    texts = [item.text for item in told.evidence]
    assert ("88 % expected by chance: most CPUs are remote to this GPU" in texts) == (affinity in ("0-15", None))


@pytest.mark.parametrize(
    ("place", "launcher", "commands"),
    [
        ({"slurm_job": "77"}, "0-3", ["#SBATCH --gres-flags=enforce-binding"]),
        ({"container": "exp", "cgroup": "/docker/0123456789ab"}, "0-3", ["sudo docker update --cpuset-cpus=8-11 exp"]),
        (  # its launcher shows that the container has more
            {"container": "exp"},
            "0-15",
            ["numactl --cpunodebind=1 --membind=1 python train.py", "os.sched_setaffinity(0, range(8, 16))"],
        ),
    ],
)
def test_numa_misplacement_within_a_cpuset_asks_for_other_cpus(
    place: dict[str, Any], launcher: str, commands: list[str]
) -> None:
    machine = Machine(gpu=NEAR, trainer={"last_cpu": 3, "affinity": "0-3"} | place, host=NODES)
    beside = Process(pid=90, started_ticks=1, name="torchrun", affinity="0-15")  # of neither

    def frame(t: float) -> Frame:
        one = machine.frame(t)
        above = replace(beside, pid=99, affinity=launcher, **place)
        return replace(one, processes=(*one.processes, above, beside))

    told = found(after(frame), "numa-misplacement")
    assert told is not None
    assert told.severity == "warn"
    assert [step.command for step in told.steps] == commands


def test_numa_misplacement_abstains_where_the_card_does_not_tell() -> None:
    assert silent(Machine(host=NODES).verdict(70), "numa-misplacement") is not None


def shared(
    trainer: dict[str, Any], host: dict[str, Any], other: dict[str, Any], loader: dict[str, Any]
) -> Callable[[float], Frame]:
    alice: dict[str, Any] = {"uid": 1, "cgroup": "/a"}
    trainer = {"user": "alice", "parent_pid": 900, "group": 100, **alice, **trainer}
    machine = Machine(gpu=HUNGRY, trainer=trainer, host=host, loader=alice | loader, loaders=2)
    login = Process(pid=899, started_ticks=1, parent_pid=1, name="sshd", **alice)
    shell = Process(pid=900, started_ticks=1, parent_pid=899, name="bash", **alice)
    bob = Process(pid=991, started_ticks=9, name="tar", **{"user": "bob", "uid": 2, "cgroup": "/b"} | other)

    def frame(t: float) -> Frame:
        one = machine.frame(t)
        return replace(one, processes=(*one.processes, login, shell, bob))

    return frame


FULL = {"cpu_percent": 97.0, "cpu_pressure": CROWDED}
WAITS = {"run_wait_percent": 60.0}
# another command of the shell that started the trainer
OWN = {"cpu_percent": 1200.0, "uid": 1, "cgroup": "/a", "parent_pid": 900, "group": 991}
DISK = {"io_pressure": CROWDED, "disks": (Disk(name="nvme0n1", busy_percent=99.0),)}
STUCK = {"blocked_percent": 60.0, "read_bytes_per_s": 10e6}


@pytest.mark.parametrize(
    ("trainer", "host", "other", "loader", "fires"),
    [
        (WAITS, FULL, {"cpu_percent": 1200.0}, {}, True),
        (WAITS, FULL, {"cpu_percent": 630.0}, {}, False),
        (WAITS, FULL | {"cpu_percent": 89.0}, {"cpu_percent": 1200.0}, {}, False),
        (WAITS, FULL | {"cpu_pressure": Pressure(some_percent=39.0)}, {"cpu_percent": 1200.0}, {}, False),
        (WAITS, FULL | {"cpu_pressure": None}, {"cpu_percent": 1200.0}, {}, True),  # an old kernel
        ({"run_wait_percent": 29.0}, FULL, {"cpu_percent": 1200.0}, {}, False),
        (WAITS | {"cpu_percent": 800.0}, FULL, {"cpu_percent": 700.0}, {}, False),  # it is the largest itself
        (WAITS, FULL, OWN, {}, True),
        (WAITS, FULL, OWN | {"group": 100}, {}, False),  # in a pipe with the trainer
        (WAITS, FULL, {"cpu_percent": 1200.0, "job": "j"}, {}, False),
        ({}, {"steal_percent": 6.0}, {}, {}, True),
        ({}, {"steal_percent": 4.0}, {}, {}, False),
        ({}, DISK, {"read_bytes_per_s": 1.9e9}, STUCK, True),
        ({}, DISK, {"read_bytes_per_s": 10e6}, STUCK, False),
        ({}, DISK, {"read_bytes_per_s": 1.9e9}, STUCK | {"blocked_percent": 29.0}, False),
    ],
)
def test_neighbour(
    trainer: dict[str, Any], host: dict[str, Any], other: dict[str, Any], loader: dict[str, Any], fires: bool
) -> None:
    said = after(shared(trainer, host, other, loader))
    causes = {cause for finding in said.findings for cause in (finding.rule, *finding.causes)}
    assert ("neighbour" in causes) == fires


def test_a_neighbour_is_named_by_user_only_and_what_it_takes() -> None:
    told = found(after(shared(WAITS, FULL, {"cpu_percent": 1200.0}, {})), "neighbour")
    assert told is not None
    assert told.headline == "CPU contention, mostly from tar of user bob"
    assert told.evidence[0].text == "tar of user bob uses 12.0 of 16 CPUs"
    assert "991" not in str(told)
    assert told.steps[1].text == "Ask user bob to lower its CPU and I/O priority: renice -n 19, ionice -c 3"
    assert [step.command for step in told.steps] == [None, None, None, "taskset -c 0-7 python train.py"]
    assert told.steps[2].text == "Ask its owner to pin tar to CPUs 8-15"  # else it would follow
    assert told.steps[3].text == "Then pin this job to the other CPUs, 0-7"
    own = found(after(shared(WAITS, FULL, {"cpu_percent": 1200.0, "uid": 1}, {})), "neighbour")
    assert own is not None
    assert own.headline == "CPU contention, mostly from tar (pid 991)"
    assert own.steps[1].command == "renice -n 19 -p 991; ionice -c 3 -p 991"
    assert own.steps[2].command == "for p in 991; do taskset -acp 8-15 $p; done"


@pytest.mark.parametrize(
    ("trainer", "cpus"),
    [
        ({"affinity": "0-15"}, "0-7"),
        ({"affinity": "8-15", "allowed_cpus": 8.0}, "8-11"),
        ({"affinity": "9,11,13", "allowed_cpus": 3.0}, "9"),
        ({"allowed_cpus": 8.0}, None),  # nobody knows which
    ],
)
def test_beside_a_neighbour_a_trainer_gets_cpus_that_it_may_use(trainer: dict[str, Any], cpus: str | None) -> None:
    told = found(after(shared(WAITS | trainer, FULL, {"cpu_percent": 1200.0}, {})), "neighbour")
    assert told is not None
    pins = [step.command for step in told.steps if "taskset" in (step.command or "")]
    assert pins == ([] if cpus is None else [f"taskset -c {cpus} python train.py"])


def test_a_neighbour_is_weighed_by_what_it_took_all_the_while_and_not_when_somebody_looked() -> None:
    still = shared(WAITS, FULL, {}, {})

    def bursts(*percents: float) -> Callable[[float], Frame]:
        def frame(t: float) -> Frame:
            *others, bob = still(t).processes
            cpu = percents[int(t / EACH_S) % len(percents)]
            return replace(still(t), processes=(*others, replace(bob, cpu_percent=cpu)))

        return frame

    assert found(after(bursts(1600.0, 1600.0, 1600.0, 1600.0, 0.0, 0.0)), "neighbour") is not None
    assert found(after(bursts(700.0, 700.0, 700.0, 700.0, 700.0, 0.0)), "neighbour") is None


def test_all_processes_of_an_own_job_are_told_to_stand_back() -> None:
    still = shared(WAITS, FULL, {"cpu_percent": 700.0, "uid": 1}, {})

    def frame(t: float) -> Frame:
        one = still(t)
        more = [replace(one.processes[-1], pid=pid, cpu_percent=cpu) for pid, cpu in ((992, 900.0), (993, 0.0))]
        return replace(one, processes=(*one.processes, *more))

    told = found(after(frame), "neighbour")
    assert told is not None
    assert told.steps[1].command == "renice -n 19 -p 992 991 993; ionice -c 3 -p 992 991 993"


@pytest.mark.parametrize(("viewer", "unlock"), [(1000, "sudo gputop"), (0, "CAP_SYS_PTRACE")])
def test_neighbour_abstains_where_the_io_of_others_is_hidden(viewer: int, unlock: str) -> None:
    frame = shared({}, DISK, refused("read_bytes_per_s"), STUCK)
    one = silent(after(lambda t: replace(frame(t), viewer_uid=viewer)), "neighbour")
    assert one is not None
    assert unlock in (one.unlock or "")
    assert viewer or "sudo" not in (one.unlock or ""), "root is root already"

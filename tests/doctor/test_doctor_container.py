"""Container, limits of the control group against what programs see, shared memory, and the advice made from them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gputop.collect.filesystems import Size
from gputop.doctor.container import _shm
from gputop.doctor.share import Share, share
from tests.doctor_machine import ask, line, machine, told
from tests.process_watch import need_namespaces, root_only

QUOTA = "sys/fs/cgroup/job/cpu.max"
V1 = {
    "proc/self/mountinfo": "31 23 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
    "proc/self/cgroup": "4:memory:/job\n1:cpu:/job/step\n",
    "sys/fs/cgroup/cpu/job/step/cpu.cfs_quota_us": "-1\n",
    "sys/fs/cgroup/cpu/job/step/cpu.cfs_period_us": "100000\n",
    "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "400000\n",
    "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000\n",
    "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "8589934592\n",
}


SLUID = "0::/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0\n"


@pytest.mark.parametrize(
    ("files", "environ", "status", "says"),
    [
        ({}, {}, "ok", "no container"),
        ({QUOTA: "800000 100000\n"}, {}, "ok", "no container; limited by a cgroup (e.g. Slurm, systemd)"),
        ({"sys/fs/cgroup/job/memory.max": "68719476736\n"}, {}, "ok", "no container; limited by a cgroup"),
        ({"proc/self/cgroup": "0::/system.slice/slurmstepd.scope/job_4711/step_0\n"}, {}, "ok", "Slurm job 4711"),
        ({"proc/self/cgroup": SLUID}, {}, "ok", "Slurm job sEKNKTV3WPV500"),
        ({"proc/self/cgroup": SLUID}, {"SLURM_JOB_ID": "4711"}, "ok", "Slurm job 4711"),
        ({".dockerenv": ""}, {}, "limited", "a container (docker)"),
        ({"run/.containerenv": ""}, {}, "limited", "a container (podman)"),
        ({}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "limited", "a container (kubernetes)"),
        ({}, {"container": "lxc"}, "limited", "a container (lxc)"),
    ],
)
def test_is_it_a_container(
    tmp_path: Path, files: dict[str, str], environ: dict[str, str], status: str, says: str
) -> None:
    said = line(machine(tmp_path, files, environ={"PATH": "/x", **environ}), "container")
    assert said.status == status
    assert says in said.what


@pytest.mark.parametrize(
    ("files", "environ", "status", "says", "unlock", "allowed"),
    [
        ({}, {}, "ok", "all 32 CPUs", None, 32),
        ({"proc/self/status": "Cpus_allowed_list:\t0-3,8-11,64\n"}, {}, "ok", "8 of 32 CPUs", None, 8),
        ({QUOTA: "800000 100000\n"}, {}, "limited", "sees 32 CPUs, but the cgroup quota is 8", 8, 8),
        ({QUOTA: "150000 100000\n"}, {}, "limited", "cgroup quota is 1.5 CPUs", 2, 2),
        ({QUOTA: "800000 100000\n"}, {"CUDA_VISIBLE_DEVICES": "0,1"}, "limited", "cgroup quota is 8 CPUs", 4, 8),
        ({QUOTA: "800000 100000\n"}, {"CUDA_VISIBLE_DEVICES": "0,-1,1"}, "limited", "cgroup quota is 8 CPUs", 8, 8),
        ({QUOTA: "6400000 100000\n"}, {}, "ok", "all 32 CPUs", None, 32),
        (V1, {}, "limited", "cgroup quota is 4 CPUs", 4, 4),
    ],
)
def test_p12_what_programs_see_of_the_cpus(
    tmp_path: Path, files: dict[str, str], environ: dict[str, str], status: str, says: str, unlock: Any, allowed: int
) -> None:
    box = machine(tmp_path, files, environ={"PATH": "/x", **environ})
    said = line(box, "cpus")
    assert (said.status, said.unlock) == (status, unlock and f"export OMP_NUM_THREADS={unlock}")
    assert says in said.what
    assert said.value["allowed"] == share(box).allowed == allowed


@pytest.mark.parametrize(
    ("files", "options", "status", "says", "unlock"),
    [
        ({}, {}, "ok", "all 1.0T are allowed", None),
        ({"sys/fs/cgroup/job/memory.max": "68719476736\n"}, {}, "ok", "OOM killer acts above 64.0G", None),
        (V1, {}, "ok", "OOM killer acts above 8.0G", None),
        ({**V1, ".dockerenv": ""}, {}, "limited", "8.0G", "docker run --memory=0 IMAGE"),
        (V1, {"environ": {"SLURM_JOB_ID": "7"}}, "limited", "8.0G", "sbatch --mem=0 JOB"),
        ({"proc/meminfo": "nothing\n"}, {}, "unknown", "does not report", None),
    ],
)
def test_p12_what_programs_see_of_the_memory(
    tmp_path: Path, files: dict[str, str], options: Any, status: str, says: str, unlock: str | None
) -> None:
    said = line(machine(tmp_path, files, **options), "memory")
    assert (said.status, said.unlock) == (status, unlock)
    assert says in said.what


def test_pids_are_not_compared_with_a_driver_that_lists_no_gpu(tmp_path: Path) -> None:
    said = line(machine(tmp_path), "pids")
    assert (said.status, said.value) == ("unknown", {"host_pids": True})


def test_the_number_of_jobs_says_where_it_comes_from(tmp_path: Path) -> None:
    box = machine(tmp_path, environ={"PATH": "/x", "CUDA_VISIBLE_DEVICES": "0,1"})
    said = line(box, "threads").what
    assert "2 jobs, one per GPU in CUDA_VISIBLE_DEVICES, start 2 x 32 threads on 32 CPUs" in said
    assert "(32 allowed CPUs, 2 jobs, one per GPU in CUDA_VISIBLE_DEVICES)" in ask(box, "loader")[0].what


def of(affinity: int = 32, jobs: int = 1, quota: float | None = None) -> Share:
    return Share(online=64, affinity=affinity, quota=quota, memory_limit=None, memory_total=None, jobs=jobs)


@pytest.mark.parametrize(
    ("got", "workers", "threads"),
    [
        (of(32), 8, 32),
        (of(8), 4, 8),
        (of(32, jobs=4), 4, 8),
        (of(96, jobs=8), 6, 12),
        (of(64, quota=7.5), 4, 8),
        (of(2), 1, 2),
        (of(1), 0, 1),
        (of(8, jobs=8), 0, 1),
        (of(4, quota=0.5), 0, 1),
    ],
)
def test_the_first_guess_is_min_8_half_of_the_allowed_cpus_by_jobs(got: Share, workers: int, threads: int) -> None:
    assert (got.workers, got.threads) == (workers, threads)


@pytest.mark.parametrize(
    ("total", "free", "container", "status", "unlock"),
    [
        (64 << 30, 60 << 30, False, "ok", None),
        (64 << 20, 64 << 20, True, "missing", "docker run --shm-size=6g IMAGE"),
        (2 << 30, 2 << 30, True, "limited", "docker run --shm-size=6g IMAGE"),
        (2 << 30, 2 << 30, False, "limited", "sudo mount -o remount,size=6G /dev/shm"),
        (64 << 30, 1 << 30, False, "limited", "ls -lS /dev/shm | head"),
    ],
)
def test_a29_shared_memory_against_what_workers_hold(
    tmp_path: Path, total: int, free: int, container: bool, status: str, unlock: str | None
) -> None:
    said = _shm(machine(tmp_path, {".dockerenv": ""} if container else {}), Size(total, free), of(), {})
    assert (said.status, said.unlock) == (status, unlock)
    assert "8 workers may need 4.6G" in said.what
    assert "1 worker may need 588M" in _shm(machine(tmp_path), Size(total, free), of(1), {}).what


def test_no_shared_memory_and_that_of_a_process(tmp_path: Path) -> None:
    (tmp_path / "proc/7/root/dev/shm").mkdir(parents=True)
    status = {"proc/7/status": "Uid:\t5\nCpus_allowed_list:\t0\n", "proc/7/cgroup": "0::/job\n"}
    assert line(machine(tmp_path, status, pid=7), "shm").status in ("ok", "limited")
    said = line(
        machine(tmp_path, status | {"proc/8/status": status["proc/7/status"], "proc/8/cgroup": ""}, pid=8), "shm"
    )
    assert (said.status, said.what) == ("missing", "/dev/shm does not exist: DataLoader workers fail")


LOADERS = [
    ({}, {}, "num_workers=8, persistent_workers=True, prefetch_factor=4", "0, 4, 8, 12, 16"),
    (
        {},
        {"CUDA_VISIBLE_DEVICES": "0,1,2,3"},
        "num_workers=4, pin_memory=True, persistent_workers=True, prefetch_factor=4",
        "0, 2, 4, 6, 8",
    ),
    ({QUOTA: "100000 100000\n"}, {}, "num_workers=0", "0, 1"),
]


@pytest.mark.parametrize(("files", "environ", "call", "sweep"), LOADERS)
def test_the_dataloader_line_fits_the_machine(
    tmp_path: Path, files: dict[str, str], environ: dict[str, str], call: str, sweep: str
) -> None:
    first, second, third = ask(machine(tmp_path, files, environ={"PATH": "/x", **environ}), "loader")
    assert first.what.startswith(f"start with num_workers={first.value['num_workers']}: ")
    assert {first.status, second.status, third.status} == {"advice"}
    assert second.what == f"DataLoader(data, {call})"
    assert third.what.startswith(f"then measure {sweep} workers")


def test_pytorch_takes_what_the_dataloader_line_says() -> None:
    calls = "; ".join(f"DataLoader(data, {call})" for _, _, call, _ in LOADERS)
    program = f"from torch.utils.data import DataLoader; data = [1, 2, 3]; {calls}"
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=120)


def test_the_real_affinity_is_what_pytorch_sees() -> None:
    (cpu, *_) = sorted(os.sched_getaffinity(0))
    said = told("--no-nvml", wrapper=("taskset", "-c", str(cpu)))
    assert said["cpus"]["value"]["affinity"] == 1
    assert said["loader"]["value"]["num_workers"] == 0


@root_only
def test_n26_a_real_pid_namespace() -> None:
    need_namespaces("-p", "-f", "--mount-proc")
    said = told("--no-nvml", wrapper=("unshare", "-p", "-f", "--mount-proc"))["pids"]
    assert (said["status"], said["unlock"]) == ("limited", "docker run --pid=host IMAGE")
    assert told("--no-nvml")["pids"]["value"]["host_pids"] == (os.readlink("/proc/self/ns/pid") == "pid:[4026531836]")

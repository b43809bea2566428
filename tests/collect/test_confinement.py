"""What confines a job: pressure, memory and events of its control group, on files as real kernels write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputop.collect.cgroups import Cgroups, Confinement, membership
from gputop.collect.kernel_files import Kernel
from gputop.model import Pressure
from tests.collect.test_cgroups import HYBRID_MOUNTS, V1_CPU, V1_MEMORY, V1_MOUNTS, V2, V2_MOUNTS, v1
from tests.fakeproc import FakeProc, named
from tests.host_tree import Server, memory_stat, pressure, server
from tests.kernel_trees import write_tree

EVENTS = "low 0\nhigh {high}\nmax {max}\noom 3\noom_kill 2\noom_group_kill 0\n"
MIB = 1 << 20


def group(path: str = "/job", some: int = 0, high: int = 0, hits: int = 0, refaults: int = 0) -> dict[str, str]:
    """A group of version 2 that has a memory limit."""
    return {
        f"{V2}{path}/memory.max": f"{64 * MIB}\n",
        f"{V2}{path}/memory.current": f"{60 * MIB}\n",
        f"{V2}{path}/memory.stat": memory_stat(refaults),
        f"{V2}{path}/memory.events": EVENTS.format(high=high, max=hits),
        f"{V2}{path}/cpu.pressure": pressure(some=some, full=0),
        f"{V2}{path}/memory.pressure": pressure(some=some // 2, full=some // 4, avg10=1.5),
        f"{V2}{path}/io.pressure": pressure(some=0, full=0),
    }


def confined(root: Path, of: str, mounts: str = V2_MOUNTS) -> Confinement:
    cgroups = Cgroups(Kernel(sys_root=str(root / "sys")), mounts.encode())
    return Confinement(cgroups, membership(of.encode()), "/job")


def test_p11_pressure_of_a_group_is_its_own(tmp_path: Path) -> None:
    write_tree(tmp_path, group())
    job = confined(tmp_path, "0::/job/step_0\n")
    assert job.read(100.0).cpu_pressure == Pressure(some_avg10_percent=0.33)
    write_tree(tmp_path, group(some=4_000_000))
    assert job.read(101.0).cpu_pressure == Pressure(some_avg10_percent=0.33), "not each second"
    found = job.read(105.0)
    assert found.cpu_pressure == Pressure(some_percent=80, full_percent=0, some_avg10_percent=0.33)
    assert found.memory_pressure == Pressure(some_percent=40, full_percent=20, some_avg10_percent=1.5)
    assert found.io_pressure == Pressure(some_percent=0, full_percent=0, some_avg10_percent=0.33)
    assert found.missing == ()


def test_memory_of_a_group_and_what_its_limit_did(tmp_path: Path) -> None:
    write_tree(tmp_path, group())
    job = confined(tmp_path, "0::/job\n")
    first = job.read(100.0)
    assert (first.memory_limit_bytes, first.memory_used_bytes) == (64 * MIB, 60 * MIB)
    assert (first.anonymous_bytes, first.file_bytes, first.shared_bytes) == (8192 * MIB, 6144 * MIB, 1024 * MIB)
    assert (first.slowed_per_s, first.limit_hits_per_s, first.refaults_per_s) == (None, None, None)
    write_tree(tmp_path, group(high=10, hits=20, refaults=500))
    second = job.read(105.0)
    assert (second.slowed_per_s, second.limit_hits_per_s, second.refaults_per_s) == (2, 4, 100)
    assert (second.oom_count, second.oom_kills) == (3, 2)


@pytest.mark.parametrize(
    ("files", "of", "mounts", "cpus"),
    [
        ({f"{V2}/job/cpuset.cpus.effective": "0-3\n"}, "0::/job/step_0\n", V2_MOUNTS, "0-3"),
        ({f"{V2}/job/step_0/cpuset.cpus.effective": "2\n", f"{V2}/job/cpuset.cpus.effective": "0-3\n"},
         "0::/job/step_0\n", V2_MOUNTS, "2"),
        ({}, "0::/job\n", V2_MOUNTS, None),
    ],
)  # fmt: skip
def test_the_cpuset_is_that_of_the_innermost_group_that_tells(
    tmp_path: Path, files: dict[str, str], of: str, mounts: str, cpus: str | None
) -> None:
    write_tree(tmp_path, {**group(), **files})
    (tmp_path / V2 / "job/step_0").mkdir(parents=True, exist_ok=True)
    assert confined(tmp_path, of, mounts).read(100.0).cpus == cpus


def test_p12_version_1_has_no_pressure_and_says_so(tmp_path: Path) -> None:
    write_tree(
        tmp_path,
        {
            **v1("/job", 200_000, "1073741824\n"),
            f"{V1_CPU}/job/cpu.stat": "nr_periods 10\nnr_throttled 1\nthrottled_time 0\n",
            f"{V1_MEMORY}/job/memory.usage_in_bytes": "1000\n",
            f"{V1_MEMORY}/job/memory.failcnt": "0\n",
            f"{V1_MEMORY}/job/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n",
            f"{V1_MEMORY}/job/memory.stat": "cache 1\nrss 1\ntotal_cache 300\ntotal_rss 600\ntotal_shmem 200\n",
        },
    )
    job = confined(tmp_path, "9:memory:/job\n8:cpu,cpuacct:/job\n", V1_MOUNTS)
    job.read(100.0)
    write_tree(
        tmp_path,
        {
            f"{V1_CPU}/job/cpu.stat": "nr_periods 60\nnr_throttled 26\nthrottled_time 10000000000\n",
            f"{V1_MEMORY}/job/memory.failcnt": "35\n",
        },
    )
    found = job.read(105.0)
    assert (found.cpu_quota, found.throttled_percent, found.throttled_cpus) == (2, 50, 2)
    assert (found.memory_used_bytes, found.anonymous_bytes, found.file_bytes, found.shared_bytes) == (
        1000,
        600,
        300,
        200,
    )
    assert (found.limit_hits_per_s, found.slowed_per_s, found.oom_count, found.oom_kills) == (7, None, None, 4)
    assert found.cpu_pressure is found.memory_pressure is found.io_pressure is None
    (missing,) = found.missing
    assert (missing.metric, missing.reason) == ("pressure", "absent")


def test_p12_a_group_outside_of_the_namespace_is_unknown_not_unlimited(tmp_path: Path) -> None:
    write_tree(tmp_path, group())
    found = confined(tmp_path, "0::/../..\n").read(100.0)
    assert found.memory_used_bytes is found.memory_limit_bytes is found.oom_kills is None
    assert [(missing.metric, missing.reason) for missing in found.missing] == [("memory_used_bytes", "absent")]


def test_p16_a_group_that_was_made_anew_has_no_negative_rates(tmp_path: Path) -> None:
    write_tree(tmp_path, group(some=900, high=9, hits=9, refaults=9))
    job = confined(tmp_path, "0::/job\n")
    job.read(100.0)
    write_tree(tmp_path, group())
    found = job.read(105.0)
    assert found.slowed_per_s is found.limit_hits_per_s is found.refaults_per_s is None
    assert found.cpu_pressure == Pressure(some_percent=None, full_percent=0, some_avg10_percent=0.33)


def test_the_groups_of_trainers_are_read_once_each(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    proc.write("self/mountinfo", V2_MOUNTS)
    write_tree(tmp_path, {**group("/a"), **group("/b")})
    proc.names.start()
    for pid, path in ((42, "/a"), (43, "/a"), (44, "/b"), (45, "/c")):
        proc.add(pid)
        proc.more(pid)
        proc.write(f"{pid}/cgroup", f"0::{path}\n")
    for pid in (42, 43, 44):
        named(proc, pid, lambda process: process.cgroup, 42, 43, 44)
    table = proc.look(42, 43, 44, after_s=0.06)
    assert [group.path for group in table.cgroups] == ["/a", "/b"]
    write_tree(tmp_path, group("/a", hits=50))
    assert proc.look(42, 43, after_s=1.0).cgroups[0].limit_hits_per_s is None
    (ours,) = proc.look(42, 43, after_s=9.0).cgroups
    assert (ours.path, ours.limit_hits_per_s) == ("/a", pytest.approx(5, rel=0.2))
    proc.names.stop()


def slurm(job: int) -> str:
    """A process of a Slurm job where version 1 has the controllers: in version 2 it is in the group of the daemon."""
    path = f"/slurm/uid_1000/job_{job}"
    return (
        f"9:memory:{path}\n8:cpu,cpuacct:{path}\n1:name=systemd:/system.slice/s.service\n0::/system.slice/s.service\n"
    )


def test_p12_each_job_has_its_own_limit_where_version_2_knows_only_the_daemon(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    proc.write("self/mountinfo", HYBRID_MOUNTS)
    for pid, job in ((42, 7), (43, 8)):
        write_tree(tmp_path, v1(f"/slurm/uid_1000/job_{job}", limit=f"{job << 30}\n"))
        proc.add(pid)
        proc.more(pid)
        proc.write(f"{pid}/cgroup", slurm(job))
    proc.names.start()
    for pid in (42, 43):
        named(proc, pid, lambda process: process.cgroup, 42, 43)
    table = proc.look(42, 43, after_s=0.06)
    proc.names.stop()
    limits = {group.path: group.memory_limit_bytes for group in table.cgroups}
    found = {process.slurm_job: limits[process.cgroup or ""] for process in table.processes if process.slurm_job}
    assert found == {"7": 7 << 30, "8": 8 << 30}


def test_p12_our_own_group_is_called_by_what_limits_it(tmp_path: Path) -> None:
    limit = v1("/slurm/uid_1000/job_7", limit="8589934592\n")
    rest = {"proc/self/mountinfo": HYBRID_MOUNTS, "proc/self/cgroup": slurm(7)}
    found = Server(tmp_path, {**server(), **limit, **rest}).look().cgroup
    assert found is not None
    assert (found.path, found.memory_limit_bytes) == ("/slurm/uid_1000/job_7", 8 << 30)

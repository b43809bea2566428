"""Limits of control groups, on mount tables and cgroup files as real kernels write them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gputop.collect.cgroups import Cgroups, membership, smallest
from gputop.collect.kernel_files import Kernel
from gputop.collect.proc.cgroup import place
from tests.kernel_trees import write_tree

NO_LIMIT_V1 = "9223372036854771712\n"

V2_MOUNTS = """\
22 27 0:21 / /proc rw,nosuid,nodev,noexec,relatime shared:5 - proc proc rw
35 24 0:30 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate
"""
V1_MOUNTS = """\
31 23 0:28 / /sys/fs/cgroup ro,nosuid,nodev,noexec shared:9 - tmpfs tmpfs ro,mode=755
33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid,nodev,noexec,relatime shared:15 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,nosuid,nodev,noexec,relatime shared:17 - cgroup cgroup rw,memory
36 31 0:33 / /sys/fs/cgroup/systemd rw,nosuid,nodev,noexec,relatime shared:10 - cgroup cgroup rw,xattr,name=systemd
"""
HYBRID_MOUNTS = V1_MOUNTS + "41 31 0:38 / /sys/fs/cgroup/unified rw,nosuid,nodev,noexec - cgroup2 cgroup2 rw\n"
# docker with version 1 and no cgroup namespace: the container's own group is mounted where the root would be
DOCKER_V1_MOUNTS = """\
640 631 0:30 /docker/4f1e /sys/fs/cgroup/cpu,cpuacct ro,nosuid,nodev,noexec master:15 - cgroup cgroup rw,cpu,cpuacct
645 631 0:32 /docker/4f1e /sys/fs/cgroup/memory ro,nosuid,nodev,noexec master:17 - cgroup cgroup rw,memory
"""
V2 = "sys/fs/cgroup"
V1_CPU, V1_MEMORY = "sys/fs/cgroup/cpu,cpuacct", "sys/fs/cgroup/memory"


def v1(path: str, quota: int = -1, limit: str = NO_LIMIT_V1) -> dict[str, str]:
    return {
        f"{V1_CPU}{path}/cpu.cfs_quota_us": f"{quota}\n",
        f"{V1_CPU}{path}/cpu.cfs_period_us": "100000\n",
        f"{V1_MEMORY}{path}/memory.limit_in_bytes": limit,
    }


CASES = {
    "version 2, the middle one is smallest": (
        "0::/user.slice/user-1000.slice/session-4.scope\n",
        V2_MOUNTS,
        {
            f"{V2}/user.slice/cpu.max": "max 100000\n",
            f"{V2}/user.slice/memory.max": "max\n",
            f"{V2}/user.slice/user-1000.slice/cpu.max": "1600000 100000\n",
            f"{V2}/user.slice/user-1000.slice/memory.max": "68719476736\n",
            f"{V2}/user.slice/user-1000.slice/session-4.scope/cpu.max": "2400000 100000\n",
            f"{V2}/user.slice/user-1000.slice/session-4.scope/memory.max": "137438953472\n",
        },
        (16.0, 64 << 30),
    ),
    "version 2 in a namespace": (
        "0::/\n",
        V2_MOUNTS,
        {f"{V2}/cpu.max": "250000 100000\n", f"{V2}/memory.max": "1073741824\n"},
        (2.5, 1 << 30),
    ),
    "version 2, the root of the host has no limit files": (
        "0::/\n",
        V2_MOUNTS,
        {f"{V2}/cgroup.procs": ""},
        (None, None),
    ),
    "version 2, outside of the namespace": (
        "0::/../..\n",
        V2_MOUNTS,
        {f"{V2}/cpu.max": "100000 100000\n", f"{V2}/memory.max": "1073741824\n"},
        (None, None),
    ),
    "version 1": (
        "9:memory:/slurm/uid_1000/job_77\n8:cpu,cpuacct:/slurm/uid_1000/job_77\n1:name=systemd:/\n",
        V1_MOUNTS,
        {**v1("/slurm/uid_1000/job_77", 800_000), **v1("/slurm/uid_1000", limit="34359738368\n"), **v1("")},
        (8.0, 32 << 30),
    ),
    "version 1 without limits": ("9:memory:/a\n8:cpu,cpuacct:/a\n", V1_MOUNTS, v1("/a"), (None, None)),
    "version 1 in docker": (
        "9:memory:/docker/4f1e\n8:cpu,cpuacct:/docker/4f1e\n",
        DOCKER_V1_MOUNTS,
        v1("", 400_000, "8589934592\n"),
        (4.0, 8 << 30),
    ),
    "hybrid: the controllers are in version 1": (
        "9:memory:/job\n8:cpu,cpuacct:/job\n1:name=systemd:/\n0::/user.slice/session-1.scope\n",
        HYBRID_MOUNTS,
        {**v1("/job", 150_000, "2147483648\n"), "sys/fs/cgroup/unified/user.slice/session-1.scope/cgroup.procs": ""},
        (1.5, 2 << 30),
    ),
    "hybrid: the controllers are in version 2": (
        "1:name=systemd:/\n0::/job\n",
        HYBRID_MOUNTS,
        {"sys/fs/cgroup/unified/job/cpu.max": "300000 100000\n", "sys/fs/cgroup/unified/job/memory.max": "4096\n"},
        (3.0, 4096),
    ),
    "none mounted": ("0::/job\n", "22 27 0:21 / /proc rw - proc proc rw\n", {}, (None, None)),
    "none in the kernel": ("", "", {}, (None, None)),
    "text that is none": ("\xff\x1b[2J\n0::\n:::\n", "garbage - \n1 2 3\n", {}, (None, None)),
}


@pytest.mark.parametrize(("of", "mounts", "files", "expected"), CASES.values(), ids=CASES)
def test_p12_smallest_limit_of_all_ancestors(
    tmp_path: Path, of: str, mounts: str, files: dict[str, str], expected: tuple[float | None, int | None]
) -> None:
    write_tree(tmp_path, files)
    cgroups = Cgroups(Kernel(sys_root=str(tmp_path / "sys")), mounts.encode())
    member = membership(of.encode())
    quota = smallest(cgroups.cpu_quotas(cgroups.groups(member, "cpu")))
    limit = smallest(cgroups.memory_limits(cgroups.groups(member, "memory")))
    assert (quota and quota.value, limit and limit.value) == expected


def test_a_name_with_a_carriage_return_is_no_second_group() -> None:
    assert membership(b"0::/user.slice/x\r0::/docker/4f1e\n") == {"": "/user.slice/x·0::/docker/4f1e"}
    assert place(b"1:cpu:/x\r0::/system.slice/job_7\n").path == "/x·0::/system.slice/job_7"


def test_p12_use_is_of_the_group_that_limits(tmp_path: Path) -> None:
    write_tree(
        tmp_path,
        {
            f"{V2}/a/memory.max": "1000\n",
            f"{V2}/a/memory.current": "900\n",
            f"{V2}/a/memory.events": "low 0\nhigh 12\nmax 40\noom 3\noom_kill 2\noom_group_kill 0\n",
            f"{V2}/a/cpu.max": "50000 100000\n",
            f"{V2}/a/cpu.stat": "usage_usec 812\nnr_periods 120\nnr_throttled 30\nthrottled_usec 99\n",
            f"{V2}/a/b/memory.max": "max\n",
            f"{V2}/a/b/memory.current": "10\n",
        },
    )
    cgroups = Cgroups(Kernel(sys_root=str(tmp_path / "sys")), V2_MOUNTS.encode())
    groups = cgroups.groups(membership(b"0::/a/b\n"), "memory")
    assert [group.name for group in groups] == ["fs/cgroup/a/b", "fs/cgroup/a", "fs/cgroup"]
    (limit,), (quota,) = cgroups.memory_limits(groups), cgroups.cpu_quotas(groups)
    assert (cgroups.memory_used(limit.group), cgroups.memory_events(limit.group)) == (900, (12, 40, 3, 2))
    assert cgroups.cpu_counts(quota.group) == (120, 30, 99)
    assert (cgroups.cpu_counts(groups[0]), cgroups.memory_events(groups[0])) == (None, (None,) * 4)


def test_p12_our_own_group_is_one_of_the_mounted() -> None:
    kernel = Kernel()
    own = membership(kernel.proc("self/cgroup"))
    groups = Cgroups(kernel, kernel.proc("self/mountinfo")).groups(own, "memory")
    if not groups:
        pytest.skip("not covered: no cgroup file system is mounted here")
    assert os.path.isdir(f"/sys/{groups[0].name}")
    assert str(os.getpid()) in Path(f"/sys/{groups[0].name}/cgroup.procs").read_text().split()

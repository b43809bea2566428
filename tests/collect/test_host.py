"""The machine around the GPUs: every metric filled, agreement with psutil, and what is missing said once."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from gputop.collect.host.cpu import Speeds
from gputop.collect.host.memory import HugePages
from gputop.collect.host.reader import ELSEWHERE, HostReader
from gputop.collect.host.thermal import CpuTemperature, Throttles, Zones
from gputop.collect.kernel_files import read_file
from gputop.model import Host, Reason, metrics
from gputop.model.metric import check_filled
from tests.collect.test_host_mounts import MOUNTSTATS, NFS_MOUNT
from tests.collect.test_host_networks import hardware, infiniband
from tests.host_tree import DISKSTATS, MEMINFO, MOUNTINFO, NET_DEV, SNMP, Server, pressure, server
from tests.kernel_trees import write_tree

MIB = 1 << 20
ARCSTATS = """\
13 1 0x01 123 33456 8023456789 987654321
name                            type data
hits                            4    123456
c                               4    {size}
c_min                           4    {least}
c_max                           4    540888766464
size                            4    {size}
"""


def zfs(size: int, least: int = 0) -> dict[str, str]:
    """The cache of ZFS."""
    return {"proc/spl/kstat/zfs/arcstats": ARCSTATS.format(size=size, least=least)}


def known(things: Iterable[Any]) -> set[str]:
    """Metrics that have a value on at least one of the things."""
    return {
        metric.name for thing in things for metric in metrics(type(thing)) if getattr(thing, metric.name) is not None
    }


def test_every_metric_of_the_host_has_a_value_on_a_server_that_shows_all(tmp_path: Path) -> None:
    ports = {**infiniband(0, 0), **hardware(0)}
    box = Server(tmp_path, {**server(), **ports, "proc/self/mountinfo": MOUNTINFO + NFS_MOUNT, **zfs(1 << 30)})
    box.look(self_mountstats=MOUNTSTATS)
    limits = "nr_periods 200\nnr_throttled 35\nthrottled_usec 5000000\n"
    write_tree(tmp_path, {**infiniband(1000, 1000), "sys/fs/cgroup/job/cpu.stat": limits})
    host = box.look(
        10.0,
        stat="cpu  300 0 100 1100 50 0 0 10 0 0\ncpu0 150 0 50 550 25 0 0 5 0 0\ncpu1 150 0 50 550 25 0 0 5 0 0\n",
        diskstats=DISKSTATS.replace("nvme0n1 1000", "nvme0n1 1100"),
        self_mountstats=MOUNTSTATS.replace("READ: 1000 1003", "READ: 1100 1103"),
    )
    wanted = {field.name for field in fields(Host)} - {*ELSEWHERE, "missing"}
    assert {name for name in wanted if getattr(host, name) in (None, ())} == set()
    for parts in (host.disks, host.mounts, host.networks, host.nodes, (host.cgroup,), (host.cpu_pressure,)):
        assert known(parts) == {metric.name for metric in metrics(type(parts[0]))}
    assert host.cgroup is not None
    assert (host.cgroup.throttled_percent, host.cgroup.throttled_cpus, host.cgroup.cpu_quota) == (25, 0.5, 1.5)
    assert (host.cgroup.oom_count, host.cgroup.oom_kills) == (2, 1)
    assert (host.cpu_mhz, host.cpu_max_mhz, host.cpu_governor, host.cpu_celsius) == (2500, 3700, "performance", 61.5)
    assert (host.kernel, host.cpu_model) == ("6.8.0-45-generic", "AMD EPYC 9654 96-Core Processor")
    assert host.uptime_s == 123456.78


def test_memory_is_split_as_free_does_it(tmp_path: Path) -> None:
    host = Server(tmp_path).look()
    kib = 1024
    assert (host.memory_total_bytes, host.memory_available_bytes) == (1056423372 * kib, 950000000 * kib)
    assert host.memory_used_bytes == (1056423372 - 950000000) * kib
    assert host.memory_cached_bytes == (204800 + 150000000 + 4000000 - 10000000) * kib  # without shared memory
    assert (host.swap_total_bytes, host.swap_used_bytes) == (8388604 * kib, 0)


@pytest.mark.parametrize(("size", "least", "spare"), [(80 << 30, 8 << 30, 72 << 30), (4 << 30, 8 << 30, 0)])
def test_the_cache_of_zfs_counts_as_cache(tmp_path: Path, size: int, least: int, spare: int) -> None:
    """The kernel counts it as used, though ZFS gives it back down to its minimum."""
    before = Server(tmp_path).look()
    assert before.memory_arc_bytes == 0
    write_tree(tmp_path, zfs(size, least))
    host = Server(tmp_path).look()
    assert host.memory_arc_bytes == size
    assert (host.memory_available_bytes or 0) - (before.memory_available_bytes or 0) == spare
    assert (before.memory_used_bytes or 0) - (host.memory_used_bytes or 0) == spare
    assert (host.memory_cached_bytes or 0) - (before.memory_cached_bytes or 0) == spare


def test_the_cache_of_zfs_is_no_more_than_what_is_taken(tmp_path: Path) -> None:
    """In a container with a view of its own of the memory, arcstats is that of the machine."""
    box = Server(tmp_path)
    most = 1056423372 - 812345678 - 150000000 - 204800 - 90000000
    write_tree(tmp_path, zfs(700 << 30))
    assert (
        box.look(meminfo=MEMINFO + "AnonPages:      90000000 kB\n").memory_available_bytes == (950000000 + most) * 1024
    )


def test_agrees_with_psutil_on_this_machine() -> None:
    reader = HostReader()
    reader.read()
    counters = psutil.cpu_times()
    time.sleep(0.3)
    host, memory, swap = reader.read(), psutil.virtual_memory(), psutil.swap_memory()
    after = psutil.cpu_times()
    assert host.memory_total_bytes == memory.total
    assert host.memory_available_bytes == pytest.approx(memory.available, abs=512 * MIB)
    assert host.memory_used_bytes == pytest.approx(memory.used, abs=512 * MIB)
    assert (host.swap_total_bytes, host.cpus_total) == (swap.total, psutil.cpu_count())
    assert host.cpus_allowed is not None
    assert 0 < host.cpus_allowed <= len(os.sched_getaffinity(0))
    assert host.uptime_s == pytest.approx(time.time() - psutil.boot_time(), abs=5)
    assert host.load == pytest.approx(psutil.getloadavg(), abs=0.5)
    idle = (after.idle - counters.idle) / (sum(after[:8]) - sum(counters[:8])) * 100
    assert host.cpu_percent is not None
    assert 0 <= host.cpu_percent <= 100
    assert host.cpu_percent + (host.iowait_percent or 0) == pytest.approx(100 - idle, abs=35)
    usage = psutil.disk_usage("/")
    (root,) = (mount for mount in host.mounts if mount.path == "/")
    assert (root.total_bytes, root.free_bytes) == (
        pytest.approx(usage.total, rel=0.2),  # psutil leaves out what is reserved for root
        pytest.approx(usage.free, abs=512 * MIB),
    )
    assert {disk.name for disk in host.disks} <= set(psutil.disk_io_counters(perdisk=True))
    assert {network.name for network in host.networks if network.kind == "ethernet"} <= set(psutil.net_if_stats())


def test_the_first_look_has_no_rates_and_misses_nothing(tmp_path: Path) -> None:
    host = Server(tmp_path).look()
    rates = {metric.name for metric in metrics(Host) if metric.name.endswith("_per_s")}
    assert known([host]) & rates == set()
    assert known(host.disks) == known(host.networks) - {"speed_bytes_per_s", "up"} == set()
    assert (host.cpu_percent, host.cpu_cores_percent) == (None, (None, None))
    assert host.missing == ()


@pytest.mark.parametrize(
    ("code", "reason"),
    [(errno.EOPNOTSUPP, "unsupported"), (errno.ENOENT, "absent"), (errno.EACCES, "denied"), (errno.EIO, "lost")],
    ids=errno.errorcode.get,
)
def test_p11_without_pressure_there_is_one_note_and_nothing_else_changes(
    tmp_path: Path, code: int, reason: Reason
) -> None:
    def read(path: str) -> bytes:
        if "/pressure/" in path:
            raise OSError(code, os.strerror(code))
        return read_file(path)

    box, whole = Server(tmp_path / "a", read=read), Server(tmp_path / "b")
    for host, other in ((box.look(), whole.look()), (box.look(), whole.look())):
        (note,) = host.missing
        assert (note.metric, note.reason, note.unlock) == ("pressure", reason, "boot with psi=1")
        assert (host.cpu_pressure, host.memory_pressure, host.io_pressure) == (None, None, None)
        assert host.cpu_percent == other.cpu_percent
        assert host.disks == other.disks


def test_p11_pressure_is_the_growth_of_its_total(tmp_path: Path) -> None:
    box = Server(tmp_path)
    box.look()
    host = box.look(
        2.0, pressure_io=pressure(some=6_000_000, full=1_500_000, avg10=12.5), pressure_cpu=pressure(some=1)
    )
    assert host.io_pressure is not None
    assert host.cpu_pressure is not None
    assert (host.io_pressure.some_percent, host.io_pressure.full_percent) == (50, 25)
    assert host.io_pressure.some_avg10_percent == 12.5
    assert host.cpu_pressure.some_percent is None  # it went backwards
    # before Linux 5.13 there is no `full` of the CPU
    host = box.look(pressure_cpu="some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n")
    assert host.cpu_pressure is not None
    assert (host.cpu_pressure.some_percent, host.cpu_pressure.full_percent) == (0, None)


def test_p23_without_proc_and_sys_it_starts_and_says_what_is_missing(tmp_path: Path) -> None:
    box = Server(tmp_path, files={})
    host = box.look()
    # /dev/shm is this machine's, and others use it
    assert replace(host, shm_used_bytes=None) == replace(box.look(), shm_used_bytes=None)
    assert known([host]) <= {"shm_total_bytes", "shm_used_bytes"}
    names = [missing.metric for missing in host.missing]
    assert len(names) == len(set(names))
    assert {missing.reason for missing in host.missing} == {"absent"}
    assert {"cpu_percent", "memory_used_bytes", "pressure", "disk", "mount", "network", "cgroup"} <= set(names)


def test_p23_without_sys_everything_of_proc_is_there(tmp_path: Path) -> None:
    box = Server(tmp_path, files={name: text for name, text in server().items() if name.startswith("proc/")})
    box.look()
    host = box.look(net_dev=NET_DEV.replace("1000000", "1008000"), net_snmp=SNMP.replace(" 40 ", " 42 "))
    hidden = {*Speeds.fills, *CpuTemperature.fills, *Zones.fills, *Throttles.fills, *HugePages.fills, "node"}
    assert {missing.metric for missing in host.missing} == hidden
    assert [disk.name for disk in host.disks] == ["nvme0n1"]
    assert (host.receive_bytes_per_s, host.tcp_retransmits_per_s) == (8000, 2)


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO, errno.ESRCH, errno.EMFILE], ids=errno.errorcode.get)
def test_p09_an_error_of_any_file_costs_its_own_part_only(tmp_path: Path, code: int) -> None:
    asked: list[str] = []
    broken = ""

    def read(path: str) -> bytes:
        asked.append(path)
        if path == broken:
            raise OSError(code, os.strerror(code))
        return read_file(path)

    def look() -> Host:
        # /proc is never used up, while others on this machine use /dev/shm
        return HostReader(f"{tmp_path}/proc", f"{tmp_path}/sys", lambda: 0.0, read=read, shm="/proc").read()

    Server(tmp_path, {**server(), **infiniband(0, 0)})
    whole = look()
    assert whole.shm_used_bytes is not None
    assert len(set(asked)) > 40
    for broken in sorted(set(asked)):
        host = look()
        lost = {name.name for name in metrics(Host) if getattr(host, name.name) != getattr(whole, name.name)}
        assert len(lost) <= 7, broken
        assert len(host.missing) <= 7, broken


def test_a_file_that_makes_no_sense_costs_its_own_part_only(tmp_path: Path) -> None:
    box = Server(tmp_path)
    box.look()
    host = box.look(meminfo="not a table\n", diskstats="x y z\n", net_snmp="Tcp:\n", uptime="\n")
    assert host.memory_total_bytes is host.uptime_s is None
    assert {"memory_total_bytes", "uptime_s", "tcp_retransmits_per_s"} <= {missing.metric for missing in host.missing}
    assert host.disks == ()
    assert host.cpu_pressure is not None


def test_p09_what_nobody_foresaw_costs_its_own_part_and_is_told(tmp_path: Path) -> None:
    raises = True

    def read(path: str) -> bytes:
        if raises and path.endswith("/diskstats"):
            raise RuntimeError("generator raised StopIteration")
        return read_file(path)

    box = Server(tmp_path, read=read)
    host = box.look()
    assert (host.disks, host.cpus_total) == ((), 2)
    assert [(missing.metric, missing.reason) for missing in host.missing] == [("disk", "stale")]
    assert box.reader.broken == "disks: RuntimeError: generator raised StopIteration"
    raises = False
    assert ([disk.name for disk in box.look().disks], box.reader.broken) == (["nvme0n1"], None)


@pytest.mark.parametrize(
    ("filled", "problem"),
    [
        (["a"], "no probe fills b"),
        (["a", "b", "b"], "b is filled 2 times"),
        (["a", "b", "c"], "c is not declared in the model"),
    ],
)
def test_a_metric_is_filled_exactly_once(filled: list[str], problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        check_filled(["a", "b"], filled)

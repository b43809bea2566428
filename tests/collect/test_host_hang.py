"""A file of the host that never answers: it costs what is read from it, everything else goes on."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gputop.model import Host, metrics
from tests.collect.test_host_lustre import files as lustre_files
from tests.collect.test_host_lustre import target
from tests.collect.test_host_networks import hardware, infiniband
from tests.fakeproc import until
from tests.host_tree import Server, server
from tests.kernel_trees import write_tree

_CPU, _NET = "sys/devices/system/cpu", "sys/class/net/ens3"
# what never answers, the reasons that name it, and what is then unknown of a server that shows everything
HANGS: dict[str, set[str]] = {
    "proc/stat": {
        "cpus_total", "cpu_percent", "user_percent", "system_percent", "iowait_percent", "steal_percent",
    },
    "proc/meminfo": {
        "memory_total_bytes", "memory_used_bytes", "memory_available_bytes", "memory_cached_bytes", "swap_total_bytes",
        "swap_used_bytes", "memory_arc_bytes",
    },
    "proc/vmstat": {"swap_in_per_s", "swap_out_per_s", "refaults_per_s"},
    "proc/pressure/io": {"pressure"},
    "proc/diskstats": {"disk"},
    "proc/net/snmp": {"tcp_retransmits_per_s"},
    "proc/net/netstat": {"tcp_timeouts_per_s"},
    "proc/uptime": {"uptime_s"},
    "sys/fs/cgroup/job/memory.stat": {"cpus_allowed", "cgroup"},
    "sys/fs/cgroup/job/memory.current": {"cpus_allowed", "cgroup"},
    "sys/class/hwmon/hwmon0/temp1_input": {"cpu_celsius"},
    "sys/class/thermal/thermal_zone1/temp": {"zone_celsius"},
    f"{_CPU}/cpu1/thermal_throttle/core_throttle_count": {"cpu_throttles_per_s"},
    f"{_CPU}/cpu0/cpufreq/scaling_cur_freq": {
        "cpu_mhz", "cpu_low_mhz", "cpu_max_mhz", "cpu_cap_mhz", "cpu_governor", "cpu_driver", "cpu_preference",
        "cpu_turbo",
    },
    "sys/kernel/mm/transparent_hugepage/enabled": {"huge_total_bytes", "huge_free_bytes", "transparent_huge"},
    "sys/devices/system/node/node1/meminfo": {"node"},
    f"{_NET}/speed": {"network:ens3"},
    "sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data": {"network:mlx5_0:1"},
}  # fmt: skip


@pytest.fixture
def freed() -> Iterator[list[Path]]:
    """Pipes that stand for files that never answer; whoever waits for one is let go at the end."""
    pipes: list[Path] = []
    yield pipes
    for pipe in pipes:
        with suppress(OSError):
            os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))


def block(root: Path, name: str, pipes: list[Path]) -> Path:
    """Let a file of this tree never answer."""
    path = root / name
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    pipes.append(path)
    return path


def numbers(host: Host) -> dict[str, Any]:
    """Every metric that the host and its parts have a value for."""
    found: dict[str, Any] = {}
    parts = [("host", host), ("cgroup", host.cgroup)]
    parts += [(f"disk {disk.name}", disk) for disk in host.disks]
    parts += [(f"mount {mount.path}", mount) for mount in host.mounts]
    parts += [(f"network {network.name}", network) for network in host.networks]
    parts += [(f"node {node.number}", node) for node in host.nodes]
    for name, part in parts:
        if part is not None:
            found |= {f"{name}.{metric.name}": getattr(part, metric.name) for metric in metrics(type(part))}
    found |= {"cores": host.cpu_cores_percent, "load": host.load, "pressure": host.io_pressure}
    return {name: value for name, value in found.items() if value not in (None, ())}


def whole() -> dict[str, str]:
    return {**server(), **infiniband(0, 0), **hardware(0)}


@pytest.mark.parametrize("name", HANGS)
def test_p37_a_file_that_never_answers_costs_its_own_part_only(tmp_path: Path, freed: list[Path], name: str) -> None:
    box = Server(tmp_path, whole())
    before = [box.look(10.0) for _ in range(3)][-1]
    assert (before.missing, box.reader.hangs()) == ((), [])
    path = block(tmp_path, name, freed)
    box.look(60.0)  # everything is due, and this one is read from now on
    host = box.look(20.0)
    assert {missing.metric for missing in host.missing} == HANGS[name]
    assert {missing.reason for missing in host.missing} == {"stale"}
    if not name.startswith((_NET, "sys/class/infiniband")):  # those are named by what they are of
        assert {missing.unlock for missing in host.missing} == {f"{path} does not answer"}
    lost = numbers(before).keys() - numbers(host).keys()
    assert lost, "what hangs is unknown, not as it was"
    assert len(lost) <= 16
    kinds = (
        [disk.name for disk in host.disks],
        [net.name for net in host.networks],
        [node.cpus for node in host.nodes],
    )
    assert kinds == (["nvme0n1"], ["ens3", "mlx5_0:1"], ["0", "1"]), "they are still there"
    assert box.reader.hangs() == [(str(path), 20.0)]


@pytest.mark.parametrize("name", HANGS)
def test_p37_what_hangs_at_the_first_look_is_unknown_and_the_rest_is_there(
    tmp_path: Path, freed: list[Path], name: str
) -> None:
    clean = Server(tmp_path / "whole", whole())
    clean.look()
    box = Server(tmp_path, whole())
    path = block(tmp_path, name, freed)
    box.look()
    host, other = box.look(10.0), clean.look(10.0)
    assert numbers(host).items() <= numbers(other).items() | numbers(host).items()
    assert numbers(other).keys() - numbers(host).keys()
    assert [place for place, _ in box.reader.hangs()] == [str(path)]


def test_p37_a_reader_that_answers_again_is_current_at_once(tmp_path: Path, freed: list[Path]) -> None:
    others = set(threading.enumerate())
    box = Server(tmp_path)
    box.look()
    block(tmp_path, "proc/meminfo", freed)
    box.look()
    assert box.look(1.0).memory_total_bytes, "a second late is not a hang"
    for _ in range(3):
        host = box.look(5.0)
    assert host.memory_total_bytes is None
    for _ in range(20):
        box.look()
    until(lambda: sum(thread.name == "host" for thread in set(threading.enumerate()) - others) == 1)  # not asked again
    pipe = freed.pop()
    file = os.open(pipe, os.O_WRONLY)
    pipe.unlink()
    write_tree(tmp_path, {"proc/meminfo": server()["proc/meminfo"]})
    os.close(file)
    until(lambda: box.look().memory_total_bytes is not None)
    assert (box.look().missing, box.reader.hangs()) == ((), [])


def test_p37_all_of_sys_hangs_and_proc_goes_on(tmp_path: Path, freed: list[Path]) -> None:
    box = Server(tmp_path, whole())
    box.look()
    for name in [name for name in HANGS if name.startswith("sys/")]:
        block(tmp_path, name, freed)
    box.look(60.0)
    host = box.look(20.0)
    assert {missing.metric for missing in host.missing} == set().union(
        *(lost for name, lost in HANGS.items() if name.startswith("sys/"))
    )
    assert host.cpus_total
    assert host.memory_total_bytes
    assert host.disks[0].name == "nvme0n1"
    assert host.receive_bytes_per_s is None, "a port that counts may have carried anything"


def test_p37_the_queue_of_a_dead_disk_costs_its_kind_not_its_rates(tmp_path: Path, freed: list[Path]) -> None:
    box = Server(tmp_path)
    path = block(tmp_path, "sys/block/nvme0n1/queue/rotational", freed)
    box.look()
    (disk,) = box.look(3.0).disks
    assert (disk.rotational, disk.busy_percent) == (None, 0)
    assert box.reader.hangs() == [(str(path), 3.0)]


def test_p37_statistics_of_lustre_that_hang_leave_the_other_mounts(tmp_path: Path, freed: list[Path]) -> None:
    box = Server(tmp_path, lustre_files(target(0, 10, 10)))
    for _ in range(2):
        box.look(5.0)
    (name,) = target(0)
    block(tmp_path, name, freed)
    box.look(5.0)
    host = box.look(5.0)
    rates = {mount.path: mount.read_bytes_per_s for mount in host.mounts}
    assert rates == {"/": None, "/scratch": None}
    assert [missing.metric for missing in host.missing] == ["mount:/scratch"]
    assert {mount.path for mount in host.mounts if mount.total_bytes} == {"/"}

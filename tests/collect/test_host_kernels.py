"""Other kernels: what gVisor, RHEL 7 and an arm64 server write, in their own words."""

from __future__ import annotations

from pathlib import Path

from tests.host_tree import Server

GVISOR = {
    "proc/stat": "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\nintr 0\nctxt 0\nbtime 1732000000\nprocesses 0\n",
    "proc/loadavg": "0.00 0.00 0.00 0/0 0\n",
    "proc/meminfo": """\
MemTotal:        2097152 kB
MemFree:         2040000 kB
MemAvailable:    2050000 kB
Buffers:               0 kB
Cached:            10000 kB
SwapCache:             0 kB
Active:            20000 kB
Shmem:                 0 kB
""",
    "proc/net/dev": "  eth0: 1290 14 0 0 0 0 0 0 876 11 0 0 0 0 0 0\n",
    "proc/self/mountinfo": "1 0 0:1 / / rw - 9p 9p rw,trans=fd\n2 1 0:2 / /proc rw - proc none rw\n",
    "proc/self/cgroup": "",
    "proc/uptime": "12.34 0.00\n",
    "proc/cpuinfo": "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel\t\t: 85\nmodel name\t: unknown\n",
}
RHEL7 = {
    "proc/stat": "cpu  10 0 10 80 0 0 0 0\ncpu0 10 0 10 80 0 0 0 0\nintr 9\n",
    "proc/loadavg": "0.10 0.20 0.30 1/100 4242\n",
    "proc/meminfo": """\
MemTotal:       131923572 kB
MemFree:        100000000 kB
Buffers:             1000 kB
Cached:           2000000 kB
SwapCached:             0 kB
SwapTotal:        4194300 kB
SwapFree:         4194300 kB
Shmem:             500000 kB
SReclaimable:      100000 kB
""",
    "proc/vmstat": "nr_free_pages 5\npswpin 3\npswpout 4\npgpgin 7\n",
    "proc/diskstats": " 8 0 sda 100 0 800 10 200 0 1600 20 0 25 30\n 8 1 sda1 100 0 800 10 200 0 1600 20 0 25 30\n",
}
ARM64_CPUINFO = "processor\t: 0\nBogoMIPS\t: 2000.00\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd4f\n"


def test_p10_gvisor_has_no_disks_no_pressure_and_no_swap(tmp_path: Path) -> None:
    box = Server(tmp_path, GVISOR)
    box.look()
    host = box.look()
    assert (host.cpus_total, host.cpu_percent) == (1, None)  # its CPUs tell no time
    assert host.memory_used_bytes == (2097152 - 2050000) * 1024
    assert (host.swap_total_bytes, host.swap_used_bytes, host.receive_bytes_per_s) == (None, None, 0)
    assert [mount.path for mount in host.mounts] == ["/"]
    assert {"pressure", "disk", "swap_in_per_s", "swap_used_bytes"} <= {missing.metric for missing in host.missing}


def test_p10_rhel_7_knows_less_of_memory_and_disks(tmp_path: Path) -> None:
    box = Server(tmp_path, RHEL7)
    box.look()
    host = box.look(stat="cpu  20 0 10 90 0 0 0 0\ncpu0 20 0 10 90 0 0 0 0\nintr 9\n")
    assert host.cpu_percent == 50
    assert host.memory_available_bytes == (100000000 + 1000 + 2000000 + 100000 - 500000) * 1024
    assert (host.swap_in_per_s, host.refaults_per_s) == (0, None)
    assert ("refaults_per_s", "unsupported") in {(missing.metric, missing.reason) for missing in host.missing}
    assert [(disk.name, disk.busy_percent) for disk in host.disks] == [("sda", 0)]


def test_p10_arm64_does_not_name_its_cpu(tmp_path: Path) -> None:
    box = Server(tmp_path, {"proc/cpuinfo": ARM64_CPUINFO, "proc/sys/kernel/osrelease": "6.8.0-1013-nvidia-64k\n"})
    host = box.look()
    assert (host.kernel, host.cpu_model) == ("6.8.0-1013-nvidia-64k", None)
    assert ("cpu_model", "absent") in {(missing.metric, missing.reason) for missing in host.missing}

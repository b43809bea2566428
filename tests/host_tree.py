"""A training server as its kernel describes it: /proc and /sys text, and a clock that a test moves."""

from __future__ import annotations

from pathlib import Path

from gputop.collect.host.reader import HostReader
from gputop.collect.kernel_files import Read, read_file
from gputop.model import Host
from tests.kernel_trees import write_tree

STAT = """\
cpu  200 0 100 1000 50 0 0 10 0 0
cpu0 100 0 50 500 25 0 0 5 0 0
cpu1 100 0 50 500 25 0 0 5 0 0
intr 8189312 0 9 0 0 0 0 0 0 0
ctxt 11532310
btime 1732000000
"""
MEMINFO = """\
MemTotal:       1056423372 kB
MemFree:        812345678 kB
MemAvailable:   950000000 kB
Buffers:          204800 kB
Cached:         150000000 kB
SwapCached:            0 kB
Shmem:          10000000 kB
SReclaimable:    4000000 kB
SwapTotal:       8388604 kB
SwapFree:        8388604 kB
HugePages_Total:       0
"""
VMSTAT = """\
nr_free_pages 203086419
workingset_refault_anon 7
workingset_refault_file {refault}
pswpin {swapped_in}
pswpout 300
"""
PRESSURE = """\
some avg10={avg10} avg60=0.76 avg300=0.35 total={some}
full avg10=0.00 avg60=0.00 avg300=0.00 total={full}
"""
NET_DEV = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier
    lo: 9000    29    0    0    0     0          0         0     9000      29    0    0    0     0       0          0
  ens3: 1000000    725    1    2    0     0          0         0   500000    282    3    4    0     0       0          0
docker0: 777  7    0    0    0     0          0         0   777    7    0    0    0     0       0          0
"""
SNMP = """\
Ip: Forwarding DefaultTTL InReceives
Ip: 1 64 1725
Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens InSegs OutSegs RetransSegs InErrs OutRsts
Tcp: 1 200 120000 -1 17 2 1717 1267 40 0 12
"""
NETSTAT = """\
TcpExt: SyncookiesSent TCPLostRetransmit TCPTimeouts
TcpExt: 0 2 7
IpExt: InNoRoutes InOctets
IpExt: 0 99
"""
NUMASTAT = """\
numa_hit 1607463
numa_miss {misses}
numa_foreign 3
interleave_hit 1131
local_node 1607463
other_node {remote}
"""
MOUNTINFO = """\
22 27 0:21 / /proc rw,relatime shared:5 - proc proc rw
27 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw
35 24 0:30 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate
"""
CPUINFO = (
    "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC 9654   96-Core Processor\ncpu MHz\t\t: 2400.0\n"
)
DISKSTATS = """\
 259       0 nvme0n1 1000 0 80000 500 2000 0 160000 4000 0 900 4500 0 0 0 0
 259       1 nvme0n1p1 10 0 800 5 20 0 1600 40 0 9 45 0 0 0 0
 259       2 nvme0n1p2 990 0 79200 495 1980 0 158400 3960 0 891 4455 0 0 0 0
 253       0 dm-0 990 0 79200 495 1980 0 158400 3960 0 891 4455 0 0 0 0
   7       0 loop0 55 0 1200 3 0 0 0 0 0 20 3 0 0 0 0
"""


def pressure(some: int = 5_000_000, full: int = 1_000_000, avg10: float = 0.33) -> str:
    return PRESSURE.format(some=some, full=full, avg10=avg10)


def memory_stat(refaults: int) -> str:
    """What the memory of a group of version 2 is used for."""
    return (
        f"anon 8589934592\nfile 6442450944\nkernel 1000\nshmem 1073741824\n"
        f"workingset_refault_anon 3\nworkingset_refault_file {refaults}\n"
    )


def node(number: int, misses: int = 0, remote: int = 0) -> dict[str, str]:
    """One of two NUMA nodes."""
    folder = f"sys/devices/system/node/node{number}"
    return {
        f"{folder}/cpulist": f"{number}\n",
        f"{folder}/meminfo": f"Node {number} MemTotal:       528211686 kB\nNode {number} MemFree:        1024000 kB\n",
        f"{folder}/numastat": NUMASTAT.format(misses=misses, remote=remote),
    }


def throttled(*counts: int) -> dict[str, str]:
    """How often each core was too hot."""
    folder = "sys/devices/system/cpu"
    return {f"{folder}/cpu{core}/thermal_throttle/core_throttle_count": f"{n}\n" for core, n in enumerate(counts)}


_SETTLED = {  # what hardly changes
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "3000000\n",
    "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "3700000\n",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq": "3700000\n",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_driver": "intel_pstate\n",
    "sys/devices/system/cpu/cpu0/cpufreq/energy_performance_preference": "balance_performance\n",
    "sys/devices/system/cpu/intel_pstate/no_turbo": "0\n",
    "sys/devices/system/cpu/cpu1/cpufreq/scaling_max_freq": "2800000\n",
    "sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq": "2000000\n",
    "sys/devices/system/cpu/cpu1/cpufreq/cpuinfo_max_freq": "3700000\n",
    "sys/class/hwmon/hwmon0/name": "k10temp\n",
    "sys/class/hwmon/hwmon0/temp1_label": "Tctl\n",
    "sys/class/hwmon/hwmon0/temp1_input": "61500\n",
    "sys/class/thermal/thermal_zone0/type": "acpitz\n",
    "sys/class/thermal/thermal_zone0/temp": "27800\n",
    "sys/class/thermal/thermal_zone1/type": "nvme\n",
    "sys/class/thermal/thermal_zone1/temp": "70000\n",
    "sys/class/thermal/cooling_device0/type": "Processor\n",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "512\n",
    "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages": "500\n",
    "sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages": "1\n",
    "sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages": "0\n",
}


def server() -> dict[str, str]:
    """The files of a quiet server."""
    return {
        "proc/stat": STAT,
        "proc/loadavg": "1.50 2.25 3.00 3/1512 99887\n",
        "proc/meminfo": MEMINFO,
        "proc/vmstat": VMSTAT.format(refault=100, swapped_in=200),
        "proc/pressure/cpu": pressure(),
        "proc/pressure/memory": pressure(),
        "proc/pressure/io": pressure(),
        "proc/diskstats": DISKSTATS,
        "proc/net/dev": NET_DEV,
        "proc/net/snmp": SNMP,
        "proc/net/netstat": NETSTAT,
        "proc/self/mountinfo": MOUNTINFO,
        "proc/self/cgroup": "0::/job\n",
        "proc/uptime": "123456.78 999999.99\n",
        "proc/cpuinfo": CPUINFO,
        "proc/sys/kernel/osrelease": "6.8.0-45-generic\n",
        "sys/block/nvme0n1/queue/rotational": "0\n",
        "sys/class/net/ens3/speed": "100000\n",
        "sys/class/net/ens3/operstate": "up\n",
        "sys/class/net/ens3/type": "1\n",
        "sys/class/net/ens3/device/vendor": "0x15b3\n",
        "sys/fs/cgroup/job/cpu.max": "150000 100000\n",
        "sys/fs/cgroup/job/cpu.stat": "usage_usec 1\nnr_periods 100\nnr_throttled 10\nthrottled_usec 0\n",
        "sys/fs/cgroup/job/memory.max": "68719476736\n",
        "sys/fs/cgroup/job/memory.current": "17179869184\n",
        "sys/fs/cgroup/job/memory.events": "low 0\nhigh 0\nmax 5\noom 2\noom_kill 1\n",
        "sys/fs/cgroup/job/memory.stat": memory_stat(refaults=0),
        "sys/fs/cgroup/job/cpu.pressure": pressure(),
        "sys/fs/cgroup/job/memory.pressure": pressure(),
        "sys/fs/cgroup/job/io.pressure": pressure(),
        **_SETTLED,
        **throttled(5, 9),
        **node(0),
        **node(1),
    }


class Server:
    """The reader under test on a copy of a server that changes as time goes by."""

    def __init__(self, root: Path, files: dict[str, str] | None = None, read: Read = read_file) -> None:
        self.root = write_tree(root, server() if files is None else files)
        self.now_s = 1000.0
        self.reader = HostReader(f"{root}/proc", f"{root}/sys", lambda: self.now_s, read=read)

    def look(self, after_s: float = 1.0, **files: str) -> Host:
        """What is read after this time, with these files of /proc changed (`net_dev` is net/dev)."""
        self.now_s += after_s
        write_tree(self.root, {f"proc/{name.replace('_', '/')}": text for name, text in files.items()})
        return self.reader.read()

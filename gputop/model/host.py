"""The machine around the GPUs at one moment."""

from __future__ import annotations

from typing import Annotated

from gputop.frozen_dataclass import frozen_dataclass
from gputop.model.metric import Missing, Unit, metric

_P, _B, _R, _N, _S = Unit.PERCENT, Unit.BYTES, Unit.BYTES_PER_S, Unit.PER_S, Unit.SECONDS


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """Pressure stall of one resource: time in which tasks waited for it (PSI)."""

    some_percent: float | None = metric(
        _P, "time in which at least one task was stalled, since the last sample", top=100
    )
    full_percent: float | None = metric(_P, "time in which all tasks were stalled, since the last sample", top=100)
    some_avg10_percent: float | None = metric(_P, "10 s average of the kernel (avg10)", top=100)


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """One block device."""

    name: Annotated[str, "name of the block device: nvme0n1"]
    rotational: Annotated[bool | None, "rotational disk, not flash"] = None
    read_bytes_per_s: float | None = metric(_R, "read from the device", history=True)
    write_bytes_per_s: float | None = metric(_R, "written to the device", history=True)
    reads_per_s: float | None = metric(_N, "reads completed", history=True)
    writes_per_s: float | None = metric(_N, "writes completed")
    busy_percent: float | None = metric(
        _P, "time with at least one request in flight; on NVMe, 100 % does not mean saturated", top=100, history=True
    )
    await_s: float | None = metric(_S, "average time of a request, including its time in the queue", history=True)
    queued: float | None = metric(Unit.COUNT, "average number of requests in flight")


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One mounted file system with data."""

    path: Annotated[str, "mount point"]
    device: Annotated[str, "device, or server and path"]
    file_system: Annotated[str, "type: ext4, nfs4"]
    network: Annotated[bool, "network file system"] = False
    total_bytes: int | None = metric(_B, "size of the file system")
    free_bytes: int | None = metric(_B, "free space for unprivileged users")
    read_bytes_per_s: float | None = metric(_R, "read from the server (NFS, Lustre)", history=True)
    write_bytes_per_s: float | None = metric(_R, "written to the server (NFS, Lustre)", history=True)
    reads_per_s: float | None = metric(_N, "reads answered by the server (NFS, Lustre)", history=True)
    read_rtt_s: float | None = metric(_S, "average round trip of a read (NFS, Lustre)", history=True)
    read_queue_s: float | None = metric(
        _S, "average time a read is queued before transmission (NFS, RPC backlog)", history=True
    )
    retransmits_per_s: float | None = metric(_N, "retransmitted requests (NFS)", history=True)


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """One network interface, or one port of an InfiniBand or RoCE adapter."""

    name: Annotated[str, "name of the interface, or adapter and port"]
    kind: Annotated[str, "ethernet or infiniband"] = "ethernet"
    up: bool | None = metric(Unit.FLAG, "the link is up")
    speed_bytes_per_s: float | None = metric(_R, "link speed")
    receive_bytes_per_s: float | None = metric(_R, "received", history=True)
    send_bytes_per_s: float | None = metric(_R, "sent", history=True)
    drops_per_s: float | None = metric(_N, "packets dropped, both directions")
    errors_per_s: float | None = metric(_N, "packets with errors, both directions")
    send_wait_percent: float | None = metric(
        _P, "time a port had data but no credits to send it (InfiniBand, port_xmit_wait)", top=100
    )
    out_of_order_per_s: float | None = metric(_N, "packets received out of order (RDMA)")
    sequence_errors_per_s: float | None = metric(_N, "sequence errors reported by the peer: packets were lost (RDMA)")
    ack_timeouts_per_s: float | None = metric(_N, "acknowledgement timeouts (RDMA)")
    congestion_sent_per_s: float | None = metric(_N, "congestion notifications sent, which slow the sender down (RoCE)")
    congestion_handled_per_s: float | None = metric(
        _N, "congestion notifications handled: this port slowed down (RoCE)"
    )


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One NUMA node: a part of the memory, and its local CPUs."""

    number: Annotated[int, "node number"]
    cpus: Annotated[str, "local CPUs, as ranges; none if the node has only memory"] = ""
    total_bytes: int | None = metric(_B, "memory of the node")
    free_bytes: int | None = metric(_B, "free memory of the node, page cache excluded")
    misses_per_s: float | None = metric(_N, "pages allocated here because the preferred node was full (numa_miss)")
    remote_per_s: float | None = metric(_N, "pages allocated here by CPUs of other nodes (other_node)")


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Cgroup:
    """Limits of a control group, and how often they are reached.

    CPU metrics are those of the group or ancestor whose quota is exhausted most, all others those of the one with the
    smallest memory limit, or of the group itself if there is no limit.
    """

    path: Annotated[str, "path of the group, as in `cgroup` of a process"]
    cpus: Annotated[str | None, "CPUs of its cpuset, as ranges"] = None
    cpu_quota: float | None = metric(Unit.COUNT, "CPU quota in cores, smallest of all ancestors")
    throttled_percent: float | None = metric(_P, "periods in which the CPU quota was exhausted", top=100)
    throttled_cpus: float | None = metric(
        Unit.COUNT, "average number of CPUs throttled because the quota was exhausted", history=True
    )
    memory_limit_bytes: int | None = metric(_B, "memory limit, smallest of all ancestors")
    memory_used_bytes: int | None = metric(_B, "memory used, page cache included", history=True)
    anonymous_bytes: int | None = metric(_B, "anonymous memory: heaps and stacks of its processes", history=True)
    file_bytes: int | None = metric(_B, "page cache and shared memory")
    shared_bytes: int | None = metric(_B, "shared memory, including /dev/shm", history=True)
    refaults_per_s: float | None = metric(_N, "refaults: file pages read again soon after their eviction", history=True)
    slowed_per_s: float | None = metric(_N, "times it was throttled for exceeding memory.high")
    limit_hits_per_s: float | None = metric(
        _N, "times its memory use reached the limit (memory.events: max)", history=True
    )
    oom_count: int | None = metric(
        Unit.COUNT, "times nothing could be reclaimed at the limit (memory.events: oom)", counter=True
    )
    oom_kills: int | None = metric(
        Unit.COUNT, "processes killed by the OOM killer, at this limit or machine-wide", counter=True
    )
    cpu_pressure: Annotated[Pressure | None, "CPU pressure (PSI)"] = None
    memory_pressure: Annotated[Pressure | None, "memory pressure (PSI)"] = None
    io_pressure: Annotated[Pressure | None, "I/O pressure (PSI)"] = None
    missing: Annotated[tuple[Missing, ...], "unavailable metrics, and why"] = ()


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The machine: CPUs, memory, storage, networks."""

    cpus_total: int | None = metric(Unit.COUNT, "CPUs of the machine")
    cpus_allowed: float | None = metric(Unit.COUNT, "CPUs gputop may use: the smaller of affinity and cgroup quota")
    cpu_percent: float | None = metric(_P, "CPU time used, of all CPUs", top=100, history=True)
    cpu_cores_percent: Annotated[tuple[float | None, ...], "CPU time used per core, in percent"] = ()
    user_percent: float | None = metric(_P, "CPU time in user mode", top=100)
    system_percent: float | None = metric(_P, "CPU time in kernel mode", top=100)
    iowait_percent: float | None = metric(
        _P, "time a CPU was idle while a task waited for storage", top=100, history=True
    )
    steal_percent: float | None = metric(
        _P, "CPU time the hypervisor gave to other virtual machines", top=100, history=True
    )
    load: Annotated[tuple[float, float, float] | None, "load averages of 1, 5 and 15 minutes"] = None
    cpu_mhz: float | None = metric(Unit.MHZ, "CPU clock, average of the cores")
    cpu_max_mhz: float | None = metric(Unit.MHZ, "highest CPU clock")
    cpu_low_mhz: float | None = metric(Unit.MHZ, "CPU clock of the slowest core")
    cpu_cap_mhz: float | None = metric(Unit.MHZ, "highest CPU clock that the settings allow, lowest of the cores")
    cpu_governor: str | None = metric(Unit.WORD, "cpufreq governor")
    cpu_driver: str | None = metric(Unit.WORD, "cpufreq driver")
    cpu_preference: str | None = metric(Unit.WORD, "energy performance preference (EPP)")
    cpu_turbo: bool | None = metric(Unit.FLAG, "turbo is enabled")
    cpu_celsius: float | None = metric(Unit.CELSIUS, "hottest CPU package")
    zone_celsius: float | None = metric(Unit.CELSIUS, "hottest thermal zone, of CPUs and boards")
    cpu_throttles_per_s: float | None = metric(_N, "thermal throttle events of the cores", history=True)
    memory_total_bytes: int | None = metric(_B, "memory installed")
    memory_used_bytes: int | None = metric(_B, "memory in use, page cache and ZFS cache excluded", history=True)
    memory_available_bytes: int | None = metric(_B, "memory available without swapping (MemAvailable)", history=True)
    memory_cached_bytes: int | None = metric(_B, "page cache, and the reclaimable part of the ZFS ARC", history=True)
    memory_arc_bytes: int | None = metric(_B, "ZFS cache (ARC); it shrinks to its minimum under memory pressure")
    swap_total_bytes: int | None = metric(_B, "swap installed")
    swap_used_bytes: int | None = metric(_B, "swap in use")
    swap_in_per_s: float | None = metric(_N, "pages read back from swap", history=True)
    swap_out_per_s: float | None = metric(_N, "pages written to swap", history=True)
    refaults_per_s: float | None = metric(_N, "refaults: file pages read again soon after their eviction", history=True)
    huge_total_bytes: int | None = metric(_B, "memory reserved as huge pages")
    huge_free_bytes: int | None = metric(_B, "free huge pages")
    transparent_huge: str | None = metric(Unit.WORD, "transparent huge pages: always, madvise or never")
    shm_total_bytes: int | None = metric(_B, "size of /dev/shm")
    shm_used_bytes: int | None = metric(_B, "used in /dev/shm", history=True)
    cpu_pressure: Annotated[Pressure | None, "CPU pressure of all tasks (PSI)"] = None
    memory_pressure: Annotated[Pressure | None, "memory pressure of all tasks (PSI)"] = None
    io_pressure: Annotated[Pressure | None, "I/O pressure of all tasks (PSI)"] = None
    read_bytes_per_s: float | None = metric(_R, "read from all disks and network file systems", history=True)
    write_bytes_per_s: float | None = metric(_R, "written to all disks and network file systems", history=True)
    receive_bytes_per_s: float | None = metric(_R, "received on all networks", history=True)
    send_bytes_per_s: float | None = metric(_R, "sent on all networks", history=True)
    tcp_retransmits_per_s: float | None = metric(_N, "retransmitted TCP segments", history=True)
    tcp_timeouts_per_s: float | None = metric(_N, "TCP retransmission timeouts")
    disks: Annotated[tuple[Disk, ...], "block devices"] = ()
    mounts: Annotated[tuple[Mount, ...], "file systems with data"] = ()
    networks: Annotated[tuple[Network, ...], "network interfaces"] = ()
    nodes: Annotated[tuple[Node, ...], "NUMA nodes"] = ()
    cgroup: Annotated[Cgroup | None, "cgroup limits of gputop itself; in a container also those of the job"] = None
    process_count: int | None = metric(Unit.COUNT, "number of processes on the machine")
    own_pids: bool | None = metric(Unit.FLAG, "PIDs are those of a container and differ from those the driver reports")
    uptime_s: float | None = metric(_S, "time since boot")
    kernel: str | None = metric(Unit.WORD, "kernel release")
    cpu_model: str | None = metric(Unit.WORD, "CPU model")
    driver_version: str | None = metric(Unit.WORD, "version of the NVIDIA driver")
    cuda_version: str | None = metric(Unit.WORD, "highest CUDA version the driver supports")
    missing: Annotated[tuple[Missing, ...], "unavailable metrics, and why"] = ()

"""The machine around the GPUs at one moment."""

from __future__ import annotations

from typing import Annotated

from gputop.frozen_dataclass import frozen_dataclass
from gputop.model.metric import Missing, Unit, metric

_P, _B, _R, _N, _S = Unit.PERCENT, Unit.BYTES, Unit.BYTES_PER_S, Unit.PER_S, Unit.SECONDS


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """Pressure stall of one resource: time in which tasks waited for it (PSI)."""

    some_percent: float | None = metric(_P, "time in which at least one task waited, since the last look", top=100)
    full_percent: float | None = metric(_P, "time in which every task waited, since the last look", top=100)
    some_avg10_percent: float | None = metric(_P, "the kernel's 10 s average of it", top=100)


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """One block device."""

    name: Annotated[str, "name of the block device: nvme0n1"]
    rotational: Annotated[bool | None, "a disk that turns, not flash"] = None
    read_bytes_per_s: float | None = metric(_R, "read from the device", history=True)
    write_bytes_per_s: float | None = metric(_R, "written to the device", history=True)
    reads_per_s: float | None = metric(_N, "reads completed", history=True)
    writes_per_s: float | None = metric(_N, "writes completed")
    busy_percent: float | None = metric(
        _P, "time with a request in flight; not saturation on NVMe", top=100, history=True
    )
    await_s: float | None = metric(_S, "mean time of a request, queue included", history=True)
    queued: float | None = metric(Unit.COUNT, "requests in flight, mean")


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One mounted file system that holds data."""

    path: Annotated[str, "where it is mounted"]
    device: Annotated[str, "the device, or server and path"]
    file_system: Annotated[str, "its kind: ext4, nfs4"]
    network: Annotated[bool, "its data comes over a network"] = False
    total_bytes: int | None = metric(_B, "size of the file system")
    free_bytes: int | None = metric(_B, "free for ordinary users")
    read_bytes_per_s: float | None = metric(_R, "read from the server (NFS, Lustre)", history=True)
    write_bytes_per_s: float | None = metric(_R, "written to the server (NFS, Lustre)", history=True)
    reads_per_s: float | None = metric(_N, "reads that the server answered (NFS, Lustre)", history=True)
    read_rtt_s: float | None = metric(_S, "round trip of a read, mean (NFS, Lustre)", history=True)
    read_queue_s: float | None = metric(_S, "time a read waited before it was sent, mean (NFS)", history=True)
    retransmits_per_s: float | None = metric(_N, "requests sent again (NFS)", history=True)


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """One network interface, or one port of an InfiniBand or RoCE adapter."""

    name: Annotated[str, "name of the interface, or adapter and port"]
    kind: Annotated[str, "ethernet or infiniband"] = "ethernet"
    up: bool | None = metric(Unit.FLAG, "the link is up")
    speed_bytes_per_s: float | None = metric(_R, "speed of the link")
    receive_bytes_per_s: float | None = metric(_R, "received", history=True)
    send_bytes_per_s: float | None = metric(_R, "sent", history=True)
    drops_per_s: float | None = metric(_N, "packets dropped, both ways")
    errors_per_s: float | None = metric(_N, "packets with errors, both ways")
    send_wait_percent: float | None = metric(_P, "time a port had data and could not send (InfiniBand)", top=100)
    out_of_order_per_s: float | None = metric(_N, "packets that came out of order (RDMA)")
    sequence_errors_per_s: float | None = metric(_N, "times the other side said that packets were lost (RDMA)")
    ack_timeouts_per_s: float | None = metric(_N, "times no acknowledgement came in time (RDMA)")
    congestion_sent_per_s: float | None = metric(_N, "notices of congestion sent: others are told to slow down (RoCE)")
    congestion_handled_per_s: float | None = metric(_N, "notices of congestion obeyed: this port slowed down (RoCE)")


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One NUMA node: a part of the memory, and the CPUs that are near to it."""

    number: Annotated[int, "its number"]
    cpus: Annotated[str, "CPUs near to it, as a list of ranges; none where a node is memory only"] = ""
    total_bytes: int | None = metric(_B, "memory of the node")
    free_bytes: int | None = metric(_B, "of that, free; page cache is not")
    misses_per_s: float | None = metric(_N, "pages taken here because the node that was wanted was full")
    remote_per_s: float | None = metric(_N, "pages taken here by CPUs of other nodes")


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Cgroup:
    """What confines some processes: the limits over their control group, and how hard they are hit.

    CPU figures are of the group or ancestor whose quota runs out most, all others of the one with the smallest memory
    limit, or of the group itself where there is no limit.
    """

    path: Annotated[str, "path of the group, as `cgroup` of a process has it"]
    cpus: Annotated[str | None, "CPUs that its cpuset lets it run on, as a list of ranges"] = None
    cpu_quota: float | None = metric(Unit.COUNT, "cores the quota allows, smallest of all ancestors")
    throttled_percent: float | None = metric(_P, "periods in which the quota ran out", top=100)
    throttled_cpus: float | None = metric(
        Unit.COUNT, "CPUs kept waiting because the quota had run out, mean", history=True
    )
    memory_limit_bytes: int | None = metric(_B, "memory limit, smallest of all ancestors")
    memory_used_bytes: int | None = metric(_B, "memory used, page cache included", history=True)
    anonymous_bytes: int | None = metric(_B, "of that, memory of programs", history=True)
    file_bytes: int | None = metric(_B, "of that, page cache and shared memory")
    shared_bytes: int | None = metric(_B, "of that, shared memory: /dev/shm too", history=True)
    refaults_per_s: float | None = metric(_N, "file pages read again soon after they were dropped", history=True)
    slowed_per_s: float | None = metric(_N, "times it was slowed down for more memory than memory.high")
    limit_hits_per_s: float | None = metric(_N, "times it wanted more memory than the limit", history=True)
    oom_count: int | None = metric(Unit.COUNT, "times that nothing could be freed at the limit")
    oom_kills: int | None = metric(Unit.COUNT, "processes killed for want of memory, at this limit or of the machine")
    cpu_pressure: Annotated[Pressure | None, "waiting for a CPU"] = None
    memory_pressure: Annotated[Pressure | None, "waiting for memory"] = None
    io_pressure: Annotated[Pressure | None, "waiting for storage"] = None
    missing: Annotated[tuple[Missing, ...], "what is not known of it, and why"] = ()


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The machine: CPUs, memory, storage, networks."""

    cpus_total: int | None = metric(Unit.COUNT, "CPUs of the machine")
    cpus_allowed: float | None = metric(Unit.COUNT, "CPUs this monitor may use: affinity and cgroup quota")
    cpu_percent: float | None = metric(_P, "all CPUs busy, mean", top=100, history=True)
    cpu_cores_percent: Annotated[tuple[float | None, ...], "busy, by core, in percent"] = ()
    user_percent: float | None = metric(_P, "CPU time in programs", top=100)
    system_percent: float | None = metric(_P, "CPU time in the kernel", top=100)
    iowait_percent: float | None = metric(_P, "CPU idle while a task waits for storage", top=100, history=True)
    steal_percent: float | None = metric(_P, "CPU time taken by other virtual machines", top=100, history=True)
    load: Annotated[tuple[float, float, float] | None, "load averages of 1, 5 and 15 minutes"] = None
    cpu_mhz: float | None = metric(Unit.MHZ, "CPU clock, mean of the cores")
    cpu_max_mhz: float | None = metric(Unit.MHZ, "highest CPU clock")
    cpu_low_mhz: float | None = metric(Unit.MHZ, "CPU clock of the slowest core")
    cpu_cap_mhz: float | None = metric(Unit.MHZ, "CPU clock that the settings allow, lowest of the cores")
    cpu_governor: str | None = metric(Unit.WORD, "frequency governor")
    cpu_driver: str | None = metric(Unit.WORD, "frequency driver")
    cpu_preference: str | None = metric(Unit.WORD, "energy or performance, as the CPU is told to prefer")
    cpu_turbo: bool | None = metric(Unit.FLAG, "clocks above the nominal one are allowed")
    cpu_celsius: float | None = metric(Unit.CELSIUS, "hottest CPU package")
    zone_celsius: float | None = metric(Unit.CELSIUS, "hottest thermal zone, of CPUs and boards")
    cpu_throttles_per_s: float | None = metric(_N, "times a core slowed down because it was too hot", history=True)
    memory_total_bytes: int | None = metric(_B, "memory installed")
    memory_used_bytes: int | None = metric(_B, "memory in use, page cache and ZFS cache excluded", history=True)
    memory_available_bytes: int | None = metric(_B, "memory that can be had without swapping", history=True)
    memory_cached_bytes: int | None = metric(_B, "page cache, and what ZFS would give back of its own", history=True)
    memory_arc_bytes: int | None = metric(_B, "cache of ZFS (ARC); it shrinks to its minimum when memory is short")
    swap_total_bytes: int | None = metric(_B, "swap installed")
    swap_used_bytes: int | None = metric(_B, "swap in use")
    swap_in_per_s: float | None = metric(_N, "pages read back from swap", history=True)
    swap_out_per_s: float | None = metric(_N, "pages written to swap", history=True)
    refaults_per_s: float | None = metric(_N, "file pages read again soon after they were dropped", history=True)
    huge_total_bytes: int | None = metric(_B, "memory set aside as huge pages")
    huge_free_bytes: int | None = metric(_B, "of that, free")
    transparent_huge: str | None = metric(Unit.WORD, "transparent huge pages: always, madvise or never")
    shm_total_bytes: int | None = metric(_B, "size of /dev/shm")
    shm_used_bytes: int | None = metric(_B, "used in /dev/shm", history=True)
    cpu_pressure: Annotated[Pressure | None, "waiting for a CPU, of all tasks"] = None
    memory_pressure: Annotated[Pressure | None, "waiting for memory, of all tasks"] = None
    io_pressure: Annotated[Pressure | None, "waiting for storage, of all tasks"] = None
    read_bytes_per_s: float | None = metric(_R, "read from all disks and network file systems", history=True)
    write_bytes_per_s: float | None = metric(_R, "written to all disks and network file systems", history=True)
    receive_bytes_per_s: float | None = metric(_R, "received on all networks", history=True)
    send_bytes_per_s: float | None = metric(_R, "sent on all networks", history=True)
    tcp_retransmits_per_s: float | None = metric(_N, "TCP segments sent again", history=True)
    tcp_timeouts_per_s: float | None = metric(_N, "times TCP waited in vain for an acknowledgement")
    disks: Annotated[tuple[Disk, ...], "block devices"] = ()
    mounts: Annotated[tuple[Mount, ...], "file systems that hold data"] = ()
    networks: Annotated[tuple[Network, ...], "network interfaces"] = ()
    nodes: Annotated[tuple[Node, ...], "NUMA nodes"] = ()
    cgroup: Annotated[Cgroup | None, "what confines this monitor; in a container also the job"] = None
    process_count: int | None = metric(Unit.COUNT, "processes on the machine")
    own_pids: bool | None = metric(Unit.FLAG, "PIDs are those of a container, not those that the driver reports")
    uptime_s: float | None = metric(_S, "time since boot")
    kernel: str | None = metric(Unit.WORD, "kernel release")
    cpu_model: str | None = metric(Unit.WORD, "CPU model")
    driver_version: str | None = metric(Unit.WORD, "NVIDIA driver")
    cuda_version: str | None = metric(Unit.WORD, "highest CUDA version of the driver")
    missing: Annotated[tuple[Missing, ...], "what is not known of it, and why"] = ()

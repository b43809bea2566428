"""The host of a simulated server at one moment, as the sum of what its processes do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any

from gputop.demo.generator import around, noises
from gputop.demo.server import GIB, DemoServer, DemoStorage
from gputop.model import Cgroup, Disk, Host, Mount, Network, Node, Pressure, Process, Role

_SYSTEM_SHARE = 0.12  # of the CPU time
_MOST_WAIT = 0.95  # of the time of a thread that is runnable
_INFINIBAND = 400e9 / 8
_summed = attrgetter("cpu_percent", "blocked_percent", "write_bytes_per_s", "pss_bytes")
_LOG_BYTES_PER_S = 12e6  # what daemons write to the first local disk
_STATIC: dict[str, Any] = {
    "steal_percent": 0.0,
    "cpu_mhz": 3500.0,
    "cpu_max_mhz": 3800.0,
    "cpu_low_mhz": 3400.0,
    "cpu_cap_mhz": 3800.0,
    "cpu_governor": "performance",
    "cpu_driver": "intel_pstate",
    "cpu_preference": "performance",
    "cpu_turbo": True,
    "cpu_celsius": 61.0,
    "zone_celsius": 61.0,
    "cpu_throttles_per_s": 0.0,
    "huge_total_bytes": 0,
    "huge_free_bytes": 0,
    "transparent_huge": "madvise",
    "swap_total_bytes": 0,
    "swap_used_bytes": 0,
    "swap_in_per_s": 0.0,
    "swap_out_per_s": 0.0,
    "refaults_per_s": 0.0,
    "tcp_retransmits_per_s": 0.0,
    "tcp_timeouts_per_s": 0.0,
    "kernel": "6.8.0-51-generic",
    "cpu_model": "Intel(R) Xeon(R) Platinum 8480CL",
    "driver_version": "575.57.08",
    "cuda_version": "12.9",
}


def host(server: DemoServer, t: float, processes: tuple[Process, ...]) -> Host:
    """The machine, from its processes before anything of them is hidden."""
    cpu, waits, written, held = map(_sum, zip(*map(_summed, processes), strict=True)) if processes else (0.0,) * 4
    asked = {store.path: _asked(server, store, processes) for store in server.stores}
    busy = min(99.0, cpu / server.cpus)
    blocked = waits / 100
    iowait = min(100 - busy, 100 * blocked / server.cpus)
    mounts = tuple(_mount(store, t, *asked[store.path]) for store in server.stores)
    from_network = _sum(mount.read_bytes_per_s for mount in mounts)
    between = around(_between(server, t, "ethernet"), 0.02, 803, t)
    receive = 1.01 * from_network + between + around(4e6, 0.3, 801, t)
    send = between + around(9e6, 0.3, 802, t)
    disks = _disks(server, t, asked, written)
    return Host(
        cpus_total=server.cpus,
        cpus_allowed=float(server.cpus),
        cpu_percent=busy,
        cpu_cores_percent=_cores(server.cpus, busy, t),
        user_percent=busy * (1 - _SYSTEM_SHARE),
        system_percent=busy * _SYSTEM_SHARE,
        iowait_percent=iowait,
        load=_load(_sum(map(_runnable, processes)) + blocked, t),
        cpu_pressure=_pressure(server, t, "cpu_pressure", 0.0),
        io_pressure=_pressure(server, t, "io_pressure", 0.6),
        read_bytes_per_s=from_network + _sum(disk.read_bytes_per_s for disk in disks),
        write_bytes_per_s=_sum(disk.write_bytes_per_s for disk in disks),
        receive_bytes_per_s=receive,
        send_bytes_per_s=send,
        disks=disks,
        mounts=mounts,
        networks=_networks(server, t, receive, send),
        process_count=len(processes),
        uptime_s=server.uptime_s + t,
        **_STATIC
        | _memory(server, t, held, sum(process.role is Role.LOADER for process in processes))
        | {name: value for from_s, name, value in server.settings if t >= from_s},
    )


def _sum(values: Iterable[float | None]) -> float:
    """Values added up; a process without one adds nothing."""
    return sum([value or 0.0 for value in values])


def _cores(cpus: int, mean: float, t: float) -> tuple[float, ...]:
    """The cores around their mean, never below 0 or above 100."""
    wander = noises(range(600, 600 + cpus), t / 2)
    middle = sum(wander) / cpus
    apart = [value - middle for value in wander]
    reach = 0.7 * min(mean, 100 - mean) / max(1.0, *map(abs, apart))
    return tuple([mean + reach * each for each in apart])


def _memory(server: DemoServer, t: float, held: float, loaders: int) -> dict[str, Any]:
    """What the processes hold, and in the page cache what they have read."""
    used = int(server.memory_base_bytes + held)
    cached = int(min(server.cached_bytes + _read_so_far(server, t), 0.9 * (server.memory_bytes - used)))
    return {
        "memory_total_bytes": server.memory_bytes,
        "memory_used_bytes": used,
        "memory_available_bytes": server.memory_bytes - used,
        "memory_cached_bytes": cached,
        "memory_arc_bytes": 0,
        "nodes": _nodes(server, used + cached),
        "memory_pressure": Pressure(some_percent=0.0, full_percent=0.0, some_avg10_percent=0.0),
        "shm_total_bytes": server.memory_bytes // 2,
        "shm_used_bytes": int(loaders * 0.35 * GIB),
        "cgroup": Cgroup(path="/", oom_kills=0, memory_used_bytes=used + cached),
    }


def _nodes(server: DemoServer, taken: int) -> tuple[Node, ...]:
    """A node for each socket, half of everything in each."""
    half = server.cpus // 2
    return tuple(
        Node(
            number=number,
            cpus=f"{number * half}-{(number + 1) * half - 1}",
            total_bytes=server.memory_bytes // 2,
            free_bytes=(server.memory_bytes - taken) // 2,
            misses_per_s=0.0,
            remote_per_s=0.0,
        )
        for number in (0, 1)
    )


def _runnable(process: Process) -> float:
    """How many of its threads run or wait for a CPU, on average."""
    return (process.cpu_percent or 0.0) / 100 / (1 - min(_MOST_WAIT, (process.run_wait_percent or 0.0) / 100))


def _load(runnable: float, t: float) -> tuple[float, float, float]:
    """Load averages: what runs or is blocked, the longer ones calmer."""
    return (
        around(runnable, 0.08, 811, t / 10),
        around(runnable, 0.05, 812, t / 50),
        around(runnable, 0.03, 813, t / 150),
    )


def _pressure(server: DemoServer, t: float, name: str, full_share: float) -> Pressure:
    """Pressure of a resource: that of the job it troubles most."""
    wanted = max((getattr(job.phase(t)[1], name) for job in server.jobs if job.runs(t)), default=0.0)
    now, lately = min(100.0, around(wanted, 0.15, 820, t)), min(100.0, around(wanted, 0.03, 821, t / 10))
    return Pressure(some_percent=now, full_percent=full_share * now, some_avg10_percent=lately)


def _read_so_far(server: DemoServer, t: float) -> float:
    """Bytes read from storage since time 0: they stay in the page cache."""
    total = 0.0
    for job in server.jobs:
        for start, end, work in job.phases(t):
            seconds = max(0.0, end - max(start, 0.0))
            total += seconds * len(job.ranks) * (work.main_read + job.loaders * work.loader_read)
    return total


def _asked(server: DemoServer, store: DemoStorage, processes: tuple[Process, ...]) -> tuple[float, float]:
    """Bytes and calls a second that jobs ask of a store."""
    keys = {job.key for job in server.jobs if job.data == store.path}
    asking = [process for process in processes if process.job in keys] if keys else []
    calls = sum((process.read_bytes_per_s or 0.0) / (process.mean_read_bytes or 1.0) for process in asking)
    return _sum(process.read_bytes_per_s for process in asking), calls


def _mount(store: DemoStorage, t: float, read: float, calls: float) -> Mount:
    used = max(read / store.bytes_per_s, calls / store.calls_per_s)
    network: dict[str, Any] = {}
    if store.network:
        network = {
            "read_bytes_per_s": read,
            "write_bytes_per_s": 0.0,
            "reads_per_s": calls,
            "read_rtt_s": around(store.latency_s * (1 + 8 * used**4), 0.1, 830, t),
            "read_queue_s": around(store.latency_s * 14 * used**6, 0.2, 831, t),
            "retransmits_per_s": 0.0,
        }
    return Mount(
        path=store.path,
        device=store.device,
        file_system=store.file_system,
        network=store.network,
        total_bytes=store.total_bytes,
        free_bytes=store.free_bytes,
        **network,
    )


def _disks(server: DemoServer, t: float, asked: Mapping[str, tuple[float, float]], written: float) -> tuple[Disk, ...]:
    local = [store for store in server.stores if not store.network]
    found = []
    for number, store in enumerate(local):
        read, calls = asked[store.path]
        write = around(_LOG_BYTES_PER_S, 0.2, 840, t) + written if number == 0 else around(0.2e6, 0.5, 841, t)
        used = max((read + write) / store.bytes_per_s, calls / store.calls_per_s)
        found.append(
            Disk(
                name=store.device,
                rotational=False,
                read_bytes_per_s=read,
                write_bytes_per_s=write,
                reads_per_s=calls,
                writes_per_s=write / 128e3,
                busy_percent=min(99.6, 100 * used),
                await_s=store.latency_s * (1 + 6 * used**4),
                queued=calls * store.latency_s * (1 + 6 * used**4),
            )
        )
    return tuple(found)


def _between(server: DemoServer, t: float, network: str) -> float:
    """What jobs send to their ranks on other machines, and get from them."""
    rates: list[float] = [getattr(job.phase(t)[1], network) for job in server.jobs if job.runs(t)]
    return sum(rates)


def _networks(server: DemoServer, t: float, receive: float, send: float) -> tuple[Network, ...]:
    between = around(_between(server, t, "infiniband"), 0.02, 804, t)
    quiet: dict[str, Any] = {"drops_per_s": 0.0, "errors_per_s": 0.0}
    ethernet = Network(
        name="eth0",
        up=True,
        speed_bytes_per_s=server.ethernet_bytes_per_s,
        receive_bytes_per_s=receive,
        send_bytes_per_s=send,
        **quiet,
    )
    ports = (
        Network(
            name=f"mlx5_{number}/1",
            kind="infiniband",
            up=True,
            speed_bytes_per_s=_INFINIBAND,
            receive_bytes_per_s=between,
            send_bytes_per_s=between,
            send_wait_percent=0.0,
            out_of_order_per_s=0.0,
            sequence_errors_per_s=0.0,
            ack_timeouts_per_s=0.0,
            **quiet,
        )
        for number in range(min(8, len(server.cards)) if server.infiniband else 0)
    )
    return (ethernet, *ports)

"""Servers to draw: small frames with a minute of past, the same at every run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gputop.history import History
from gputop.model import Cgroup, Disk, Frame, Gpu, Host, Mount, Network, Note, Pressure

GIB = 1024**3
NOON = 1_800_014_400.0  # a moment whose clock reads the same wherever TZ is UTC


def gpu(number: int, **change: Any) -> Gpu:
    """An H100 at work: by default as where it waits for its DataLoader, a nine-second saw-tooth."""
    base = Gpu(
        uuid=f"GPU-{number:04}", index=str(number), name="NVIDIA H100 80GB HBM3", busy_percent=58.0,
        vram_total_bytes=80 * GIB, vram_used_bytes=int((66.1 + number % 4 * 0.4) * GIB),
        temperature_celsius=64.0 + number % 4,
        power_watts=402.0 + number, power_limit_watts=700.0, sm_clock_mhz=1980.0, throttle_reasons=frozenset(),
        throttled_heat_percent=0.0, throttled_heat_hard_percent=0.0, throttled_power_percent=0.0,
        pcie_rx_bytes_per_s=1.9 * GIB, pcie_tx_bytes_per_s=0.3 * GIB, nvlink_rx_bytes_per_s=4.0 * GIB,
        nvlinks_active=18, tensor_percent=21.0, sm_active_percent=44.0, ecc_uncorrected=0, performance_state=0,
    )  # fmt: skip
    return replace(base, **change)


def capped(number: int, **change: Any) -> Gpu:
    """An H100 at its power limit."""
    change = {
        "busy_percent": 97.0, "power_watts": 685.0, "sm_clock_mhz": 1755.0, "temperature_celsius": 72.0,
        "throttled_power_percent": 93.0, "throttle_reasons": frozenset({"power cap"}),
        "pcie_rx_bytes_per_s": 8.2 * GIB, "tensor_percent": 57.0, "sm_active_percent": 91.0, **change,
    }  # fmt: skip
    return gpu(number, **change)


def hot(number: int, **change: Any) -> Gpu:
    """An H100 slowed by heat, in hardware."""
    change = {
        "temperature_celsius": 88.0, "sm_clock_mhz": 1410.0, "power_watts": 612.0, "throttled_power_percent": 0.0,
        "throttled_heat_hard_percent": 44.0, "throttle_reasons": frozenset({"hw thermal"}), **change,
    }  # fmt: skip
    return capped(number, **change)


def idle(number: int, **change: Any) -> Gpu:
    """An H100 on which nothing runs, though a notebook holds 2 GiB."""
    change = {
        "busy_percent": 0.0, "vram_used_bytes": int(2.1 * GIB), "temperature_celsius": 34.0, "power_watts": 71.0,
        "sm_clock_mhz": 345.0, "pcie_rx_bytes_per_s": 0.0, "pcie_tx_bytes_per_s": 0.0, "nvlink_rx_bytes_per_s": 0.0,
        "tensor_percent": 0.0, "sm_active_percent": 0.0, **change,
    }  # fmt: skip
    return gpu(number, **change)


def mixed(count: int) -> tuple[Gpu, ...]:
    """Half waiting, then at the power cap, then one hot and one idle card in every eight."""
    kinds = (gpu, gpu, gpu, gpu, capped, capped, hot, idle)
    return tuple((kinds[n % 8] if count > 1 else gpu)(n) for n in range(count))


HOST = Host(
    cpus_total=128, cpus_allowed=128.0, cpu_percent=47.0, iowait_percent=31.0, user_percent=41.0, system_percent=6.0,
    cpu_cores_percent=tuple(float((n * 37) % 101) for n in range(128)), load=(61.0, 58.2, 55.9),
    memory_total_bytes=2015 * GIB, memory_used_bytes=412 * GIB, memory_available_bytes=1500 * GIB,
    memory_cached_bytes=1100 * GIB, swap_total_bytes=0, swap_used_bytes=0, shm_total_bytes=1007 * GIB,
    shm_used_bytes=14 * GIB, cpu_pressure=Pressure(some_percent=2.0, full_percent=0.0),
    memory_pressure=Pressure(some_percent=0.0, full_percent=0.0),
    io_pressure=Pressure(some_percent=31.0, full_percent=4.0), read_bytes_per_s=1.9 * GIB, write_bytes_per_s=12e6,
    receive_bytes_per_s=8.1 * GIB, send_bytes_per_s=0.2 * GIB,
    disks=(
        Disk(name="nvme0n1", read_bytes_per_s=22e6, write_bytes_per_s=12e6, busy_percent=3.0, await_s=0.0002),
        Disk(name="nvme1n1", read_bytes_per_s=0.0, write_bytes_per_s=0.0, busy_percent=0.0),
    ),
    mounts=(
        Mount(path="/data", device="filer:/data", file_system="nfs4", network=True, total_bytes=80 * 1024 * GIB,
              free_bytes=9 * 1024 * GIB, read_bytes_per_s=1.9 * GIB, write_bytes_per_s=0.0, read_rtt_s=0.0121),
        Mount(path="/scratch", device="/dev/nvme1n1", file_system="xfs", total_bytes=7 * 1024 * GIB,
              free_bytes=int(5.4 * 1024 * GIB)),
    ),
    networks=(
        Network(name="eth0", speed_bytes_per_s=12.5e9, receive_bytes_per_s=8.1 * GIB, send_bytes_per_s=0.2 * GIB),
        Network(name="mlx5_0", kind="infiniband", speed_bytes_per_s=50e9, receive_bytes_per_s=4e6, send_bytes_per_s=4e6)
    ),
    cgroup=Cgroup(path="/user.slice"), driver_version="575.57", cuda_version="12.9",
)  # fmt: skip


def frame(gpus: tuple[Gpu, ...] = (), *, second: int = 60, notes: tuple[Note, ...] = (), host: Host = HOST) -> Frame:
    """One moment of dgx-07."""
    return Frame(
        wall_s=NOON + second, mono_s=1000.0 + second, hostname="dgx-07", host=host, gpus=gpus, notes=notes
    )  # fmt: skip


def moving(card: Gpu, second: int) -> Gpu:
    """A card's value at one second: waiting cards saw-tooth, the rest stay."""
    if card.busy_percent != 58.0:
        return card
    wave = (92.0, 88.0, 71.0, 64.0, 60.0, 55.0, 42.0, 25.0, 25.0)[(second + int(card.index) // 2) % 9]
    return replace(card, busy_percent=wave)


def server(count: int, **change: Any) -> tuple[Frame, History]:
    """A server with `count` GPUs and a minute of past; `change` goes to the last frame."""
    gpus, past = mixed(count), History()
    for second in range(61):
        past.add(frame(tuple(moving(card, second) for card in gpus), second=second))
    return replace(frame(gpus), **change), past

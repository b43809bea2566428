"""Frames written by hand: a small server whose every number a test can name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gputop.model import Frame, Gpu, GpuShare, Host, Job, Process, Role

GIB = 1024**3
MIB = 1024**2


def gpu(index: int, **fields: Any) -> Gpu:
    """A busy H100 with half of its memory in use."""
    defaults: dict[str, Any] = {
        "busy_percent": 60.0,
        "vram_total_bytes": 80 * GIB,
        "vram_used_bytes": 66 * GIB,
        "temperature_celsius": 64.0,
        "power_watts": 402.0,
        "power_limit_watts": 700.0,
        "sm_clock_mhz": 1980.0,
        "sm_clock_max_mhz": 1980.0,
        "pcie_rx_bytes_per_s": 1.9 * GIB,
    }
    return Gpu(uuid=f"GPU-{index}", index=str(index), name="NVIDIA H100 80GB HBM3", **{**defaults, **fields})


def process(pid: int, parent: int = 1, **fields: Any) -> Process:
    """A process that is known in full and does nothing."""
    defaults: dict[str, Any] = {
        "user": "alice",
        "uid": 1000,
        "name": "python",
        "command": ("/usr/bin/python3", "train.py", "--config", "llama.yaml"),
        "state": "S",
        "cpu_percent": 0.0,
        "threads": 1,
        "run_wait_percent": 0.0,
        "rss_bytes": GIB,
        "read_bytes_per_s": 0.0,
        "write_bytes_per_s": 0.0,
        "io_wait_percent": 0.0,
        "age_s": 3600.0,
    }
    return Process(pid=pid, started_ticks=pid * 10, parent_pid=parent, **{**defaults, **fields})


def training(
    key: str, first_pid: int, ranks: int, loaders: int, first_gpu: int = 0, user: str = "alice"
) -> tuple[Job, list[Process]]:
    """A job under torchrun: a launcher, ranks with a GPU each, their loaders. Rank r is pid first + 100 (r + 1)."""
    launcher = process(first_pid, user=user, job=key, role=Role.LAUNCHER, command=("/opt/bin/torchrun", "train.py"))
    members = [launcher]
    for rank in range(ranks):
        pid = first_pid + 100 * (rank + 1)
        share = GpuShare(uuid=f"GPU-{first_gpu + rank}", busy_percent=50.0 + rank, vram_bytes=66 * GIB)
        members.append(
            process(
                pid, first_pid, user=user, job=key, role=Role.TRAINER, rank=rank, world_size=ranks, gpus=(share,),
                cpu_percent=100.0, threads=63, rss_bytes=14 * GIB, run_wait_percent=2.0,
            )
        )  # fmt: skip
        members.extend(
            process(
                pid + 1 + number, pid, user=user, job=key, role=Role.LOADER, name="pt_data_worker", cpu_percent=50.0,
                threads=3, rss_bytes=2 * GIB, read_bytes_per_s=58.0 * MIB, io_wait_percent=40.0,
            )
            for number in range(loaders)
        )  # fmt: skip
    identities = tuple(member.identity for member in members)
    trainers = tuple(member.identity for member in members if member.role is Role.TRAINER)
    return Job(key=key, name=key, user=user, launcher="torchrun", ranks=trainers, members=identities), members


def frame(*jobs: tuple[Job, list[Process]], gpus: int = 4, loose: tuple[Process, ...] = (), **fields: Any) -> Frame:
    """A frame of these jobs and loose processes."""
    return replace(
        Frame(
            wall_s=1_800_000_000.0,
            mono_s=1000.0,
            hostname="dgx-07",
            host=Host(
                cpus_total=128, cpu_percent=47.0, memory_total_bytes=2015 * GIB, memory_used_bytes=412 * GIB
            ),
            gpus=tuple(gpu(index) for index in range(gpus)),
            processes=tuple(member for _, members in jobs for member in members) + loose,
            jobs=tuple(job for job, _ in jobs),
        ),
        **fields,
    )  # fmt: skip

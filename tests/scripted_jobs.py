"""Jobs written by hand, on the servers of tests/servers.py: every number is one that a test can name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gputop.model import Frame, GpuShare, Job, Process, Role
from tests import servers

GIB = 1024**3
MIB = 1024**2


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


def uuid(index: int) -> str:
    """The uuid of a server's GPU."""
    return servers.gpu(index).uuid


def training(
    key: str, first_pid: int, ranks: int, loaders: int, first_gpu: int = 0, user: str = "alice"
) -> tuple[Job, list[Process]]:
    """A job under torchrun: a launcher, ranks with a GPU each, their loaders. Rank r is pid first + 100 (r + 1)."""
    launcher = process(first_pid, user=user, job=key, role=Role.LAUNCHER, command=("/opt/bin/torchrun", "train.py"))
    members = [launcher]
    for rank in range(ranks):
        pid = first_pid + 100 * (rank + 1)
        share = GpuShare(uuid=uuid(first_gpu + rank), busy_percent=50.0 + rank, vram_bytes=66 * GIB)
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
    return _job(key, user, "torchrun", members), members


def notebook(key: str, pid: int, gpu: int, user: str = "carol") -> tuple[Job, list[Process]]:
    """A notebook that holds 2.1 GiB of a GPU and does nothing with it."""
    kernel = process(
        pid, user=user, job=key, role=Role.TRAINER, command=("python", "-m", "ipykernel_launcher", "-f", "k.json"),
        threads=21, gpus=(GpuShare(uuid=uuid(gpu), busy_percent=0.0, vram_bytes=int(2.1 * GIB)),), age_s=188_000.0,
    )  # fmt: skip
    return _job(key, user, "notebook", [kernel]), [kernel]


def _job(key: str, user: str, launcher: str, members: list[Process]) -> Job:
    ranks = tuple(member.identity for member in members if member.role is Role.TRAINER)
    everybody = tuple(member.identity for member in members)
    return Job(key=key, name=key, user=user, launcher=launcher, ranks=ranks, members=everybody)


def frame(*jobs: tuple[Job, list[Process]], gpus: int = 4, loose: tuple[Process, ...] = (), **fields: Any) -> Frame:
    """A moment of a server with these jobs and loose processes."""
    return replace(
        servers.frame(servers.mixed(gpus)),
        processes=tuple(member for _, members in jobs for member in members) + loose,
        jobs=tuple(job for job, _ in jobs),
        **fields,
    )


def minute(now: Frame) -> list[Frame]:
    """The minute before a frame, in which its GPUs did what they do."""
    return [
        replace(
            now,
            wall_s=now.wall_s - ago,
            mono_s=now.mono_s - ago,
            gpus=tuple(servers.moving(gpu, 60 - ago) for gpu in now.gpus),
        )
        for ago in range(60, 0, -1)
    ]


# what runs on a full server
LLAMA = training("llama-7b", 41000, ranks=4, loaders=8)
SD3 = training("sd3-finetune", 52000, ranks=3, loaders=0, first_gpu=4, user="bob")
JUPYTER = notebook("jupyter", 60877, gpu=7)

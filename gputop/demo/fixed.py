"""What never changes about the processes of a simulated job: names, limits, libraries, their place."""

from __future__ import annotations

from typing import Any

from gputop.demo.server import Job, Server
from gputop.model import Role


def of_launcher(server: Server, job: Job) -> dict[str, Any]:
    """Of the process that started the ranks."""
    return _of_job(server, job) | {
        "parent_pid": 1,
        "name": job.launcher,
        "command": job.launcher_command,
        "role": Role.LAUNCHER,
        "threads": job.launcher_threads,
        "busy_threads": 0,
        "state": "S",
        "waiting_in": "do_wait",
        "write_bytes_per_s": 0.0,
        "write_chars_per_s": 0.0,
        "write_calls_per_s": 0.0,
        "voluntary_switches_per_s": 11.0,
        "involuntary_switches_per_s": 0.0,
        "thread_names": ((job.launcher, 1), ("pt_elastic", job.launcher_threads - 1)),
    }


def of_rank(server: Server, job: Job, rank: int, launcher_pid: int) -> dict[str, Any]:
    """Of a rank."""
    return (
        _of_job(server, job)
        | _place(job, rank)
        | {
            "parent_pid": launcher_pid if job.launcher_command else 1,
            "name": "python",
            "command": job.command,
            "role": Role.TRAINER,
            "threads": job.threads,
            "thread_names": _thread_names(job),
            "libraries": job.libraries,
            "torch_version": job.torch[0],
            "torch_cuda": job.torch[1],
        }
    )


def of_loader(server: Server, job: Job, rank: int) -> dict[str, Any]:
    """Of a loader of a rank."""
    return (
        _of_job(server, job)
        | _place(job, rank)
        | {
            "parent_pid": job.pid + rank,
            "name": "pt_data_worker",
            "command": job.command,
            "role": Role.LOADER,
            "threads": 3,
            "write_bytes_per_s": 0.0,
            "thread_names": (("pt_data_worker", 3),),
            "libraries": tuple(name for name in job.libraries if name != "cuda"),
        }
    )


def cgroup(job: Job) -> str:
    """The path of its control group."""
    if job.container:
        return f"/system.slice/docker-{job.container}.scope"
    return f"/slurm/uid_{job.uid}/job_{job.slurm_job}" if job.slurm_job else f"/user.slice/user-{job.uid}"


def _of_job(server: Server, job: Job) -> dict[str, Any]:
    return {
        "user": job.user,
        "uid": job.uid,
        "allowed_cpus": float(server.cpus if job.quota is None else job.quota),
        "affinity": f"0-{server.cpus - 1}",
        "nice": 0,
        "major_faults_per_s": 0.0,
        "swap_bytes": 0,
        "cgroup": cgroup(job),
        "container": job.container,
        "slurm_job": job.slurm_job,
        "slurm_name": job.name if job.slurm_job else None,
        "folder": job.name,
        "job": job.key,
        "omp_threads": job.omp_threads,
        "shm_total_bytes": job.shm_bytes,
        "visible_gpus": job.visible or ",".join(str(card) for rank in job.ranks for card in rank) or None,
    }


def _place(job: Job, rank: int) -> dict[str, Any]:
    if not job.launcher_command:
        return {}
    return {"rank": rank, "local_rank": rank, "world_size": job.nodes * len(job.ranks)}


def _thread_names(job: Job) -> tuple[tuple[str, int], ...]:
    cuda = int(any(job.ranks))
    trains = int(any(work.duty > 0 for _, work in job.work))  # torch starts it with the first backward pass
    pins = int(job.loaders > 0 and job.pins)
    named = (("cuda-EvtHandlr", cuda), ("pt_autograd_0", cuda * trains), ("pt_data_pin", cuda * pins))
    ranks = (("pt_nccl_heartbt", 1), ("pt_nccl_watchdg", 1)) if job.launcher_command else ()
    known = tuple(entry for entry in (*named, *ranks) if entry[1])
    return (("python", job.threads - len(known)), *known)

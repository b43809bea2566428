"""What is read only about an inspected process of a simulated server: threads, files, limits, environment."""

from __future__ import annotations

from gputop.demo.generator import around
from gputop.demo.server import Server
from gputop.model import Frame, Missing, Process, Role
from gputop.source import Detail, Thread

_LIMITS = (
    ("Max open files", "1048576", "1048576"),
    ("Max processes", "8254411", "8254411"),
    ("Max locked memory", "unlimited", "unlimited"),
    ("Max core file size", "0", "unlimited"),
)


def detail(server: Server, frame: Frame, process: Process) -> Detail:
    """Everything about one process of the frame that its owner may see."""
    children = tuple(other for other in frame.processes if other.parent_pid == process.pid)
    if server.viewer not in (None, process.uid):
        denied = tuple(Missing(metric=name, reason="denied", unlock="sudo gputop") for name in ("environment", "files"))
        return Detail(threads=_threads(frame, process), limits=_LIMITS, children=children, missing=denied)
    return Detail(
        threads=_threads(frame, process),
        files=_files(server, frame, process),
        limits=_LIMITS,
        environment=_environment(process),
        children=children,
    )


def _threads(frame: Frame, process: Process) -> tuple[Thread, ...]:
    names = process.thread_names or ((process.name, process.threads or 1),)
    found: list[Thread] = []
    for name, count in names:
        for _ in range(count):
            tid = process.pid + (50 + len(found) if found else 0)
            main = not found
            cpu = process.main_thread_percent if main else max(0.0, around(0.6, 1.0, tid, frame.mono_s))
            found.append(
                Thread(
                    tid=tid,
                    name=name,
                    state=process.state if main else "S",
                    cpu_percent=cpu,
                    run_wait_percent=process.main_run_wait_percent if main else 0.0,
                    cpu_time_s=(process.age_s or 0.0) * (cpu or 0.0) / 100,
                    last_cpu=process.last_cpu,
                    waiting_in=process.waiting_in if main else "futex_do_wait",
                )
            )
    return tuple(found)


def _files(server: Server, frame: Frame, process: Process) -> tuple[tuple[int, str], ...]:
    files = [(0, "/dev/null"), (1, f"/home/{process.user}/logs/{process.job}.log"), (2, "/dev/null")]
    files += [(10 + 2 * place, "/dev/nvidiactl") for place in range(bool(process.gpus))]
    job = next((job for job in server.jobs if job.name == process.job), None)
    if job and process.role is Role.LOADER:
        shard = (process.pid * 31 + int(frame.mono_s) // 20) % 1024
        files.append((24, f"{job.data}/c4/shard-{shard:04}.tar"))
    return tuple(files)


def _environment(process: Process) -> tuple[tuple[str, str], ...]:
    known = {
        "CUDA_VISIBLE_DEVICES": process.visible_gpus,
        "HOME": f"/home/{process.user}",
        "LOCAL_RANK": process.local_rank,
        "OMP_NUM_THREADS": process.omp_threads,
        "RANK": process.rank,
        "SLURM_JOB_ID": process.slurm_job,
        "WANDB_API_KEY": "***" if process.gpus else None,
        "WORLD_SIZE": process.world_size,
    }
    return tuple((name, str(value)) for name, value in known.items() if value is not None)

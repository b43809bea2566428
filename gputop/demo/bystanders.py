"""The rest of a simulated server's processes, and what a user without rights sees of them all."""

from __future__ import annotations

from typing import Any

from gputop.demo.generator import around
from gputop.demo.server import MIB, DemoServer, Guest
from gputop.model import Missing, Note, Process
from gputop.model.process import changed

# what /proc shows to the owner of a process only: its io, its environment, its memory maps, its root folder
_HIDDEN = (
    "read_bytes_per_s",
    "write_bytes_per_s",
    "read_chars_per_s",
    "write_chars_per_s",
    "read_calls_per_s",
    "write_calls_per_s",
    "mean_read_bytes",
    "pss_bytes",
    "open_files",
    "rank",
    "local_rank",
    "world_size",
    "rendezvous",
    "omp_threads",
    "mkl_threads",
    "visible_gpus",
    "libraries",
    "shm_total_bytes",
    "shm_used_bytes",
)
_UNSEEN: dict[str, Any] = {
    **dict.fromkeys((*_HIDDEN, "torch_version", "torch_cuda", "slurm_name", "folder", "waiting_in")),
    "libraries": (),
    "missing": tuple(Missing(metric=name, reason="denied", unlock="sudo gputop") for name in _HIDDEN),
}


def hide(process: Process, viewer: int | None) -> Process:
    """The process as a user without rights on it sees it."""
    return process if viewer is None or viewer == process.uid else changed(process, **_UNSEEN)


def notes(server: DemoServer, processes: tuple[Process, ...]) -> tuple[Note, ...]:
    """What the screen says of processes that hide something."""
    hidden = sum(process.uid != server.viewer for process in processes) if server.viewer is not None else 0
    if not hidden:
        return ()
    text = f"I/O of {hidden} processes of other users is hidden (/proc/PID/io is readable by the owner only)."
    help = (
        "Their READ/s, WRITE/s, PSS and files show '·', not 0; their environment is closed too.",
        "`sudo gputop` shows them.",
    )
    return (Note(subject="processes", key="denied-io", text=text, help=help),)


def others(server: DemoServer, t: float) -> tuple[Process, ...]:
    """The daemons and shells that have nothing to do with a GPU."""
    daemons = tuple(_daemon(server, t, *daemon) for daemon in server.others)
    return (*daemons, *(_guest(server, t, guest) for guest in server.guests if t >= guest.from_s))


def _guest(server: DemoServer, t: float, guest: Guest) -> Process:
    process = _daemon(server, t, guest.pid, guest.user, guest.uid, guest.command, guest.cpu)
    return changed(
        process,
        started_ticks=int(100 * (server.uptime_s + guest.from_s)),
        age_s=t - guest.from_s,
        cpu_percent=around(guest.cpu, 0.01, guest.pid, t),
        cpu_time_s=(t - guest.from_s) * guest.cpu / 100,
        state="R",
        waiting_in=None,
        cgroup=f"/user.slice/user-{guest.uid}",
    )


def _daemon(server: DemoServer, t: float, pid: int, user: str, uid: int, command: str, cpu: float) -> Process:
    started = 4.0 + pid / 900
    age = server.uptime_s + t - started
    words = tuple(command.split())
    return Process(
        pid=pid,
        started_ticks=int(100 * started),
        parent_pid=int(pid > 1),
        user=user,
        uid=uid,
        name=words[0].rpartition("/")[2].rstrip(":")[:15],
        command=words,
        state="S",
        cpu_percent=around(cpu, 0.3, pid, t),
        cpu_time_s=age * cpu / 100,
        age_s=age,
        threads=1 + pid % 11,
        rss_bytes=(9 + pid % 47) * MIB,
        pss_bytes=(6 + pid % 31) * MIB,
        shared_bytes=(4 + pid % 7) * MIB,
        last_cpu=pid % server.cpus,
        affinity=f"0-{server.cpus - 1}",
        waiting_in="do_epoll_wait",
        voluntary_switches_per_s=around(40 * cpu + 1, 0.3, pid + 1, t),
        involuntary_switches_per_s=around(cpu, 0.3, pid + 2, t),
        open_files=9 + pid % 53,
        allowed_cpus=float(server.cpus),
        **_QUIET,
    )


_QUIET: dict[str, Any] = {
    "busy_threads": 0,
    "run_wait_percent": 0.2,
    "read_bytes_per_s": 0.0,
    "write_bytes_per_s": 0.0,
    "read_chars_per_s": 200.0,
    "write_chars_per_s": 80.0,
    "read_calls_per_s": 1.0,
    "write_calls_per_s": 1.0,
    "mean_read_bytes": 200.0,
    "io_wait_percent": 0.0,
    "blocked_percent": 0.0,
    "major_faults_per_s": 0.0,
    "swap_bytes": 0,
    "nice": 0,
}

"""Process identity: robust parsing of /proc/PID/stat, (pid, start ticks), namespaces, our own privileges."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from typing import NamedTuple

from gputop.safe.text import decode

# PROC_PID_INIT_INO of include/uapi/linux/nsfs.h: the namespace of the PIDs that the driver reports
_INITIAL_PID_NAMESPACE = "pid:[4026531836]"
_AT_SECURE = 23
_KERNEL_THREAD = 0x00200000

# field numbers of proc_pid_stat(5); the state, field 3, is the first one after the name
_STATE = 3
_PARENT, _GROUP, _SESSION, _TERMINAL, _FLAGS = 4, 5, 6, 7, 9
_MAJOR_FAULTS, _USER, _SYSTEM, _NICE, _THREADS, _STARTED = 12, 14, 15, 19, 20, 22
_RSS, _CPU, _IO_WAIT = 24, 39, 42
_WANTED = (
    _PARENT, _GROUP, _SESSION, _TERMINAL, _FLAGS, _MAJOR_FAULTS, _USER, _SYSTEM, _NICE, _THREADS, _STARTED, _RSS, _CPU,
    _IO_WAIT,
)  # fmt: skip
_PLACES = tuple(field - _STATE for field in _WANTED)


class Stat(NamedTuple):
    """One line of /proc/PID/stat; fields missing in this kernel are None."""

    comm: str
    state: str
    parent_pid: int | None
    group: int | None
    session: int | None
    terminal: int | None
    kernel_thread: bool
    major_faults: int | None
    user_ticks: int | None
    system_ticks: int | None
    nice: int | None
    threads: int | None
    started_ticks: int | None
    rss_pages: int | None
    cpu: int | None
    io_wait_ticks: int | None


def parse_stat(raw: bytes) -> Stat | None:
    """The record of a stat file; None if invalid. The name may contain spaces, parentheses and newlines."""
    start, end = raw.find(b"("), raw.rfind(b")")
    fields = raw[end + 1 :].split()
    if not 0 <= start < end or not fields:
        return None

    try:
        numbers: list[int | None] = [int(fields[place]) for place in _PLACES]
    except (IndexError, ValueError):  # an old kernel, or an emulated one: use what is there
        numbers = [_number(fields, place) for place in _PLACES]
    parent, group, session, terminal, flags, faults, user, system, nice, threads, started, rss, cpu, io_wait = numbers
    kernel_thread = bool((flags or 0) & _KERNEL_THREAD)
    return Stat(
        decode(raw[start + 1 : end]), decode(fields[0][:1]), parent, group, session, terminal, kernel_thread, faults,
        user, system, nice, threads, started, rss, cpu, io_wait,
    )  # fmt: skip


def _number(fields: list[bytes], place: int) -> int | None:
    try:
        return int(fields[place])
    except (IndexError, ValueError):
        return None


def read_stat(pid: int, proc: str = "/proc") -> Stat | None:
    """The stat record of a process; None if it has ended or is unreadable."""
    try:
        fd = os.open(f"{proc}/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return parse_stat(os.read(fd, 4096))
    except OSError:
        return None
    finally:
        os.close(fd)


def identity(pid: int, proc: str = "/proc") -> tuple[int, int] | None:
    """(pid, start ticks): unique to a process, unlike the PID alone."""
    stat = read_stat(pid, proc)
    if stat is None or stat.started_ticks is None:
        return None
    return pid, stat.started_ticks


def initial_pid_namespace(proc: str = "/proc") -> bool:
    """Whether our PIDs are the driver's; if not, or if unknown, its PIDs are unverified here."""
    try:
        return os.readlink(f"{proc}/self/ns/pid") == _INITIAL_PID_NAMESPACE
    except OSError:
        return False


def ours(pid: int, namespace: str, proc: str = "/proc") -> bool:
    """Whether a process is in our namespace of a kind (mnt, pid, user, ...); OSError if unreadable."""
    return os.readlink(f"{proc}/{pid}/ns/{namespace}") == os.readlink(f"{proc}/self/ns/{namespace}")


def in_container(proc: str = "/proc", environ: Mapping[str, str] = os.environ, root: str = "") -> bool:
    """Whether this is a container, judging by the usual signs."""
    marks = (f"{root}/.dockerenv", f"{root}/run/.containerenv")
    named = "container" in environ or "KUBERNETES_SERVICE_HOST" in environ
    return named or any(map(os.path.exists, marks)) or not initial_pid_namespace(proc)


def borrowed_rights() -> str | None:
    """Why we must not start: privileges from the file (setuid, capabilities) rather than the caller; else None."""
    if os.geteuid() != os.getuid() or os.getegid() != os.getgid():
        return "gputop does not run setuid or setgid: remove the bit, or start it with sudo"
    if _secure_execution():
        return "gputop does not run with file capabilities: remove them (setcap -r), or start it with sudo"
    return None


def _secure_execution() -> bool:
    # not /proc/self/auxv: in this very case it belongs to root
    try:
        getauxval = ctypes.CDLL(None).getauxval
    except (AttributeError, OSError, TypeError):
        return False
    getauxval.restype = ctypes.c_ulong
    getauxval.argtypes = [ctypes.c_ulong]
    return bool(getauxval(_AT_SECURE))

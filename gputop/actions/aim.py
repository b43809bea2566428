"""How a process is taken hold of: open a pidfd, only then read who it is, and refuse what must never be touched."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping

from gputop.actions.target import BY_PID, Refusal, Rights, Target
from gputop.model import Process
from gputop.safe import pidfd
from gputop.safe.identity import Stat, read_stat

_DEEPEST = 64
_UNSEEN = {
    "exited": "it has ended; only the driver still lists it",
    "hidden": "/proc hides it: it belongs to another user",
    "foreign": "the driver's pid is one of the host: which process it is here is not known; run gputop on the host",
}


def aim(process: Process, rights: Rights, carriers: Mapping[int, str] | None = None) -> Target | Refusal:
    """Take hold of a process, or say why not. `carriers` are those of `carrying()`, to be asked once for many."""
    pid = process.pid
    never = rights.why_not or _never(process, rights)
    if never is not None:
        return Refusal(pid, never)
    try:
        fd: int | None = pidfd.open_pidfd(pid)
    except OSError as error:
        if error.errno == errno.ESRCH:
            return Refusal(pid, "it has ended", gone=True)
        if error.errno not in (errno.ENOSYS, errno.EPERM):
            return Refusal(pid, _trouble(error))
        fd = None
    if fd is not None and not _works(fd, pid):
        os.close(fd)
        fd = None
    caution = (carrying() if carriers is None else carriers).get(pid)
    target = Target(process, fd, caution or (BY_PID if fd is None else None))
    refusal = _mistaken(target)
    if refusal is not None:
        target.close()
        return refusal
    return target


def untouchable(process: Process, rights: Rights) -> str | None:
    """Why nothing can be done to it: read-only, pid 1, a kernel thread, not verified, ended, somebody else's."""
    target = aim(process, rights, {})
    if isinstance(target, Refusal):
        return target.text
    try:
        return None if rights.looks else target.denied()
    finally:
        target.close()


def carrying() -> dict[int, str]:
    """The processes that gputop itself lives by, each with the words for it."""
    found = {os.getpid(): "this is gputop itself"}
    parent = read_stat(os.getpid())
    while parent is not None and parent.parent_pid and len(found) < _DEEPEST:
        found.setdefault(parent.parent_pid, "gputop runs inside it and may end with it")
        parent = read_stat(parent.parent_pid)
    found.setdefault(os.getsid(0), "it leads the session that gputop runs in")
    return found


def _works(fd: int, pid: int) -> bool:
    """Whether signals through pidfds get anywhere: a filter may let them be opened and no more."""
    try:
        pidfd.send(fd, 0)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOSYS):
            return True
        try:
            os.kill(pid, 0)  # nothing is sent: if this is allowed, it was the way that was not
        except OSError:
            return error.errno != errno.ENOSYS
        return False
    return True


def _never(process: Process, rights: Rights) -> str | None:
    """Why such a process is never touched, whatever a person says."""
    if process.pid <= 0:
        return f"pid {process.pid} is no process but a group of them"
    if process.pid == 1 and not rights.looks:
        return "pid 1 keeps the machine or the container alive: end that from outside"
    if process.unseen is not None:
        return _UNSEEN[process.unseen]
    return None if process.verified else _UNSEEN["foreign"]


def _mistaken(target: Target) -> Refusal | None:
    """Why what was opened is not the process of the row, or nothing that can be acted on."""
    process = target.process
    stat, uid = read_stat(target.pid), _uid(target.pid)
    if target.ended() or stat is None or uid is None:
        return Refusal(target.pid, *_ended(target, stat))
    if stat.started_ticks != process.started_ticks:
        return Refusal(target.pid, "it has ended; another process has its pid now", gone=True)
    if stat.kernel_thread:
        return Refusal(target.pid, "it is a thread of the kernel")
    if process.uid is not None and uid != process.uid:
        return Refusal(target.pid, f"it runs as another user now (uid {uid}): look again")
    return None


def _ended(target: Target, stat: Stat | None) -> tuple[str, bool]:
    if stat is not None and stat.started_ticks == target.process.started_ticks and stat.state == "Z":
        return f"it has ended; its parent {stat.parent_pid} has not collected it yet", True
    gone = target.ended()
    return ("it has ended" if gone else "/proc hides it: who it is cannot be checked"), gone


def _trouble(error: OSError) -> str:
    if error.errno in (errno.EINVAL, errno.ENOENT):  # older kernels and newer ones
        return "it is a thread, not a process"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "no file descriptor left to hold on to it (ulimit -n)"
    return f"the kernel says: {error.strerror}"


def _uid(pid: int) -> int | None:
    try:
        return os.stat(f"/proc/{pid}").st_uid  # the effective uid
    except OSError:
        return None

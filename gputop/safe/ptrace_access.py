"""Access to another process's memory: what ptrace(2) and Yama allow, why they refuse, and what unlocks it."""

from __future__ import annotations

import os
from typing import NamedTuple

from gputop.invocation import as_root
from gputop.safe.identity import in_container, ours
from gputop.safe.text import decode

YAMA = "sys/kernel/yama/ptrace_scope"
ALLOW = "sudo sysctl -w kernel.yama.ptrace_scope=0"
CAPABILITY = "docker run --cap-add SYS_PTRACE IMAGE"
_SYS_PTRACE = 19  # capability.h


class Barred(NamedTuple):
    """Why something is impossible, in one line, and the command that would change it, if any."""

    text: str
    unlock: str | None = None

    @property
    def line(self) -> str:
        """Both in one line."""
        return f"{self.text}: {self.unlock}" if self.unlock else self.text


def hidden(*arguments: str, uid: int | None = None, confined: bool | None = None, proc: str = "/proc") -> Barred:
    """Why we may not read what the kernel shows to a process's owner, and what unlocks it.

    That is sudo with `gputop` and these arguments. For root it is a missing capability, which a container can be given.
    """
    if (os.geteuid() if uid is None else uid) != 0:
        return Barred("cannot be read by you", as_root(*arguments))
    if traces_all(proc):
        return Barred("cannot be read even by root")
    confined = in_container(proc) if confined is None else confined
    return Barred("cannot be read by root without CAP_SYS_PTRACE", CAPABILITY if confined else None)


def unlock(*, uid: int | None = None, proc: str = "/proc") -> str | None:
    """What makes hidden data readable; None if nothing does: a security module denies it even to root."""
    return hidden(uid=uid, proc=proc).unlock


def traces_all(proc: str = "/proc") -> bool:
    """Whether we have CAP_SYS_PTRACE."""
    try:
        return bool(int(_fields("self", proc)[b"CapEff"], 16) >> _SYS_PTRACE & 1)
    except (KeyError, ValueError):
        return False


def scope(proc: str = "/proc") -> int | None:
    """Yama's ptrace_scope; 0 in a kernel without Yama, None if unreadable."""
    try:
        with open(f"{proc}/{YAMA}", "rb") as file:
            return int(file.read(16))
    except FileNotFoundError:
        return 0
    except (OSError, ValueError):
        return None


def barred(pid: int, command: str, proc: str = "/proc") -> Barred | None:
    """Why we may not read this process's memory; None if we may. `command`: the gputop command for sudo."""
    try:
        # the kernel checks this like an attach, and nothing is read
        os.close(os.open(f"{proc}/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC))
        return None
    except (FileNotFoundError, ProcessLookupError):
        return Barred(f"no process with PID {pid} here")
    except OSError:
        return refusal(pid, as_root(command, str(pid)), uid=os.geteuid(), confined=in_container(proc), proc=proc)


def refusal(pid: int, command: str, *, uid: int, confined: bool, proc: str = "/proc") -> Barred:
    """Why the kernel refuses a reader with this uid: owner, dumpability, Yama, or a container.

    `command` is what helps a user other than root.
    """
    unlock = command if uid != 0 else hidden(uid=0, confined=confined, proc=proc).unlock
    level = scope(proc) or 0
    owner = _owner(pid, proc)
    if level >= 3:
        return Barred(f"process {pid} cannot be read by any user until a reboot (ptrace_scope=3)")
    if owner not in (uid, None) and uid != 0:
        return Barred(f"process {pid} belongs to another user (uid {owner})", unlock)
    if not dumpable(pid, proc):
        return Barred(f"process {pid} has made itself unreadable (not dumpable)", unlock)
    if level > 0:
        return Barred(f"process {pid} cannot be read (ptrace_scope={level})", CAPABILITY if confined else ALLOW)
    if confined:
        return Barred(f"this container is not allowed to read process {pid}", unlock if uid == 0 else CAPABILITY)
    return Barred(f"the kernel does not allow reading process {pid}", unlock)


def dumpable(pid: int, proc: str = "/proc") -> bool:
    """Whether /proc shows its own user as owner: it is dumpable (prctl(PR_SET_DUMPABLE))."""
    try:
        return os.stat(f"{proc}/{pid}/mem").st_uid == _owner(pid, proc)
    except OSError:
        return False


def by_its_user(pid: int, proc: str = "/proc") -> bool:
    """Whether its own user may read a process without capabilities.

    It must be dumpable, in our user namespace and without capabilities itself; and there must be no Yama restriction.
    """
    try:
        no_more = int(_fields(pid, proc).get(b"CapPrm", b"1"), 16) == 0 and ours(pid, "user", proc)
    except (OSError, ValueError):
        return False
    return no_more and scope(proc) == 0 and dumpable(pid, proc)


def tracer(pid: int, proc: str = "/proc") -> tuple[int, str] | None:
    """PID and name of the process that traces it; None if there is none."""
    thread = int(_fields(pid, proc).get(b"TracerPid", b"0"))
    if not thread:
        return None
    found = int(_fields(thread, proc).get(b"Tgid", b"0")) or thread  # the kernel reports the tracing thread
    try:
        with open(f"{proc}/{found}/comm", "rb") as file:
            return found, decode(file.read(64).rstrip(b"\n"))
    except OSError:
        return found, ""


def _owner(pid: int, proc: str) -> int | None:
    words = _fields(pid, proc).get(b"Uid", b"").split()
    return int(words[1]) if len(words) > 1 else None  # the effective one, which decides access


def _fields(pid: int | str, proc: str) -> dict[bytes, bytes]:
    try:
        with open(f"{proc}/{pid}/status", "rb") as file:
            return {key: value.strip() for key, _, value in (line.partition(b":") for line in file)}
    except OSError:
        return {}

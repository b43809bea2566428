"""A process held through a pidfd, so that an action never reaches a later process with the same PID."""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from gputop import labels
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Process
from gputop.safe import pidfd
from gputop.safe.identity import Stat, identity, read_stat
from gputop.safe.text import clean, redact_argv


def command(process: Process) -> str:
    """Its command line, used to recognize later runs of the same program."""
    return " ".join(redact_argv(process.command)) or process.name


def typed(process: Process) -> str:
    """Its command line quoted for a shell, secrets masked; empty if unknown."""
    return clean(shlex.join(redact_argv(process.command)), 1 << 20)


def identity_fields(process: Process) -> dict[str, Any]:
    """Identifying data of a process, for storage."""
    return {
        "pid": process.pid,
        "started_ticks": process.started_ticks,
        "command": command(process),
        "short": labels.line(replace(process, command=redact_argv(process.command))),
        "user": process.user,
        "job": process.job,
        "rank": process.rank,
    }


BY_PID = "no pidfd (old kernel or seccomp filter): identified by PID and start time only"


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """What this gputop may do at all."""

    readonly: bool = False
    reads_only: bool = False  # read-only access: allowed with --readonly, and on PID 1
    elsewhere: str | None = None  # where the processes are if not on this machine: "a demo", "a recording"

    @property
    def why_not(self) -> str | None:
        """Why no process can be acted on; None if some can."""
        if self.elsewhere is not None:
            return f"these processes belong to {self.elsewhere}, not to this machine"
        return "gputop was started with --readonly" if self.readonly and not self.reads_only else None

    @property
    def for_recording(self) -> Rights:
        """Rights for recording inside a process and storing a file: PID 1 of a container may be the job."""
        return self if self.readonly else replace(self, reads_only=True)


Reaction = Literal["caught", "ignored", "default"]


class Refusal(NamedTuple):
    """Why a process cannot be held."""

    pid: int
    text: str
    gone: bool = False  # it has ended


class Declined(Exception):
    """The action is not possible on this process; the text says why."""


class TargetOutcome(NamedTuple):
    """Outcome for one process. `text` is shown: `nothing sent to 41207: it has ended`; empty on success."""

    pid: int
    kind: Literal["done", "gone", "denied", "refused"]
    text: str


@dataclass(slots=True)
class TargetProcess:
    """One process, frozen: `process` is the row as it was, `fd` its pidfd, or None without pidfd support.

    `caution`: why the user must confirm explicitly: it runs gputop, or there are no pidfds here.
    """

    process: Process
    fd: int | None
    caution: str | None = None
    closed: bool = False

    @property
    def pid(self) -> int:
        """Its PID, valid until it has ended."""
        return self.process.pid

    def ended(self) -> bool:
        """Whether it has ended with all its threads; its parent may not have reaped it yet."""
        if self.fd is not None and not self.closed:
            return bool(pidfd.ended((self.fd,)))
        stat = read_stat(self.pid)
        other = stat is None or stat.started_ticks != self.process.started_ticks
        return other or (stat is not None and stat.state in "ZX" and (stat.threads or 0) <= 1)

    def state(self) -> str | None:
        """Its state in /proc: R S D T Z; None if it has ended."""
        stat = read_stat(self.pid)
        return None if stat is None or self.ended() else stat.state

    def signal(self, number: int) -> None:
        """Send this signal to this process only. Raises OSError: ProcessLookupError, PermissionError."""
        if self.closed or self.ended():
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        if self.fd is not None:
            pidfd.send(self.fd, number)
        elif identity(self.pid) == self.process.identity:
            os.kill(self.pid, number)
        else:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))

    def denied(self) -> str | None:
        """The owner, if the kernel would not let us signal it; sends nothing."""
        try:
            self.signal(0)
        except PermissionError:
            return self.owner()
        except OSError:
            return None
        return None

    def owner(self) -> str:
        """Why we may not touch it: its owner."""
        user = self.process.user or f"uid {self.process.uid}"
        return f"it belongs to {user}: only {'root' if self.process.uid == 0 else f'{user} or root'} can do that"

    def reaction(self, number: int) -> Reaction | None:
        """Its disposition for this signal; None if unreadable."""
        try:
            with open(f"/proc/{self.pid}/status", "rb") as file:  # SigIgn and SigCgt of proc_pid_status(5)
                fields = dict(line.split(b":\t", 1) for line in file if line.startswith((b"SigIgn:", b"SigCgt:")))
            ignored, caught = (int(fields[name], 16) >> (number - 1) & 1 for name in (b"SigIgn", b"SigCgt"))
        except (OSError, ValueError, KeyError):
            return None
        if self.ended():
            return None
        return "caught" if caught else "ignored" if ignored else "default"

    def close(self) -> None:
        """Release it; `signal` considers it ended from then on."""
        if not self.closed:
            self.closed = True
            if self.fd is not None:
                os.close(self.fd)


def attempt(
    held: TargetProcess | Refusal, insists: bool, nothing: str, act: Callable[[TargetProcess], None]
) -> TargetOutcome:
    """Run `act` on one process; `nothing` begins the text if it had no effect: `nothing sent`.

    `insists`: the user has read the caution and confirmed.
    """

    def failed(kind: Literal["gone", "denied", "refused"], why: str) -> TargetOutcome:
        return TargetOutcome(held.pid, kind, f"{nothing} to {held.pid}: {why}")

    if isinstance(held, Refusal):
        return failed("gone" if held.gone else "refused", held.text)
    if held.caution and not insists:
        return failed("refused", held.caution)
    try:
        act(held)
    except Declined as why:
        return failed("denied", str(why))
    except ProcessLookupError:
        return failed("gone", "it exited")
    except PermissionError:
        return failed("denied", held.owner())
    except OSError as error:
        return failed("refused", f"kernel error: {error.strerror}")
    return TargetOutcome(held.pid, "done", f"{held.pid}: {BY_PID}" if held.fd is None else "")


_DEEPEST = 64
_UNSEEN = {
    "exited": "it exited; only the driver still lists it",
    "hidden": "it belongs to another user, and /proc hides it",
    "foreign": "the driver reports a host PID with no known process here; run gputop on the host",
}


def open_target(process: Process, rights: Rights, carriers: Mapping[int, str] | None = None) -> TargetProcess | Refusal:
    """Open a handle on a process, or say why not. `carriers`: result of `own_processes()`, shared by many calls."""
    pid = process.pid
    never = rights.why_not or _why_never(process, rights)
    if never is not None:
        return Refusal(pid, never)
    try:
        fd: int | None = pidfd.open_pidfd(pid)
    except OSError as error:
        if error.errno == errno.ESRCH:
            return Refusal(pid, "it exited", gone=True)
        if error.errno not in (errno.ENOSYS, errno.EPERM):
            return Refusal(pid, _error_text(error))
        fd = None
    if fd is not None and not _pidfd_works(fd, pid):
        os.close(fd)
        fd = None
    caution = (own_processes() if carriers is None else carriers).get(pid)
    target = TargetProcess(process, fd, caution or (BY_PID if fd is None else None))
    refusal = _mismatch(target)
    if refusal is not None:
        target.close()
        return refusal
    return target


def untouchable(process: Process, rights: Rights) -> str | None:
    """Why no action is possible: read-only, PID 1, a kernel thread, not verified, ended, another user's."""
    target = open_target(process, rights, {})
    if isinstance(target, Refusal):
        return target.text
    try:
        return None if rights.reads_only else target.denied()
    finally:
        target.close()


def own_processes() -> dict[int, str]:
    """The processes that gputop itself depends on, each with its description."""
    found = {os.getpid(): "this is gputop itself"}
    parent = read_stat(os.getpid())
    while parent is not None and parent.parent_pid and len(found) < _DEEPEST:
        found.setdefault(parent.parent_pid, "gputop runs inside it and may exit with it")
        parent = read_stat(parent.parent_pid)
    found.setdefault(os.getsid(0), "it leads the session of gputop")
    return found


def _pidfd_works(fd: int, pid: int) -> bool:
    """Whether signals through pidfds work: a seccomp filter may allow opening them and nothing more."""
    try:
        pidfd.send(fd, 0)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOSYS):
            return True
        try:
            os.kill(pid, 0)  # sends nothing: if this is allowed, the pidfd call was filtered
        except OSError:
            return error.errno != errno.ENOSYS
        return False
    return True


def _why_never(process: Process, rights: Rights) -> str | None:
    """Why such a process is never acted on, whatever the user confirms."""
    if process.pid <= 0:
        return f"PID {process.pid} means a process group, not a process"
    if process.pid == 1 and not rights.reads_only:
        return "PID 1 keeps the machine or container running: stop it from outside"
    if process.unseen is not None:
        return _UNSEEN[process.unseen]
    return None if process.verified else _UNSEEN["foreign"]


def _mismatch(target: TargetProcess) -> Refusal | None:
    """Why the opened process is not the one of the row, or cannot be acted on."""
    process = target.process
    stat, uid = read_stat(target.pid), _uid(target.pid)
    if target.ended() or stat is None or uid is None:
        return Refusal(target.pid, *_end_state(target, stat))
    if stat.started_ticks != process.started_ticks:
        return Refusal(target.pid, "it exited; another process has its PID now", gone=True)
    if stat.kernel_thread:
        return Refusal(target.pid, "it is a kernel thread")
    if process.uid is not None and uid != process.uid:
        return Refusal(target.pid, f"it now runs as another user (uid {uid}): check it again")
    return None


def _end_state(target: TargetProcess, stat: Stat | None) -> tuple[str, bool]:
    if stat is not None and stat.started_ticks == target.process.started_ticks and stat.state == "Z":
        return f"it is a zombie: its parent {stat.parent_pid} has not reaped it", True
    gone = target.ended()
    return ("it exited" if gone else "/proc hides it: its identity cannot be verified"), gone


def _error_text(error: OSError) -> str:
    if error.errno in (errno.EINVAL, errno.ENOENT):  # older and newer kernels
        return "it is a thread, not a process"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "out of file descriptors (ulimit -n)"
    return f"kernel error: {error.strerror}"


def _uid(pid: int) -> int | None:
    try:
        return os.stat(f"/proc/{pid}").st_uid  # the effective uid
    except OSError:
        return None

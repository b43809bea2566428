"""A process that is held on to, so that what is done to it is done to it and to no other (reliability: D8, D9).

The row on the screen names a pid and a start time. A target opens a pidfd for that pid and only then reads who it is:
if it is the process of the row and has not ended, the handle is that process for good, whatever becomes of the pid.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from gputop.declare import record
from gputop.model import Process
from gputop.safe import pidfd
from gputop.safe.identity import identity, read_stat

BY_PID = "no pidfd here (old kernel, or a filter of system calls): only its start time tells it from a later process"


@record(frozen=True, slots=True, kw_only=True)
class Rights:
    """What this gputop may do at all."""

    readonly: bool = False
    looks: bool = False  # for what changes nothing: allowed with --readonly, and on pid 1
    elsewhere: str | None = None  # where the processes are if not on this machine: "a demo", "a recording"

    @property
    def why_not(self) -> str | None:
        """Why nothing may be done to any process; None if something may."""
        if self.elsewhere is not None:
            return f"these are processes of {self.elsewhere}, not of this machine"
        return "gputop was started with --readonly" if self.readonly and not self.looks else None

    @property
    def inside(self) -> Rights:
        """Those of what records inside a process and keeps a file: pid 1 of a container may be the job, too."""
        return self if self.readonly else replace(self, looks=True)


Reaction = Literal["caught", "ignored", "default"]


class Refusal(NamedTuple):
    """Why a process cannot be held on to."""

    pid: int
    text: str
    gone: bool = False  # it has ended


class Declined(Exception):
    """It cannot be done to this process; the text says why."""


class Outcome(NamedTuple):
    """What became of one attempt. `text` is for people, `nothing sent to 41207: it has ended`; empty if all is well."""

    pid: int
    kind: Literal["done", "gone", "denied", "refused"]
    text: str


@dataclass(slots=True)
class Target:
    """One process, frozen: `process` is the row as it was, `fd` its pidfd, or None where there are none.

    `caution` is why it is spared unless a person insists: it carries gputop, or there are no pidfds here.
    """

    process: Process
    fd: int | None
    caution: str | None = None
    closed: bool = False

    @property
    def pid(self) -> int:
        """Its pid, valid for as long as it has not ended."""
        return self.process.pid

    def ended(self) -> bool:
        """Whether it has ended, with all of its threads; its parent may not have noticed yet."""
        if self.fd is not None and not self.closed:
            return bool(pidfd.ended((self.fd,)))
        stat = read_stat(self.pid)
        other = stat is None or stat.started_ticks != self.process.started_ticks
        return other or (stat is not None and stat.state in "ZX" and (stat.threads or 0) <= 1)

    def state(self) -> str | None:
        """Its state now, as in /proc: R S D T Z; None when it has ended."""
        stat = read_stat(self.pid)
        return None if stat is None or self.ended() else stat.state

    def signal(self, number: int) -> None:
        """Send this signal to it and to nothing else. OSError says why not: ProcessLookupError, PermissionError."""
        if self.closed or self.ended():
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        if self.fd is not None:
            pidfd.send(self.fd, number)
        elif identity(self.pid) == self.process.identity:
            os.kill(self.pid, number)
        else:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))

    def denied(self) -> str | None:
        """Whose it is, if the kernel would not let us signal it; nothing is sent."""
        try:
            self.signal(0)
        except PermissionError:
            return self.owner()
        except OSError:
            return None
        return None

    def owner(self) -> str:
        """Why it is not ours to touch."""
        user = self.process.user or f"uid {self.process.uid}"
        return f"it belongs to {user}: only {'root' if self.process.uid == 0 else f'{user} or root'} may do that"

    def reaction(self, number: int) -> Reaction | None:
        """What it has arranged for a signal of this number; None if that cannot be read."""
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
        """Let go of it; after that it counts as ended for `signal`."""
        if not self.closed:
            self.closed = True
            if self.fd is not None:
                os.close(self.fd)


def attempt(held: Target | Refusal, insists: bool, nothing: str, act: Callable[[Target], None]) -> Outcome:
    """Do something to one process, and what came of it; `nothing` begins the sentence if nothing did: `nothing sent`.

    `insists`: a person has read the caution and wants it all the same.
    """

    def failed(kind: Literal["gone", "denied", "refused"], why: str) -> Outcome:
        return Outcome(held.pid, kind, f"{nothing} to {held.pid}: {why}")

    if isinstance(held, Refusal):
        return failed("gone" if held.gone else "refused", held.text)
    if held.caution and not insists:
        return failed("refused", held.caution)
    try:
        act(held)
    except Declined as why:
        return failed("denied", str(why))
    except ProcessLookupError:
        return failed("gone", "it has ended")
    except PermissionError:
        return failed("denied", held.owner())
    except OSError as error:
        return failed("refused", f"the kernel says: {error.strerror}")
    return Outcome(held.pid, "done", f"{held.pid}: {BY_PID}" if held.fd is None else "")

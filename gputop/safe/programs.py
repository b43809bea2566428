"""Run other programs: the only place.

They are found on PATH or beside our Python, and run only if no other user could have placed or changed them.

A relative entry of PATH depends on the current folder. A file, or a folder on its path, that others own or can write
may be replaced by them, and would run with our privileges, possibly root's.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from subprocess import DEVNULL, PIPE
from subprocess import Popen as Running
from subprocess import SubprocessError as ProgramError
from subprocess import TimeoutExpired as Timeout
from typing import Any, NoReturn

from gputop.safe.text import clean

__all__ = [
    "DEVNULL",
    "PATH",
    "PIPE",
    "NotFound",
    "NotRun",
    "ProgramError",
    "Running",
    "Timeout",
    "become",
    "candidates",
    "find",
    "output",
    "start",
    "start_chosen",
    "unfit",
    "why_distrusted",
]  # fmt: skip

PATH = os.defpath.removeprefix(":")  # of the programs we run, which may start others
_SYSTEM_GROUPS = 1000  # first gid of ordinary groups, with this exception
_USERS = 100
_MOST_LINKS = 40  # as in the kernel


class NotRun(Exception):
    """A program that we refuse to run; the message says why in one line."""

    def __init__(self, reason: str) -> None:
        super().__init__(clean(reason, 400))


class NotFound(NotRun):
    """There is no program of this name."""


def find(name: str, path: str, *, first: str | None = None) -> str:
    """The absolute path of a trusted program, in the folder `first` or on PATH.

    NotFound if there is none; NotRun, with the first reason, if there are only untrusted ones.
    """
    why: str | None = None
    for candidate in candidates(name, path, first=first):
        reason = why_distrusted(candidate)
        if reason is None:
            return os.path.realpath(candidate)
        why = why or reason
    raise NotRun(why) if why else NotFound(f"{name} is not installed")


def candidates(name: str, path: str, *, first: str | None = None) -> Iterator[str]:
    """Paths of programs of this name in the order of a shell; an empty entry is the current folder."""
    for folder in filter(None, (first, *(entry or "." for entry in path.split(os.pathsep)))):
        place = os.path.join(folder, name)
        if os.path.isfile(place) and os.access(place, os.X_OK):
            yield place


def why_distrusted(program: str) -> str | None:
    """Why a program is not run, in one line; None if only root and we could have placed it there."""
    if not os.path.isabs(program):
        return f"{program} was not run: its PATH entry is relative"
    why = _unfit(program, program, _owners()) if _current(program) else unfit(program, _owners())
    return f"{program} is not run: {why}" if why else None


def unfit(file: str, owners: frozenset[int] = frozenset({0})) -> str | None:
    """What is wrong with a file that users other than `owners` could have placed or could change.

    `file` is an absolute path. It is checked with each folder and each link on its path.
    """
    try:
        for place, shared in _path_steps(file):
            if why := _unfit(file, place, owners, shared=shared):
                return why
    except OSError as error:
        return f"{error.filename or file}: {error.strerror}"
    return None


def _path_steps(file: str) -> Iterator[tuple[str, bool]]:
    """Each folder and link on the path of a file, with its target: write access to any of these decides what runs.

    Each with whether it may be like /tmp, where everybody may add names but only owners remove theirs.
    """
    place, rest, links = "/", file.split("/")[::-1], 0
    yield place, True
    while rest:
        name = rest.pop()
        if name in ("", ".", ".."):
            place = os.path.dirname(place) if name == ".." else place
            continue
        last = not any(rest)
        if last:
            yield place, False
        there = os.path.join(place, name)
        yield there, not last
        if not os.path.islink(there):
            place = there
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), file)
        target = os.readlink(there)
        place = "/" if target.startswith("/") else place
        rest += target.split("/")[::-1]


def start(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Run a program that was found; NotRun if it is untrusted, OSError if it cannot be run."""
    _check(command[0])
    return subprocess.Popen(command, **options)


def start_chosen(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Run a program chosen by the user, untrusted or not; OSError if it cannot be run."""
    return subprocess.Popen(command, **options)


def output(
    command: Sequence[str], seconds: float, environ: Mapping[str, str], *, errors: bool = False
) -> tuple[int, bytes]:
    """Exit code and output of a program: standard output or, with `errors`, standard error.

    Without standard input, in its own session, with a time limit: raises Timeout.
    """
    _check(command[0])
    done = subprocess.run(
        command,
        stdin=DEVNULL,
        stdout=DEVNULL if errors else PIPE,
        stderr=PIPE if errors else DEVNULL,
        timeout=seconds,
        check=False,
        start_new_session=True,
        cwd="/",
        env=dict(environ),
    )
    return done.returncode, done.stderr if errors else done.stdout


def become(argv: Sequence[str], environ: Mapping[str, str]) -> NoReturn:
    """Replace this process by the user's command, found as in a shell."""
    try:
        os.execvpe(argv[0], list(argv), environ)
    except OSError as error:
        if error.errno == errno.ENOEXEC:  # a script without a #! line, which every shell runs
            os.execve("/bin/sh", ["sh", *argv], environ)
        raise


def _check(program: str) -> None:
    if program != sys.executable and (why := why_distrusted(program)):  # our own running Python
        raise NotRun(why)


def _current(program: str) -> bool:
    """Whether a process runs it, by /proc/PID/exe: the file itself, in any folder."""
    _, root, pid, *rest = [*program.split("/"), "", ""]
    return root == "proc" and pid.isdecimal() and rest[:1] == ["exe"]


def _unfit(file: str, place: str, owners: frozenset[int], *, shared: bool = False) -> str | None:
    """What is wrong with one file or folder on a path; `shared`: it may be like /tmp."""
    try:
        info = os.stat(place) if _current(place) else os.lstat(place)
    except OSError as error:
        return f"{place}: {error.strerror}"
    where = "it" if place == file else place
    if info.st_uid not in owners:
        return f"{where} belongs to {_user(info.st_uid)}{_advice()}"
    if stat.S_ISLNK(info.st_mode):  # access to a link depends on its folder
        return None
    if info.st_mode & stat.S_IWOTH and not (shared and info.st_mode & stat.S_ISVTX):
        return f"{where} is world-writable"
    if (
        info.st_mode & stat.S_IWGRP
        and not (shared and info.st_mode & stat.S_ISVTX)
        and not _group_is_private(info.st_gid)
    ):
        return f"{where} can be written by group {_group(info.st_gid)}"
    return None


def _owners() -> frozenset[int]:
    """Trusted owners: root and we; without root also the installer of this gputop, whose code is running."""
    us = os.geteuid()
    return frozenset({0}) if us == 0 else frozenset({0, us, _installer()})


@cache
def _installer() -> int:
    try:
        return os.stat(__file__).st_uid
    except OSError:
        return 0


def _group_is_private(gid: int) -> bool:
    """Whether only we and root are in a group: our own group, or a system group without members."""
    if os.geteuid() == 0:
        return False
    try:
        group, own = grp.getgrgid(gid), pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return False
    nobody = set(group.gr_mem) <= {own, "root"}
    return nobody and (group.gr_name == own or (gid < _SYSTEM_GROUPS and gid != _USERS))


def _advice() -> str:
    return "; root runs only programs that root owns" if os.geteuid() == 0 else ""


def _user(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"uid {uid}"


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)

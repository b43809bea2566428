"""The one door through which other programs are run: found on PATH or beside our Python, and only where nobody else
could have put them there.

A relative entry of PATH leads wherever the current folder is. A file or a folder on the way to it that others own or
may write can be replaced by them, and then runs with our rights: with root's, where we are root.
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
    "DEVNULL", "PATH", "PIPE", "NotFound", "NotRun", "ProgramError", "Running", "Timeout", "become", "candidates",
    "distrusted", "find", "output", "start", "start_chosen", "unfit",
]  # fmt: skip

PATH = os.defpath.removeprefix(":")  # of what we run: it may look for programs of its own
_SYSTEM_GROUPS = 1000  # groups of people begin there, but for this one
_USERS = 100
_MOST_LINKS = 40  # as in the kernel


class NotRun(Exception):
    """A program that is not run; the text is one line that says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(clean(reason, 400))


class NotFound(NotRun):
    """There is none of this name."""


def find(name: str, path: str, *, first: str | None = None) -> str:
    """The absolute path of a program that may be run: in the folder `first`, or in one of PATH.

    NotFound where there is none; NotRun, with the first reason, where there are only those that are not trusted.
    """
    why: str | None = None
    for candidate in candidates(name, path, first=first):
        reason = distrusted(candidate)
        if reason is None:
            return os.path.realpath(candidate)
        why = why or reason
    raise NotRun(why) if why else NotFound(f"{name} is not installed")


def candidates(name: str, path: str, *, first: str | None = None) -> Iterator[str]:
    """Where programs of this name are, in the order in which a shell would take them; an empty entry is the current
    folder."""
    for folder in filter(None, (first, *(entry or "." for entry in path.split(os.pathsep)))):
        place = os.path.join(folder, name)
        if os.path.isfile(place) and os.access(place, os.X_OK):
            yield place


def distrusted(program: str) -> str | None:
    """Why a program is not run, in one line; None if nobody but root and us could have put it there."""
    if not os.path.isabs(program):
        return f"{program} is not run: it is in a relative entry of PATH"
    why = _unfit(program, program, _owners()) if _current(program) else unfit(program, _owners())
    return f"{program} is not run: {why}" if why else None


def unfit(file: str, owners: frozenset[int] = frozenset({0})) -> str | None:
    """What is wrong with a file that somebody else than these owners could have put there, or could change.

    `file` is an absolute path. It is looked at itself, with each folder above and each link on the way.
    """
    try:
        for place, shared in _way(file):
            if why := _unfit(file, place, owners, shared=shared):
                return why
    except OSError as error:
        return f"{error.filename or file}: {error.strerror}"
    return None


def _way(file: str) -> Iterator[tuple[str, bool]]:
    """Each folder and link on the way to a file, and what it leads to: whoever may change one decides what is run.

    With each whether it may be as /tmp is, where everybody may add names, but only their owners take them away.
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
    """Run a program that was found; NotRun where it is not trusted, OSError where it cannot be run."""
    _check(command[0])
    return subprocess.Popen(command, **options)


def start_chosen(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Run a program that a person named: the choice is theirs; OSError where it cannot be run."""
    return subprocess.Popen(command, **options)


def output(
    command: Sequence[str], seconds: float, environ: Mapping[str, str], *, errors: bool = False
) -> tuple[int, bytes]:
    """Its exit code and what it prints, on standard output or, with `errors`, on the other one.

    Without standard input, in a session of its own, and no longer than this: Timeout.
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
    """Be replaced by the command that a person gave, found as a shell finds it: the choice is theirs."""
    try:
        os.execvpe(argv[0], list(argv), environ)
    except OSError as error:
        if error.errno == errno.ENOEXEC:  # a script without a first line, which every shell runs
            os.execve("/bin/sh", ["sh", *argv], environ)
        raise


def _check(program: str) -> None:
    if program != sys.executable and (why := distrusted(program)):  # our own Python runs already
        raise NotRun(why)


def _current(program: str) -> bool:
    """Whether it is what a process runs, by /proc/PID/exe: that is the file itself, whatever folder it is in."""
    _, root, pid, *rest = [*program.split("/"), "", ""]
    return root == "proc" and pid.isdecimal() and rest[:1] == ["exe"]


def _unfit(file: str, place: str, owners: frozenset[int], *, shared: bool = False) -> str | None:
    """What is wrong with one file or folder on the way to a file; `shared`: it may be as /tmp is."""
    try:
        info = os.stat(place) if _current(place) else os.lstat(place)
    except OSError as error:
        return f"{place}: {error.strerror}"
    where = "it" if place == file else place
    if info.st_uid not in owners:
        return f"{where} belongs to {_user(info.st_uid)}{_instead()}"
    if stat.S_ISLNK(info.st_mode):  # what may be done to a link is up to its folder
        return None
    if info.st_mode & stat.S_IWOTH and not (shared and info.st_mode & stat.S_ISVTX):
        return f"{where} can be written by everybody"
    if info.st_mode & stat.S_IWGRP and not (shared and info.st_mode & stat.S_ISVTX) and not _alone(info.st_gid):
        return f"{where} can be written by group {_group(info.st_gid)}"
    return None


def _owners() -> frozenset[int]:
    """Whose programs are run: root's and ours; without root also of whoever installed this gputop, whose code runs."""
    us = os.geteuid()
    return frozenset({0}) if us == 0 else frozenset({0, us, _installer()})


@cache
def _installer() -> int:
    try:
        return os.stat(__file__).st_uid
    except OSError:
        return 0


def _alone(gid: int) -> bool:
    """Whether nobody but us and root is in a group: the one of our own name, or one of the system without members."""
    if os.geteuid() == 0:
        return False
    try:
        group, own = grp.getgrgid(gid), pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return False
    nobody = set(group.gr_mem) <= {own, "root"}
    return nobody and (group.gr_name == own or (gid < _SYSTEM_GROUPS and gid != _USERS))


def _instead() -> str:
    return "; root runs only what root owns" if os.geteuid() == 0 else ""


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

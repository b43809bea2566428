"""Where the agent listens and where its traces go: folders of mode 0700 that are ours, or none."""

from __future__ import annotations

import os
import socket
import stat
import time
from typing import Iterator

_LONGEST = 107  # bytes of sun_path, unix(7)
_FREE_BYTES = 64 << 20  # a trace of three steps of a large model
_OLD_S = 3600.0


class Unusable(Exception):
    """No folder, or no space; the text says why."""


def listener() -> tuple[socket.socket, str]:
    """A listening socket and its path: in the first folder that is private, ready before its name is there."""
    why = "no folder"
    for folder in _runtime_folders():
        try:
            private(folder)
            _sweep(folder)
            return _bound(os.path.join(folder, f"agent-{os.getpid()}-{started_ticks()}.sock"))
        except (OSError, Unusable) as error:
            why = f"{folder}: {error}"
    raise Unusable(why)


def trace_file() -> str:
    """A path for a new trace, in a private folder where a file can be made and space is left; nothing is there yet."""
    why = "no folder"
    for folder in _trace_folders():
        try:
            os.makedirs(os.path.dirname(os.path.dirname(folder)), exist_ok=True)
            private(os.path.dirname(folder))
            private(folder)
            if free_bytes(folder) < _FREE_BYTES:
                raise Unusable("the disk is almost full")
            _sweep_traces(folder)
            name = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{os.urandom(2).hex()}.json"
            path = os.path.join(folder, name)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
            os.unlink(path)
            return path
        except (OSError, Unusable) as error:
            why = f"{folder}: {error}"
    raise Unusable(why)


def free_bytes(folder: str) -> int:
    """What is left on its disk for us."""
    space = os.statvfs(folder)
    return space.f_bavail * space.f_frsize


def halves(path: str) -> tuple[str, str]:
    """The files that there can be while a trace is written to a path: ours, and that of torch for it."""
    return f"{path}.tmp", f"{path}.tmp.tmp"


def private(folder: str) -> None:
    """Make a folder of mode 0700 if there is none; Unusable if what is there is not ours alone."""
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        pass
    info = os.lstat(folder)
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o077:
        raise Unusable("is not a folder of mode 0700 that belongs to this user")


def touch(path: str) -> None:
    """Make a socket look used: what sweeps /tmp takes one for dead after ten days, as it knows its first name only."""
    try:
        os.utime(path, follow_symlinks=False)
    except OSError:
        pass


def started_ticks() -> int:
    """Field 22 of /proc/self/stat: with the pid it names this process for good."""
    with open("/proc/self/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])


def _sweep(folder: str) -> None:
    """Remove the sockets of processes that were killed. Another pid namespace may share the folder: ask each one."""
    for name in os.listdir(folder):
        pid = name.split("-")[1] if name.startswith("agent-") and name.count("-") == 2 else ""
        if pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as asked:
                try:
                    asked.connect(os.path.join(folder, name))
                except ConnectionRefusedError:
                    os.unlink(os.path.join(folder, name))
                except OSError:
                    pass


def _sweep_traces(folder: str) -> None:
    """Remove what processes left that were killed while they wrote, and what no client has fetched: neither takes that
    long."""
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        try:
            if (
                name.endswith((".json", ".json.tmp", ".json.tmp.tmp"))
                and time.time() - os.lstat(path).st_mtime > _OLD_S
            ):
                os.unlink(path)
        except OSError:
            pass


def _runtime_folders() -> Iterator[str]:
    own = os.environ.get("GPUTOP_RUNTIME_DIR", "")
    if os.path.isabs(own):
        yield own
    yield f"/tmp/gputop-{os.geteuid()}"
    session = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(session):  # last: it dies at logout, and a job has another one than the login that watches
        yield os.path.join(session, "gputop")


def _trace_folders() -> Iterator[str]:
    base = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(os.path.expanduser("~"), ".local", "state")
    if os.path.isabs(base):
        yield os.path.join(base, "gputop", "traces")
    yield f"/tmp/gputop-{os.geteuid()}/traces"


def _bound(path: str) -> tuple[socket.socket, str]:
    """Bound to a temporary name: the umask of a process that is not ours is not touched to make it 0600."""
    temporary = f"{path}~"
    if len(os.fsencode(temporary)) > _LONGEST:
        raise Unusable("its name is too long for a socket")
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        if os.path.lexists(temporary):
            os.unlink(temporary)
        found.bind(temporary)
        os.chmod(temporary, 0o600)
        found.listen(4)
        os.rename(temporary, path)
    except OSError:
        found.close()
        raise
    return found, path

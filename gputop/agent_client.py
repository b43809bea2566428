"""Client of the agent in a process: found in its user's private folder, verified through the kernel.

Its messages are untrusted, like everything from that process: texts are sanitized, numbers checked.
"""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import stat
import struct
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress
from glob import glob
from itertools import islice
from typing import Any, Protocol

from gputop.safe.deadline import NoAnswer, readable, within
from gputop.safe.identity import ours
from gputop.safe.text import clean, decode

_LONGEST = 8 << 20  # bytes of an answer
_MAPS_BYTES = 4 << 20  # of a process's mapped files
_CONNECT_S = 2.0
_FOLDER_S = 8.0  # for its folder: listing, connecting with retries, greeting
_SILENT = "does not respond (dead mount?): cannot check for an agent there"
_FOLDERS = ("GPUTOP_RUNTIME_DIR", "XDG_RUNTIME_DIR")
_MOST_NAMES = 4096  # of sockets in one folder
_SOCKET = re.compile(r"agent-(\d{1,10})-(\d{1,18})\.sock")


class _Process(Protocol):
    @property
    def started_ticks(self) -> int: ...
    @property
    def uid(self) -> int | None: ...


class HeldProcess(Protocol):
    """A held process: a later one with the same PID is another."""

    @property
    def pid(self) -> int: ...
    @property
    def process(self) -> _Process: ...
    def ended(self) -> bool:
        """Whether it has ended."""


class NoAgent(Exception):
    """There is no trusted agent; the text gives further reasons, if any."""


class _Unfit(Exception):
    """A folder that is not used; the text says why."""


class AgentLost(Exception):
    """It is gone, or sent an invalid message."""


class Agent:
    """A connection. `hello` is its greeting."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        # also of a reader whose thread never returned to close it, and before a circle it is part of is collected
        self._end = weakref.finalize(self, connected.close)
        self._got = b""
        self.hello = next(self.wait(_CONNECT_S), {})

    def fileno(self) -> int:
        """File descriptor for polling."""
        return self._socket.fileno()

    def ask(self, op: str, **fields: Any) -> None:
        """Send a request."""
        try:
            # commands die of SIGPIPE, as a pipe into `head` needs
            self._socket.sendall(json.dumps({"op": op, **fields}).encode() + b"\n", socket.MSG_NOSIGNAL)
        except OSError as error:
            raise AgentLost(f"the agent does not accept requests: {error.strerror}") from None

    def answer(self, op: str, seconds: float = 5.0, **fields: Any) -> dict[str, Any]:
        """Send a request and return the immediate answer."""
        self.ask(op, **fields)
        for told in self.wait(seconds):
            return told
        raise AgentLost("no answer from the agent: the program blocks its other threads")

    def wait(self, seconds: float) -> Iterator[dict[str, Any]]:
        """Its messages within this time, as they arrive."""
        deadline_s = time.monotonic() + seconds
        while (left_s := deadline_s - time.monotonic()) > 0:
            if readable([self._socket], left_s):
                yield from self.read()

    def read(self) -> list[dict[str, Any]]:
        """Its available messages; call when readable. Raises AgentLost at the end."""
        try:
            data = self._socket.recv(1 << 16)
        except OSError as error:
            raise AgentLost(f"connection to the agent lost: {error.strerror}") from None
        if not data:
            raise AgentLost("connection to the agent lost: the process exited or called exec")
        *whole, self._got = (self._got + data).split(b"\n")
        if len(self._got) > _LONGEST:
            raise AgentLost("the answer of the agent is too long")
        return [_object(line) for line in whole]

    def close(self) -> None:
        """Close the connection; work for us ends."""
        self._end()


def connect(target: HeldProcess) -> Agent:
    """The agent of exactly this process; NoAgent if there is no trusted one."""
    pid, uid = target.pid, target.process.uid
    name = f"agent-{_inner_pid(pid)}-{target.process.started_ticks}.sock"
    why = ""
    for folder in _folders(pid, uid):
        try:
            agent = within(folder, _listening, target, folder, name, seconds=_FOLDER_S)
        except NoAnswer:
            why = why or f"{clean(folder)} {_SILENT}"
        except _Unfit as unfit:
            why = why or str(unfit)
        else:
            if agent is not None:
                return agent
    raise NoAgent(why)


def _listening(target: HeldProcess, folder: str, name: str) -> Agent | None:
    """The agent listening in a folder named by the process; None if there is none. The folder may never respond."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise _Unfit(f"{clean(folder)} is a link or not a folder: not used") from None
        return None
    try:
        info = os.fstat(fd)
        if info.st_uid != target.process.uid or info.st_mode & 0o077:
            raise _Unfit(f"{clean(folder)} is not a private folder of the process's user: not used")
        return _greeted(target, fd, name) if name in os.listdir(fd) else None
    except OSError as error:
        raise _Unfit(f"its agent is unreachable: {error.strerror}") from None
    finally:
        os.close(fd)


def present(pid: int, started_ticks: int, uid: int | None) -> bool:
    """Whether this process appears to have an agent socket. Cheap: opens nothing.

    NoAgent if unknown, as when a folder named by the process does not respond.
    """
    name = f"agent-{_inner_pid(pid)}-{started_ticks}.sock"
    silent = ""
    for folder in _folders(pid, uid):
        try:
            if within(folder, _is_socket, f"{folder}/{name}"):
                return True
        except NoAnswer:
            silent = silent or f"{clean(folder)} {_SILENT}"
    if silent:
        raise NoAgent(silent)
    return False


def listening() -> frozenset[tuple[int, int]]:
    """PID and start of each process of this user with an agent socket here; for root, of all users.

    Only lists folders: reads neither processes nor environments. A name proves nothing, `connect` does.
    """
    own = os.geteuid()
    runtime, session = (os.environ.get(name, "") for name in _FOLDERS)
    named = (runtime, f"{session}/gputop" if session else "")
    found: set[tuple[int, int]] = set()
    for folder in (*filter(os.path.isabs, named), *(_of_all_users() if own == 0 else (f"/tmp/gputop-{own}",))):
        with suppress(OSError):
            found |= within(folder, _named, folder)
    return frozenset(found)


def _of_all_users() -> list[str]:
    """Folders of agents in /tmp, named by uid. Other gputop folders there are skipped: listing each takes a thread."""
    return [folder for folder in glob("/tmp/gputop-*") if folder.removeprefix("/tmp/gputop-").isdecimal()]


def _named(folder: str) -> set[tuple[int, int]]:
    with os.scandir(folder) as entries:
        found = (_SOCKET.fullmatch(entry.name) for entry in islice(entries, _MOST_NAMES))
        return {(int(match[1]), int(match[2])) for match in found if match}


def environment(pid: int) -> dict[str, str]:
    """The initial environment of a process; empty if unreadable."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            entries = file.read(4 << 20).split(b"\0")
    except OSError:
        return {}
    return {decode(key): decode(value) for key, _, value in (entry.partition(b"=") for entry in entries)}


def mapped(pid: int) -> bytes:
    """Its mappings from /proc/PID/maps; empty if unreadable."""
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            return file.read(_MAPS_BYTES)
    except OSError:
        return b""


def root(pid: int) -> str:
    """Prefix of its paths: empty, or the root of its container."""
    try:
        return "" if ours(pid, "mnt") else f"/proc/{pid}/root"
    except OSError:
        return ""


def _greeted(target: HeldProcess, folder: int, name: str) -> Agent:
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    connected.settimeout(_CONNECT_S)
    try:
        _connected(connected, f"/proc/self/fd/{folder}/{name}")  # for any length of the folder's path
        pid, uid, _ = struct.unpack("3i", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if (pid, uid) != (target.pid, target.process.uid):
            raise NoAgent(f"its socket belongs to process {pid} of uid {uid}: not used")
        agent = Agent(connected)
        if agent.hello.get("hello") != "gputop-agent" or agent.hello.get("pid") != _inner_pid(target.pid):
            raise NoAgent("its socket does not belong to a gputop agent: not used")
        if agent.hello.get("v") != 1:
            raise NoAgent("its agent is from another version of gputop: use that version")
        if target.ended():
            raise NoAgent("the process exited")
        return agent
    except ConnectionRefusedError:
        connected.close()
        _swept(folder, name)
        raise NoAgent("its agent has stopped") from None
    except (AgentLost, NoAgent) as error:
        connected.close()
        raise NoAgent(str(error)) from None
    except OSError:
        connected.close()
        raise


def _connected(connecting: socket.socket, path: str) -> None:
    """As connect(2), but with retries while many others wait."""
    deadline_s = time.monotonic() + _CONNECT_S
    while True:
        try:
            connecting.connect(path)
            return
        except BlockingIOError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.01)


def _swept(folder: int, name: str) -> None:
    """Remove a socket of ours that has no listener any more."""
    try:
        if os.fstat(folder).st_uid == os.geteuid():
            os.unlink(name, dir_fd=folder)
    except OSError:
        pass


def _folders(pid: int, uid: int | None) -> Iterator[str]:
    """Possible locations of its agent's socket, as seen from here."""
    base, said = root(pid), environment(pid)
    runtime, session = (said.get(name) or os.environ.get(name, "") for name in _FOLDERS)
    if os.path.isabs(runtime):
        yield base + runtime
    yield f"{base}/tmp/gputop-{uid}"
    if os.path.isabs(session):
        yield f"{base}{session}/gputop"


def _inner_pid(pid: int) -> int:
    """Its PID in its own namespace: the last of NSpid."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith(b"NSpid:"):
                    return int(line.split()[-1])
    except (OSError, ValueError):
        pass
    return pid


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False


def _object(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise AgentLost("unexpected answer from the agent") from None
    if not isinstance(found, dict):
        raise AgentLost("unexpected answer from the agent")
    return found

"""Whether the endpoint of a process may be served at all: its folder, its torch, whose it is.

A reply from an address that does not begin with the very text of the job's KINETO_IPC_SOCKET_DIR aborts the job; the
name that is used without it is open to every user of the machine; and before torch 2.14 a job that runs operators on
another thread while such a trace is stopped has crashed (pytorch#185741, #187141, #187483; #188172 is the last fix).
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from typing import NamedTuple

from gputop.agent_client import mapped, root
from gputop.model import Process
from gputop.safe import plain
from gputop.safe.attach import Barred
from gputop.safe.deadline import within
from gputop.safe.files import Refused, runtime_folder
from gputop.safe.text import decode

SINCE = (2, 14)
FOLDER, TRACES = "KINETO_IPC_SOCKET_DIR", "KINETO_ONDEMAND_TRACE_DIR"
_LONGEST = 107  # bytes of the name of a socket, unix(7)
_TORCH = re.compile(rb"(/[^\n]*/torch)/_C\.[^/\n]*\.so( \(deleted\))?\n")
_VERSION = re.compile(rb"^__version__ = '([A-Za-z0-9.+_-]{1,60})'$", re.MULTILINE)
_RELEASE = re.compile(r"(\d+)\.(\d+)(?:\.\d+)*(?:\+[a-z0-9.]+)?")  # not 2.14.0a0+gitabc, not 2.14.0.dev20260601
_PLAIN = re.compile(r"[A-Za-z0-9._/-]+")  # what Kineto reads as one value of a setting


class Torch(NamedTuple):
    """The torch that a process has mapped: what it says of itself, and whether it has the fixes."""

    version: str
    fixed: bool


def barred(process: Process, environment: Mapping[str, str], start: str) -> Barred | None:
    """Why the endpoint of this process is not served, None if it may be; `start` is how to start it next time."""
    why = _why(process, environment)
    if why is None:
        return None
    return Barred(f"{process.pid} takes traces only from a daemon: {why}; next time start it with", start)


def safe(folder: str, uid: int | None) -> bool:
    """Whether nobody but this user can have a name there, and the name is the one that Kineto uses for it."""
    if not os.path.isabs(folder) or folder.endswith("/") or "//" in folder:
        return False
    try:
        return within(folder, _private, folder, uid)
    except OSError:  # or it does not answer
        return False


def _private(folder: str, uid: int | None) -> bool:
    if os.path.realpath(folder) != folder:
        return False
    info = os.lstat(folder)
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid() == uid and not info.st_mode & 0o077


def output(environment: Mapping[str, str]) -> str:
    """The folder that its Kineto writes to, made if needed; elsewhere than /tmp only what it was started with.

    Refused where that is not a private folder of ours. Newer ones write nothing outside it, without a word.
    """
    own = environment.get(TRACES, "").removesuffix("/")
    if own:
        if not safe(own, os.geteuid()) or not _PLAIN.fullmatch(own) or ".." in own or ".json" in own:
            raise Refused(f"{TRACES}={own} is not a private folder of yours: not used")
        return own
    runtime = runtime_folder({})
    try:
        traces = runtime.inner("traces")
        traces.close()
        return traces.path
    finally:
        runtime.close()


def torch_of(pid: int) -> Torch | None:
    """By the file that its mapped torch is described in; None where that cannot be told. Imports nothing."""
    found = set(_TORCH.findall(mapped(pid)))
    if len(found) != 1:
        return None
    ((folder, deleted),) = found
    path = os.fsencode(root(pid)) + folder + b"/version.py"
    try:
        said = _VERSION.search(within(path, _beginning, path))
    except OSError:
        return None
    if said is None or deleted:  # replaced by another version since
        return None
    version = decode(said[1])
    return Torch(version, fixed(version))


def _beginning(path: bytes) -> bytes:
    with open(plain.opened(path), "rb") as file:
        return file.read(1 << 14)


def has_cuda(pid: int) -> bool:
    """Whether it has the driver loaded."""
    return b"/libcuda.so" in mapped(pid)


def fixed(version: str) -> bool:
    """Whether a torch of this version has the fixes; what is no release may have been made before them."""
    release = _RELEASE.fullmatch(version)
    return release is not None and (int(release[1]), int(release[2])) >= SINCE


def _why(process: Process, environment: Mapping[str, str]) -> str | None:
    folder = environment.get(FOLDER, "")
    if process.uid != os.geteuid():
        return f"it belongs to {process.user or f'uid {process.uid}'}, who alone may serve it"
    if not folder:
        return "it listens on a name that any user could serve: not served"
    if root(process.pid):
        return "its socket folder is in a container: not served from here"
    if not safe(folder, process.uid) or len(os.fsencode(folder)) + len("/dynolog") > _LONGEST:
        return "it uses a socket folder gputop will not serve: a reply could abort it"
    torch = torch_of(process.pid)
    least = f"{SINCE[0]}.{SINCE[1]}"
    if torch is None:
        return f"the version of its torch cannot be told, and before {least} the end of such a trace can crash it"
    if not torch.fixed:
        return f"its torch {torch.version} can crash when such a trace stops (pytorch#188172 is in {least} and newer)"
    return None

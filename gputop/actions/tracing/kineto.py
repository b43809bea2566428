"""The profiler's own daemon endpoint, for jobs that were started with it: who may be served, and why nobody else is.

A reply from an address that does not begin with the very text of the job's KINETO_IPC_SOCKET_DIR aborts the job; the
name that is used without it is open to every user of the machine.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping

from gputop.model import Process
from gputop.safe.attach import Barred

START = "gputop run -- COMMAND"


def barred(process: Process, environment: Mapping[str, str]) -> Barred | None:
    """Why the endpoint of this process is not served; None if it could be."""
    pid, folder = process.pid, environment.get("KINETO_IPC_SOCKET_DIR", "")
    if not folder:
        return Barred(
            f"{pid} listens for traces on a name that any user could serve: not served; restart it with", START
        )
    if not _safe(folder, process.uid):
        why = f"{pid} uses a socket folder that gputop does not serve: a reply could abort it"
        return Barred(f"{why}; restart it with", START)
    return None


def _safe(folder: str, uid: int | None) -> bool:
    if not os.path.isabs(folder) or folder.endswith("/") or "//" in folder or os.path.realpath(folder) != folder:
        return False
    try:
        info = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid() == uid and not info.st_mode & 0o077

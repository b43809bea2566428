"""The profiler's own daemon endpoint, of jobs that were started with it, and why gputop does not serve it.

A reply from an address that does not begin with the very text of the job's KINETO_IPC_SOCKET_DIR aborts the job; the
name that is used without it is open to every user of the machine; and a job that ends, or runs operators on another
thread, while such a trace is stopped has crashed (pytorch#185741, #187141, #187483).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping

from gputop.model import Process
from gputop.safe.attach import Barred


def barred(process: Process, environment: Mapping[str, str], start: str) -> Barred:
    """Why the endpoint of this process is not served; `start` is how to start it next time."""
    folder = environment.get("KINETO_IPC_SOCKET_DIR", "")
    if not folder:
        why = "listens for traces on a name that any user could serve"
    elif not _safe(folder, process.uid):
        why = "uses a socket folder where a reply could abort it"
    else:
        why = "takes traces only from a daemon, and has a torch that may crash when such a trace stops"
    return Barred(f"{process.pid} {why}: not served; next time start it with", start)


def _safe(folder: str, uid: int | None) -> bool:
    if not os.path.isabs(folder) or folder.endswith("/") or "//" in folder or os.path.realpath(folder) != folder:
        return False
    try:
        info = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid() == uid and not info.st_mode & 0o077

"""The py-spy that is run: beside our own interpreter or on PATH, and nobody else's where we are root."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import sys

from gputop.safe.attach import Barred

NAME = "py-spy"


def find() -> str | Barred:
    """The absolute path of py-spy, or why none is run."""
    beside = os.path.join(os.path.dirname(sys.executable), NAME)
    path = beside if os.access(beside, os.X_OK) else shutil.which(NAME)
    if path is None:
        return Barred("py-spy is not installed", f"{shlex.quote(sys.executable)} -m pip install py-spy")
    path = os.path.realpath(path)
    return (_foreign(path) if os.geteuid() == 0 else None) or path


def _foreign(path: str) -> Barred | None:
    """Why root does not run a program: somebody else could have put it there."""
    for place in (path, os.path.dirname(path)):
        try:
            info = os.stat(place)
        except OSError as error:
            return Barred(f"{place}: {error.strerror}")
        if info.st_uid != 0 or info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            whose = f"belongs to uid {info.st_uid}" if info.st_uid else "can be written by others"
            return Barred(f"root does not run {path}: {place} {whose}", "sudo python3 -m pip install py-spy")
    return None

"""By which way a process can be traced, and if by none: exactly why, and the command that makes it possible."""

from __future__ import annotations

import os
import re
from enum import Enum

from gputop.actions.tracing import agent, kineto, remote
from gputop.model import Process
from gputop.safe.attach import Barred

_PYTHON = re.compile(rb"/(?:lib)?python(3\.\d+)")
_MAPS_BYTES = 4 << 20


class Route(Enum):
    """The ways, the best first."""

    AGENT = "agent"
    REMOTE = "remote"  # our agent, put there by sys.remote_exec


def route(process: Process) -> Route | Barred:
    """The best way into this process. Reads /proc; about 1 ms."""
    if process.started_ticks and agent.present(process.pid, process.started_ticks, process.uid):
        return Route.AGENT
    said = agent.environment(process.pid)
    version = python_version(process.pid)
    if version is not None and version >= remote.SINCE:
        return remote.barred(process, said) or Route.REMOTE
    if said.get("KINETO_USE_DAEMON") == "1":
        return kineto.barred(process, said)
    return _none(process, version)


def python_version(pid: int) -> tuple[int, int] | None:
    """The version of its Python, by what it has mapped or by the name of its program; None if it is none."""
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            found = _PYTHON.search(file.read(_MAPS_BYTES))
        found = found or _PYTHON.search(os.fsencode(os.readlink(f"/proc/{pid}/exe")))
    except OSError:
        return None
    if found is None:
        return None
    major, _, minor = found[1].partition(b".")
    return int(major), int(minor)


def _none(process: Process, version: tuple[int, int] | None) -> Barred:
    if version is None:
        return Barred(f"{process.pid} is no Python program that can be seen: nothing to trace", None)
    python = f"Python {version[0]}.{version[1]}"
    why = f"{process.pid} cannot be traced from outside: no agent in it, and {python} lets none in (3.14 does)"
    return Barred(f"{why}; next time start it with", kineto.START)

"""How a process can be traced, and if it cannot: the exact reason, and the command that makes it possible."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from enum import Enum

from gputop import agent_client as agent
from gputop.actions.target import typed
from gputop.actions.torch_trace import kineto, remote_exec
from gputop.model import Frame, Process, Role
from gputop.safe.ptrace_access import Barred

_PYTHON = re.compile(rb"/(?:lib)?python(3\.\d+)")
# by mapped library: other frameworks' profilers, with traces that gputop explain can read
_OTHERS = (
    ("TensorFlow", re.compile(rb"/libtensorflow|/_pywrap_tensorflow"), "tf.profiler.experimental.Profile('logs')"),
    ("JAX", re.compile(rb"/jaxlib/"), "jax.profiler.trace('logs')"),
)
_TORCH = b"/libtorch"
_INJECT = "/gputop/inject"  # added to PYTHONPATH by gputop run, of any installation
_LONGEST = 400  # characters of a command shown


class Route(Enum):
    """The ways to trace a process, best first."""

    AGENT = "agent"
    REMOTE = "remote"  # our agent, injected by sys.remote_exec
    KINETO = "kineto"  # Kineto's daemon protocol, served by us for one trace


def route(process: Process, frame: Frame | None = None) -> Route | Barred:
    """The best way to trace this process. Reads /proc; about 1 ms. The frame tells how its job was started."""
    try:
        if process.started_ticks and agent.present(process.pid, process.started_ticks, process.uid):
            return Route.AGENT
    except agent.NoAgent as silent:  # no other way is tried on a process that may already run an agent
        return Barred(f"{process.pid} cannot be traced: {silent}")
    said = agent.environment(process.pid)
    version = python_version(process.pid)
    if (other := _other_framework(process.pid)) is not None:
        return other
    remotely = version is not None and version >= remote_exec.SINCE
    again = start_command(process, frame)
    barred = remote_exec.barred(process, said, again) if remotely else _no_route(process, version, said, again)
    if barred is None:
        return Route.REMOTE
    if said.get("KINETO_USE_DAEMON") != "1":
        return barred
    daemon = kineto.barred(process, said, again)
    if daemon is None:
        return Route.KINETO
    return barred if remotely else daemon


def start_command(process: Process, frame: Frame | None = None) -> str:
    """The command that starts it ready for tracing: its launcher's, if it has one."""
    job = next((job for job in frame.jobs if job.key == process.job), None) if frame else None
    leader = frame.by_identity.get(job.members[0]) if frame and job and job.members else None
    line = typed(leader if leader and leader.role is Role.LAUNCHER else process)
    return f"gputop run -- {line if 0 < len(line) <= _LONGEST else 'COMMAND'}"


def python_version(pid: int) -> tuple[int, int] | None:
    """Version of its Python, from its mapped files or program name; None if it is not Python."""
    try:
        found = _PYTHON.search(agent.mapped(pid))
        found = found or _PYTHON.search(os.fsencode(os.readlink(f"/proc/{pid}/exe")))
    except OSError:
        return None
    if found is None:
        return None
    major, _, minor = found[1].partition(b".")
    return int(major), int(minor)


def _other_framework(pid: int) -> Barred | None:
    """How to trace a process that trains without torch."""
    mapped = agent.mapped(pid)
    for name, library, profiler in () if _TORCH in mapped else _OTHERS:
        if library.search(mapped):
            why = f"{pid} runs {name}, not torch: wrap some steps as follows, then run gputop explain"
            return Barred(why, f"with {profiler}: ...")
    return None


def _no_route(process: Process, version: tuple[int, int] | None, said: Mapping[str, str], start: str) -> Barred:
    if version is None:
        return Barred(f"{process.pid} is not a visible Python program: nothing to trace", None)
    python = f"Python {version[0]}.{version[1]}"
    if any(entry.endswith(_INJECT) for entry in said.get("PYTHONPATH", "").split(os.pathsep)):
        why = "torch is not imported yet, or its Python ignores PYTHONPATH (-I, -E, -S)"
        return Barred(f"{process.pid} was started with gputop run but has no agent: {why}")
    why = f"{process.pid} cannot be traced from outside: it has no agent, and {python} accepts none (3.14 does)"
    return Barred(f"{why}; next time start it with", start)

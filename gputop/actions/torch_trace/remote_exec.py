"""Inject the agent into an unprepared process: sys.remote_exec of Python 3.14, PEP 768.

The process runs the script when its main thread next runs Python, possibly much later: the script checks its PID and a
deadline, and does nothing after that. It must exist until it has run, or the process prints an error; it removes
itself, and leftovers are removed once their process has ended.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from pathlib import Path

import gputop
from gputop.actions.action import ActionRun
from gputop.actions.target import TargetProcess
from gputop.model import Process
from gputop.safe import programs, ptrace_access
from gputop.safe.deadline import within
from gputop.safe.files import Folder, Refused, runtime_folder
from gputop.safe.identity import ours
from gputop.safe.ptrace_access import Barred
from gputop.safe.text import decode

SINCE = (3, 14)
RISK = "remote-exec"
DEADLINE_S = 10.0
_NAMESPACES = ("mnt", "pid", "user")  # roots of a container's programs
_CALL = "import sys; sys.remote_exec(int(sys.argv[1]), sys.argv[2])"
_LEFT = re.compile(r"remote-(\d+)-(\d+)-[0-9a-f]+\.py")
# it runs in a foreign module: literal paths, no __file__
_SCRIPT = """\
def _gputop():
    import os, sys, time
    said = "too late"
    try:
        if os.getpid() == {pid} and time.time() < {deadline!r}:
            if "gputop_agent" not in sys.modules:
                import importlib.util
                spec = importlib.util.spec_from_file_location(
                    "gputop_agent", {agent!r} + "/__init__.py", submodule_search_locations=[{agent!r}]
                )
                sys.modules["gputop_agent"] = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(sys.modules["gputop_agent"])
            sys.modules["gputop_agent"].start("remote_exec")
            said = "ok"
    except BaseException as error:
        said = repr(error)[:300]
    try:
        os.unlink({script!r})
        if said != "too late":
            os.write(os.open({ack!r}, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), said.encode())
    except OSError:
        pass
_gputop()
del _gputop
"""


def barred(process: Process, environment: Mapping[str, str], start: str) -> Barred | None:
    """Why injection into this process is impossible, None if possible; `start`: command to start it next time."""
    pid = process.pid
    if process.uid != os.geteuid():
        owner = process.user or f"uid {process.uid}"
        return Barred(f"{pid} belongs to {owner}: only {owner} can inject the agent", None)
    if environment.get("PYTHON_DISABLE_REMOTE_DEBUG"):
        return Barred(f"remote debugging is disabled in {pid}", "unset PYTHON_DISABLE_REMOTE_DEBUG")
    return ptrace_access.barred(pid, "trace") or _in_container(pid, start)


def _in_container(pid: int, start: str) -> Barred | None:
    """Whether it is in a container: its interpreter, needed for the request, would run on the host with our rights."""
    try:
        if all(ours(pid, namespace) for namespace in _NAMESPACES):
            return None
    except OSError:
        pass
    return Barred(
        f"{pid} is in a container, whose Python is not run from outside; next time start it there with", start
    )


def script(pid: int, agent: str, path: str, ack: str, deadline: float) -> str:
    """The code that the process runs once, before a Unix time."""
    return _SCRIPT.format(pid=pid, agent=agent, script=path, ack=ack, deadline=deadline)


def inject(target: TargetProcess, run: ActionRun) -> str | None:
    """Inject the agent and wait until it responds; return why it did not, None on success."""
    try:
        folder = runtime_folder()
    except Refused as refused:
        return str(refused)
    try:
        return _inject(target, folder, run)
    except Refused as refused:
        return str(refused)
    finally:
        folder.close()


def _inject(target: TargetProcess, folder: Folder, run: ActionRun) -> str | None:
    sweep(folder)
    nonce = os.urandom(8).hex()
    name, ack = f"remote-{target.pid}-{target.process.started_ticks}-{nonce}.py", f"ack-{nonce}"
    agent = str(Path(gputop.__file__).parent / "agent")
    path, deadline = f"{folder.path}/{name}", time.time() + DEADLINE_S
    folder.write(name, script(target.pid, agent, path, f"{folder.path}/{ack}", deadline).encode())
    if target.ended():
        folder.remove(name)
        return "the process exited"
    why = _request(target.pid, path)
    if why is not None:
        folder.remove(name)  # nothing was requested from the process
        return why
    while time.time() < deadline + 0.5:
        run.say(f"waiting for the main thread of {target.pid} to run Python")
        if said := _acknowledged(folder, ack):
            return None if said == "ok" else f"the agent did not start: {said}"
        if run.pause(0.02):
            return "cancelled; the request expires by itself"
        if target.ended():
            return "the process exited"
    said = f"its main thread ran no Python within {DEADLINE_S:.0f} s: nothing was injected, and nothing will be later"
    return f"{said}; gputop stack {target.pid} shows where it is"


def sweep(folder: Folder) -> None:
    """Remove scripts of ended processes."""
    for name in folder.sizes():
        if (found := _LEFT.fullmatch(name)) and not os.path.exists(f"/proc/{found[1]}"):
            folder.remove(name)


def _request(pid: int, path: str) -> str | None:
    """Make the request with the process's own interpreter, as versions must match; return why it failed."""
    try:
        call = [f"/proc/{pid}/exe", "-I", "-S", "-c", _CALL, str(pid), path]
        # in a separate thread: on a dead mount, even starting a program may block forever
        code, said = within(call[0], lambda: programs.output(call, DEADLINE_S, {}, errors=True), seconds=DEADLINE_S + 2)
    except programs.NotRun as why:
        return str(why)
    except (OSError, programs.Timeout) as error:
        return f"its interpreter could not be started: {type(error).__name__}"
    if code == 0:
        return None
    last = decode(said).rpartition("·")[2] or decode(said)
    return f"the kernel or its Python does not allow it: {last[-200:]}"


def _acknowledged(folder: Folder, name: str) -> str | None:
    if not folder.sizes().get(name):
        return None
    try:
        fd = os.open(f"{folder.path}/{name}", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            return decode(file.read(400))
    except OSError:
        return None
    finally:
        folder.remove(name)

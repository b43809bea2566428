"""Requirements for stacks and traces: py-spy, NVIDIA's Python binding, torch.profiler access, a private folder."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

from gputop.collect.nvml.cadence import CallCosts
from gputop.collect.nvml.gate import DriverGate, Unanswered
from gputop.doctor.check import CheckLine, check
from gputop.doctor.machine import DoctorContext
from gputop.doctor.python import in_use
from gputop.safe import programs, ptrace_access
from gputop.safe.files import Refused, runtime_folder, runtime_place

_PY_SPY = (0, 4)  # oldest version that reads Python 3.13
_BINDING = (13, 580)
_REMOTE_EXEC = (3, 14)  # sys.remote_exec, PEP 768


@check("py-spy", "Can stacks be read?")
def py_spy(machine: DoctorContext) -> Iterator[CheckLine]:
    """The program that reads stacks, beside our interpreter or on PATH."""
    try:
        path = programs.find("py-spy", machine.path, first=str(Path(machine.program).parent))
        said = machine.first_line(path, "--version")
    except programs.NotFound:
        yield CheckLine(
            "missing", "py-spy is not installed: no stacks and no profiles", pip("install py-spy"), {"path": None}
        )
        return
    except programs.NotRun as why:
        yield CheckLine("missing", str(why), "sudo python3 -m pip install py-spy", {"path": None})
        return
    version = _numbers(said)
    value = {"path": path, "version": said}
    if not version:
        yield CheckLine("missing", f"{path} does not run", pip("install --force-reinstall py-spy"), value)
    elif version < _PY_SPY:
        yield CheckLine(
            "limited", f"{said} is too old for Python 3.13 and newer", pip("install --upgrade py-spy"), value
        )
    else:
        yield CheckLine("ok", f"{said}", value=value)


@check("pynvml", "Is the pynvml module NVIDIA's?")
def pynvml(machine: DoctorContext) -> Iterator[CheckLine]:
    """NVIDIA's binding: another package, or a stray file, may have taken its name."""
    try:
        spec = importlib.util.find_spec("pynvml")
    except (ImportError, ValueError):
        spec = None
    origin = spec.origin if spec else None
    value = {"path": origin, "version": _version("nvidia-ml-py")}
    if origin is None:
        yield CheckLine(
            "missing", "nvidia-ml-py is not installed: no GPU can be read", pip("install nvidia-ml-py"), value
        )
        return
    try:
        DriverGate(CallCosts()).binding  # noqa: B018
    except Unanswered:
        yield CheckLine("missing", f"{origin} shadows NVIDIA's module", _unshadow(origin, machine), value)
        return
    if _numbers(_version("nvidia-ml-py")) < _BINDING:
        what = f"nvidia-ml-py {_version('nvidia-ml-py') or 'of unknown version'} is outdated: some metrics are missing"
        yield CheckLine("limited", what, pip("install --upgrade nvidia-ml-py"), value)
    else:
        yield CheckLine("ok", f"nvidia-ml-py {_version('nvidia-ml-py')}", value=value)


@check("torch-trace", "Can torch.profiler be started in a running job?")
def torch_trace(machine: DoctorContext) -> Iterator[CheckLine]:
    """sys.remote_exec, which needs Python 3.14 and debugging rights."""
    found, settings = in_use(machine), machine.settings or {}
    python = found.version if found else None
    version = _numbers(python)
    value = {"python": python, "kineto_daemon": settings.get("KINETO_USE_DAEMON") == "1"}
    if not version:
        yield CheckLine("unknown", "the Python version of the job is unknown", value={**value, "route": None})
    elif version < _REMOTE_EXEC:
        what = f"Python {python} cannot be attached to (3.14 can): only jobs started as follows can be traced"
        yield CheckLine("limited", what, "gputop run -- COMMAND", {**value, "route": None})
    elif settings.get("PYTHON_DISABLE_REMOTE_DEBUG"):
        what = "remote debugging is disabled by PYTHON_DISABLE_REMOTE_DEBUG"
        yield CheckLine("missing", what, "unset PYTHON_DISABLE_REMOTE_DEBUG", {**value, "route": None})
    elif ptrace_access.scope(machine.kernel.proc_root) and not machine.may_trace_all:
        what = f"Python {python} allows it, but the kernel does not (see ptrace)"
        yield CheckLine("limited", what, value={**value, "route": None})
    else:
        what = f"yes, through sys.remote_exec of Python {python}"
        yield CheckLine("ok", what, value={**value, "route": "remote_exec"})


@check("runtime", "Is the socket folder private to you?")
def runtime(machine: DoctorContext) -> Iterator[CheckLine]:
    """The runtime folder: its name in /tmp may belong to another user. Creates nothing."""
    base, name = runtime_place(machine.environ, f"{machine.root}/tmp")
    path = f"{base}/{name}"
    value = {"path": path}
    if not os.path.lexists(path):
        yield CheckLine("ok", f"{path} is created when needed", value=value)
        return
    try:
        runtime_folder(machine.environ, f"{machine.root}/tmp").close()
    except Refused as refused:
        yield CheckLine("missing", str(refused), f"ls -ld {shlex.quote(path)}", value)
    else:
        yield CheckLine("ok", f"{path} is private", value=value)


def pip(what: str) -> str:
    """The pip command for gputop's own environment."""
    return f"{shlex.quote(sys.executable)} -m pip {what}"


def _unshadow(origin: str, machine: DoctorContext) -> str:
    folders = filter(None, machine.environ.get("PYTHONPATH", "").split(os.pathsep))
    if any(Path(origin).is_relative_to(folder) for folder in folders):
        return "env -u PYTHONPATH gputop doctor"
    again = pip("install --force-reinstall nvidia-ml-py")
    return f"{pip('uninstall -y pynvml')}; {again}" if _version("pynvml") else again


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _numbers(version: str | None) -> tuple[int, ...]:
    """Numbers of a version: `py-spy 0.4.3`, `2.13.0+cpu`; empty if there are none."""
    found = re.search(r"\d+(?:\.\d+)+", version or "")
    return tuple(map(int, found[0].split("."))) if found else ()

"""The user's function that creates what is measured, and the Python to run it in."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from gputop.frozen_dataclass import frozen_dataclass
from gputop.safe import programs

PROBE = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
PROBE_S = 20.0
RAN = "gputop:ran"
EXAMPLE = "train.py:make_loader or mypackage.data:make_loader"


@frozen_dataclass(frozen=True, slots=True)
class Factory:
    """`file.py:function` or `module:function`, and the arguments after `--`."""

    file: str | None
    module: str | None
    function: str
    args: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its spelling on the command line."""
        return f"{self.file or self.module}:{self.function}"

    def request(self) -> dict[str, Any]:
        """Fields a child needs to find it."""
        return {"file": self.file, "module": self.module, "function": self.function, "args": list(self.args)}


def factory(text: str, args: tuple[str, ...] = ()) -> Factory:
    """The factory of this spelling; ValueError with one line if it is invalid."""
    where, colon, function = text.rpartition(":")
    if not colon or not where or not all(part.isidentifier() for part in function.split(".")):
        raise ValueError(f"{text!r} names no function: write {EXAMPLE}")
    if not (where.endswith(".py") or "/" in where):
        if not all(part.isidentifier() for part in where.split(".")):
            raise ValueError(f"{where!r} is no module: write {EXAMPLE}")
        return Factory(None, where, function, args)
    path = os.path.expanduser(where)
    if not os.path.isfile(path):
        raise ValueError(f"there is no file {where}")
    return Factory(path, None, function, args)


def interpreter(chosen: str | None, environ: Mapping[str, str]) -> str:
    """The Python to measure in: the chosen one; ours if it has torch; else the first on PATH with torch.

    ValueError if there is none.
    """
    if chosen is not None:
        return _chosen(os.path.expanduser(chosen), environ)
    if find_spec("torch") is not None:
        return sys.executable
    folder = environ.get("VIRTUAL_ENV")
    first = os.path.join(folder, "bin") if folder else None
    why = ""
    for candidate in dict.fromkeys(programs.candidates("python3", environ.get("PATH", programs.PATH), first=first)):
        if reason := programs.why_distrusted(candidate):
            why = why or f"; {reason}"
        elif _has_torch(candidate):
            return candidate
    raise ValueError(f"no python3 on PATH has torch: name the interpreter of the training with --python{why}")


def _chosen(path: str, environ: Mapping[str, str]) -> str:
    if "/" not in path:
        path = next(programs.candidates(path, environ.get("PATH", programs.PATH)), path)
    if os.path.isdir(path):  # of a virtual environment
        path = os.path.join(path, "bin", "python3")
    if not (os.path.isfile(path) and os.access(path, os.X_OK)):
        raise ValueError(f"--python {path}: there is no such program")
    path = os.path.abspath(path)
    if why := _no_python(path):
        raise ValueError(f"--python {path} {why}: name the interpreter of the training")
    return path


def _no_python(path: str) -> str:
    """Why a program does not run Python code; empty if it does, or takes too long.

    With one of our files as argument its own error message would not mention --python.
    """
    try:
        process = programs.start_chosen(
            [path, "-c", f"print({RAN!r})"], stdin=programs.DEVNULL, stdout=programs.PIPE, stderr=programs.DEVNULL
        )
    except OSError as error:
        return f"cannot be started ({error.strerror})"
    try:
        said, _ = process.communicate(timeout=PROBE_S)
    except programs.Timeout:
        process.kill()
        process.communicate()
        return ""
    if RAN.encode() in said.split():
        return ""
    return f"is not a Python interpreter (exit code {process.returncode} for a one-line script)"


def _has_torch(python: str) -> bool:
    """Checked in the user's folder: a shim may depend on it."""
    try:
        process = programs.start(
            [python, "-c", PROBE], stdin=programs.DEVNULL, stdout=programs.DEVNULL, stderr=programs.DEVNULL
        )
    except (OSError, programs.NotRun):
        return False
    try:
        return process.wait(PROBE_S) == 0
    except programs.Timeout:
        return False
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()

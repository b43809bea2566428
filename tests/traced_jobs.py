"""Real jobs with the agent in them: started as `gputop run` does it, told what to do in the middle of a trace."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gputop.actions import Rights
from gputop.actions.target import TargetProcess, open_target
from gputop.agent_client import Agent, connect
from gputop.cli import run
from tests.process_watch import ROOT, running
from tests.real_processes import row, until

TRAINING = str(ROOT / "tests/workloads/traced.py")
KINETO = str(ROOT / "tests/workloads/kineto.py")
BRIEF_S = 20.0


class Job:
    """A process, what it has printed, the agent in it."""

    def __init__(self, child: subprocess.Popen[str], folder: str) -> None:
        self.child, self.folder = child, folder
        self.traces = f"{folder}/state/gputop/traces"

    @property
    def pid(self) -> int:
        return self.child.pid

    @property
    def said(self) -> str:
        """What is on its standard error."""
        return Path(self.folder, "stderr").read_text()

    def line(self) -> str:
        assert self.child.stdout is not None
        return self.child.stdout.readline().strip()

    def tell(self, what: str) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(f"{what}\n")
        self.child.stdin.flush()

    def target(self) -> TargetProcess:
        found = open_target(row(self.pid), Rights(), {})
        assert isinstance(found, TargetProcess)
        return found

    def agent(self) -> Agent:
        return connect(self.target())

    def capture(self, *, seconds: float = BRIEF_S, **wanted: Any) -> dict[str, Any]:
        """What the agent says at the end of a capture."""
        agent = self.agent()
        agent.ask("capture", **wanted)
        try:
            for told in agent.wait(seconds):
                if "error" in told or told["state"] == "done":
                    return told
        finally:
            agent.close()
        raise AssertionError(f"it never ended; it said {self.said}")

    def ended(self) -> int:
        """Its exit code."""
        return self.child.wait(BRIEF_S)


def environment(folder: str) -> dict[str, str]:
    """As `gputop run` makes it, with all files in a folder; nothing of gputop can be imported by it."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "XDG_RUNTIME_DIR")}
    own = {"GPUTOP_RUNTIME_DIR": f"{folder}/run", "XDG_STATE_HOME": f"{folder}/state", "GPUTOP_AGENT_DEBUG": "1"}
    return {**kept, **own, **run.agent_settings({})}


@contextmanager
def scratch() -> Iterator[str]:
    """A folder with a short name: those of sockets are bounded."""
    folder = tempfile.mkdtemp(prefix="gt-", dir="/tmp")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def job(
    folder: str,
    *arguments: str,
    flags: tuple[str, ...] = (),
    program: str = TRAINING,
    injected: bool = True,
    python: tuple[str, ...] = (sys.executable,),
) -> Iterator[Job]:
    """A training that has made its first steps."""
    environ = environment(folder)
    if not injected:
        del environ["PYTHONPATH"]
    with (
        Path(folder, "stderr").open("w") as stderr,
        running(
            *python, *flags, program, *arguments,
            env=environ, stdin=subprocess.PIPE, stderr=stderr, cwd=folder,
        ) as child,
    ):  # fmt: skip
        found = Job(child, folder)
        assert found.line() == "ready", found.said
        yield found


@contextmanager
def played(folder: str, *arguments: str, version: str = "2.14.1+cpu", **how: Any) -> Iterator[subprocess.Popen[str]]:
    """A process that plays one with Kineto, and that seems to have this torch; see tests/workloads/kineto.py."""
    library = Path(folder, "site/torch/_C.cpython-311.so")
    library.parent.mkdir(parents=True, exist_ok=True)
    library.write_bytes(b"not a library")
    library.with_name("version.py").write_text(f"import typing\n\n__version__ = '{version}'\ndebug = False\n")
    with running(sys.executable, "-S", KINETO, str(library), *arguments, stdin=subprocess.PIPE, **how) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        yield child


def interpreter(name: str, *modules: str) -> str | None:
    """Another Python that runs here and has these modules: on PATH, or of pyenv."""
    versions = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    for found in (shutil.which(name), *map(str, versions.glob(f"*/bin/{name}"))):
        if (
            found
            and not subprocess.run(
                [found, "-c", f"import sys, {', '.join(modules)}".rstrip(", ")], capture_output=True
            ).returncode
        ):
            return found
    return None


def sockets(folder: str) -> list[str]:
    return sorted(os.listdir(f"{folder}/run"))


__all__ = ["BRIEF_S", "Job", "environment", "interpreter", "job", "played", "scratch", "sockets", "until"]

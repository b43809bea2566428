"""Real processes looked at with the real reader: start them, look until something is so, end them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gputop.collect.proc.gpu_processes import ProcessTable
from gputop.collect.proc.metadata_lane import MetadataLane
from gputop.collect.proc.reader import ProcessReader
from gputop.model import Process
from gputop.source import Interest

ROOT = Path(__file__).parent.parent
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="not covered: needs root")


def descriptors(pid: int | str = "self") -> dict[int, str]:
    """What a process has open, by descriptor; one that closes meanwhile is left out, as other threads go on."""
    opened = {}
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            opened[int(name)] = os.readlink(f"/proc/{pid}/fd/{name}")
    return opened


class Watch:
    """A reader of the real /proc with its names lane."""

    def __init__(self) -> None:
        self.names = MetadataLane()
        self.names.start()
        self.reader = ProcessReader(names=self.names)

    def look(self, *gpu_pids: int, open_: tuple[int, ...] = ()) -> ProcessTable:
        return self.reader.read(gpu_pids, Interest(pids=frozenset(open_)))

    def until(self, ready: Callable[[ProcessTable], Any], *gpu_pids: int, seconds: float = 60.0, **how: Any) -> Any:
        """Look again and again until `ready` gives something that is true; that is returned."""
        deadline = time.monotonic() + seconds
        while not (found := ready(table := self.look(*gpu_pids, **how))):
            assert time.monotonic() < deadline, f"never so; {table.count} processes, notes {table.notes}"
            time.sleep(0.06)
        return found


@pytest.fixture
def watch() -> Iterator[Watch]:
    watch = Watch()
    yield watch
    watch.names.stop()


def one(table: ProcessTable, pid: int) -> Process | None:
    """The process with this pid, if it is there; never two."""
    found = [process for process in table.processes if process.pid == pid]
    assert len(found) < 2
    return found[0] if found else None


@contextlib.contextmanager
def running(*command: str | bytes, program: str | None = None, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A child that is killed with all it started, whatever happens."""
    child = subprocess.Popen(
        command, executable=program, stdout=subprocess.PIPE, text=True, start_new_session=True, **options
    )
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        for stream in filter(None, (child.stdin, child.stdout)):
            stream.close()


@contextlib.contextmanager
def python(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Python code that prints `ready` when it is."""
    with running(sys.executable, "-S", "-c", code, *arguments) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        yield child


def isolated(code: str, *wrapper: str, seconds: float = 60.0, **options: Any) -> str:
    """What code prints that runs in a process of its own, behind a wrapper such as unshare; it must succeed."""
    prelude = "from tests.process_watch import *\n"
    done = subprocess.run(
        [*wrapper, sys.executable, "-c", prelude + code],
        cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False, **options,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def need_namespaces(*flags: str) -> None:
    """Skip, with the reason, where this user may not make namespaces."""
    done = subprocess.run(["unshare", *flags, "true"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"not covered: unshare {' '.join(flags)}: {done.stderr.strip()}")


def may_mount() -> bool:
    """Whether a process may mount in a namespace of its own."""
    return not subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True).returncode


def built(source: str, folder: Path, *flags: str) -> str:
    """The path of a C program from a folder of the tests; a skip without a compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("not covered: needs a C compiler")
    target = folder / Path(source).stem
    subprocess.run([compiler, "-O1", *flags, "-o", str(target), str(ROOT / "tests" / source)], check=True)
    return str(target)


@pytest.fixture
def open_folder() -> Iterator[str]:
    """One with py-spy in it that everybody may enter: ours may be in a folder of root's own."""
    with tempfile.TemporaryDirectory(prefix="gputop-test-") as folder:
        os.chmod(folder, 0o755)
        shutil.copy(Path(sys.prefix, "bin/py-spy"), folder)
        yield folder

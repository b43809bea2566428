"""Real processes to act on: rows as the screen has them, frames around them, runs waited for."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputop.actions import Action, ActionResult, ActionRun, Handles, Rights, Scope
from gputop.actions.signals import BY_NAME, SIGNAL, Signalled, SignalOrder
from gputop.model import Frame, Job, Process, Role
from gputop.safe.identity import read_stat
from tests.process_watch import running
from tests.scripted_jobs import frame as scripted

LAST_PID = Path("/proc/sys/kernel/ns_last_pid")


def row(pid: int, **fields: Any) -> Process:
    """The row of a real process, as it is now."""
    stat = read_stat(pid)
    assert stat is not None
    assert stat.started_ticks is not None
    known = {"parent_pid": stat.parent_pid or 0, "uid": os.stat(f"/proc/{pid}").st_uid, "name": stat.comm}
    return Process(pid=pid, started_ticks=stat.started_ticks, **{**known, **fields})


def moment(*processes: Process, **job: Any) -> Frame:
    """A frame with these processes, and a job of all of them if it is described."""
    if not job:
        return scripted(loose=processes)
    ranks = tuple(process.identity for process in processes if process.role is Role.TRAINER)
    members = tuple(process.identity for process in processes)
    made = Job(**{"key": "job", "name": "llama/train", "ranks": ranks, "members": members, **job})
    return scripted((made, [replace(process, job=made.key) for process in processes]))


def hold(
    process: Process, frame: Frame | None = None, rights: Rights | None = None, tagged: Sequence[Process] = ()
) -> Handles:
    frame = frame or moment(process)
    return Handles(frame, frame.by_identity.get(process.identity, process), rights or Rights(), tagged)


def finished(action: Action[Any], held: Handles, options: Any, seconds: float = 20.0) -> ActionResult:
    """The result of a run, waited for by what it tells."""
    done = threading.Event()
    run: ActionRun = action.run(held, options, lambda run: done.set() if run.result else None)
    assert done.wait(seconds), f"no result; it said {run.line!r}"
    assert run.result is not None
    return run.result


def send(held: Handles, name: str, **options: Any) -> Signalled:
    """Send a signal and wait for what came of it."""
    result = finished(SIGNAL, held, SignalOrder(BY_NAME[name], **options))
    assert isinstance(result, Signalled)
    return result


def until(ready: Callable[[], Any], seconds: float = 20.0) -> Any:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not (found := ready()):
        assert time.monotonic() < deadline, "never so"
        time.sleep(0.01)
    return found


def state(pid: int) -> str | None:
    stat = read_stat(pid)
    return None if stat is None else stat.state


@contextmanager
def program(code: str, *arguments: str) -> Iterator[tuple[int, list[int]]]:
    """Python code in a session of its own that prints one line of pids when it is ready: its own, and those."""
    with running(sys.executable, "-S", "-c", f"import os, signal, sys, time\n{code}", *arguments) as child:
        assert child.stdout is not None
        yield child.pid, [int(word) for word in child.stdout.readline().split()]


# a launcher that ends its ranks when it is asked to end, ranks that live by their loaders
TREE = """
def loader():
    signal.pause()
def rank(pipe):
    for _ in range(2):
        pid = os.fork()
        if pid == 0: loader()
        os.write(pipe, b"%d " % pid)
    signal.pause()
ours, theirs = os.pipe()
for _ in range(2):
    pid = os.fork()
    if pid == 0: rank(theirs)
    os.write(theirs, b"%d " % -pid)
seen = b""
while seen.count(b" ") < 6: seen += os.read(ours, 100)
print(*seen.decode().split(), flush=True)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while True: time.sleep(60)
"""


@contextmanager
def job() -> Iterator[Frame]:
    """A launcher, two ranks, two loaders each: really there, and in a frame."""
    with program(TREE) as (root, pids):
        ranks = sorted(-pid for pid in pids if pid < 0)
        loaders = sorted(pid for pid in pids if pid > 0)
        rows = [row(root, role=Role.LAUNCHER)]
        for number, pid in enumerate(ranks):
            rows.append(row(pid, role=Role.TRAINER, rank=number))
            mine = [row(loader, role=Role.LOADER, rank=number) for loader in loaders]
            rows += [loader for loader in mine if loader.parent_pid == pid]
        assert len(rows) == 7
        yield moment(*rows, launcher="torchrun")


def born_as(pid: int) -> subprocess.Popen[bytes]:
    """A new child that gets this pid; a skip where that cannot be arranged."""
    if not os.access(LAST_PID, os.W_OK):
        pytest.skip("not covered: needs root to set ns_last_pid")
    for _ in range(200):
        LAST_PID.write_text(str(pid - 1))
        child = subprocess.Popen(["sleep", "60"])
        if child.pid == pid:
            return child
        kill(child)
    pytest.skip("not covered: others were faster to take the pid")


def kill(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()


def unharmed(pid: int) -> bool:
    """Whether a program that sleeps for long does so; a new one needs a moment to get there."""
    until(lambda: state(pid) != "R")
    return state(pid) == "S"


__all__ = [
    "Scope",
    "born_as",
    "finished",
    "hold",
    "job",
    "kill",
    "moment",
    "program",
    "row",
    "send",
    "state",
    "unharmed",
    "until",
]

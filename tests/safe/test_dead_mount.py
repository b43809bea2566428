"""Paths that another process chose, on a mount that never answers: a deadline, a line that says so, and Ctrl+C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from gputop import agent_client as agent
from gputop.actions import Rights
from gputop.actions.pyspy import record
from gputop.actions.target import TargetProcess, open_target
from gputop.actions.torch_trace import TRACE, kineto
from gputop.safe import deadline
from gputop.safe.deadline import NoAnswer, within
from gputop.safe.terminal import waiting
from tests.dead_mount import dead_mount
from tests.process_watch import running
from tests.real_processes import row


@pytest.fixture
def dead(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "dead"
    folder.mkdir()
    with dead_mount(folder):
        yield folder


def started(dead: Path) -> tuple[str, dict[str, str]]:
    """A program whose runtime folder lies there."""
    return "import time; print('ready', flush=True); time.sleep(60)", {
        **os.environ,
        "GPUTOP_RUNTIME_DIR": str(dead / "run"),
    }


def test_a_runtime_folder_on_a_dead_mount_is_said(dead: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "DEADLINE_S", 0.2)
    code, environ = started(dead)
    with running(sys.executable, "-c", code, env=environ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        barred = TRACE.barred(row(child.pid), Rights())
        assert barred is not None
        assert barred.text.startswith(f"{child.pid} cannot be traced: {dead}/run does not respond (dead mount?)")
        target = open_target(row(child.pid), Rights(), {})
        assert isinstance(target, TargetProcess)
        with pytest.raises(agent.NoAgent, match="does not respond"):
            agent.connect(target)
        target.close()


def test_trace_ends_on_a_dead_mount(dead: Path) -> None:
    code, environ = started(dead)
    with running(sys.executable, "-c", code, env=environ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        trace = (sys.executable, "-m", "gputop", "trace", str(child.pid))
        done = subprocess.run(trace, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1
        assert "does not respond (dead mount?)" in done.stderr
        assert "Traceback" not in done.stderr


def test_ctrl_c_ends_a_command_that_hangs_in_the_kernel(dead: Path) -> None:
    command = (sys.executable, "-m", "gputop", "explain", str(dead / "trace.json"))
    with running(*command, stderr=subprocess.PIPE, preexec_fn=hears_ctrl_c) as child:
        until_stuck(child.pid)
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 128 + signal.SIGINT
        assert child.stderr is not None
        with child.stderr as told:
            assert told.read() == "gputop: ended while a file did not answer: a dead mount?\n"


def test_who_listens_for_endings_cannot_take_them_away() -> None:
    """From its first moment: what is pending for the process is the main thread's."""
    code = """
import os, signal, sys, threading
from gputop.safe import terminal
born = []
class Seen(threading.Thread):
    def run(self):
        born.append(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
terminal.Thread = Seen
terminal.end_when_deaf()
while not born: pass
print(set(terminal.ENDINGS) <= born[0], signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "True True\n", done.stderr


def hears_ctrl_c() -> None:
    """As in a terminal: who runs the tests in the background of a script has it ignored, and so would the child."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def until_stuck(pid: int) -> None:
    """Until its main thread waits for the mount, for half a second: a module that is read from a disk waits, too."""
    until_s, looks = time.monotonic() + 60, 0
    while looks < 10:
        said = Path(f"/proc/{pid}/wchan").read_text()
        waits = "fuse" in said or " D " in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
        looks = looks + 1 if waits else 0
        assert time.monotonic() < until_s, said
        time.sleep(0.05)


def test_a_socket_folder_and_sources_on_a_dead_mount(dead: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "DEADLINE_S", 0.2)
    assert not kineto.is_safe_folder(str(dead / "kineto"), os.geteuid())
    assert record._lines(f"{dead}/train.py", os.geteuid()) == []


def test_what_does_not_answer_is_not_asked_again_until_it_does() -> None:
    free, calls = Event(), list[str]()

    def slow(name: str) -> str:
        calls.append(name)
        free.wait()
        return name

    for _ in range(3):
        with pytest.raises(NoAnswer, match="does not respond"):
            within("/slow", slow, "a", seconds=0.01)
    assert calls == ["a"]
    assert within("/other", str.upper, "b") == "B"
    with pytest.raises(ZeroDivisionError):
        within("/other", lambda: 1 // 0)
    free.set()
    answer = ""
    while not answer:
        try:
            answer = within("/slow", slow, "c")
        except NoAnswer:
            time.sleep(0.01)
    assert answer == "c"


def test_so_many_threads_and_no_more_wait_for_paths() -> None:
    free = Event()
    for number in range(deadline.MOST):
        with pytest.raises(NoAnswer):
            within(f"/slow/{number}", free.wait, seconds=0.01)
    began = deadline._late[:]
    with pytest.raises(NoAnswer):
        within("/healthy", str.upper, "b")
    free.set()
    for call in began:
        call.done.wait()
    while deadline._late:
        time.sleep(0.01)
    assert within("/healthy", str.upper, "b") == "B"


@pytest.mark.parametrize(
    ("own", "shared", "blocked", "number"),
    [(0, 0, 0, 0), (0, 2, 0, 2), (2, 0, 0, 2), (0, 2, 2, 0), (0, 1 << 14, 0, 15), (0, 1 << 9, 0, 0)],
)
def test_an_ending_that_is_pending(own: int, shared: int, blocked: int, number: int) -> None:
    text = f"Name:\tx\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{blocked:016x}\n"
    assert waiting(text.encode()) == number
    assert waiting(b"Name:\tx\n") == 0

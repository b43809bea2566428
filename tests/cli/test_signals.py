"""gputop signal: to the process that is meant, and to no other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputop.safe.identity import read_stat

GPUTOP = str(Path(sys.executable).with_name("gputop"))


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends at TERM."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def gputop(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([GPUTOP, "signal", *arguments], capture_output=True, text=True, timeout=60, check=False)


def started(pid: int) -> int:
    stat = read_stat(pid)
    assert stat is not None
    assert stat.started_ticks is not None
    return stat.started_ticks


def test_a_signal_reaches_the_process_with_that_start_time(sleeper: subprocess.Popen[bytes]) -> None:
    done = gputop("TERM", f"{sleeper.pid}:{started(sleeper.pid)}")
    assert (done.returncode, done.stdout) == (0, f"TERM sent to {sleeper.pid} (sleep)\n")
    assert sleeper.wait(20) == -signal.SIGTERM


def test_h04_a_process_with_another_start_time_gets_nothing(sleeper: subprocess.Popen[bytes]) -> None:
    done = gputop("TERM", f"{sleeper.pid}:{started(sleeper.pid) - 1}")
    assert done.returncode == 1
    assert done.stdout == f"nothing sent to {sleeper.pid}: it exited; another process has its PID now\n"
    assert sleeper.poll() is None


def test_each_process_has_its_line_and_one_failure_is_exit_code_1(sleeper: subprocess.Popen[bytes]) -> None:
    done = gputop("CONT", str(sleeper.pid), "1", "4194303")
    assert done.returncode == 1
    first, second, third = done.stdout.splitlines()
    assert first == f"CONT sent to {sleeper.pid} (sleep)"
    assert second.startswith("nothing sent to 1: PID 1 keeps the machine or container running")
    assert third == "nothing sent to 4194303: it exited"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("FOO", "1"), "unknown value for SIGNAL"),
        (("TERM", "-1"), "-1"),
        (("TERM", "x"), "'x' is not a process"),
        (("TERM", "1:x"), "'1:x' is not a process"),
        (("--readonly", "TERM", "1"), "nothing sent: gputop was started with --readonly"),
    ],
)
def test_wrong_usage_is_one_line(arguments: tuple[str, ...], why: str) -> None:
    done = gputop(*arguments)
    assert done.returncode == 64
    assert why in done.stderr
    assert done.stderr.count("\n") == 1


def test_it_does_not_end_what_it_runs_in() -> None:
    done = gputop("TERM", str(os.getpid()))
    assert done.returncode == 1
    assert "nothing sent" in done.stdout

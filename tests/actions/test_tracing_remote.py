"""A trace of a job that nobody prepared, by sys.remote_exec: needs a Python 3.14 that has torch."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputop.actions import Rights
from gputop.actions.torch_trace import TRACE, Traced, TraceOrder, remote_exec
from tests.process_watch import running
from tests.real_processes import finished, hold, row, unharmed
from tests.traced_jobs import Job, interpreter, job, scratch

MANY = 100


@pytest.fixture(scope="module")
def python() -> str:
    found = interpreter("python3.14", "torch")
    if found is None:
        pytest.skip("not covered: no python3.14 with torch here")
    return found


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with scratch() as folder:
        monkeypatch.setenv("GPUTOP_RUNTIME_DIR", f"{folder}/run")
        monkeypatch.setenv("XDG_STATE_HOME", f"{folder}/own")
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield folder


def traced(training: Job, *confirmed: str) -> Traced:
    result = finished(TRACE, hold(row(training.pid)), TraceOrder(confirmed=frozenset(confirmed)), seconds=60)
    assert isinstance(result, Traced)
    return result


def test_a13_a14_a17_a_job_that_nobody_prepared_is_traced_after_a_word_and_ends_as_it_would(
    python: str, folder: str
) -> None:
    with job(folder, "20", flags=("-W", "error"), python=(python,), injected=False) as training:
        assert TRACE.why_not(row(training.pid), Rights()) is None
        asked = traced(training)
        assert (asked.good, asked.risk) == (False, remote_exec.RISK)
        assert not os.path.exists(f"{folder}/run")  # nothing was done yet
        result = traced(training, remote_exec.RISK)
        assert result.good, result
        assert result.views[0].steps == 3
        assert any(fact.name == "loader" for fact in result.notes)
        assert os.listdir(f"{folder}/gputop") == []  # no script, no sign
        assert traced(training).good  # it is there now
        for told, said in (
            ("fork", ("child 6", "child 1")),  # some builds of torch let no forked child train: it fails, and ends
            ("profile", ("own events True",)),
        ):
            training.tell(told)
            assert training.capture(steps=MANY)["preempted"]
            assert training.line() in said
        training.tell("leave")
        assert training.capture(steps=MANY)["cut"]
        assert training.line() == "leaving"
        assert training.ended() == 7
        assert "Warning" not in training.said


BUSY = """
import ctypes, sys
print(flush=True)
ctypes.PyDLL(None).sleep(int(sys.argv[1]))  # as a call of C that comes back to Python late
print(*(name for name in sys.modules if name == "gputop_agent"), flush=True)
sys.stdin.readline()
"""


def test_a17_a_main_thread_that_is_busy_for_too_long_runs_nothing_later(python: str, folder: str) -> None:
    stderr = Path(folder, "stderr")
    with (
        stderr.open("w") as file,
        running(python, "-S", "-c", BUSY, "13", stdin=subprocess.PIPE, stderr=file) as child,
    ):
        assert child.stdout is not None
        child.stdout.readline()
        result = finished(TRACE, hold(row(child.pid)), TraceOrder(confirmed=frozenset({remote_exec.RISK})))
        assert "ran no Python within 10 s: nothing was injected, and nothing will be later" in result.text
        (left,) = os.listdir(f"{folder}/gputop")
        assert left.startswith(f"remote-{child.pid}-")  # removed before it ran, it would be an error there
        assert child.stdout.readline() == "\n"  # no agent
        assert unharmed(child.pid)
        assert os.listdir(f"{folder}/gputop") == []
    assert stderr.read_text() == ""

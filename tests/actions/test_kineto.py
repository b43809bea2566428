"""Kineto's daemon, which gputop is for one trace: the wire, who is answered, what is left; and a real job if there is a
torch that may be asked."""

from __future__ import annotations

import os
import random
import socket
import sys
import threading
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from gputop.actions.torch_trace import TRACE, Traced, TraceOrder, kineto
from gputop.actions.torch_trace.kineto import Endpoint, has_fixes
from gputop.safe.files import Refused
from tests import traces
from tests.process_watch import root_only, running
from tests.real_processes import finished, hold, row
from tests.traced_jobs import interpreter, job, played, scratch

# as Kineto of torch 2.13 sent it, with five pids
POLL = bytes.fromhex(
    "2400000000000000726571" + "00" * 29 + "03000000050000000000000000000000" + "85190000" * 2 + "7c190000" * 3
)
CONFIRMED = frozenset({kineto.RISK})


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with scratch() as folder:
        os.mkdir(f"{folder}/traces", 0o700)
        monkeypatch.setenv("XDG_STATE_HOME", f"{folder}/own")
        monkeypatch.setenv("KINETO_USE_DAEMON", "1")
        monkeypatch.setenv("KINETO_IPC_SOCKET_DIR", folder)
        monkeypatch.setenv("KINETO_ONDEMAND_TRACE_DIR", f"{folder}/traces")
        monkeypatch.setenv("PYTHON_DISABLE_REMOTE_DEBUG", "1")  # of a Python that has a better way
        yield folder


def traced(pid: int, **wanted: Any) -> Traced:
    result = finished(TRACE, hold(row(pid)), TraceOrder(confirmed=CONFIRMED, **wanted), seconds=60)
    assert isinstance(result, Traced)
    return result


def test_a19_only_what_kineto_sends_is_understood() -> None:
    assert kineto.wants_work(POLL)
    assert not kineto.wants_work(POLL.replace(b"\x03\0\0\0\x05", b"\x01\0\0\0\x05"))  # another profiler runs
    wish = kineto.trace_config("/tmp/gputop-0/traces/a.json", 1795344160.0234, 1.0, 1)
    assert wish.splitlines() == [
        "ACTIVITIES_LOG_FILE=/tmp/gputop-0/traces/a.json",
        "PROFILE_START_TIME=1795344160023",
        "ACTIVITIES_DURATION_MSECS=1000",
        "ACTIVITIES_WARMUP_PERIOD_SECS=1",
    ]
    said = kineto.trace_reply(wish)
    assert said[:40] == len(wish).to_bytes(8, "little") + b"req" + bytes(29)
    assert said[40:] == wish.encode()
    rng = random.Random(7)
    for _ in range(500):
        bad = bytearray(POLL[: rng.randrange(len(POLL))] if rng.random() < 0.5 else POLL + rng.randbytes(4))
        if bad and rng.random() < 0.5:
            bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
        with pytest.raises(kineto.Malformed):
            kineto.wants_work(bytes(bad))


def test_a19_it_is_asked_once_after_a_word_and_nobody_else_is(folder: str) -> None:
    trace = traces.starved().write(Path(folder, "made.json"))
    dead = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    dead.bind(f"{folder}/dynolog")  # of a daemon that has ended
    dead.close()
    with played(folder, trace, "1", "0", "2", "3") as child:
        os.unlink(f"{folder}/dynolog")
        dead = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        dead.bind(f"{folder}/dynoconfigclientdead")
        dead.close()
        asked = finished(TRACE, hold(row(child.pid)), TraceOrder())
        assert isinstance(asked, Traced)
        assert (asked.good, asked.risk) == (False, kineto.RISK)
        assert "it can crash" in asked.text
        assert not os.path.exists(f"{folder}/dynolog")  # nothing was done yet
        result = traced(child.pid, stacks=True)
        assert result.good, result
        assert result.views[0].steps == 2
        assert "Kineto on demand, 1 s without shapes, stacks, allocations" in result.lines[0]
        assert os.listdir(f"{folder}/traces") == []  # fetched
        left = sorted(name for name in os.listdir(folder) if name.startswith("dyno"))
        assert [name[:16] for name in left] == ["dynoconfigclient"]  # its own; of no daemon, of nobody who has ended
        assert "dead" not in left[0]
        assert child.stdin is not None
        child.stdin.close()
        assert child.stdout is not None
        words = child.stdout.read().split()
        assert words[:2] == ["-", "-"]  # while its own profiler runs
        assert sum(word.startswith("ACTIVITIES_LOG_FILE=") for word in words) == 1
        assert child.wait(20) == 0


def test_a19_who_does_not_ask_or_does_not_write_is_not_waited_for(folder: str) -> None:
    with played(folder) as child:
        silent = traced(child.pid, wait_s=0.3)
        assert "did not contact the daemon: suspended, hung, or built without Kineto" in silent.text
        other = Endpoint(folder)
        assert "another gputop or dynolog serves this folder" in traced(child.pid).text
        with pytest.raises(Refused, match="serves this folder"):
            Endpoint(folder)
        other.close()
    with played(folder, "none", "1") as child:
        assert "is running its own profiler" in traced(child.pid, wait_s=0.5).text
    with played(folder, "none", "2") as child:
        ended, started = threading.Event(), threading.Event()
        run = TRACE.run(
            hold(row(child.pid)), TraceOrder(confirmed=CONFIRMED),
            lambda run: (ended if run.result else started if "recording in" in run.line else threading.Event()).set(),
        )  # fmt: skip
        assert started.wait(20)
        run.cancel()
        assert ended.wait(20)
        assert run.result is not None
        assert "cancelled; it records for" in run.result.text  # which nobody can take back
    assert not os.path.exists(f"{folder}/dynolog")


SENDER = """
import os, socket, sys
ours = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
ours.bind(sys.argv[1] + "/dynoconfigclient" + sys.argv[2])
ours.connect(sys.argv[1] + "/dynolog")
os.setuid(int(sys.argv[2]))
ours.send(bytes.fromhex(sys.argv[3]))
"""


@root_only
def test_a19_another_user_is_not_heard(folder: str) -> None:
    endpoint = Endpoint(folder)
    for uid, heard in ((0, True), (65534, False)):
        with running(sys.executable, "-S", "-c", SENDER, folder, str(uid), POLL.hex()) as child:
            assert child.wait(20) == 0
            poll = endpoint.next_poll()
            assert (poll is not None and (poll.pid, poll.ready) == (child.pid, True)) is heard
    endpoint.close()


@pytest.fixture(scope="module")
def python() -> str:
    here = metadata.version("torch")
    found = sys.executable if has_fixes(here) else interpreter("python3.14", "torch")
    if found is None:
        pytest.skip(f"not covered: torch {here} is older than 2.14, and no python3.14 has a newer one")
    return found


def test_a19_a_real_job_goes_on_and_ends_as_it_would(python: str, folder: str) -> None:
    with job(folder, "20", python=(python,), injected=False) as training:
        result = traced(training.pid)
        assert result.good, (result, training.said)
        assert result.views[0].steps > 3
        assert os.listdir(f"{folder}/traces") == []
        training.tell("hold")  # a profiler of its own comes first
        assert training.line() == "profiling"
        assert "is running its own profiler" in traced(training.pid, wait_s=6.0).text
        training.tell("go on")
        assert training.line() == "held"
        assert training.child.stdin is not None
        training.child.stdin.close()
        assert training.ended() == 0
        assert "Traceback" not in training.said

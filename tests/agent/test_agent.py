"""The agent in real trainings: whatever they do in the middle of a trace, they go on and end as they would have."""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gputop.actions.torch_trace import TRACE, Traced, TraceOrder
from gputop.agent_client import Agent, AgentLost
from tests.process_watch import ROOT, may_mount
from tests.real_processes import finished, hold, row
from tests.traced_jobs import BRIEF_S, Job, job, scratch, sockets, until

MANY = 100  # more steps than the job makes before something happens


@pytest.fixture(scope="module")
def folder() -> Iterator[str]:
    with scratch() as folder:
        yield folder


@pytest.fixture(scope="module")
def training(folder: str) -> Iterator[Job]:
    """One job for all tests that leave it alive; every warning is an error in it, and its mounts are its own."""
    apart = ("unshare", "-m") if may_mount() else ()
    with job(folder, "15", flags=("-W", "error"), python=(*apart, sys.executable)) as found:
        found.capture()  # after which there is a folder of traces, whichever test begins
        yield found


def halves(training: Job) -> list[str]:
    return [name for name in os.listdir(training.traces) if name.endswith(".tmp")]


def events(told: dict[str, Any]) -> list[dict[str, Any]]:
    assert told.get("state") == "done", told
    return list(json.loads(Path(told["out"]).read_text())["traceEvents"])


def test_what_is_tested_here_is_so_beside_a_step_meter(training: Job) -> None:
    """Every job has one: what may harm a job while it is traced is tried with its hooks in place."""
    agent = training.agent()
    told = agent.answer("steps")["steps"]
    agent.close()
    assert told["on"], told
    assert told["count"] > 0


def test_a_capture_is_aligned_to_steps(training: Job) -> None:
    told = training.capture()
    found = events(told)
    steps = [event for event in found if str(event.get("name", "")).startswith("gputop.step#")]
    assert sorted(event["name"] for event in steps) == ["gputop.step#0", "gputop.step#1", "gputop.step#2"]
    first = min(event["ts"] for event in steps)
    # each step has exactly one forward and one backward of its own, on the thread that trains
    forward = [event for event in found if event.get("name") == "aten::cross_entropy_loss"]
    assert len(forward) == 3
    assert {event["tid"] for event in forward} == {event["tid"] for event in steps} == {training.pid}
    assert all(event["ts"] >= first for event in forward)
    assert (told["steps"], told["cut"], told["preempted"]) == (3, False, False)
    assert stat.S_IMODE(os.stat(told["out"]).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(os.path.dirname(told["out"])).st_mode) == 0o700


def test_the_first_launch_under_a_profiler_is_paid_before_what_is_recorded(training: Job) -> None:
    training.tell("dear")
    assert training.line() == "dear 0.5"
    found = events(training.capture())
    training.tell("dear")
    assert training.line() == "dear 0.0"
    steps = [event["dur"] for event in found if str(event.get("name", "")).startswith("gputop.step#")]
    assert len(steps) == 3
    assert max(steps) < 0.4e6, steps  # of 15 ms each, but for the step after the profiler was prepared


def test_a13_a_fork_before_what_is_recorded_costs_nothing(training: Job) -> None:
    training.tell("warm fork")
    told = training.capture()
    assert (told["steps"], told["preempted"]) == (3, False)
    assert training.line() == "child 6"
    assert training.capture()["steps"] == 3


def test_a13_a14_what_ends_a_capture_before_it_records(training: Job) -> None:
    training.tell("warm profile")
    assert training.capture()["error"] == "profiler-active"
    assert training.line() == "own events True"
    training.tell("early thread")
    assert training.line() == "training"
    ended = training.capture()
    assert (ended["error"], ended["detail"]) == ("no-step", "stopped before a step was recorded")
    assert training.line() == "thread ended"
    training.tell("warm idle")  # no step follows: the main thread is asked to end it, between two bytecodes
    agent = training.agent()
    agent.ask("capture")
    assert training.line() == "idle"
    agent.close()
    training.tell("go on")
    assert training.line() == "goes on"
    until(lambda: training.capture().get("state") == "done")
    assert not halves(training)


def test_shapes_stacks_and_memory(training: Job) -> None:
    found = events(training.capture(shapes=True, stacks=True, memory=True, steps=2))
    assert any(event.get("name") == "[memory]" for event in found)
    assert any("Input Dims" in event.get("args", {}) for event in found)
    assert any(event.get("cat") == "python_function" for event in found)


def test_a13_a_fork_in_mid_capture(training: Job) -> None:
    training.tell("fork")
    told = training.capture(steps=MANY)
    assert told["preempted"]
    assert told["steps"] < MANY
    # no profiler in the child; it could train, with an agent of its own, and end as programs do
    assert training.line() == "child 6"
    (left,) = sockets(training.folder)
    assert left.startswith(f"agent-{training.pid}-")  # that of its parent it left alone
    assert training.capture()["steps"] == 3


def test_a14_the_programs_own_profiler_wins_and_a_driver_may_refuse_ours(training: Job) -> None:
    training.tell("profile")
    assert training.capture(steps=MANY)["preempted"]
    assert training.line() == "own events True"
    training.tell("hold")
    assert training.line() == "profiling"
    assert training.capture()["error"] == "profiler-active"
    training.tell("go on")
    assert training.line() == "held"
    training.tell("refuse")
    assert training.line() == "refusing"
    assert training.capture()["detail"] == "RuntimeError: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"
    training.tell("go on")
    assert training.line() == "allowed"
    assert training.capture()["steps"] == 3


def test_a15_a_long_step_is_cut(training: Job) -> None:
    training.tell("linger")
    told = training.capture(steps=2)
    assert training.line() == "on its own False"  # it did not have to wait for its next step
    assert told["cut"]
    assert told["record_ms"] < 5000


def test_a15_a_disk_that_gets_full_is_one_line_and_leaves_no_half_file(training: Job) -> None:
    if not may_mount():
        pytest.skip("not covered: needs the right to mount a tmpfs")
    inside = ("nsenter", "-t", str(training.pid), "-m")
    subprocess.run([*inside, "mount", "-t", "tmpfs", "-o", "size=70m,mode=700", "none", training.traces], check=True)
    there = Path(f"/proc/{training.pid}/root{training.traces}")
    agent, before = training.agent(), training.said.count("profiler_start")
    agent.ask("capture", steps=MANY)
    until(lambda: training.said.count("profiler_start") > before)
    with pytest.raises(OSError, match="No space left"):
        (there / "other").write_bytes(bytes(71 << 20))
    told = next(told for told in agent.wait(BRIEF_S) if "error" in told)
    assert (told["error"], told["detail"]) == ("output", f"no space left in {training.traces}")
    agent.close()
    assert os.listdir(there) == ["other"]
    (there / "other").unlink()
    assert training.capture()["steps"] == 3  # the program has seen nothing of it
    subprocess.run([*inside, "umount", training.traces], check=True)


def test_a15_a_trace_that_is_too_large_is_not_kept(training: Job) -> None:
    training.tell("swell")
    assert training.line() == "swelling"
    before = os.listdir(training.traces)
    assert training.capture()["detail"] == "the trace has 1024 MiB, too large: trace fewer steps"
    assert training.line() == "slim"
    assert os.listdir(training.traces) == before


def test_a13_a_thread_that_trains_ends_in_mid_capture(training: Job) -> None:
    training.tell("thread")
    assert training.line() == "training"
    assert training.capture(steps=MANY)["cut"]
    assert training.line() == "thread ended"
    assert training.capture()["steps"] == 3


def test_a08_a_client_that_is_killed_takes_its_capture_along(training: Job) -> None:
    agent = training.agent()
    agent.ask("capture", steps=MANY)
    assert next(agent.wait(20.0))["state"] == "waiting"
    assert training.capture()["error"] == "busy"
    agent.close()
    until(lambda: training.capture().get("state") == "done")
    assert not halves(training)


NONSENSE: list[dict[str, Any]] = [
    {"steps": 0}, {"steps": 101}, {"steps": 1.5}, {"steps": True}, {"wait": -1}, {"wait": 1e9}, {"at": "now"},
    {"at": 1e300}, {"shapes": 1}, {"out": "../../etc/x"}, {"out": "/etc/x"}, {"out": "a" * 300}, {"out": "a\0"},
]  # fmt: skip


def test_a16_what_makes_no_sense_is_refused(training: Job) -> None:
    assert {training.capture(**asked)["error"] for asked in NONSENSE} == {"bad-args"}


def test_a11_the_agent_uses_no_folder_that_others_may_write_to(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("place", ROOT / "gputop/agent/place.py")
    assert spec is not None
    assert spec.loader is not None
    place = importlib.util.module_from_spec(spec)  # not as gputop.agent: that would start here
    spec.loader.exec_module(place)
    (tmp_path / "there").mkdir(mode=0o700)
    place.private(str(tmp_path / "there"))
    (tmp_path / "link").symlink_to(tmp_path / "there")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "file").write_text("")
    if not os.geteuid():
        (tmp_path / "theirs").mkdir(mode=0o700)
        os.chown(tmp_path / "theirs", 12345, 12345)
    for wrong in {each.name for each in tmp_path.iterdir()} - {"there"}:
        with pytest.raises(place.Unusable):
            place.private(str(tmp_path / wrong))


def test_a12_clients_that_flood_and_never_read(training: Job) -> None:
    path = f"{training.folder}/run/{sockets(training.folder)[0]}"
    connected = []
    for _ in range(100):
        each = socket.socket(socket.AF_UNIX)
        each.connect(path)
        connected.append(each)
    connected[0].sendall(b"x" * 70_000)
    connected[1].sendall(b"[" * 60_000 + b"\n" + b'{"op": "stacks"}\n' * 2000)
    connected[2].sendall(b'{"op": "none"}\n')
    for each in connected:
        each.close()
    agent = training.agent()
    assert agent.answer("ping") == {"state": "here"}
    agent.close()


def test_facts_and_stacks(training: Job) -> None:
    agent = training.agent()
    facts = agent.answer("facts")["facts"]
    (model,) = facts["models"]
    assert model["parameters"] == 32 * 64 + 64 + 64 * 8 + 8
    assert model["devices"].keys() == {"cpu"}
    assert model["dtypes"].keys() == {"float32"}
    assert facts["threads"]["intra"] == 1
    (loader,) = facts["loaders"]
    assert (loader["num_workers"], loader["batch_size"], loader["pin_memory"], loader["in_use"]) == (0, 8, False, True)
    assert facts["distributed"] is None
    assert facts["precision"]["tf32_matmul"] is False
    main, *others = agent.answer("stacks")["stacks"]
    assert main["main"]
    assert main["frames"][-1]["file"].endswith("traced.py")
    assert [each["thread"] for each in others if each["thread"] == "gputop-agent"]
    agent.close()


def test_a13_a_job_ends_in_mid_capture(folder: str) -> None:
    with job(folder, "5", "2") as ending:
        ending.tell("leave")
        told = ending.capture(steps=MANY)
        assert ending.line() == "leaving"
        assert (told["cut"], bool(events(told))) == (True, True)  # what was recorded is kept
        assert ending.ended() == 7
        assert "Traceback" not in ending.said
    assert not halves(ending)


def test_a13_a_job_ends_before_what_is_recorded(folder: str) -> None:
    with job(folder, "5") as ending:
        ending.tell("warm leave")
        assert ending.capture()["error"] == "no-step"
        assert ending.line() == "leaving"
        assert ending.ended() == 7
        assert "Traceback" not in ending.said
    assert not halves(ending)


def test_a_slow_job_that_fails_in_mid_capture(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", f"{folder}/own")
    with job(folder, "1200") as slow:
        result = finished(TRACE, hold(row(slow.pid)), TraceOrder(steps=1))
        assert isinstance(result, Traced)
        assert (result.good, result.lines, result.views[0].steps) == (True, (), 1)
        assert result.notes  # the agent has waited for the question
        slow.tell("fail")
        told = slow.capture(steps=2)
        assert told["cut"]
        assert slow.ended() == 1
        assert "\nValueError: the training failed\n" in slow.said


LATE = """
import os, select, sys, torch
from torch import nn
model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    model(torch.rand(2, 4)).sum().backward()
    optimizer.step()
own = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
own.prepare_trace()
import gputop.agent
gputop.mark("loss", "no number")
gputop.mark("loss", 0.25)
print("ready", flush=True)
while not sys.stdin.readline():
    pass
own.start_trace()
step()
own.stop_trace()
print("own", len(own.events()) > 0, flush=True)
while not (torch.autograd.profiler._is_profiler_enabled and select.select([sys.stdin], [], [], 0)[0]):
    step()
os.execv("/bin/sh", ["sh", "-c", "exit 4"])
"""


def test_a13_a14_an_agent_that_comes_late_to_a_profiler_and_a_program_that_becomes_another(folder: str) -> None:
    """As `import gputop.agent` in the middle of a program, or sys.remote_exec."""
    program = Path(folder, "late.py")
    program.write_text(f"import sys; sys.path.append({str(ROOT)!r})\n{LATE}")
    with job(folder, program=str(program), injected=False) as late:
        agent = late.agent()
        assert agent.hello["why"] == "import"
        ((_, name, value),) = agent.answer("marks")["marks"]
        assert (name, value) == ("loss", 0.25)
        agent.close()
        assert late.capture()["error"] == "profiler-active"
        late.tell("go on")
        assert late.line() == "own True"
        old = Path(late.traces, "20260101-000000-1-abcd.json.tmp.tmp")
        old.write_text("half")
        os.utime(old, (0, 0))
        assert late.capture()["steps"] == 3
        assert not old.exists()
        late.tell("exec")
        with pytest.raises(AgentLost, match="the process exited or called exec"):
            late.capture(steps=MANY)
        assert late.ended() == 4
        assert not halves(late)


def test_a_connection_in_a_circle_is_closed_with_it() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(b'{"hello": "gputop-agent"}\n')
        circle: list[object] = [Agent(ours)]
        circle.append(circle)
        del circle, ours
        gc.collect()  # a socket that is collected open is a warning, and warnings are errors here
        assert theirs.recv(1) == b""

"""gputop trace on real trainings: from the command to the verdict, all ranks at once, and exactly why not."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gputop.actions import Rights, Scope
from gputop.actions.target import Target
from gputop.actions.tracing import TRACE, Order, Traced, remote
from gputop.actions.tracing.agent import NoAgent, connect
from gputop.actions.tracing.notes import marked, told
from gputop.actions.tracing.routes import route
from gputop.model import Role
from gputop.safe.attach import Barred
from tests.acting import finished, hold, moment, row
from tests.tracing import TRAINING, Job, environment, job, scratch, until
from tests.watching import running


@pytest.fixture(scope="module")
def folder() -> Iterator[str]:
    with scratch() as folder:
        yield folder


@pytest.fixture(scope="module")
def training(folder: str) -> Iterator[Job]:
    with job(folder, "30") as found:
        yield found


def trace(folder: str, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gputop", "--no-nvml", "trace", *arguments],
        env={**os.environ, "XDG_STATE_HOME": f"{folder}/own"}, capture_output=True, text=True, timeout=120, check=False,
        **options,
    )  # type: ignore[call-overload]  # fmt: skip


def test_from_the_command_to_the_verdict(training: Job, folder: str) -> None:
    done = trace(folder, str(training.pid))
    assert done.returncode == 0, done.stderr
    assert "3 steps by gputop.step" in done.stdout
    assert "its DataLoader(num_workers=0, batch_size=8, pin_memory=False" in done.stdout
    assert "its model Sequential has 2632 parameters, float32 on cpu" in done.stdout
    (path,) = re.findall(r"^/.*/trace\.json\.gz$", done.stdout, re.MULTILINE)
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert os.listdir(training.traces) == []  # nothing is left where the agent wrote it


def test_ctrl_c_leaves_nothing_behind(training: Job, folder: str) -> None:
    before = sorted(os.listdir(f"{folder}/own/gputop/profiles"))
    with running(
        sys.executable, "-m", "gputop", "--no-nvml", "trace", str(training.pid), "--steps", "100",
        env={**os.environ, "XDG_STATE_HOME": f"{folder}/own"}, stderr=subprocess.PIPE,
    ) as child:  # fmt: skip
        agent = training.agent()
        until(lambda: os.listdir(training.traces))  # it records
        agent.close()
        child.send_signal(signal.SIGINT)
        assert child.wait(20) == 130
        assert child.stderr is not None
        assert "cancelled" in child.stderr.read()
        child.stderr.close()
    until(lambda: os.listdir(training.traces) == [])
    assert sorted(os.listdir(f"{folder}/own/gputop/profiles")) == before
    assert training.capture()["steps"] == 3
    for name in os.listdir(training.traces):
        os.unlink(f"{training.traces}/{name}")


def test_the_exact_reason_and_what_helps(training: Job, folder: str) -> None:
    with (
        running("sleep", "60") as sleeper,
        running(sys.executable, "-S", "-c", "input()", stdin=subprocess.PIPE) as plain,
    ):
        version = "{}.{}".format(*sys.version_info)
        why = TRACE.why_not(row(sleeper.pid), Rights())
        assert why == f"{sleeper.pid} is no Python program that can be seen: nothing to trace"
        until(lambda: "lets none in" in (TRACE.why_not(row(plain.pid), Rights()) or ""))
        assert TRACE.why_not(row(plain.pid), Rights()) == (
            f"{plain.pid} cannot be traced from outside: no agent in it, and Python {version} lets none in (3.14 does);"
            " next time start it with: gputop run -- COMMAND"
        )
        done = trace(folder, str(plain.pid))
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert "gputop run -- COMMAND" in done.stderr
    assert "there is no process" in trace(folder, "999999999").stderr
    assert trace(folder, str(training.pid), "--steps", "0").returncode == 64
    assert "--readonly" in trace(folder, "--readonly", str(training.pid)).stderr
    assert "loads data" in (TRACE.why_not(row(training.pid, role=Role.LOADER), Rights()) or "")


def test_a19_kineto_is_not_served_where_that_could_harm(folder: str) -> None:
    os.mkdir(f"{folder}/kineto", 0o700)
    for place, why in (("", "any user could serve"), ("/kineto/", "could abort it"), ("/kineto", "may crash")):
        told = {"KINETO_IPC_SOCKET_DIR": folder + place} if place else {}
        environ = {**os.environ, "KINETO_USE_DAEMON": "1", **told}
        with running(sys.executable, "-c", "print(flush=True); input()", stdin=subprocess.PIPE, env=environ) as child:
            assert child.stdout is not None
            child.stdout.readline()
            found = route(row(child.pid))
            assert isinstance(found, Barred)
            assert why in found.line


def test_a10_a11_who_is_not_the_agent_is_not_talked_to(folder: str) -> None:
    """A socket of its name in a folder that others may write to, or with another process behind it."""
    with running(sys.executable, "-c", "print(flush=True); input()", stdin=subprocess.PIPE,
                 env={**os.environ, "GPUTOP_RUNTIME_DIR": f"{folder}/squatted"}) as child:  # fmt: skip
        assert child.stdout is not None
        child.stdout.readline()
        process = row(child.pid)
        os.mkdir(f"{folder}/squatted", 0o700)
        path = f"{folder}/squatted/agent-{child.pid}-{process.started_ticks}.sock"
        with socket.socket(socket.AF_UNIX) as squatter:
            squatter.bind(path)
            squatter.listen()
            held = hold(process)
            (target,) = held.held(Scope.PROCESS)
            with pytest.raises(NoAgent, match=f"is process {os.getpid()} of uid"):
                connect(target)  # type: ignore[arg-type]
            os.chmod(f"{folder}/squatted", 0o755)
            with pytest.raises(NoAgent, match="not a private folder"):
                connect(target)  # type: ignore[arg-type]
            held.close()
        os.chmod(f"{folder}/squatted", 0o700)
        held = hold(process)
        with pytest.raises(NoAgent, match="its agent has ended"):
            connect(held.held(Scope.PROCESS)[0])  # type: ignore[arg-type]
        assert not os.path.exists(path)  # swept
        held.close()


RANKS = """
export MASTER_ADDR=127.0.0.1 MASTER_PORT=$1 WORLD_SIZE=2
RANK=0 {python} {training} 10 &
RANK=1 {python} {training} 10 &
wait
"""


def test_two_ranks_are_aligned_and_the_slow_one_is_named(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Started by a shell script under gputop run: the ranks have the agent by the environment."""
    monkeypatch.setenv("XDG_STATE_HOME", f"{folder}/own")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = RANKS.format(python=sys.executable, training=TRAINING)
    environ = {name: value for name, value in environment(folder).items() if name != "PYTHONPATH"}
    with running(
        sys.executable, "-m", "gputop", "run", "--", "sh", "-c", script, "sh", str(port),
        env={**environ, "PYTHONPATH": str(Path(TRAINING).parents[2])}, stderr=subprocess.DEVNULL,
    ) as shell:  # fmt: skip
        assert shell.stdout is not None
        assert shell.stdout.read(len("ready\n") * 2).count("ready") == 2  # as they come
        with open(f"/proc/{shell.pid}/task/{shell.pid}/children") as file:
            pids = [int(pid) for pid in file.read().split()]
        ranks = {int(Path(f"/proc/{pid}/environ").read_text().partition("\0RANK=")[2][0]): pid for pid in pids}
        processes = [row(ranks[rank], role=Role.TRAINER, rank=rank) for rank in (0, 1)]
        frame = moment(*processes, launcher="torchrun")
        result = finished(TRACE, hold(processes[0], frame), Order(steps=4), seconds=60)
    assert isinstance(result, Traced)
    assert result.good, result
    assert [os.path.basename(path) for path in result.files] == ["rank0.json.gz", "rank1.json.gz"]
    starts = [
        view.trace.base_ns / 1e9 + ((view.trace.origin_us or 0) + view.found.window.start) / 1e6
        for view in result.views
    ]
    assert abs(starts[0] - starts[1]) < 0.5 * result.views[0].found.window.span_us / 1e6 / 4
    assert [view.trace.rank for view in result.views] == [0, 1]
    late = [verdict for verdict in result.views[0].verdicts if verdict.all_ranks]
    assert late
    assert late[0].headline.startswith("Rank 1 is late")


INJECTED = """
import os, sys, torch, threading
names = dict(__builtins__=__builtins__, __name__="builtins")
print(flush=True)
while line := sys.stdin.readline().strip():
    exec(compile(open(line).read(), line, "exec"), names)
    print([each.name for each in threading.enumerate() if each.name == "gputop-agent"], len(names), flush=True)
"""


def test_a17_a_script_runs_once_in_time_and_in_its_process_or_not_at_all(folder: str, tmp_path: Path) -> None:
    """What sys.remote_exec would run, run as it runs it: in a module without a file."""
    (tmp_path / "torch.py").write_text("")
    agent, path, ack = str(Path(TRAINING).parents[2] / "gputop/agent"), f"{tmp_path}/script.py", f"{tmp_path}/ack"
    environ = {**os.environ, "GPUTOP_RUNTIME_DIR": f"{folder}/injected", "PYTHONPATH": str(tmp_path)}
    with running(sys.executable, "-c", INJECTED, stdin=subprocess.PIPE, env=environ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        told = []
        for pid, deadline in ((1, time.time() + 60), (child.pid, time.time() - 1), (child.pid, time.time() + 60)):
            Path(path).write_text(remote.script(pid, agent, path, ack, deadline))
            child.stdin.write(f"{path}\n")
            child.stdin.flush()
            told.append((child.stdout.readline(), os.path.exists(ack), os.path.exists(path)))
        nothing = ("[] 2\n", False, False)
        assert told == [nothing, nothing, ("['gputop-agent'] 2\n", True, False)]
        assert Path(ack).read_text() == "ok"
        held = hold(row(child.pid))
        (target,) = held.held(Scope.PROCESS)
        assert isinstance(target, Target)
        found = connect(target)
        assert found.hello["why"] == "remote_exec"
        found.close()
        held.close()


def test_a17_remote_exec_is_refused_where_it_cannot_be() -> None:
    process = row(os.getpid())
    assert "belongs to" in (remote.barred(replace(process, uid=12345), {}) or Barred("")).text
    off = remote.barred(process, {"PYTHON_DISABLE_REMOTE_DEBUG": "1"})
    assert off == Barred(f"remote debugging is switched off in {os.getpid()}", "unset PYTHON_DISABLE_REMOTE_DEBUG")


def test_a09_notes_of_a_hostile_program_are_clean_or_left_out() -> None:
    loader = {"num_workers": 0, "batch_size": 1e400, "pin_memory": False, "in_use": True}
    model = {
        "name": "\x1b]0;x\x07[red]",
        "parameters": 7,
        "devices": {"cuda:0": 7},
        "dtypes": {"float32": True},
        "wrapped": "DP",
    }
    said = {
        "loaders": [loader, None, {"num_workers": "2"}, {"num_workers": -1}],
        "models": [model],
        "precision": {"tf32_matmul": False},
        "memory": [
            {"device": 0, "allocated": 1 << 30, "reserved": 9 << 30, "peak_allocated": 2 << 30, "retries": 3},
            4,
        ],
        "threads": {"intra": float("nan")},
    }
    facts = told(row(os.getpid()).identity, said)
    assert {fact.name for fact in facts} == {
        "loader", "loads-in-main", "unpinned", "model", "dataparallel", "no-tf32", "allocator", "allocator-cache",
        "allocator-retries",
    }  # fmt: skip
    assert all(fact.witness == "notes" and fact.text.isprintable() for fact in facts)
    noted = [[1.0, "\x1b[2Jloss", 3], [2.0, "\x1b[2Jloss", 0.5], [2.0, "n", float("nan")], "x", [1, 2], [True, "b", 1]]
    (mark,) = marked(row(os.getpid()).identity, noted)
    assert mark.text.startswith("it noted ␛[2Jloss = 0.5, ")
    assert mark.text.endswith(", the last of 2")
    assert told(row(os.getpid()).identity, ["x"]) == told(row(os.getpid()).identity, {"loaders": {}, "models": 3}) == ()

"""Traces where somebody means harm or the rules forbid them: squatted sockets, hostile agents, late scripts, Kineto."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gputop.actions import Scope
from gputop.actions.target import TargetProcess
from gputop.actions.torch_trace import TRACE, TraceOrder, remote_exec
from gputop.actions.torch_trace.agent_facts import facts_of, mark_facts
from gputop.actions.torch_trace.routes import Route, python_version, route
from gputop.agent_client import NoAgent, connect
from gputop.safe.ptrace_access import Barred
from tests.process_watch import need_namespaces, root_only, running
from tests.real_processes import finished, hold, row, until
from tests.traced_jobs import TRAINING, played, scratch


@pytest.fixture(scope="module")
def folder() -> Iterator[str]:
    with scratch() as folder:
        yield folder


def test_a19_kineto_is_not_served_where_that_could_harm(folder: str) -> None:
    os.mkdir(f"{folder}/kineto", 0o700)
    os.symlink(f"{folder}/kineto", f"{folder}/link")
    os.mkdir(f"{folder}/open", 0o750)
    for place, version, why in (
        ("", "2.14.1", "its socket name is open to every user"),
        ("/kineto/", "2.14.1", "could abort it"),
        ("/link", "2.14.1", "could abort it"),
        ("/open", "2.14.1", "could abort it"),
        ("/kineto" + 30 * "/.", "2.14.1", "could abort it"),
        ("/kineto", "", "its torch version is unknown"),
        ("/kineto", "2.13.0+cpu", "its torch 2.13.0+cpu can crash when such a trace stops (pytorch#188172 is in 2.14"),
        ("/kineto", "2.14.0a0+git5c48869", "its torch 2.14.0a0+git5c48869 can crash"),
        ("/kineto", "3.0.1+cu130", None),
    ):
        told = {"KINETO_IPC_SOCKET_DIR": folder + place} if place else {}
        environ = {**os.environ, "KINETO_USE_DAEMON": "1", "PYTHON_DISABLE_REMOTE_DEBUG": "1", **told}
        with played(folder, version=version, env=environ) as child:
            found = route(row(child.pid))
            assert found is Route.KINETO if why is None else isinstance(found, Barred) and why in found.line
            found = route(row(child.pid, uid=54321, user="alice"))
            assert isinstance(found, Barred)
            assert "alice" in found.line


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
            other = os.geteuid() or 12345
            os.seteuid(other)
            squatter.listen()  # as this user, says the kernel
            os.seteuid(os.getuid())
            held = hold(process)
            (target,) = held.held(Scope.PROCESS)
            with pytest.raises(NoAgent, match=f"belongs to process {os.getpid()} of uid {other}: not used"):
                connect(target)  # type: ignore[arg-type]
            os.chmod(f"{folder}/squatted", 0o755)
            with pytest.raises(NoAgent, match="not a private folder"):
                connect(target)  # type: ignore[arg-type]
            held.close()
        os.chmod(f"{folder}/squatted", 0o700)
        os.rename(f"{folder}/squatted", f"{folder}/elsewhere")
        os.symlink(f"{folder}/elsewhere", f"{folder}/squatted")
        held = hold(process)
        with pytest.raises(NoAgent, match="is a link or not a folder: not used"):
            connect(held.held(Scope.PROCESS)[0])  # type: ignore[arg-type]
        held.close()
        os.unlink(f"{folder}/squatted")
        os.rename(f"{folder}/elsewhere", f"{folder}/squatted")
        held = hold(process)
        with pytest.raises(NoAgent, match="its agent has stopped"):
            connect(held.held(Scope.PROCESS)[0])  # type: ignore[arg-type]
        assert not os.path.exists(path)  # swept
        held.close()


HOSTILE = """
import json, os, socket, sys
ticks = open("/proc/self/stat").read().rpartition(")")[2].split()[19]
server = socket.socket(socket.AF_UNIX)
server.bind(f"{sys.argv[1]}/agent-{os.getpid()}-{ticks}.sock")
server.listen()
print(flush=True)
for out in json.loads(sys.argv[2]):
    client, _ = server.accept()
    for said in (dict(hello="gputop-agent", v=1, pid=os.getpid()), dict(state="done", out=out)):
        client.sendall(json.dumps(said).encode() + b"\\n")
        client.makefile().readline() if "out" not in said else client.close()
"""


def test_a16_a_process_that_names_other_files_as_its_trace(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", f"{folder}/own")
    monkeypatch.setenv("GPUTOP_RUNTIME_DIR", f"{folder}/hostile")
    os.mkdir(f"{folder}/hostile", 0o700)
    os.mkfifo(f"{folder}/hostile/fifo.json")
    os.symlink("/etc/passwd", f"{folder}/hostile/link.json")
    here, foreign = f"{folder}/hostile", "it named a file that is not its own"
    expected = {
        "../../etc/x.json": foreign,
        "/etc/passwd": foreign,
        f"{here}/{'a' * 300}.json": foreign,
        f"{here}/a\0.json": foreign,
        f"{here}/.x.json": foreign,
        f"{here}/fifo.json": "not a regular file",
        f"{here}/link.json": "Too many levels of symbolic links",
    }
    with open(f"{here}/huge.json", "wb") as file:
        file.truncate((1 << 30) + 1)
    expected[f"{here}/huge.json"] = "is larger than 1 GiB: trace fewer steps"
    if not os.geteuid():
        Path(f"{here}/theirs.json").write_text("{}")
        os.chown(f"{here}/theirs.json", 12345, 12345)
        expected[f"{here}/theirs.json"] = "does not belong to its user: not used"
    with running(sys.executable, "-S", "-c", HOSTILE, here, json.dumps(list(expected))) as child:
        assert child.stdout is not None
        child.stdout.readline()
        process, before = row(child.pid), sorted(os.listdir(here))
        for out, why in expected.items():
            said = finished(TRACE, hold(process), TraceOrder()).text
            assert said.startswith("traced, but not saved: "), said
            assert why in said, out
        assert sorted(os.listdir(here)) == before  # nor is any of them removed


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
            Path(path).write_text(remote_exec.script(pid, agent, path, ack, deadline))
            child.stdin.write(f"{path}\n")
            child.stdin.flush()
            told.append((child.stdout.readline(), os.path.exists(ack), os.path.exists(path)))
        nothing = ("[] 2\n", False, False)
        assert told == [nothing, nothing, ("['gputop-agent'] 2\n", True, False)]
        assert Path(ack).read_text() == "ok"
        held = hold(row(child.pid))
        (target,) = held.held(Scope.PROCESS)
        assert isinstance(target, TargetProcess)
        found = connect(target)
        assert found.hello["why"] == "remote_exec"
        found.close()
        held.close()


def test_a17_remote_exec_is_refused_where_it_cannot_be() -> None:
    process = row(os.getpid())
    assert "belongs to" in (remote_exec.barred(replace(process, uid=12345), {}, "") or Barred("")).text
    off = remote_exec.barred(process, {"PYTHON_DISABLE_REMOTE_DEBUG": "1"}, "")
    assert off == Barred(f"remote debugging is disabled in {os.getpid()}", "unset PYTHON_DISABLE_REMOTE_DEBUG")


@root_only
@pytest.mark.parametrize("namespace", ["--mount", "--user"])
def test_a17_the_python_of_a_container_is_not_run_outside_of_it(namespace: str, tmp_path: Path) -> None:
    need_namespaces(namespace)
    inner = shutil.copy("/bin/sleep", tmp_path / "python3.14")  # by its name a Python that lets the agent in
    with running(str(inner), "60") as child:
        until(lambda: python_version(child.pid))
        assert route(row(child.pid)) is Route.REMOTE
    with running("unshare", namespace, str(inner), "60") as child:
        until(lambda: python_version(child.pid))
        found = route(row(child.pid, command=("python3.14", "train.py")))
    assert isinstance(found, Barred)
    assert "is in a container, whose Python is not run from outside" in found.text
    assert found.unlock == "gputop run -- python3.14 train.py"


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
    facts = facts_of(row(os.getpid()).identity, said)
    assert {fact.name for fact in facts} == {
        "loader", "loads-in-main", "unpinned", "model", "dataparallel", "no-tf32", "allocator", "allocator-cache",
        "allocator-retries",
    }  # fmt: skip
    assert all(fact.witness == "notes" and fact.text.isprintable() for fact in facts)
    noted = [[1.0, "\x1b[2Jloss", 3], [2.0, "\x1b[2Jloss", 0.5], [2.0, "n", float("nan")], "x", [1, 2], [True, "b", 1]]
    (mark,) = mark_facts(row(os.getpid()).identity, noted)
    assert mark.text.startswith("it noted ␛[2Jloss = 0.5, ")
    assert mark.text.endswith(", the last of 2")
    assert (
        facts_of(row(os.getpid()).identity, ["x"])
        == facts_of(row(os.getpid()).identity, {"loaders": {}, "models": 3})
        == ()
    )

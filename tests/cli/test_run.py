"""gputop run and gputop env: the command is itself, only its environment is ours."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gputop.cli import run
from tests.process_watch import ROOT
from tests.traced_jobs import environment, interpreter, scratch, sockets

AGENT = sorted((ROOT / "gputop/agent").glob("*.py"))
SEEN = """
import os, pickle, signal, sys, multiprocessing
class Kept: pass
def show(): print("child", sys.argv, __name__, sys.path[:1], flush=True)
if __name__ == "__main__":
    print(sys.argv, __file__, __spec__, sys.path, sorted(vars()), flush=True)
    print(pickle.dumps(Kept()), signal.getsignal(signal.SIGTERM), sys.meta_path[-3:], flush=True)
    for way in ("fork", "spawn"):
        child = multiprocessing.get_context(way).Process(target=show)
        child.start()
        child.join()
    exec(sys.argv[1])
"""


def gputop(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gputop", *arguments],
        capture_output=True, text=True, timeout=60, check=False, **options,
    )  # type: ignore[call-overload]  # fmt: skip


@pytest.mark.parametrize("end", ["raise ValueError(7)", "sys.exit(3)", "os.kill(os.getpid(), signal.SIGTERM)"])
def test_a_program_sees_and_does_the_same(end: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(SEEN)
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def ran(environ: dict[str, str]) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, str(program), end], env=environ, capture_output=True, text=True, timeout=60, check=False
        )
        return done.returncode, done.stdout, done.stderr

    assert ran({**plain, **run.agent_settings(plain)}) == ran(plain)
    assert ran(plain)[1].count("child") == 2


def test_run_is_the_command(tmp_path: Path) -> None:
    tells = "import os, sys; print(os.getppid(), os.environ['OMP_NUM_THREADS'], sys.argv[1:]); sys.exit(9)"
    done = gputop("run", "--threads", "4", "--", sys.executable, "-c", tells, "--lr", "3")
    assert done.returncode == 9
    assert done.stdout == f"{os.getpid()} 4 ['--lr', '3']\n"  # no process of ours between
    (said,) = done.stderr.splitlines()
    assert "PYTHONPATH=" in said
    assert "OMP_NUM_THREADS=4 MKL_NUM_THREADS=4" in said
    (tmp_path / "script").write_text("echo $0 $1\n")
    (tmp_path / "script").chmod(0o755)
    done = gputop("run", str(tmp_path / "script"), "x")  # as a shell runs a script without a first line
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}/script x\n")


def test_run_says_why_it_cannot() -> None:
    for arguments, code in (
        ((), 64),
        (("--", "no-such-program"), 127),
        (("--", "/etc"), 126),
        (("--threads", "0", "ls"), 64),
    ):
        done = gputop("run", *arguments)
        assert done.returncode == code, done.stderr
        assert done.stderr.splitlines()[-1].startswith("gputop: ")


def test_env_makes_no_empty_part_and_nothing_twice() -> None:
    lines = gputop("env", "--threads", "2").stdout
    told = [
        subprocess.run(
            ["sh", "-c", f'{lines}printf "%s %s" "$PYTHONPATH" "$OMP_NUM_THREADS"'],
            env=environ, capture_output=True, text=True, check=True,
        ).stdout
        for environ in ({}, {"PYTHONPATH": "/x"})
    ]  # fmt: skip
    assert told == [f"{run.INJECT} 2", f"{run.INJECT}:/x 2"]
    assert run.agent_settings({"PYTHONPATH": f"{run.INJECT}:/x"}) == {}
    assert run.agent_settings({"PYTHONPATH": run.INJECT}, meter=False, watch_nan=True) == {
        "GPUTOP_METER": "0",
        "GPUTOP_WATCH_NAN": "1",
    }


@pytest.mark.parametrize("path", AGENT, ids=lambda path: path.name)
def test_the_agent_is_python_3_8(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 8))


# a torch that is nothing but its names: what the agent asks of it is not there
STUB = """
import sys, torch, torch.autograd.profiler, torch.optim.optimizer
sys.stdout.write("ready\\n")
sys.stdout.flush()
sys.stdin.readline()
"""


@pytest.mark.parametrize("python", ["python2.7", "python3.8", "python3.13", sys.executable])
def test_a14_other_pythons_and_another_torch(python: str, tmp_path: Path) -> None:
    from tests.traced_jobs import Job

    found = interpreter(python)
    if found is None:
        pytest.skip(f"not covered: no {python} here")
    for module in ("torch/__init__", "torch/autograd/__init__", "torch/optim/__init__", "torch/optim/optimizer"):
        (tmp_path / module).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / f"{module}.py").write_text("")
    (tmp_path / "torch/autograd/profiler.py").write_text("class profile: pass\n")
    (tmp_path / "stub.py").write_text(STUB)
    with scratch() as folder:
        child = subprocess.Popen(
            [found, str(tmp_path / "stub.py")], env=environment(folder),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        if python == "python2.7":
            assert not Path(folder, "run").exists()
        else:
            told = Job(child, folder).capture()
            assert told["error"] == "unsupported"
            assert "torch.autograd.profiler" in told["detail"]
        assert child.communicate("\n", timeout=20) == ("", "")
        assert child.returncode == 0
        assert python == "python2.7" or sockets(folder) == []

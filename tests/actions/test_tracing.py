"""gputop trace on real trainings: from the command to the verdict, all ranks at once, and exactly why not."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from gputop.actions import Rights
from gputop.actions.pyspy import PROFILE, STACK
from gputop.actions.torch_trace import TRACE, Traced, TraceOrder
from gputop.actions.torch_trace.kineto import has_fixes, torch_of
from gputop.actions.torch_trace.trace import AFTERWARDS, lasting_cost
from gputop.model import GpuShare, Role
from gputop.safe.text import MASK
from gputop.trace.read import read
from gputop.trace.verdict import TraceView
from gputop.ui.profiling.dialog import slower
from tests.process_watch import running
from tests.real_processes import finished, hold, moment, row
from tests.traced_jobs import TRAINING, Job, environment, job, scratch, until
from tests.traces import Made, busy

pytestmark = pytest.mark.waits


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
    kept = Path(folder, "own/gputop/profiles")
    before, recorded = sorted(kept.glob("*")), training.said.count("profiler_start")
    with running(
        sys.executable, "-m", "gputop", "--no-nvml", "trace", str(training.pid), "--steps", "100",
        env={**os.environ, "XDG_STATE_HOME": f"{folder}/own"}, stderr=subprocess.PIPE,
    ) as child:  # fmt: skip
        until(lambda: training.said.count("profiler_start") > recorded)
        child.send_signal(signal.SIGINT)
        assert child.wait(20) == 130
        assert child.stderr is not None
        assert "cancelled" in child.stderr.read()
        child.stderr.close()
    until(lambda: os.listdir(training.traces) == [])
    assert sorted(kept.glob("*")) == before
    assert training.capture()["steps"] == 3
    for name in os.listdir(training.traces):
        os.unlink(f"{training.traces}/{name}")


def test_the_exact_reason_and_what_helps(training: Job, folder: str) -> None:
    with (
        running("sleep", "60") as sleeper,
        running(sys.executable, "-S", "-c", "input()", "--token", "abc", stdin=subprocess.PIPE) as plain,
    ):
        version = "{}.{}".format(*sys.version_info)
        why = TRACE.why_not(row(sleeper.pid), Rights())
        assert why == f"{sleeper.pid} is not a visible Python program: nothing to trace"
        until(lambda: "accepts none" in (TRACE.why_not(row(plain.pid), Rights()) or ""))
        assert TRACE.why_not(row(plain.pid), Rights()) == (
            f"{plain.pid} cannot be traced from outside: it has no agent, "
            f"and Python {version} accepts none (3.14 does);"
            " next time start it with: gputop run -- COMMAND"
        )
        done = trace(folder, str(plain.pid))
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert done.stderr.endswith(f": gputop run -- {sys.executable} -S -c 'input()' --token '{MASK}'\n")
        process = row(plain.pid, role=Role.TRAINER, rank=0, command=("python", "train.py"))
        root = row(sleeper.pid, role=Role.LAUNCHER, command=("torchrun", "train.py", "a b"))
        frame = moment(root, process, launcher="torchrun")
        barred = TRACE.barred(frame.by_identity[process.identity], Rights(), frame)
        assert barred is not None
        assert barred.unlock == "gputop run -- torchrun train.py 'a b'"
    other_frameworks(folder)
    assert torch_of(training.pid) == (metadata.version("torch"), has_fixes(metadata.version("torch")))
    assert "no process with PID" in trace(folder, "999999999").stderr
    for action in (TRACE, PROFILE, STACK):  # in a container it may be the job
        assert "alive" not in (action.why_not(row(1), Rights()) or "")
    assert trace(folder, str(training.pid), "--steps", "0").returncode == 64
    assert "--readonly" in trace(folder, "--readonly", str(training.pid)).stderr
    assert "loads data" in (TRACE.why_not(row(training.pid, role=Role.LOADER), Rights()) or "")


def other_frameworks(folder: str) -> None:
    """Started with gputop run, but without torch: said so; with another framework: its own profiler."""
    code = "import mmap, sys\nfiles = [open(name) for name in sys.argv[1:]]\n"
    code += "maps = [mmap.mmap(each.fileno(), 0, prot=mmap.PROT_READ) for each in files]\nprint(flush=True)\ninput()"
    library = Path(folder, "libtensorflow_framework.so.2")
    library.write_text("x")
    for files, why in (
        ((), "was started with gputop run but has no agent: torch is not imported"),
        ((str(library),), "with tf.profiler.experimental.Profile('logs'): ..."),
    ):
        with running(sys.executable, "-c", code, *files, stdin=subprocess.PIPE, env=environment(folder)) as child:
            assert child.stdout is not None
            child.stdout.readline()
            assert why in (TRACE.why_not(row(child.pid), Rights()) or "")


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
        result = finished(TRACE, hold(processes[0], frame), TraceOrder(steps=4), seconds=60)
    assert isinstance(result, Traced)
    assert result.good, result
    assert [os.path.basename(path) for path in result.files] == ["rank0.json.gz", "rank1.json.gz"]
    starts = [
        view.trace.base_ns / 1e9 + ((view.trace.origin_us or 0) + view.found.window.start) / 1e6
        for view in result.views
    ]
    # the common start may fall between their two ends of one step: then they begin one step apart
    assert abs(starts[0] - starts[1]) < 1.5 * result.views[0].found.window.span_us / 1e6 / 4
    assert [view.trace.rank for view in result.views] == [0, 1]
    late = [verdict for verdict in result.views[0].verdicts if verdict.all_ranks]
    assert late
    assert late[0].headline.startswith("straggler, other ranks wait for rank 1")


def test_what_a_trace_of_a_gpu_costs_afterwards_is_said(tmp_path: Path) -> None:
    gpu = TraceView(read(busy(2).write(tmp_path / "gpu.json")))
    cpu = Made()
    cpu.host("aten::mm", 0, 100)
    assert lasting_cost([TraceView(read(cpu.write(tmp_path / "cpu.json"))), gpu]) == (AFTERWARDS,)
    assert lasting_cost([TraceView(read(str(tmp_path / "cpu.json")))]) == ()
    gpu_share = (GpuShare(uuid="GPU-1"),)
    for gpus, said in (((), "slower only while recording"), (gpu_share, "short steps stay slower afterwards")):
        assert said in slower(hold(row(os.getpid(), gpus=gpus)))

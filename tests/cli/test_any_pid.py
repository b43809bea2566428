"""Jobs that nothing but their process tree tells: any pid of one is enough to find its ranks, which are never lost."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gputop.cli.diagnose import _job_process
from gputop.cli.options import Failure
from gputop.cli.process import _find_process as _led
from gputop.model import Job, Process, Role
from tests.process_watch import ROOT, need_namespaces, running
from tests.real_processes import until
from tests.scripted_jobs import frame as scripted
from tests.traced_jobs import environment, scratch

pytestmark = pytest.mark.jobs

RANKS = str(ROOT / "tests/workloads/ranks.py")


class Started(NamedTuple):
    """A job that has made a step: the pid that a person knows, those of its tree below, how gputop is called for it."""

    pid: int
    folder: str

    def below(self, pid: int | None = None) -> list[int]:
        """The children of one of its processes, the oldest first."""
        pid = pid or self.pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def ask(self, *arguments: str, code: int = 0) -> str:
        """What a command prints; what it says on standard error stands in front."""
        done = subprocess.run(
            [sys.executable, "-m", "gputop", "--no-nvml", *arguments],
            env={**os.environ, "XDG_STATE_HOME": f"{self.folder}/own"},
            capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stderr + done.stdout

    def stacks(self, *arguments: str) -> list[dict[str, Any]]:
        """The processes that `gputop stack --json` shows."""
        said = self.ask("stack", "--json", *arguments)
        found: list[dict[str, Any]] = json.loads(said[said.index("{") :])["processes"]
        return found


@contextmanager
def started(
    *command: str, folder: str, how: str = "fork", workers: int = 0, python: tuple[str, ...] = (sys.executable,)
) -> Iterator[Started]:
    """Two ranks by this command, prepared as by `gputop run`."""
    with (
        tempfile.TemporaryDirectory(dir=folder) as place,
        running(
            *command, *python, RANKS, how, f"{place}/store", str(workers),
            env={**environment(folder), "PYTHONDONTWRITEBYTECODE": "1"}, stderr=subprocess.DEVNULL,
        ) as child,
    ):  # fmt: skip
        assert child.stdout is not None
        assert sorted(child.stdout.readline().split()[:2] for _ in range(2)) == [["ready", "0"], ["ready", "1"]]
        yield Started(child.pid, folder)


@pytest.fixture(scope="module")
def folder() -> Iterator[str]:
    with scratch() as folder:
        yield folder


@pytest.fixture(scope="module")
def forked(folder: str) -> Iterator[Started]:
    """Plain multiprocessing behind a shell script: shell, launcher, ranks."""
    with started("sh", "-c", '"$@"; true', "run.sh", folder=folder) as job:
        yield job


@pytest.fixture(scope="module")
def spawned(folder: str) -> Iterator[Started]:
    """torch.multiprocessing.spawn with a DataLoader worker each: launcher, tracker and ranks, workers."""
    with started(folder=folder, how="spawn", workers=1) as job:
        yield job


def test_ranks_that_only_wait_are_found_from_any_pid(forked: Started) -> None:
    (launcher,) = forked.below()
    ranks = forked.below(launcher)
    assert len(ranks) == 2
    for pid in (forked.pid, launcher, *ranks):
        shown = forked.stacks("--job", str(pid))
        assert [(one["pid"], one["role"], one["rank"]) for one in shown] == [
            (rank, "trainer", number) for number, rank in enumerate(ranks)
        ]


def test_a_launcher_shows_its_ranks_and_then_itself(forked: Started) -> None:
    (launcher,) = forked.below()
    for pid in (forked.pid, launcher):
        shown = forked.stacks(str(pid))
        assert [one["role"] for one in shown] == ["trainer", "trainer", "launcher"]
    said = forked.ask("stack", str(forked.pid))
    assert f"{forked.pid} started job" in said
    assert f"using its process {launcher}" in said
    assert "2 ranks, sampled for 1 s" in said


def test_a_trace_of_any_pid_is_one_of_its_ranks(forked: Started, spawned: Started) -> None:
    said = forked.ask("trace", "--steps", "2", str(forked.pid))
    assert "rank0.json.gz" in said
    assert "rank1.json.gz" in said
    ranks = [pid for pid in spawned.below() if spawned.below(pid)]
    (worker,) = until(lambda: [pid for pid in spawned.below(ranks[1]) if "pt_data" in comm(pid)])
    said = spawned.ask("trace", "--steps", "2", str(worker))
    assert f"{worker} is a DataLoader worker in the job of rank {ranks[1]}: using that rank" in said
    assert "rank1.json.gz" in said


def test_each_rank_of_a_profile_says_how_long_it_waits_for_the_others(spawned: Started) -> None:
    ranks = [pid for pid in spawned.below() if spawned.below(pid)]
    said = spawned.ask("profile", "--for", "2s", "--json", str(spawned.pid))
    told = json.loads(said[said.index("{") :])
    assert [(one["rank"], one["pid"]) for one in told["ranks"]] == list(enumerate(ranks))
    fast, slow = (one["phases"].get("comms", 0.0) for one in told["ranks"])
    assert fast > 0.6
    assert slow < 0.3
    assert told["text"].startswith("rank 1 spends")
    said = spawned.ask("profile", "--for", "1s", "--job", "--alone", str(ranks[0]))
    assert "2 ranks, profiled simultaneously" in said


def test_a_launcher_is_profiled_only_if_it_is_asked_for(forked: Started) -> None:
    (launcher,) = forked.below()
    said = forked.ask("profile", "--for", "1s", str(launcher))
    assert f"{launcher} is a launcher: profiling its ranks (--launcher profiles {launcher})" in said
    assert "2 ranks, profiled simultaneously" in said
    said = forked.ask("profile", "--for", "1s", "--alone", "--json", "--launcher", str(launcher))
    assert json.loads(said)["about"]["pid"] == launcher


def test_a_profile_of_a_loader_is_not_one_of_a_step(spawned: Started) -> None:
    ranks = [pid for pid in spawned.below() if spawned.below(pid)]
    (worker,) = until(lambda: [pid for pid in spawned.below(ranks[1]) if "pt_data" in comm(pid)])
    said = spawned.ask("profile", "--for", "1s", str(worker))
    told = " ".join(said.split())
    assert "This process is a DataLoader worker. " in told
    assert re.search(r"[Ww]aiting for work \d+ % of the time", told)
    assert "num_workers" not in said
    assert "Step phases" not in said


def test_a_diagnosis_of_a_script_is_one_of_the_job_it_started() -> None:
    shell = Process(pid=7, started_ticks=1, parent_pid=1, name="bash")
    between = Process(pid=8, started_ticks=1, parent_pid=7, name="uv")
    trainer = Process(pid=9, started_ticks=1, parent_pid=8, name="python", role=Role.TRAINER, job="9.1")
    job = Job(key="9.1", name="llama/train", ranks=(trainer.identity,), members=(trainer.identity,))
    frame = scripted((job, [trainer]), loose=(shell, between))
    assert [_job_process(frame, pid) for pid in (7, 8, 9)] == [9, 9, 9]
    assert _job_process(scripted(loose=(shell,)), 7) == 7


def two_programs() -> tuple[Any, Process, Process]:
    """A script with two programs below it; only the first has worked enough to look like a job."""
    shell = Process(pid=7, started_ticks=1, parent_pid=1, name="sh", command=("sh", "both.sh"))
    python = "/usr/bin/python3"
    trainer = Process(
        pid=8, started_ticks=1, parent_pid=7, name="python3", role=Role.TRAINER, job="8.1",
        command=(python, "train.py", "a"),
    )  # fmt: skip
    loader = Process(pid=9, started_ticks=1, parent_pid=8, name="python3", job="8.1", command=trainer.command)
    job = Job(key="8.1", name="x/train", ranks=(trainer.identity,), members=(trainer.identity, loader.identity))
    other = Process(pid=10, started_ticks=1, parent_pid=7, name="python3", command=(python, "other.py"))
    return (lambda *more: scripted((job, [trainer, loader]), loose=(shell, *more))), trainer, other


def test_a_program_that_does_not_look_like_a_job_is_named_beside_one() -> None:
    made, trainer, other = two_programs()
    with pytest.raises(Failure, match=r"7 started 2 programs: choose one of 8 \(x/train\), 10 \(python3\)"):
        _led(made(other), 7, lambda *_: (other,))
    assert _led(made(other), 7, lambda *_: (trainer,)) == trainer
    assert _led(made(other), 8, lambda *_: (other,)) == trainer
    assert _led(made(other), 7) == trainer  # a recording tells no more than it shows


@pytest.mark.parametrize(
    ("command", "same"),
    [
        (("/usr/bin/python3", "train.py", "b"), True),
        (("/usr/bin/python3", "train.py"), True),
        (("/usr/bin/python3", "-m", "tensorboard.main"), False),
        (("tail", "-f", "log"), False),
        ((), False),
    ],
)
def test_a_second_run_of_a_script_that_has_not_begun_to_work_is_named(command: tuple[str, ...], same: bool) -> None:
    made, trainer, _ = two_programs()
    late = Process(pid=10, started_ticks=1, parent_pid=7, name="python3", command=command)
    if same:
        with pytest.raises(Failure, match=r"choose one of 8 \(x/train\), 10 \(python3\)"):
            _led(made(late), 7, lambda *_: (trainer,))
    else:
        assert _led(made(late), 7, lambda *_: (trainer,)) == trainer


ONE = """
import multiprocessing, os, sys, time
def work():
    import torch
    torch.set_num_threads(1)
    layer = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1e-4)
    for step in range(1 << 40):
        time.sleep(0.005)
        optimizer.zero_grad()
        layer(torch.randn(32, 64)).sum().backward()
        optimizer.step()
        if step == 0: os.write(1, b"ready\\n")
if "early" in sys.argv: import torch
if "child" not in sys.argv: work()
child = multiprocessing.get_context("fork").Process(target=work)
child.start()
child.join()
"""


@pytest.mark.parametrize("how", ["script", "child", "early"])
def test_any_pid_of_a_job_of_one_process_leads_to_its_trainer(folder: str, how: str) -> None:
    """Behind a script, and behind a Python that only waits for its child; torch may be imported in both."""
    program = [sys.executable, "-c", ONE, *{"script": (), "child": ("child",), "early": ("child", "early")}[how]]
    shell = ["sh", "-c", '"$@"; true', "one.sh"] if how == "script" else []
    with running(*shell, *program, env=environment(folder), stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        assert child.stdout.readline().strip() == "ready"
        job = Started(child.pid, folder)
        trainer = job.below()[-1]
        assert job.stacks("--job", str(child.pid))[0]["pid"] == trainer
        assert job.stacks(str(child.pid))[0]["pid"] == trainer
        assert f'"pid": {trainer}' in job.ask("profile", "--for", "1s", "--alone", "--json", str(child.pid))
        for pid in (child.pid, trainer):
            said = job.ask("trace", "--steps", "2", str(pid))
            assert ".json.gz" in said
            assert pid == trainer or re.search("which does the work|started job", said)


FED = """
import os, time, torch
from torch.utils.data import DataLoader
torch.set_num_threads(1)
layer = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(layer.parameters(), lr=1e-4)
for place, batch in enumerate(DataLoader(torch.randn(1 << 20, 8), batch_size=8, num_workers=1)):
    time.sleep(0.02)
    optimizer.zero_grad()
    layer(batch).sum().backward()
    optimizer.step()
    if place == 0: os.write(1, b"ready\\n")
"""


def test_a_loader_of_a_program_that_does_not_look_like_a_trainer_leads_to_it(folder: str) -> None:
    """Its script is called like a launcher, and no meter counts its steps, so that it is in no job."""
    script = Path(folder, "ds.py")
    script.write_text(FED)
    unmetered = environment(folder) | {"GPUTOP_METER": "0"}
    with running(sys.executable, str(script), env=unmetered, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        assert child.stdout.readline().strip() == "ready"
        job = Started(child.pid, folder)
        (loader,) = until(lambda: [pid for pid in job.below() if "pt_data" in comm(pid)])
        said = job.ask("trace", "--steps", "2", str(loader))
        assert f"{loader} is a DataLoader worker of {child.pid}: using {child.pid}" in said
        assert ".json.gz" in said
        assert [one["pid"] for one in job.stacks("--job", str(loader))] == [child.pid]
        assert [one["pid"] for one in job.stacks(str(loader))] == [loader]


def comm(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text()


def test_ranks_in_a_pid_namespace_of_their_own(folder: str) -> None:
    flags = ("--pid", "--fork", "--mount-proc")
    need_namespaces(*flags)
    with started("unshare", *flags, folder=folder) as job:
        (launcher,) = job.below()
        shown = job.stacks("--job", str(job.pid))
        assert [one["pid"] for one in shown] == job.below(launcher)
        assert [one["rank"] for one in shown] == [0, 1]
        assert "rank1.json.gz" in job.ask("trace", "--job", "--steps", "2", str(job.pid))


ACCELERATE = """
import subprocess, sys
assert sys.argv[1] == "launch"
subprocess.run([sys.executable, *sys.argv[2:]])
"""


def test_a_launcher_of_a_launcher(folder: str) -> None:
    """As `accelerate launch` of a script that spawns its ranks: every pid above them leads to them."""
    script = Path(folder, "accelerate")
    script.write_text(ACCELERATE)
    with started(sys.executable, str(script), "launch", folder=folder, python=()) as job:
        (middle,) = job.below()
        for pid in (job.pid, middle):
            shown = job.stacks(str(pid))
            assert [one["pid"] for one in shown] == [*job.below(middle), pid]
            assert [one["role"] for one in shown] == ["trainer", "trainer", "launcher"]


def test_two_jobs_below_one_script_are_named(folder: str) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as place:
        command = [sys.executable, RANKS, "fork", f"{place}/a", "0"]
        script = f"{' '.join(command)} & {' '.join([*command[:3], f'{place}/b', '0'])} & wait"
        with running("sh", "-c", script, env=environment(folder), stderr=subprocess.DEVNULL) as child:
            assert child.stdout is not None
            assert [child.stdout.readline()[:5] for _ in range(4)] == ["ready"] * 4
            job = Started(child.pid, folder)
            said = job.ask("stack", "--job", str(child.pid), code=1)
            assert re.search(rf"{child.pid} started 2 (jobs|programs): choose one of", said)
            assert all(f"{launcher} (" in said for launcher in job.below())


def test_two_programs_that_hardly_work_are_named(folder: str) -> None:
    """One of them imports torch at first, then does as little as the other: neither looks like a job for long."""
    program = f"{sys.executable} -c '{ONE.replace('0.005', '0.2')}'"
    with running("sh", "-c", f"{program} & {program} & wait", env=environment(folder)) as child:
        assert child.stdout is not None
        assert [child.stdout.readline().strip() for _ in range(2)] == ["ready"] * 2
        job = Started(child.pid, folder)
        for command in ("stack", "profile", "trace"):
            said = job.ask(command, str(child.pid), code=1)
            assert re.search(rf"{child.pid} started 2 (jobs|programs): choose one of", said)
            assert all(f"{pid} (" in said for pid in job.below())


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (
            "RANK=0 WORLD_SIZE=2 MASTER_PORT=29501 {} --local_rank 0",
            "RANK=1 WORLD_SIZE=2 MASTER_PORT=29501 {} --local_rank 1",
        ),
        ("CUDA_VISIBLE_DEVICES=0 {} --rank 0", "CUDA_VISIBLE_DEVICES=1 {} --rank 1"),
    ],
    ids=["environment", "arguments"],
)
def test_ranks_that_a_shell_starts_side_by_side_are_one_job(folder: str, first: str, second: str) -> None:
    """Each in a process group of its own, as in an interactive shell."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        command = f"{sys.executable} {RANKS} one {place}/store 0"
        script = f"set -m; {first.format(command)} & {second.format(command)} & wait"
        env = {**environment(folder), "MASTER_ADDR": "127.0.0.1"}
        with running("bash", "-c", script, env=env, stderr=subprocess.DEVNULL) as child:
            assert child.stdout is not None
            try:
                assert sorted(child.stdout.readline().split()[:2] for _ in range(2)) == [["ready", "0"], ["ready", "1"]]
                job = Started(child.pid, folder)
                ranks = job.below()
                for asked in (("--job", ranks[0]), ("--job", ranks[1]), ("--job", child.pid), (child.pid,)):
                    shown = job.stacks(*map(str, asked))
                    assert [(one["pid"], one["role"], one["rank"]) for one in shown] == [
                        (rank, "trainer", number) for number, rank in enumerate(ranks)
                    ]
                said = job.ask("profile", "--for", "1s", "--json", str(child.pid))
                assert f"{child.pid} is a launcher: profiling its ranks\n" in said
                assert [one["pid"] for one in json.loads(said[said.index("{") :])["ranks"]] == ranks
            finally:
                for pid in Started(child.pid, folder).below():
                    os.kill(pid, signal.SIGKILL)


def test_a_rank_that_waits_inside_backward_may_wait_for_the_others(folder: str) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as place:
        each = f"WORLD_SIZE=2 MASTER_PORT=29503 {sys.executable} {RANKS} one {place}/store 0"
        script = f"RANK=0 {each} & RANK=1 {each} & wait"
        env = {**environment(folder), "HANGS": "1"}
        with running("sh", "-c", script, env=env, stderr=subprocess.DEVNULL) as child:
            assert child.stdout is not None
            assert [child.stdout.readline()[:5] for _ in range(2)] == ["ready"] * 2
            job = Started(child.pid, folder)
            first, _ = job.below()

            def said(*arguments: str) -> str:
                return " ".join(job.ask("stack", *arguments, str(first)).split())

            inside = "may wait in a collective inside backward: --native shows it"
            until(lambda: f"rank 0 {inside}" in said("--job"))
            assert f"gputop: {first} {inside}" in said()
            native = said("--job", "--native")
            assert "rank 0 waits in " in native
            assert "; rank 1 is in work (ranks.py:" in native
            assert "the job probably hangs" in native, "that it was paused is no step"
            assert inside not in native


def test_two_worlds_that_a_shell_starts_side_by_side_are_two_jobs(folder: str) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as place:
        worlds = [
            f"RANK={rank} WORLD_SIZE=2 MASTER_PORT={port} {sys.executable} {RANKS} one {place}/{port} 0 &"
            for rank in range(2)
            for port in (29501, 29502)
        ]
        script = f"{' '.join(worlds)} wait"
        with running("bash", "-c", script, env=environment(folder), stderr=subprocess.DEVNULL) as child:
            assert child.stdout is not None
            assert [child.stdout.readline()[:5] for _ in range(4)] == ["ready"] * 4
            job = Started(child.pid, folder)
            ranks = job.below()
            for pids in (ranks[::2], ranks[1::2]):
                assert [(one["pid"], one["rank"]) for one in job.stacks("--job", str(pids[1]))] == [
                    (pid, number) for number, pid in enumerate(pids)
                ]

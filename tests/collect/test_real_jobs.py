"""A real training run with a DataLoader: one job, one rank, four loaders, and their figures are those of /proc."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from subprocess import DEVNULL, Popen

import psutil
import pytest

from gputop.collect.jobs.groups import jobs
from gputop.collect.proc.gpu_processes import ProcessTable, with_shares
from gputop.model import GpuShare, Job, Process, Role
from tests.process_watch import ROOT, Watch, running, watch

pytestmark = pytest.mark.jobs

__all__ = ["watch"]

WORKERS = 4
SCRIPT = ROOT / "tests/workloads/train.py"


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Popen[str]]:
    """A run that the test may end."""
    yield from trained(tmp_path)


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Popen[str]]:
    """A run that is looked at only."""
    yield from trained(tmp_path_factory.mktemp("lasting"))


def trained(parent: Path) -> Iterator[Popen[str]]:
    """Torch takes seconds to import; what is printed then says that the first batch has come."""
    folder = parent / "llama-7b"
    folder.mkdir()
    options = f"--seconds 120 --num-workers {WORKERS} --read-mb 0.25".split()
    command = (sys.executable, str(SCRIPT), *options, "--data", str(folder))
    with running(*command, cwd=folder, stderr=DEVNULL) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        yield child


def job_of(table: ProcessTable, pid: int, *, on_gpu: bool) -> tuple[Job, dict[Role, list[Process]]] | None:
    """The job of a trainer with its processes by role, once it has all its loaders."""
    share = {pid: (GpuShare(uuid="GPU-0"),)} if on_gpu else {}
    processes, found = jobs(with_shares(table, share).processes)
    roles: dict[Role, list[Process]] = {}
    for job in found:
        if any(identity.pid == pid for identity in job.ranks):
            for process in processes:
                if process.job == job.key:
                    roles.setdefault(process.role, []).append(process)
            return (job, roles) if len(roles.get(Role.LOADER, ())) == WORKERS else None
    return None


@pytest.mark.parametrize("on_gpu", [True, False], ids=["with a GPU share", "by its loaders alone"])
def test_one_job_one_rank_four_loaders(watch: Watch, lasting: Popen[str], on_gpu: bool) -> None:
    training = lasting
    gpu_pids = (training.pid,) if on_gpu else ()

    def ready(table: ProcessTable) -> tuple[Job, dict[Role, list[Process]]] | None:
        found = job_of(table, training.pid, on_gpu=on_gpu)
        trainers = found[1][Role.TRAINER] if found else []
        if len(trainers) != 1:  # a loader that was forked a moment ago is not named yet
            return None
        return found if "torch" in trainers[0].libraries and trainers[0].busy_threads is not None else None

    job, roles = watch.until(ready, *gpu_pids, seconds=60)
    assert (job.name, job.launcher) == ("llama-7b/train", "python")
    assert [identity.pid for identity in job.ranks] == [training.pid]
    (trainer,) = roles[Role.TRAINER]
    assert (trainer.rank, trainer.command[1]) == (0, str(SCRIPT))
    assert trainer.busy_threads is not None
    assert 0 <= trainer.busy_threads <= (trainer.threads or 0)
    real = {child.pid for child in psutil.Process(training.pid).children()}
    loaders = roles[Role.LOADER]
    assert {loader.pid for loader in loaders} <= real
    assert {(loader.parent_pid, loader.rank) for loader in loaders} == {(training.pid, 0)}
    assert len(job.members) == 1 + len(psutil.Process(training.pid).children(recursive=True))


def test_cpu_and_io_of_each_process_are_those_of_proc(watch: Watch, lasting: Popen[str]) -> None:
    training = lasting
    ours: dict[int, list[float]] = {}
    pids = [training.pid]
    watch.until(lambda table: job_of(table, training.pid, on_gpu=True), training.pid)
    pids += [child.pid for child in psutil.Process(training.pid).children()]
    watch.look(training.pid)
    before, last = counted(pids), time.monotonic()
    for _ in range(8):
        time.sleep(0.4)
        table, now = watch.look(training.pid), time.monotonic()
        for process in table.processes:
            if process.pid in pids:
                sums = ours.setdefault(process.pid, [0.0, 0.0, 0.0])
                rates = (process.cpu_percent / 100, process.read_chars_per_s, process.read_bytes_per_s)
                ours[process.pid] = [total + rate * (now - last) for total, rate in zip(sums, rates, strict=True)]
        last = now
    after = counted(pids)
    assert ours.keys() == set(pids)
    for pid in pids:
        cpu_s, chars, read = (new - old for new, old in zip(after[pid], before[pid], strict=True))
        assert ours[pid][0] == pytest.approx(cpu_s, abs=0.12, rel=0.15)
        assert ours[pid][1] == pytest.approx(chars, rel=0.2, abs=1 << 20)
        assert ours[pid][2] == pytest.approx(read, rel=0.2, abs=1 << 20)
    assert sum(ours[pid][1] for pid in pids[1:]) > 1 << 20, "the loaders read"


def counted(pids: list[int]) -> Mapping[int, tuple[float, float, float]]:
    """CPU seconds, bytes through read calls and bytes from storage, by pid, as psutil reads them."""
    found = {}
    for pid in pids:
        process = psutil.Process(pid)
        cpu, io = process.cpu_times(), process.io_counters()
        found[pid] = (cpu.user + cpu.system, io.read_chars, io.read_bytes)
    return found


def test_the_end_of_a_job_is_the_end_of_its_processes(watch: Watch, training: Popen[str]) -> None:
    watch.until(lambda table: job_of(table, training.pid, on_gpu=True), training.pid)
    os.killpg(training.pid, 9)
    training.wait()
    watch.until(lambda table: not any(process.pid == training.pid for process in table.processes), training.pid)
    assert job_of(watch.look(training.pid), training.pid, on_gpu=False) is None

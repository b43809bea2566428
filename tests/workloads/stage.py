"""Cases on the stage: programs run on two CPUs and a fake driver, `gputop record` watches, its frames come back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from gputop.monitor import Monitor, Update
from gputop.record.recording import Recording
from gputop.safe.deadline import readable
from tests.fakenvml import Fake
from tests.workloads.cases import Case
from tests.workloads.command import ROOT, Watch, put_first
from tests.workloads.device import ACCOUNTS

HERE = Path(__file__).parent
CPUS = 2
START_S = 90.0  # importing torch four times on two busy CPUs
HOG = "while True: pass"
# a command that is held to the first CPUs this process may use
_PINNED = (
    "import os, sys; "
    f"os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:{CPUS}]); os.execvp(sys.argv[1], sys.argv[1:])"
)


@dataclass(frozen=True)
class Play:
    """A case, or its healthy twin."""

    case: Case
    healthy: bool = False


class Cast(NamedTuple):
    """Who is on the stage in a play: from `since_s` (wall clock) on everything it starts runs."""

    roots: list[int]  # pids of the programs
    gpus: list[str]  # indices
    since_s: float


@dataclass(frozen=True)
class Performance:
    """What was seen of a play."""

    updates: list[Update]
    roots: list[int]
    gpus: list[str]
    since_s: float


def perform(*plays: Play, seconds: float, watch: Watch | None = None) -> list[Performance]:
    """Plays them at the same time, each on its own GPUs, and watches. NotCovered where this machine cannot."""
    with tempfile.TemporaryDirectory(prefix="recorded-") as folder:
        file = Path(folder) / "recorded.jsonl"
        return watched(file, staged(*plays, seconds=seconds, file=file, watch=watch))


def watched(file: Path, casts: Iterable[Cast]) -> list[Performance]:
    """What is seen of each play in a recording of all of them."""
    updates = list(Monitor(Recording(str(file), pace=False)).updates())
    return [Performance(updates, *cast) for cast in casts]


def staged(*plays: Play, seconds: float, file: Path, watch: Watch | None = None) -> list[Cast]:
    """Plays them at the same time, each on its own GPUs, while gputop records them into a new file, and a watch."""
    with tempfile.TemporaryDirectory(prefix="workload-") as name:
        folder, started, first = Path(name), [], 0
        fake = Fake(folder / "driver", gpus=sum(play.case.gpus for play in plays))
        with ExitStack() as stack:
            for play in plays:
                gpus = range(first, first := first + play.case.gpus)
                started.append((start(play, seconds, folder, {gpu: fake.lend(gpu) for gpu in gpus}, stack), gpus))
            stack.enter_context(watch.over(fake.env()) if watch else nullcontext())
            for roots, _ in started:
                ready(roots)
            if watch:
                watch.ready()
            if any(play.case.neighbour and not play.healthy for play in plays):
                for _ in range(2 * CPUS):
                    command = (sys.executable, "-c", _PINNED, sys.executable, "-S", "-c", HOG)
                    stack.enter_context(_process(command, folder, dict(os.environ), []))
            since_s = time.time()
            _record(fake, seconds, file)
            if watch:
                watch.end()
        return [Cast([root.pid for root in roots], list(map(str, gpus)), since_s) for roots, gpus in started]


def start(
    play: Play, seconds: float, folder: Path, accounts: dict[int, Path], stack: ExitStack
) -> list[subprocess.Popen[bytes]]:
    """The programs of one play, which have still to get ready."""
    case, roots, paths = play.case, list[subprocess.Popen[bytes]](), list(accounts.values())
    data = folder / f"data-{min(accounts)}"
    data.mkdir()
    confined = (case.healthy_confined if play.healthy and case.healthy_confined else case.confined)(data)
    before = stack.enter_context(confined)
    for copy in range(case.copies):
        mine = paths[copy : copy + 1] if case.copies > 1 else paths
        command = (*before, *_command(case, play.healthy, seconds, data))
        stack.enter_context(_process(command, folder, _environment(case, play.healthy, mine), roots))
    return roots


def _command(case: Case, healthy: bool, seconds: float, data: Path) -> tuple[str, ...]:
    options = f"{case.common} {case.healthy if healthy else case.faulty}".split()
    if case.program == "train.py":
        options += ["--seconds", str(seconds + START_S), "--data", str(data)]
    ranks = case.healthy_ranks if healthy and case.healthy_ranks is not None else case.ranks
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks else []
    python = [sys.executable, *launcher, str(HERE / case.program), *options]
    return (sys.executable, "-c", _PINNED, *python)


def _environment(case: Case, healthy: bool, accounts: list[Path]) -> dict[str, str]:
    more = case.healthy_environment if healthy else case.faulty_environment
    return {**os.environ, ACCOUNTS: os.pathsep.join(map(str, accounts)), **case.environment, **more}


@contextmanager
def _process(
    command: tuple[str, ...], folder: Path, environment: dict[str, str], started: list[subprocess.Popen[bytes]]
) -> Iterator[None]:
    """A program and all it starts, for as long as this lasts."""
    errors = folder / f"errors-{time.monotonic_ns()}"
    with errors.open("wb") as sink:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=sink, start_new_session=True
        )
    started.append(process)
    put_first(process.pid)
    try:
        yield
        if process.poll() is not None:
            raise RuntimeError(f"{command[-1]} ended: {errors.read_text()[-2000:]}")
    finally:
        family = [process.pid, *_descendants(process.pid)]
        for pid in family:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        process.wait()
        process.stdout.close()


def _descendants(pid: int) -> list[int]:
    """Ranks of torchrun have sessions of their own, so the tree is walked."""
    found: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *_descendants(child)]
    except (FileNotFoundError, ProcessLookupError):
        pass
    return found


def ready(programs: Iterable[subprocess.Popen[bytes]]) -> None:
    """The first step of each is done."""
    for process in programs:
        if not readable([process.stdout], START_S) or process.stdout.readline() != b"ready\n":
            raise RuntimeError(f"process {process.pid} did not start to train")


def _record(fake: Fake, seconds: float, file: Path) -> None:
    """Let gputop record so many seconds."""
    command = [sys.executable, "-m", "gputop", "record", "--gpm", "on", "--for", f"{seconds:.0f}s", str(file)]
    unheard = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, env=fake.env(), start_new_session=True, **unheard) as recorder:
        put_first(recorder.pid)
        try:
            _, errors = recorder.communicate(timeout=seconds + 60)
        finally:
            recorder.kill()
    if recorder.returncode:
        raise RuntimeError(f"gputop record: {errors}")

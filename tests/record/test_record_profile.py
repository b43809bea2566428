"""Profiles of a real training job by py-spy: what is slow is named, the job goes on, what was found is kept."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from gputop.actions import Rights, Scope
from gputop.actions.pyspy import PROFILE, STACK, Asked, ProfileResult, Sampling, StackResult
from gputop.model import Role
from gputop.profile import parse, report, store
from gputop.profile.dump import ThreadStack
from gputop.safe import ptrace_access
from gputop.safe.identity import read_stat
from tests.planted_jobs import Job, by_turns, job
from tests.process_watch import ROOT
from tests.real_processes import finished, hold, moment, program, row, state, until

pytestmark = [pytest.mark.jobs, by_turns]


def loaders(of: int) -> list[int]:
    """The children of a process."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if (stat := read_stat(pid)) and stat.parent_pid == of]


def recorded(training: Job, **chosen: object) -> ProfileResult:
    """A profile of the job, which must go on as before."""
    process = row(training.pid, role=Role.TRAINER, command=("python", "train_planted.py", "--token", "hunter2"))
    workers = [row(pid, role=Role.LOADER) for pid in loaders(training.pid)]
    result = finished(PROFILE, hold(process, moment(process, *workers, launcher="python")), Sampling(**chosen))  # type: ignore[arg-type]
    assert isinstance(result, ProfileResult)
    assert ptrace_access.tracer(training.pid) is None
    assert state(training.pid) in ("S", "R")
    before = training.steps
    until(lambda: training.steps >= before + 3)
    return result


def test_the_planted_function_is_named_and_the_job_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "job").mkdir()
    with job(tmp_path / "job") as training:
        data = recorded(training, seconds=1.5)
        assert data.good, data.text
        assert data.page is not None
        said = " ".join(data.page.words)
        assert "augment (train_planted.py)" in said or "burn (train_planted.py)" in said, said
        assert "of samples wait for the DataLoader" in data.page.points[0].text
        parts_of(training)
        training.slow_model()
        model = recorded(training, seconds=1.5)
        assert model.page is not None
        said = " ".join(model.page.words)
        assert "burn (train_planted.py)" in said, said
        assert "forward" in said
        assert model.kept is not None
        compared(data, model)
        files(model)
        on_the_command_line(training, tmp_path)


def parts_of(training: Job) -> None:
    """Its stacks: the main thread waits for data, a loader is in the transform."""
    process = row(training.pid, role=Role.TRAINER)
    workers = [row(pid, role=Role.LOADER) for pid in loaders(training.pid)]
    frame = moment(process, *workers, launcher="python")

    def now() -> list[ThreadStack]:
        result = finished(STACK, hold(process, frame), Asked(Scope.LOADERS))
        assert isinstance(result, StackResult)
        return [shown.threads[0] for shown in result.processes if shown.threads]

    def caught() -> bool:
        main, *others = now()
        waits = any("dataloader.py" in call.file for call in main.calls)
        assert main.own is not None
        assert main.own.file.endswith("train_planted.py")
        return waits and len(others) == 2 and any(call.name == "augment" for each in others for call in each.calls)

    until(caught)


def compared(data: ProfileResult, model: ProfileResult) -> None:
    """What changed from the one to the other, and both are in the history, the newest first."""
    assert data.profile is not None
    assert model.profile is not None
    page = report.compared(data.profile, model.profile, ("data", "model"))
    assert page.words[0].startswith("Largest change: ")
    assert data.kept is not None
    assert model.kept is not None
    assert [one.path for one in store.history(model.kept.pid)] == [model.kept.path, data.kept.path]
    assert store.history(1) == []
    assert store.history(model.kept.pid, 1) == []
    assert [one.path for one in store.alike("python train_planted.py --token ***")] == [model.kept.path, data.kept.path]
    again = store.history()[0].open()
    assert (again.stacks, again.pid, again.lines) == (model.profile.stacks, model.kept.pid, model.profile.lines)
    assert "sum(range(200))" in again.lines.values()


def files(result: ProfileResult) -> None:
    """What is kept: private, readable, without secrets."""
    assert result.kept is not None
    folder = Path(result.kept.path)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.name for path in folder.iterdir()} == {"flame.speedscope.json", "flame.svg", "meta.json", "stacks.txt"}
    for path in folder.iterdir():
        assert path.stat().st_mode & 0o777 == 0o600
        assert "hunter2" not in path.read_text()
    assert ET.fromstring((folder / "flame.svg").read_text()).tag.endswith("svg")
    assert result.profile is not None
    assert parse((folder / "stacks.txt").read_text()).total == result.profile.total
    meta = json.loads((folder / "meta.json").read_text())
    assert (meta["kind"], meta["pid"], meta["seconds"]) == ("py-spy", result.kept.pid, 1.5)
    assert meta["processes"] == 3


def on_the_command_line(training: Job, folder: Path) -> None:
    """The same by its commands."""

    def gputop(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "gputop", "--no-nvml", *arguments],
            capture_output=True, text=True, timeout=60, cwd=ROOT, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    text = gputop("stack", str(training.pid), "--workers")
    assert f"MainThread {training.pid}" in text
    assert text.count("worker pt_data_worker") == 2
    text = gputop("profile", str(training.pid), "--for", "1")
    assert "Findings" in text
    assert "without idle threads" not in text
    assert "top function burn (train_planted.py), " in text
    path = next(line for line in text.splitlines() if line.endswith(f"-{training.pid}/"))
    assert path.rstrip("/") in gputop("profile", "--list", str(training.pid))


def test_a_profile_that_is_cancelled_keeps_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with program("print(flush=True)\ndef spin():\n while True: sum(range(1000))\nspin()") as (pid, _):
        lines: list[str] = []

        def tell(run: object) -> None:
            lines.append(run.line)  # type: ignore[attr-defined]
            if re.search(r"[1-9]\.\d of 60 s", lines[-1]):  # there are samples by then
                run.cancel()  # type: ignore[attr-defined]

        held = hold(row(pid))
        run = PROFILE.run(held, Sampling(seconds=60), tell)
        until(lambda: run.result)
        result = run.result
        assert isinstance(result, ProfileResult)
        assert result.good, result.text
        assert result.profile is not None
        assert result.profile.top()[0].name.startswith("spin")
        assert result.lines[0].startswith("stopped by the user after ")
        assert ptrace_access.tracer(pid) is None
        assert PROFILE.why_not(row(pid), Rights(readonly=True)) == "gputop was started with --readonly"

"""Step meters as the live source reads them: of a real job through its agent, and nothing that makes no sense."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from gputop.agent_client import listening
from gputop.collect.live import Live
from gputop.collect.step_meters import METER_FILLS, noted_of, slow_steps, step_metrics
from gputop.export import codec
from gputop.model import Noted, Process, Role, SlowStep
from tests.agent.test_agent_meter import PROGRAM
from tests.traced_jobs import Job, job, scratch

pytestmark = pytest.mark.jobs


@pytest.fixture(scope="module")
def folder() -> Iterator[str]:
    with scratch() as folder:
        yield folder


FRAMES = 120  # of half a second; an agent that did not answer at once is asked again after 15 s
ENOUGH = 40  # steps: in the first ones, batches are ready that were loaded while the program started


def seen(running: Job) -> Process:
    """The process as soon as enough of its steps are known."""
    stop = Event()
    for number, frame in enumerate(Live(interval_s=0.5, nvml=False).frames(stop)):
        process = next((one for one in frame.processes if one.pid == running.pid), None)
        if (process is not None and (process.step_count or 0) >= ENOUGH) or number == FRAMES:
            stop.set()
            assert process is not None
            return process
    raise AssertionError("no frames")


def test_a_job_that_was_started_with_a_meter_shows_its_steps(folder: str) -> None:
    with job(folder, "plain", "20", "60", program=PROGRAM) as running:
        process = seen(running)
        assert process.metered
        assert process.step_s is not None
        assert process.step_s >= 0.06 * 0.95
        assert process.data_wait_percent is not None
        assert 10 < process.data_wait_percent < 90
        assert process.samples_per_s == pytest.approx(4 / process.step_s, rel=0.05)


def test_a_training_that_shows_nothing_but_its_steps_is_a_job(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU, without loaders, asleep most of the time: its agent's socket is what leads to it."""
    monkeypatch.setenv("GPUTOP_RUNTIME_DIR", f"{folder}/run")
    with job(folder, "no-loader", "90", "0", program=PROGRAM) as running:
        frames = Live(interval_s=0.5, nvml=False).frames(stop := Event())
        for frame in islice(frames, FRAMES):
            process = next((one for one in frame.processes if one.pid == running.pid), None)
            if process is not None and process.step_s is not None and process.role is Role.TRAINER:
                stop.set()
                break
        assert stop.is_set()
        assert process is not None
        assert process.data_wait_percent is None
        assert [job.ranks for job in frame.jobs if job.key == process.job] == [(process.identity,)]


SAID: dict[str, Any] = {
    "on": True, "count": 40, "ago_s": 0.1, "window": 40, "step_s": 0.1, "p90_s": 0.12, "longest_s": 0.3, "wait_s": 0.06,
    "optimizer_s": 0.01, "samples_per_s": 40.0, "evaluated_s": 1.0, "slow": 2,
}  # fmt: skip


def test_what_it_says_becomes_the_metrics_of_a_process() -> None:
    found = step_metrics(SAID)
    assert found == {
        "metered": True, "step_count": 40, "step_s": 0.1, "step_p90_s": 0.12, "step_longest_s": 0.3,
        "data_wait_percent": pytest.approx(60), "optimizer_percent": pytest.approx(10), "samples_per_s": 40.0,
        "evaluated_percent": pytest.approx(20), "step_window": 40, "slow_step_count": 2,
    }  # fmt: skip
    assert found.keys() - {"metered"} == set(METER_FILLS) - {"late_step_count", "common_step_count"}  # of several


def test_only_names_of_sockets_of_agents_lead_to_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "agent-12-34.sock",
        "agent-12-35.sock~",
        "agent-x-1.sock",
        "agent--.sock",
        "agent-1-2.sock.x",
        "other",
    ):
        (tmp_path / name).touch()
    (tmp_path / "gputop").mkdir()
    (tmp_path / "gputop/agent-56-78.sock").touch()
    before = listening()
    monkeypatch.setenv("GPUTOP_RUNTIME_DIR", str(tmp_path))
    assert listening() - before == {(12, 34)}
    monkeypatch.setenv("GPUTOP_RUNTIME_DIR", "relative")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert listening() - before == {(56, 78)}
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "missing"))
    assert listening() <= before


def test_only_folders_of_users_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other things of gputop in /tmp are no agents' folders, and each that is listed costs a thread."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with tempfile.TemporaryDirectory(prefix="gputop-1x", dir="/tmp") as folder:
        Path(folder, "agent-12-34.sock").touch()
        assert (12, 34) not in listening()


NOTED: dict[str, Any] = {
    "notes": [["loss", 99.0, 12, 0.5], ["norm", 98.0, None, math.inf], ["huge", 97.0, 1, 1e300]],
    "marks": [["epoch", 90.0, 3.0]],
    "lost": ["norm", 98.0, 11, math.nan],
}


def test_what_was_noted_becomes_fields_of_a_process_the_oldest_first() -> None:
    found = noted_of(NOTED)
    assert found["noted"] == (
        Noted(name="epoch", wall_s=90.0, value=3.0, moment=True),
        Noted(name="huge", wall_s=97.0, step=1),
        Noted(name="norm", wall_s=98.0, finite=False),
        Noted(name="loss", wall_s=99.0, value=0.5, step=12),
    )
    assert found["non_finite"] == Noted(name="norm", wall_s=98.0, finite=False, step=11)
    process = Process(pid=1, started_ticks=1, **found)
    assert codec.decode(Process, json.loads(codec.dumps(process))) == process


BAD: tuple[object, ...] = (None, True, -1.0, math.inf, math.nan, "0.1", [], {}, 10**400, ["a"] * 4, [["a"] * 4] * 9)


@pytest.mark.parametrize("value", BAD)
def test_no_note_that_makes_no_sense_is_taken(value: object) -> None:
    hostile: list[object] = [value, {**NOTED, "notes": value}, {**NOTED, "marks": value}, {**NOTED, "lost": value}]
    for place in range(4):
        row = ["loss", 99.0, 12, 0.5]
        row[place] = value  # type: ignore[call-overload]
        hostile += [{"notes": [row]}, {"lost": row}, {"marks": [row[:2] + row[3:]]}]
    for said in hostile:
        process = Process(pid=1, started_ticks=1, **noted_of(said))
        assert codec.decode(Process, json.loads(codec.dumps(process))) == process
    told = noted_of({"notes": [[f"{n}\x1b[2J" + "n" * 500, 9.0, 1, 1.0] for n in range(500)]})["noted"]
    assert len(told) == 24
    assert all(one.name.isprintable() and len(one.name) <= 40 for one in told)


def test_slow_steps_are_taken_where_they_make_sense() -> None:
    assert slow_steps([[90.0, 0.5, "data"], [91.0, 0.4, "lunch"], [92.0, -1, "rest"], [93.0], "x", None]) == (
        SlowStep(wall_s=90.0, took_s=0.5, phase="data"),
    )
    assert len(slow_steps([[float(n), 0.5, "rest"] for n in range(500)])) == 16
    assert slow_steps({"a": 1}) == slow_steps(None) == ()


@pytest.mark.parametrize("value", [None, True, -1.0, math.inf, math.nan, "0.1", [], {}, 1e300, 10**400])
def test_no_number_that_makes_no_sense_is_taken(value: object) -> None:
    for name in SAID.keys() - {"on"}:
        for field, found in step_metrics({**SAID, name: value}).items():
            assert field == "metered" or found is None or (math.isfinite(found) and 0 <= found <= 1e12), (name, field)


@pytest.mark.parametrize(("ago_s", "step_s", "known"), [(5.0, 0.1, True), (61.0, 0.1, False), (200.0, 50.0, True)])
def test_a_step_of_long_ago_is_no_step_of_now(ago_s: float, step_s: float, known: bool) -> None:
    assert ("step_s" in step_metrics({**SAID, "ago_s": ago_s, "step_s": step_s})) is known

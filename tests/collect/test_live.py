"""The live source: what its first frame knows, how it keeps time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Timer
from typing import Any

import pytest

from gputop.collect.host.disks import Disks
from gputop.collect.live import Live
from gputop.model import Frame, Host
from tests.fakenvml import Fake

LAUNCHER = """
import os, subprocess, sys
ranks = [subprocess.Popen([sys.executable, "train.py"], env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"})
         for rank in (0, 1)]
print(*(rank.pid for rank in ranks), flush=True)
sys.stdin.read()
for rank in ranks:
    rank.kill()
"""


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[list[int]]:
    """The pids of two ranks of a launcher, which sleep and have no loaders: only the driver makes them stand out."""
    folder = tmp_path / "llama"
    folder.mkdir()
    (folder / "torchrun").write_text(LAUNCHER)
    (folder / "train.py").write_text("import time\ntime.sleep(600)\n")
    command = [sys.executable, "torchrun", "train.py"]
    with subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout
        yield list(map(int, launcher.stdout.readline().split()))
        launcher.communicate()


def first_frame(fake: Fake, pid: int) -> dict[str, Any]:
    """The one frame of a new program; of another one while this machine is too busy to answer it in time."""
    for _ in range(10):
        frame, _ = printed(fake)
        by_pid = {process["pid"]: process for process in frame["processes"]}
        known = [process for process in (by_pid.get(pid), by_pid.get(by_pid[pid]["parent_pid"])) if process]
        if len(known) == 2 and all(process["command"] for process in known) and known[0]["rank"] is not None:
            break
    return frame


def test_p09_a_part_of_the_host_that_breaks_is_told_in_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(self: Disks, now_s: float) -> Host:
        raise RuntimeError("nobody foresaw it")

    monkeypatch.setattr(Disks, "read", read)
    stop = Event()
    frame = next(Live(nvml=False).frames(stop))
    stop.set()
    (note,) = (note for note in frame.notes if note.key == "host-failed")
    assert note.text == "host could not be read: disks: RuntimeError: nobody foresaw it"
    assert frame.host.memory_total_bytes


def test_the_first_frame_names_the_job_on_the_gpus(fake: Fake, ranks: list[int]) -> None:
    for gpu, pid in enumerate(ranks):
        fake.add_process(gpu=gpu, pid=pid, vram_bytes=1 << 30, sm=50)
    frame = first_frame(fake, ranks[0])
    by_pid = {process["pid"]: process for process in frame["processes"]}
    (job,) = [job for job in frame["jobs"] if job["key"] == by_pid[ranks[0]]["job"]]
    assert (job["name"], job["launcher"]) == ("llama/train", "torchrun")
    assert [identity[0] for identity in job["ranks"]] == ranks
    for number, pid in enumerate(ranks):
        process = by_pid[pid]
        assert process["rank"] == number
        assert process["command"][1:] == ["train.py"]
        assert process["read_bytes_per_s"] == 0
        assert "run_wait_percent" in process
        assert "allowed_cpus" in process


def printed(fake: Fake) -> tuple[dict[str, Any], str]:
    """What `gputop --json` prints of its frame, and on standard error."""
    command = [sys.executable, "-m", "gputop", "--json"]
    done = subprocess.run(command, env=fake.env(), capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)["frame"], done.stderr


def test_one_frame_waits_for_a_driver_that_opens_slowly(fake: Fake) -> None:
    fake.hang("nvmlInit*", 1.5)
    frame, said = printed(fake)
    assert len(frame["gpus"]) == 8
    assert said == ""


@pytest.mark.waits
def test_n36_one_frame_waits_for_gpus_that_start_slowly(fake: Fake) -> None:
    fake.set("gpus", 4)
    for gpu in range(4):
        fake.fault("delay_us", "nvmlDeviceGetHandleByIndex*", 2.5e6, gpu=gpu, times=1)
    frame, _ = printed(fake)
    assert [gpu["condition"] for gpu in frame["gpus"]] == ["ok"] * 4
    assert all(gpu["busy_percent"] for gpu in frame["gpus"])


def test_n09_one_frame_has_the_gpus_beside_one_that_hangs(fake: Fake) -> None:
    fake.hang("nvmlDeviceGetFieldValues", gpu=3)
    frame, _ = printed(fake)
    assert [gpu["condition"] for gpu in frame["gpus"]] == ["ok"] * 3 + ["hung"] + ["ok"] * 4


def test_n10_one_frame_says_that_the_driver_does_not_open(fake: Fake) -> None:
    fake.hang("nvmlInit*")
    frame, said = printed(fake)
    assert frame["gpus"] == []
    assert "waiting for driver" in said


@pytest.fixture
def live() -> Iterator[tuple[Live, Iterator[Frame]]]:
    source, stop = Live(interval_s=60, nvml=False), Event()
    frames = source.frames(stop)
    yield source, frames
    stop.set()
    assert next(frames, None) is None


def test_another_interval_holds_at_once(live: tuple[Live, Iterator[Frame]]) -> None:
    source, frames = live
    first = next(frames)
    Timer(0.2, setattr, (source, "interval_s", 0.25)).start()
    second = next(frames)
    assert second.mono_s - first.mono_s < 30
    assert next(frames).mono_s > second.mono_s


def test_its_cost_is_of_the_time_that_passed() -> None:
    passed_s, spent_s, stop = iter((1000.0, 1002.0, 1003.0)), iter((7.0, 7.5, 7.5)), Event()
    source = Live(interval_s=0.01, nvml=False, clock=passed_s.__next__, cpu_clock=spent_s.__next__)
    frames = source.frames(stop)
    costs = [next(frames).cost_percent for _ in range(3)]
    stop.set()
    assert next(frames, None) is None
    assert costs == [None, 25, 0]

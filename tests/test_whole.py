"""The whole, as a user runs it: eight GPUs of the fake driver, a real torch job, and what the sources say of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.fakenvml import Fake
from tests.pty_programs import Terminal, wait_until

pytestmark = pytest.mark.jobs

SCRIPT = Path(__file__).parent / "workloads" / "train.py"
LOADERS = 4
VRAM = 30 << 30


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The pid of a real torch CPU training script whose four loaders work."""
    folder = tmp_path_factory.mktemp("job")
    script = [sys.executable, str(SCRIPT), "--num-workers", str(LOADERS), "--seconds", "120"]
    with subprocess.Popen(script, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder) as process:
        wait_until(lambda: len(children(process.pid)) >= LOADERS, 60, "no loaders")
        yield process.pid
        process.kill()


def children(pid: int) -> list[int]:
    return [child.pid for child in psutil.Process(pid).children()]


def frames(fake: Fake, count: int) -> list[dict[str, Any]]:
    """What `gputop snapshot --format jsonl` prints, without its header."""
    command = [sys.executable, "-m", "gputop", "snapshot", "--format", "jsonl", "--count", str(count)]
    done = subprocess.run(command, env=fake.env(), capture_output=True, text=True, timeout=120, check=True)
    return [line["frame"] for line in map(json.loads, done.stdout.splitlines()) if "frame" in line]


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_real_job_on_fake_gpus_agrees_with_every_source(fake: Fake, trainer: int) -> None:
    fake.add_process(gpu=2, pid=trainer, vram_bytes=VRAM, sm=57)
    loaders = set(children(trainer))
    before, started = {pid: cpu_s(pid) for pid in (trainer, *loaders)}, time.monotonic()
    seen = frames(fake, 6)
    took_s = time.monotonic() - started
    frame = seen[-1]
    by_pid = {process["pid"]: process for process in frame["processes"]}

    (job,) = [job for job in frame["jobs"] if [trainer, by_pid[trainer]["started_ticks"]] in job["ranks"]]
    assert len(job["ranks"]) == 1
    assert "train" in job["name"]
    assert {pid for pid, process in by_pid.items() if process.get("role") == "loader"} >= loaders
    assert all(by_pid[pid]["job"] == job["key"] for pid in loaders)

    share = by_pid[trainer]["gpus"][0]
    assert share["vram_bytes"] == VRAM
    assert share["busy_percent"] == 57
    gpu = next(gpu for gpu in frame["gpus"] if gpu["uuid"] == share["uuid"])
    assert gpu["index"] == "2"
    assert gpu["busy_percent"] == pytest.approx(60)

    for pid in (trainer, *loaders):
        process = by_pid[pid]
        status = dict(
            line.split(":\t") for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line
        )
        assert process["threads"] == pytest.approx(int(status["Threads"]), abs=2)
        assert process["rss_bytes"] == pytest.approx(int(status["VmRSS"].split()[0]) * 1024, rel=0.2)
        assert process["command"] == Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0")
        known = [found["cpu_percent"] for one in seen if "cpu_percent" in (found := frame_of(one, pid))]
        assert len(known) >= len(seen) - 1
        assert sum(known) / len(known) == pytest.approx(100 * (cpu_s(pid) - before[pid]) / took_s, abs=25, rel=0.5)
        assert 0 <= process["run_wait_percent"] <= 100
    user = subprocess.run(["ps", "-o", "user=", "-p", str(trainer)], capture_output=True, text=True, check=True).stdout
    assert by_pid[trainer]["user"] == user.strip()
    assert any(frame_of(one, pid).get("read_chars_per_s", 0) > 0 for one in seen for pid in loaders)


def frame_of(frame: dict[str, Any], pid: int) -> dict[str, Any]:
    """One process of a frame."""
    found: dict[str, Any] = next(process for process in frame["processes"] if process["pid"] == pid)
    return found


def test_a_real_job_is_on_the_screen_with_its_rank_and_loaders(fake: Fake, trainer: int) -> None:
    fake.add_process(gpu=2, pid=trainer, vram_bytes=VRAM, sm=57)
    with Terminal([sys.executable, "-m", "gputop"], size=(160, 50), env=fake.env()) as terminal:
        terminal.wait_for("1 rank · 4 workers")
        terminal.send("V")  # above whatever else this machine runs
        terminal.send("*")
        terminal.wait_for(lambda lines: all(any(str(pid) in line for line in lines) for pid in children(trainer)))
        terminal.wait_for(lambda lines: any(f" {trainer} " in line and "rank0 python" in line for line in lines))
        assert any(f" {trainer} " in line and "30.0G" in line for line in terminal.screen())
        terminal.send("q")
        assert terminal.wait_exit(1.5) == 0

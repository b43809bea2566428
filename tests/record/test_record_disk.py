"""A disk that is full while it is recorded: the monitor goes on, the file stays whole, the recording goes on later."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.record.test_record import NAMES, replayed

# a limit on the size of files stands for a full disk: a write is short, the next one fails
CHILD = """
import resource, sys, time
from gputop.monitor import Update
from gputop.record.recorder import Recorder
from tests.record_child import frames

path, limit = sys.argv[1], int(sys.argv[2])
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
recorder, done = Recorder(path, retry_s=0.0), 0
def take(some):
    global done
    for frame in some:
        recorder.take(Update(frame=frame))
        done += 1
        while recorder.frames + recorder.missed < done:
            time.sleep(0.001)
taken = frames(30)
take(taken[:3])
whole = recorder.size_bytes
resource.setrlimit(resource.RLIMIT_FSIZE, (whole + limit, hard))
take(taken[3:20])
print(recorder.problem)
print(recorder.frames, recorder.missed, recorder.size_bytes == __import__("os").stat(path).st_size)
open(path + ".full", "wb").write(open(path, "rb").read())
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
take(taken[20:])
print(recorder.problem)
print(recorder.close(), recorder.frames, recorder.missed)
"""


@pytest.mark.parametrize("limit", [0, 7, 20_000])
@pytest.mark.parametrize("name", NAMES)
def test_f02_a_full_disk_pauses_a_recording_that_stays_readable(tmp_path: Path, name: str, limit: int) -> None:
    path = tmp_path / name
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(path), str(limit)], capture_output=True, text=True, timeout=120, check=True
    )
    problem, counts, later, end = done.stdout.splitlines()
    assert problem.startswith("recording paused ")
    assert problem.endswith(": File too large")
    written, missed, whole = counts.split()
    assert (int(written) + int(missed), whole) == (20, "True")
    assert int(written) >= 3
    full = replayed(path.with_name(name + ".full"))
    assert len(full) == int(written)
    assert not full[-1].note("recording-damaged")
    assert later == "None"
    assert end == f"True {int(written) + 10} {missed}"
    assert len(replayed(path)) == int(written) + 10
    assert not replayed(path)[-1].note("recording-damaged")
    data = path.read_bytes()
    text = gzip.decompress(data) if name.endswith(".gz") else data
    events = [line for line in map(json.loads, text.splitlines()) if line["type"] == "event"]
    assert [(event["kind"], event["text"]) for event in events] == [("gap", f"{missed} frames could not be written")]


def test_f02_the_command_says_so_in_one_line_and_ends_with_1(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    command = (
        f"ulimit -f 150; exec {sys.executable} -m gputop record {path} --source demo:idle --interval 0.25 --for 3s"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.count("recording paused") == 2  # when it began, and why it ended so
    assert done.stdout == ""
    assert replayed(path)

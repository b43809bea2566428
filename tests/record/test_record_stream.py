"""A recording on standard input: it begins with the first frame that can be read, or is refused in one line."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
from threading import Event, Thread

import pytest

from gputop.demo import SCENARIOS, Demo
from gputop.export import codec
from gputop.model import Frame
from gputop.monitor import Monitor
from gputop.record.deltas import FrameLines
from gputop.record.stream import Stream
from gputop.safe.files import Refused
from tests.record.test_record_faults import plain
from tests.record_child import frames

pytestmark = pytest.mark.waits

SOME = frames(4)
HEADER = b'{"type":"header","version":1}\n'


def whole(frame: Frame) -> bytes:
    return codec.line(codec.frame_line(frame)).encode()


def changes() -> bytes:
    """What changed after a frame that is not there."""
    writer = FrameLines()
    lines = [writer.line(frame) for frame in SOME]
    assert [whole for _, whole in lines] == [True, False, False, False]
    return "".join(text for text, _ in lines[1:]).encode()


def stream(data: bytes, *, pace: bool = False) -> Stream:
    """What a pipe says that ends after some bytes."""
    reading, writing = os.pipe()

    def write() -> None:
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(data)

    Thread(target=write, daemon=True).start()
    return Stream(reading, pace=pace)


def test_every_frame_that_waits_in_the_pipe_is_in_history_and_known_to_the_rules() -> None:
    demo = Demo(SCENARIOS["io-bound"], pace=False)
    many = [demo.frame(demo.at_s + second) for second in range(90)]
    source = stream(HEADER + b"".join(map(whole, many)), pace=True)
    time.sleep(0.3)  # who looks on is slower than who writes
    monitor = Monitor(source)
    updates = list(monitor.updates())
    assert [plain(update.frame) for update in updates[:-1]] == [plain(frame) for frame in many]
    assert updates[-1].frame.note("stream-ended")
    known = monitor.history.values("host", "cpu_percent", 60.0)
    assert None not in known
    assert "io-bound" in {finding.rule for finding in updates[-1].findings}


EMPTY = {
    "a header": (HEADER, "nothing to show"),
    "events": (HEADER + b'{"type":"event","text":"x"}\n', "nothing to show"),
    "a packed header": (gzip.compress(HEADER), "nothing to show"),
    "changes": (HEADER + changes(), "nothing to show"),
    "a damaged frame and changes": (
        HEADER + whole(SOME[0]).replace(b"0", b"1", 1) + changes(),
        "its checksum does not",
    ),
    "a made up frame": (HEADER + b'{"type":"frame","frame":{"wall_s":1e9,"mono_s":1.0}}\n', "frame has no host"),
    "a cut frame": (HEADER + whole(SOME[0])[:-50], "the last line is truncated"),
    "garbage": (HEADER + b"garbage\n" * 11_000, "not JSON"),
}


@pytest.mark.parametrize("kind", EMPTY)
def test_f04_a_stream_without_a_frame_is_refused_in_one_line(kind: str) -> None:
    data, says = EMPTY[kind]
    with pytest.raises(Refused, match=rf"^standard input holds no frame[^\n]*: {says}[^\n]*$"):
        stream(data)


def test_f04_garbage_without_end_is_not_read_forever() -> None:
    script = f"echo '{HEADER.decode().strip()}'; yes garbage"
    argv = ["bash", "-c", f"({script}) | {sys.executable} -m gputop --once --source -"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "holds no frame that can be read: not JSON" in done.stderr


def test_f04_a_stream_begins_with_the_first_frame_that_can_be_read() -> None:
    wrong = json.dumps({"type": "frame", "frame": {"wall_s": 1e9, "mono_s": 1.0}}).encode() + b"\n"
    source = stream(HEADER + b"garbage\n" + wrong + b"".join(map(whole, SOME)))
    found = list(source.frames(Event()))
    assert [frame.processes for frame in found] == [frame.processes for frame in SOME]
    notes = {note.text for frame in found for note in frame.notes if note.key == "recording-damaged"}
    assert notes == {"the recording is damaged in 2 places: not JSON: Expecting value at character 0"}
    assert [plain(frame) for frame in stream(HEADER + b"".join(map(whole, SOME))).frames(Event())] == SOME


def test_f04_a_damaged_packed_stream_says_so() -> None:
    data = gzip.compress(HEADER + whole(SOME[0]))
    with pytest.raises(Refused, match=r"ended before a recording began \(reading it failed: "):
        stream(data[:60] + bytes(40) + data[100:])


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("--json", "--source", "-"), 1),
        (("--once", "--source", "-"), 1),
        (("snapshot", "--format", "csv", "--source", "-"), 1),
        (("replay", "-"), 1),
        (("record", "-", "--source", "-"), 1),
        (("diagnose", "--source", "-"), 3),
    ],
)
def test_f04_every_command_says_that_a_stream_holds_no_frame(args: tuple[str, ...], code: int) -> None:
    argv = [sys.executable, "-m", "gputop", *args]
    done = subprocess.run(argv, input=HEADER.decode(), capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr == "gputop: standard input holds no frame: nothing to show\n"

"""Recording from the running monitor, and replaying what was recorded, on a real pty."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from gputop.monitor import Monitor
from gputop.record.recording import Recording
from tests import terminal_endings
from tests.pty_programs import ROOT, Terminal, wait_until
from tests.terminal_endings import Program

pytestmark = pytest.mark.waits

ARGV = (sys.executable, "-m", "gputop")
FAST = (*ARGV, "demo", "healthy", "--interval", "0.25")


def program(folder: Path, argv: Sequence[str] = FAST, **env: str) -> Program:
    return Program(argv, "llama-7b", env={"XDG_STATE_HOME": str(folder), "HOME": str(folder), **env})


def recorded(folder: Path) -> Path:
    """The one recording there is."""
    (path,) = (folder / "gputop").glob("recording-*")
    return path


def count(path: Path) -> int:
    """How many frames a recording has; each is whole, and a quarter of a second after the one before it."""
    source = Recording(str(path), pace=False)
    frames = [update.frame for update in Monitor(source).updates()]
    apart = [after.mono_s - before.mono_s for before, after in pairwise(frames)]
    assert all(seconds == pytest.approx(0.25, abs=0.01) for seconds in apart), apart
    return len(frames)


def written(path: Path) -> int:
    """How many lines of a closed recording are frames; there are events too."""
    frames = (b'{"type":"frame"', b'{"type":"change"')
    return sum(line.startswith(frames) for line in gzip.decompress(path.read_bytes()).splitlines())


def grows(path: Path, frames: int) -> None:
    """Wait until there are so many more bytes as that many frames have at least."""
    size = path.stat().st_size
    wait_until(lambda: path.stat().st_size > size + 400 * frames, 20, "the recording grows")


def test_r_records_and_stops_and_says_where(tmp_path: Path) -> None:
    with program(tmp_path).start() as terminal:
        terminal.send("R")
        terminal.wait_for(lambda lines: "● rec" in lines[0])
        terminal.wait_for("recording to ~/gputop/recording-")
        path = recorded(tmp_path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert re.fullmatch(r"recording-\d{8}-\d{6}-[0-9a-f]{8}\.jsonl\.gz", path.name)
        terminal.wait_for(lambda lines: re.search(r"● rec 2s [\d.]+K", lines[0]) is not None)
        terminal.send("R")
        terminal.wait_for(f"recorded in ~/gputop/{path.name}")
        assert "rec" not in terminal.screen()[0]
        size = path.stat().st_size
        assert written(path) == count(path) >= 7
        terminal.send("R")
        terminal.wait_for(lambda lines: "● rec" in lines[0])
        terminal.send("R")
        terminal.wait_for(lambda lines: "● rec" not in lines[0])
        assert path.stat().st_size == size, "another time is another file"
        assert len(list(path.parent.glob("recording-*"))) == 2


@pytest.mark.parametrize("end", ["q", signal.SIGHUP], ids=["q", "SIGHUP"])
def test_t01_a_recording_is_closed_whole_whatever_ends_it(tmp_path: Path, end: str | int) -> None:
    with program(tmp_path).start() as terminal:
        terminal.send("R")
        terminal.wait_for(lambda lines: "● rec 1s" in lines[0])
        if isinstance(end, str):
            terminal.send(end)
        else:
            terminal.signal(end)
        assert terminal.wait_exit() == (0 if isinstance(end, str) else 128 + end)
        terminal_endings.assert_well(terminal)
        path = recorded(tmp_path)
        frames = count(path)
        assert written(path) == frames, "to its very end"
        assert f"{path}: {frames} frames, ".encode() in terminal.output
        assert b"play it with `gputop replay`" in terminal.output


def test_f01_killed_it_loses_at_most_the_frame_being_written(tmp_path: Path) -> None:
    with program(tmp_path).start() as terminal:
        terminal.send("R")
        terminal.wait_for(lambda lines: "● rec 1s" in lines[0])
        path = recorded(tmp_path)
        grows(path, 3)
        shown = re.search(r"(\d\d:\d\d:\d\d)$", terminal.screen()[0])
        terminal.signal(signal.SIGKILL)
        terminal.wait_exit()
    source = Recording(str(path), pace=False)
    last = [update.frame for update in Monitor(source).updates()][-1]
    assert shown
    clock = time.strptime(shown[1], "%H:%M:%S")
    seconds = clock.tm_hour * 3600 + clock.tm_min * 60 + clock.tm_sec
    now = time.localtime(last.wall_s)
    assert now.tm_hour * 3600 + now.tm_min * 60 + now.tm_sec >= seconds - 1


def test_t05_a_terminal_that_does_not_read_does_not_stop_the_recording(tmp_path: Path) -> None:
    with program(tmp_path).start() as terminal:
        terminal.send("R")
        terminal.wait_for(lambda lines: "● rec" in lines[0])
        path = recorded(tmp_path)
        terminal.reading.clear()
        time.sleep(0.5)  # the pipe to the terminal fills
        for _ in range(3):
            grows(path, 4)
        terminal.signal(signal.SIGTERM)
        assert terminal.wait_exit() == 128 + signal.SIGTERM
        assert written(path) == count(path), "closed whole, and no gap"


def limited() -> None:
    """Files may not grow beyond this: the disk is full, as far as the program can tell."""
    import resource

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))


def test_f02_a_full_disk_is_said_in_one_line_and_the_screen_goes_on(tmp_path: Path) -> None:
    with program(tmp_path).start(before_exec=limited) as terminal:
        terminal.send("R")
        terminal.wait_for("recording paused")
        terminal.wait_for(lambda lines: "● rec paused" in lines[0])
        clock = terminal.screen()[0][-8:]
        terminal.wait_for(lambda lines: lines[0][-8:] != clock)
        terminal.send("R")
        terminal.wait_for(lambda lines: re.search(r"recording paused .*; \d+ frames?, .* saved in ~/gputop", lines[-1]))
        terminal.send("q")
        assert terminal.wait_exit() == 0
    assert count(recorded(tmp_path)) >= 1


def test_f02_where_nothing_can_be_written_it_says_why_and_goes_on(tmp_path: Path) -> None:
    with program(tmp_path).start() as terminal:
        os.chmod(tmp_path / "gputop", 0o755)
        terminal.send("R")
        terminal.wait_for("not recorded: ")
        assert "has mode 0755" in terminal.text()
        assert "rec" not in terminal.screen()[0].split()
        os.chmod(tmp_path / "gputop", 0o700)
        terminal.send("R")
        terminal.wait_for(lambda lines: "● rec" in lines[0])


def test_read_only_records_nothing(tmp_path: Path) -> None:
    with program(tmp_path, (*FAST, "--readonly")).start() as terminal:
        terminal.send("R")
        terminal.wait_for("not now: gputop is read-only")
    assert not any(tmp_path.rglob("*"))


def test_ascii_has_a_sign_for_it(tmp_path: Path) -> None:
    with program(tmp_path, (*FAST, "--ascii")).start() as terminal:
        terminal.send("R")
        terminal.wait_for(lambda lines: "* rec" in lines[0])
        assert bytes(terminal.output).isascii()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A minute of a demo, packed."""
    path = tmp_path / "run.jsonl.gz"
    subprocess.run(
        [*ARGV, "record", str(path), "--source", "demo:healthy", "--for", "2s", "--interval", "0.25"],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    return path


def test_what_was_recorded_is_replayed_gone_through_and_left(tmp_path: Path, run: Path) -> None:
    with program(tmp_path, (*ARGV, "replay", str(run))).start() as terminal:
        terminal.wait_for("REPLAY")
        terminal.wait_for("the end", 20)
        terminal.send("[")
        terminal.wait_for(lambda lines: " 0:00 " in lines[-2] and "the end" not in lines[-2])
        terminal.send("|")
        terminal.wait_for("paused 1×")
        terminal.send("0")
        terminal.wait_for("the end")
        terminal.send("R")
        terminal.wait_for("not now: this is already a recording")
        terminal.send("q")
        assert terminal.wait_exit() == 0
        terminal_endings.assert_given_back(terminal)


def test_f01_a_torn_recording_is_replayed_as_far_as_it_goes(tmp_path: Path, run: Path) -> None:
    run.write_bytes(run.read_bytes()[:-60])
    with program(tmp_path, (*ARGV, "replay", str(run))).start() as terminal:
        terminal.wait_for("the end", 20)


def refused(argv: Sequence[str], folder: Path, **options: object) -> str:
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    assert done.returncode != 0
    return str(done.stderr)


def test_f05_a_later_version_is_refused_before_the_screen_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "later.jsonl"
    path.write_text('{"type":"header","version":99}\n')
    with Terminal([*ARGV, "replay", str(path)], env={"XDG_STATE_HOME": str(tmp_path)}) as terminal:
        assert terminal.wait_exit(10) == 1
        assert b"update gputop" in terminal.output
        assert b"\x1b[?1049h" not in terminal.output


PIPES: dict[str, Callable[[str], str]] = {
    "a pipe": lambda python: f"{python} -m gputop record - --source demo:healthy --interval 0.25",
    "a slow pipe": lambda python: (
        f"{python} -m gputop record - --source demo:healthy --interval 0.25"
        f" | {python} -c 'import os, time\nwhile data := os.read(0, 30000):\n os.write(1, data); time.sleep(0.2)'"
    ),
}


@pytest.mark.parametrize("pipe", PIPES)
def test_keys_work_while_standard_input_is_the_stream(tmp_path: Path, pipe: str) -> None:
    line = f"{PIPES[pipe](sys.executable)} | {sys.executable} -m gputop replay -"
    with program(tmp_path, ("sh", "-c", line)).start() as terminal:
        terminal.send("f1")
        terminal.wait_for("help: under the cursor")
        terminal.send("escape")
        terminal.wait_for("llama-7b")
        terminal.send("I")
        clock = terminal.screen()[0][-8:]
        terminal.wait_for(lambda lines: "CPU%▲" in "\n".join(lines) and lines[0][-8:] != clock)
        terminal.send("[")
        terminal.wait_for("not a recording")
        terminal.send("q")
        assert terminal.wait_exit(10) == 0
        terminal_endings.assert_well(terminal)


def test_t06_ctrl_z_stops_the_whole_pipe_and_fg_goes_on(tmp_path: Path) -> None:
    env = {"PS1": "prompt$ ", "ENV": None, "HISTFILE": None, "XDG_STATE_HOME": str(tmp_path)}
    with Terminal(["bash", "--norc", "--noprofile", "-i"], env=env) as terminal:
        terminal.wait_for("prompt$")
        terminal.send(f"{PIPES['a pipe'](sys.executable)} | {sys.executable} -m gputop replay -\n")
        for command in ("fg\n", "fg\n", "kill -9 %1; echo back-$((40 + 2))\n"):
            terminal.wait_for("llama-7b", 30)
            terminal.send("ctrl+z")
            terminal.wait_for("Stopped")
            terminal.send(command)
        terminal.wait_for("back-42")


def test_a_stream_that_ends_says_so_and_stays(tmp_path: Path, run: Path) -> None:
    line = f"cat {run} | {sys.executable} -m gputop replay -"
    with program(tmp_path, ("sh", "-c", line)).start() as terminal:
        terminal.wait_for(lambda lines: " ended " in lines[0])
        terminal.wait_for("the stream has ended: this is its last frame")
        terminal.wait_for("end of the recording")
        last = json.loads(gzip.decompress(run.read_bytes()).splitlines()[-1])["frame"]["wall_s"]
        assert terminal.screen()[0].endswith(time.strftime("%H:%M:%S", time.localtime(last)))
        terminal.send("f1")
        terminal.wait_for("help: under the cursor")
        terminal.send("q")
        assert terminal.wait_exit() == 0

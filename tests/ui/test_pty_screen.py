"""The main screen on a real pty: what it writes and how much, also when the line is slow."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

import pytest

from tests.oracle import oracle
from tests.pty_programs import KEYS, Terminal
from tests.terminal_endings import Program

pytestmark = pytest.mark.waits

ARGV = (sys.executable, "-m", "gputop")


@pytest.fixture
def showcase(tmp_path: Path) -> Program:
    return Program((*ARGV, "demo", "showcase"), "Quit", env={"XDG_STATE_HOME": str(tmp_path), "TZ": "UTC"})


def bytes_a_frame(terminal: Terminal, number: int) -> int:
    """What a frame costs, over some frames: each has its own time in the header."""
    terminal.wait_for(lambda lines: "demo" in lines[0], 20)
    before, seen = 0, terminal.screen()[0]
    for shown in range(number + 1):
        terminal.wait_for(lambda lines, seen=seen: lines[0] != seen)
        terminal.wait_quiet(0.1)
        seen = terminal.screen()[0]
        if shown == 0:
            before = len(terminal.output)
    return (len(terminal.output) - before) // number


@pytest.mark.parametrize(
    ("demo", "most"),
    [("showcase", {(120, 40): 5000, (200, 60): 9000}), ("idle", {(120, 40): 1000}), ("64gpu", {(120, 40): 9000})],
)
def test_few_bytes_a_frame(demo: str, most: dict[tuple[int, int], int], tmp_path: Path) -> None:
    with Terminal((*ARGV, "demo", demo), (120, 40), {"XDG_STATE_HOME": str(tmp_path)}) as terminal:
        for size, limit in most.items():
            terminal.resize(*size)
            assert bytes_a_frame(terminal, 4) <= limit


def test_nothing_new_is_nothing_written(showcase: Program) -> None:
    with showcase.start() as terminal:
        terminal.wait_for("llama-7b")
        terminal.send("Z")
        terminal.wait_for("frozen")
        terminal.wait_quiet(0.2)
        before = len(terminal.output)
        time.sleep(3)
        assert len(terminal.output) == before


def freeze(terminal: Terminal) -> None:
    """Have the picture stand still; where a dialog was still there, it took the key."""
    for _ in range(6):
        terminal.send("Z")
        try:
            terminal.wait_for(" frozen ", 5)
        except AssertionError:
            terminal.send("escape")
            terminal.wait_quiet(0.2)
            continue
        terminal.wait_quiet(0.3)
        return
    raise AssertionError(terminal.text())


def test_what_was_written_bit_by_bit_is_what_a_repaint_shows(showcase: Program) -> None:
    keys = [key for key in KEYS if key not in ("ctrl+c", "ctrl+z", "f10", "escape", "enter")]
    keys += list("PMTNGVrwIFg,.+-*/\\ncUuzv")
    chance = random.Random(3)
    with showcase.start() as terminal:
        terminal.wait_for("llama-7b")
        for _ in range(6):
            for key in chance.choices(keys, k=15):
                terminal.send(key)
                time.sleep(0.01)
            for _ in range(4):  # a dialog over a line of text, over a pane alone, over a filter
                terminal.send("escape")
                time.sleep(0.2)
            freeze(terminal)
            bit_by_bit = terminal.screen()
            # narrower, not lower: fewer lines would rightly scroll a cursor that stands on the last one
            terminal.resize(119, 40)
            terminal.wait_for(lambda lines, before=bit_by_bit: lines != before, 5)
            terminal.wait_quiet(0.3)
            terminal.resize(120, 40)
            terminal.wait_for(lambda lines: "Quit" in lines[39])
            terminal.wait_quiet(0.3)
            assert terminal.screen() == bit_by_bit
            terminal.send("Z")
            terminal.wait_for(lambda lines: " frozen " not in lines[0])
        assert oracle(bytes(terminal.output)) == []


def test_t17_a_slow_line_gets_fewer_frames_and_says_so(showcase: Program) -> None:
    fast = Program((*showcase.argv, "--interval", "0.25"), showcase.ready, env=showcase.env)
    with fast.start() as terminal:
        terminal.wait_for("llama-7b")
        terminal.bytes_per_s = 960.0
        terminal.wait_for("slow link: redraw every", 60)
        terminal.bytes_per_s = None
        terminal.send("F")
        terminal.wait_for("not following", 5)
        terminal.wait_for(lambda lines: "slow link" not in lines[0], 10)
        terminal.send("q")
        assert terminal.wait_exit(1) == 0


def test_every_process_is_on_the_list_when_that_is_set(tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path), "GPUTOP_SORT": "pid", "GPUTOP_EVERY_PROCESS": "1"}
    with Program((*ARGV, "--no-nvml"), "COMMAND", env=env).start() as terminal:
        terminal.send("home")  # the cursor follows its process, wherever others push it
        terminal.wait_for(lambda lines: any(line.split()[:1] == ["1"] for line in lines), 20)

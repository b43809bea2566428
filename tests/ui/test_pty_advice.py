"""The advice on a real terminal: its keys, what a key copies, and that a new warning rings."""

from __future__ import annotations

import base64
import sys
from pathlib import Path

from tests.terminal_endings import Program, assert_well

ARGV = (sys.executable, "-m", "gputop")


def test_its_keys_and_the_command_that_is_copied(tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path), "GPUTOP_ALERT": "bell"}
    with Program((*ARGV, "demo", "threads-host"), "▲ CRIT", env=env).start() as terminal:
        terminal.send("a")
        terminal.wait_for("[findings]")
        terminal.wait_for("y copy")
        terminal.send("y")
        terminal.wait_for("copied export OMP_NUM_THREADS=8")
        copied = base64.b64encode(b"export OMP_NUM_THREADS=8 MKL_NUM_THREADS=8 OPENBLAS_NUM_THREADS=8")
        assert b"\x1b]52;c;" + copied in bytes(terminal.output)
        terminal.wait_for("only torchrun sets one thread per rank")
        terminal.send("right")
        terminal.wait_for("restart with OMP_NUM_THREADS=8")
        terminal.send("right", "right")
        terminal.wait_for("[skipped checks]")
        terminal.send("escape")
        terminal.wait_for("y copy")
        terminal.send("x")
        terminal.wait_for("1 muted")
        terminal.send("escape")
        terminal.wait_for(lambda lines: "F1 Help" in lines[-1] and "x Mute" not in lines[-1])
        terminal.send("4")
        terminal.wait_for(lambda lines: not any(line.startswith("─ advice") for line in lines))
        terminal.send("4")
        terminal.wait_for("1 muted")
        assert b"\a" not in bytes(terminal.output).replace(b"\x1b]52;c;" + copied + b"\a", b""), "it was there before"
        terminal.send("a")
        terminal.wait_for(lambda lines: "x Mute" in lines[-1])
        terminal.send("x")
        terminal.wait_for("unmuted")
        terminal.send("a")
        terminal.wait_for(lambda lines: "F1 Help" in lines[-1] and "x Mute" not in lines[-1])
        terminal.resize(60, 19)  # no room for processes, that the keys could be about
        terminal.wait_for("needs 60×20")
        terminal.send("a")
        terminal.wait_for(lambda lines: "x Mute" in lines[-1])
        terminal.send("a")
        terminal.wait_for(lambda lines: "a Advice" in lines[-1] and "x Mute" not in lines[-1])
        terminal.send("q")
        assert terminal.wait_exit() == 0
        assert_well(terminal)

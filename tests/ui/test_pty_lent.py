"""The terminal lent to a command: Ctrl+C is for that command alone, Ctrl+Z stops nothing, Enter gives it back."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.pty_programs import Terminal, wait_until

LENDS = "import sys; from gputop.ui.terminal.guarded import lent; print('CODE', lent(sys.argv[1:]), flush=True)"


def lends(*arguments: str) -> Terminal:
    return Terminal([sys.executable, "-c", LENDS, *arguments])


@pytest.mark.parametrize(("arguments", "code"), [(("recipe", "clip"), 0), (("recipe", "nothing"), 64)])
def test_what_it_prints_stays_until_enter(arguments: tuple[str, ...], code: int) -> None:
    with lends(*arguments) as terminal:
        wait_until(lambda: f"exit code {code}; Enter returns".encode() in terminal.output, 30, "it ends")
        assert f"$ gputop {' '.join(arguments)}".encode() in terminal.output
        assert b"CODE" not in terminal.output
        terminal.send("enter")
        wait_until(lambda: f"CODE {code}".encode() in terminal.output, 10, "the screen is back")
        assert terminal.process.wait(10) == 0


def test_ctrl_c_ends_the_command_and_ctrl_z_does_not_stop_it() -> None:
    with lends("memory", "--no-nvml", str(os.getpid()), "--for", "10m") as terminal:
        wait_until(lambda: b"sampling memory: " in terminal.output, 30, "it runs")
        terminal.send("ctrl+z")
        before = len(terminal.output)
        wait_until(lambda: b"sampling memory: " in terminal.output[before:], 30, "it goes on")
        terminal.send("ctrl+c")
        wait_until(lambda: b"exit code 130; Enter returns" in terminal.output, 30, "it ends")
        terminal.send("enter")
        wait_until(lambda: b"CODE 130" in terminal.output, 10, "the screen is back")
        assert terminal.process.wait(10) == 0


def test_a_command_that_is_killed_gives_the_terminal_back() -> None:
    with lends("memory", "--no-nvml", str(os.getpid()), "--for", "10m") as terminal:
        wait_until(lambda: b"sampling memory: " in terminal.output, 30, "it runs")
        pid = terminal.process.pid
        (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        os.kill(int(child), signal.SIGKILL)
        wait_until(lambda: b"exit code -9; Enter returns" in terminal.output, 30, "it ends")
        terminal.send("enter")
        assert terminal.process.wait(10) == 0


def test_an_app_lends_its_screen_and_has_it_back() -> None:
    with Terminal([sys.executable, "-m", "tests.tinyapp"]) as terminal:
        wait_until(lambda: b"ready 3" in terminal.output, 30, "it draws")
        terminal.send("l")
        wait_until(lambda: b"exit code 0; Enter returns" in terminal.output, 30, "the command ends")
        before = len(terminal.output)
        assert b"clip_grad_norm_" in terminal.output
        terminal.send("enter")
        wait_until(lambda: b"ready " in terminal.output[before:], 30, "it draws again")
        terminal.send("q")
        assert terminal.process.wait(10) == 0

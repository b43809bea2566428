"""The mouse on a real pty: clicks and the wheel, never its moves; and nothing of it where it was not wanted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.oracle import modes_ever_on
from tests.pty_programs import Terminal
from tests.terminal_endings import Program

ARGV = (sys.executable, "-m", "gputop")
MOVES = {1002, 1003, 1015, 1016}
ASKED = {1000, 1006}


@pytest.fixture
def showcase(tmp_path: Path) -> Program:
    env = {"XDG_STATE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    return Program((*ARGV, "demo", "showcase"), "COMMAND", env=env)


def click(terminal: Terminal, what: str, button: int = 0) -> None:
    """Press and let go where a text stands; buttons from 64 on are the wheel, which has no letting go."""
    y, line = next((y, line) for y, line in enumerate(terminal.screen()) if what in line)
    at = f"{button};{line.index(what) + 1};{y + 1}"
    terminal.send(f"\x1b[<{at}M" if button >= 64 else f"\x1b[<{at}M\x1b[<{at}m")


def opens_and_closes(terminal: Terminal, key: str, shown: str) -> None:
    """A screen that a key opens and Esc closes."""
    terminal.send(key)
    terminal.wait_for(shown)
    terminal.send("escape")
    terminal.wait_for(lambda lines: shown not in "\n".join(lines))


def test_clicks_and_the_wheel_work_and_no_screen_asks_for_moves(showcase: Program) -> None:
    with showcase.start() as terminal:
        terminal.wait_for("llama-7b")
        click(terminal, "RSS ")
        terminal.wait_for("RSS▼")
        click(terminal, "Freeze")
        terminal.wait_for(" frozen ")
        for key, shown in (
            ("f1", "help: under the cursor"),
            ("\x10", "type to filter"),
            ("Y", "select with the mouse"),
        ):
            opens_and_closes(terminal, key, shown)
        terminal.send("f2")
        terminal.wait_for("< 1s >")
        click(terminal, "interval", 65)
        terminal.wait_for("readonly       < off >")
        click(terminal, "tree  ")
        terminal.wait_for("tree           < off >")
        terminal.send("escape")
        terminal.wait_for(" flat · ")
        terminal.send("q")
        assert terminal.wait_exit() == 0
        assert modes_ever_on(terminal.output) & (MOVES | ASKED) == ASKED


def test_no_mouse_asks_for_none_on_any_screen(showcase: Program) -> None:
    with Program((*showcase.argv, "--no-mouse"), "COMMAND", env=showcase.env).start() as terminal:
        for key, shown in (("f2", "every_process"), ("Y", "select with the mouse")):
            opens_and_closes(terminal, key, shown)
        terminal.send("q")
        assert terminal.wait_exit() == 0
        assert not modes_ever_on(terminal.output) & (MOVES | ASKED)

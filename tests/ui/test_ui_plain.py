"""The plain screen: what does not fit is counted, and keys scroll to it."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.headless_screens import Stage, play
from tests.scripted_jobs import frame, process
from tests.terminal_endings import Program

ARGV = (sys.executable, "-m", "gputop")
FOOT = "select with the mouse; Esc goes back"


def test_a_command_longer_than_the_screen_is_all_there() -> None:
    words = ("python", "train.py", *(f"--option-{number}={number}" for number in range(300)), "--last")

    async def scene(stage: Stage) -> None:
        await stage.press("Y")
        first, seen = stage.lines[:-1], []
        assert first[:2] == ["9", ""]
        hidden = int(stage.lines[-1].removeprefix("+").split()[0])
        assert stage.lines[-1] == f"+{hidden} lines   arrows, PgUp, PgDn scroll   {FOOT}"
        await stage.press("down")
        assert (stage.lines[0], stage.lines[-1].split()[0]) == ("", f"+{hidden - 1}")
        await stage.press("home")
        while True:
            seen += [line for line in stage.lines[:-1] if line not in seen]
            if not stage.lines[-1].startswith("+"):
                break
            await stage.press("pagedown")
        assert "".join(seen[2:]).replace(" ", "") == "".join(words)
        end = stage.lines
        await stage.press("down", "pagedown", "end")
        assert stage.lines == end
        await stage.press("up")
        assert stage.lines[-1].startswith("+1 line   ")
        await stage.press("pageup", "pageup", "pageup", "pageup")
        assert stage.lines[:-1] == first
        await stage.pilot.resize_terminal(250, 60)
        assert stage.lines[-1] == FOOT, "what fits needs no keys"

    play(scene, frame(loose=(process(9, command=words, cpu_percent=200.0),)), size=(80, 24))


def test_keys_scroll_it_on_a_real_terminal(tmp_path: Path) -> None:
    with Program((*ARGV, "demo", "healthy"), "Quit", env={"XDG_STATE_HOME": str(tmp_path)}).start() as terminal:
        terminal.wait_for("COMMAND")
        terminal.send("Y")
        terminal.wait_for(FOOT)
        pid, _, command = terminal.screen()[:3]
        terminal.resize(90, 3)
        terminal.wait_for(lambda lines: lines[:2] == [pid, ""] and lines[2].startswith("+"))
        terminal.send("end")
        terminal.wait_for(lambda lines: command.endswith(lines[1]) and lines[2].startswith("arrows, PgUp, PgDn"))
        terminal.send("home")
        terminal.wait_for(lambda lines: lines[0] == pid)
        terminal.send("pagedown")
        terminal.wait_for(lambda lines: lines[0] == "")
        terminal.send("up")
        terminal.wait_for(lambda lines: lines[0] == pid)
        terminal.send("down")
        terminal.wait_for(lambda lines: lines[0] == "")
        terminal.send("escape")
        terminal.wait_for(lambda lines: FOOT not in lines[2])
        terminal.send("q")
        assert terminal.wait_exit() == 0

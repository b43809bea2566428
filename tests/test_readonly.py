"""Who wants nothing to be changed gets that, or no gputop: a settings file that fails must not change it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gputop.config import Settings, load
from gputop.safe.files import read_settings
from tests.headless_screens import Stage, play
from tests.pty_programs import Terminal
from tests.scripted_jobs import LLAMA, frame

ARGV = (sys.executable, "-m", "gputop")
UNCLEAR = {
    "no TOML": ("readonly = true\ninterval == 2\n", "/x"),
    "a later version": ("version = 9\nreadonly = true\n", "its version is 9, but this gputop reads version 1 (/x)"),
    "a number": ("readonly = 1\n", "readonly must be true or false (/x)"),
    "a word": ('readonly = "please"\n', "readonly must be true or false (/x)"),
    "a table": ("[readonly]\nx = 1\n", "readonly must be true or false (/x)"),
    "in a table": (
        '[keys]\nfreeze = "X"\nreadonly = true\n',
        "readonly is inside a [table]: move it above the first one",
    ),
}


@pytest.mark.parametrize(("text", "why"), UNCLEAR.values(), ids=UNCLEAR)
def test_f12_where_it_cannot_be_told_nothing_is_started(text: str, why: str) -> None:
    with pytest.raises(ValueError, match="not started, as readonly may be set: ") as refused:
        load("/x", {}, {}, lambda _: text.encode())
    assert why in str(refused.value)
    assert str(refused.value).endswith("; fix that, or use --readonly")
    assert load("/x", {}, {"readonly": True}, lambda _: text.encode())[0].readonly
    assert load("/x", {"GPUTOP_READONLY": "yes"}, {}, lambda _: text.encode())[0].readonly
    assert not load("/x", {"GPUTOP_READONLY": "0"}, {}, lambda _: text.encode())[0].readonly


def test_f12_a_variable_that_is_not_understood_starts_nothing_either() -> None:
    with pytest.raises(ValueError, match="GPUTOP_READONLY must be true or false"):
        load("/x", {"GPUTOP_READONLY": "please"}, {}, lambda _: b"readonly = true")


@pytest.mark.parametrize("text", ["# readonly = true\ninterval == 2", "readonlyish == 2", "readonly = false", ""])
def test_who_does_not_ask_for_it_gets_a_warning_at_most(text: str) -> None:
    assert load("/x", {}, {}, lambda _: text.encode())[0] == Settings()


def test_f12_the_program_says_so_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("readonly = true\ninterval == 2\n")
    done = subprocess.run(
        [*ARGV, "demo", "healthy", "--config", str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (64, "", 1)
    assert done.stderr.startswith("gputop: not started, as readonly may be set: ")
    assert str(path) in done.stderr


def test_what_else_is_not_used_is_said_on_the_screen_that_covers_the_warning(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("interval = -1\n")
    with Terminal((*ARGV, "demo", "healthy", "--config", str(path)), env={"XDG_STATE_HOME": str(tmp_path)}) as terminal:
        terminal.wait_for(lambda lines: lines[-1].startswith(" settings ignored: interval must be 0.25 to 3600"))
        terminal.send("q")
        assert terminal.wait_exit() == 0


def test_the_screen_says_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("readonly = true\nno = 1\n")
    chosen, _ = load(str(path), {}, {}, read_settings)

    async def scene(stage: Stage) -> None:
        assert "read-only" in stage.lines[0]
        assert stage.lines[-1].startswith(" settings ignored: unknown setting 'no' (")
        await stage.press("escape")
        assert "settings ignored" not in stage.text

    play(scene, frame(LLAMA), readonly=chosen.readonly, origin=chosen.origin)

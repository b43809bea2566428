"""Other keys from the settings file: what they do, what shows them, and what is said of those that cannot be."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.ui.commands.command import BOTH
from gputop.ui.commands.key_names import read_key, shown
from gputop.ui.commands.remap import FIXED, remap, remapped
from gputop.ui.commands.table import COMMANDS, command
from tests.headless_screens import Stage, play
from tests.scripted_jobs import frame, training
from tests.terminal_endings import Program

ARGV = (sys.executable, "-m", "gputop")
SHOWN = frame(training("llama", 41000, ranks=2, loaders=2))


@pytest.mark.parametrize("name", sorted({name for row in COMMANDS for name in row.keys}))
def test_a_key_is_read_as_it_is_shown(name: str) -> None:
    assert read_key(shown(name)) == name
    assert read_key(name) == name


def test_how_keys_may_be_written() -> None:
    written = ["x", "X", "?", "/", "[", "f11", "F2", "ctrl+r", "Ctrl+R", "pgup", "S-Tab", "Space", "slash"]
    assert [read_key(key) for key in written] == [
        "x", "X", "question_mark", "slash", "left_square_bracket", "f11", "f2", "ctrl+r", "ctrl+r", "pageup",
        "shift+tab", "space", "slash",
    ]  # fmt: skip
    for wrong in ("", "xx", "f0", "f99", "ctrl+?", "\x1b", "\n"):
        with pytest.raises(ValueError, match="is not a key"):
            read_key(wrong)


def test_what_is_given_is_used() -> None:
    table = {"freeze": "X", "tree": ["O", "F5"], "sort": "", "density": "Z"}
    changes, problems, clashes = remap(table)
    assert changes == {"freeze": ("X",), "tree": ("O", "f5"), "sort": (), "density": ("Z",)}
    assert problems == []
    assert clashes == []
    keys = {row.id: row.names for row in remapped(changes.items())}
    assert keys["tree"] == ("O", "F5")
    assert keys["sort"] == ()
    assert keys["help"] == command("help").names


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"frieze": "x"}, "unknown setting 'keys.frieze' (did you mean keys.freeze?)"),
        ({"freeze": "xx"}, "keys.freeze: 'xx' is not a key"),
        ({"freeze": 3}, "keys.freeze must be a string or a list of strings"),
        ({"freeze": "ctrl+c"}, "keys.freeze: ctrl+c is reserved"),
        ({"interrupt": "x"}, "keys.interrupt cannot be changed"),
        ({"freeze": "X", "tree": "X j"}, "keys.tree: X is already used by freeze"),
        ("x", "keys must be a table: [keys]"),
    ],
)
def test_f12_what_cannot_be_is_said(table: object, problem: str) -> None:
    assert remap(table)[1:] == ([problem], [])


def test_who_loses_a_key_is_no_problem_but_told() -> None:
    changes, problems, clashes = remap({"freeze": "g", "save": "F4"})
    assert (changes["density"], changes["filter"]) == ((), ("backslash",))
    assert problems == []
    assert clashes == ["f4 is now save, not filter", "g is now freeze, not density"]


ANY_KEY = st.sampled_from(["x", "g", "Z", "q", "F1", "h", "?", "Tab", "ctrl+c", "Esc", "", "nope"])


@given(st.dictionaries(st.sampled_from([row.id for row in COMMANDS] + ["what"]), st.lists(ANY_KEY, max_size=3)))
def test_f12_whatever_the_table_says_a_key_does_one_thing_and_ctrl_c_stays(table: dict[str, list[str]]) -> None:
    changes, _, _ = remap(table)
    rows = remapped(changes.items())
    for place in BOTH:
        names = [name for row in rows if place in row.on for name in row.keys]
        assert len(names) == len(set(names))
    assert all(row.keys == command(row.id).keys for row in rows if row.id in FIXED)


def test_the_screen_obeys_and_shows_other_keys() -> None:
    changes, _, _ = remap({"freeze": "X", "density": "Z", "keys": "?", "quit": "z"})

    async def scene(stage: Stage) -> None:
        assert "X Freeze" in stage.lines[-1]
        await stage.press("X")
        assert " frozen " in stage.lines[0]
        await stage.press("X", "Z")
        assert " frozen " not in stage.lines[0]
        assert "GPUs: card" in stage.lines[-1]
        await stage.press("h", "q", "g", "escape")
        assert "X Freeze" in stage.lines[-1]
        await stage.pilot.click("#keys", offset=(stage.lines[-1].index("X Freeze"), 0))
        assert " frozen " in stage.lines[0]
        await stage.press("question_mark")
        assert re.search(r"  X +freeze the display", stage.text)
        assert "z quits gputop" in stage.lines[-1]
        await stage.press("question_mark", "d", "z")
        assert not stage.app._exit, "where one types a letter is a letter"
        await stage.press("escape", "z")
        assert stage.app._exit

    play(scene, SHOWN, keys=tuple(changes.items()))


def test_two_keys_change_places() -> None:
    changes, *told = remap({"freeze": "g", "density": "Z"})
    assert told == [[], []]

    async def scene(stage: Stage) -> None:
        await stage.press("g")
        assert " frozen " in stage.lines[0]
        await stage.press("Z")
        assert "GPUs: card" in stage.lines[-1]

    play(scene, SHOWN, keys=tuple(changes.items()))


def test_a_settings_file_moves_a_key_of_the_real_program(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[keys]\nfreeze = "X"\nquit = "F12 Q"\n')
    program = Program(
        (*ARGV, "--config", str(path), "demo", "healthy"), "F12 Quit", env={"XDG_STATE_HOME": str(tmp_path)}
    )
    with program.start() as terminal:
        terminal.send("q", "Z", "X")
        terminal.wait_for(" frozen ")
        terminal.send("Q")
        assert terminal.wait_exit() == 0
    shown = subprocess.run(
        [*ARGV, "keys", "--config", str(path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert shown.stderr == ""
    assert [line.split()[1:4:2] for line in shown.stdout.splitlines() if "freeze the display" in line] == [
        ["X", "freeze"]
    ]


def test_f12_keys_that_cannot_be_are_one_warning_and_keys_given_away_another(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('no = 1\n[keys]\nfreeze = "g"\nfrieze = "y"\n')
    done = subprocess.run(
        [*ARGV, "keys", "--config", str(path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == (
        "gputop: settings ignored: unknown setting 'no'; unknown setting 'keys.frieze' (did you mean keys.freeze?) "
        f"({path}); see `gputop docs configuration`\n"
        "gputop: keys reassigned: g is now freeze, not density; `gputop keys` lists them all\n"
    )

"""The line in which something is typed: editing, pasting, what it points at, and that a letter is a letter."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.cells import cell_len
from textual.events import Paste

from gputop.ui.table.filter import HINT
from gputop.ui.theme import ASCII, PLAIN, Look
from gputop.ui.widgets.prompt import MOST, pointing
from tests.headless_screens import Stage, play
from tests.hostile import STRINGS
from tests.scripted_jobs import frame, process, training
from tests.terminal_endings import Program

LLAMA = training("llama", 41000, ranks=4, loaders=8)
SD3 = training("sd3", 52000, ranks=3, loaders=2, first_gpu=4, user="bob")
BOTH = frame(LLAMA, SD3, gpus=8)


EDITS = {
    "a l i c e": "alice",
    "q z 1 H space slash n": "qz1H /n",
    "a b left left c": "cab",
    "a b home c end d": "cabd",
    "a b ctrl+a c ctrl+e d": "cabd",
    "a b c backspace": "ab",
    "a b c left backspace": "ac",
    "a b c home delete delete": "c",
    "a b space c d ctrl+w": "ab",
    "a b c left ctrl+u": "c",
    "a b c left left ctrl+k": "a",
    "backspace delete left right a": "a",
    "a tab shift+tab ctrl+p b": "ab",
}


def test_a_line_is_edited_as_lines_are() -> None:
    async def scene(stage: Stage) -> None:
        for keys, text in EDITS.items():
            await stage.press("slash", *keys.split())
            assert stage.app.main.prompt.text == text, keys
            assert not stage.app._exit
            await stage.press("escape")

    play(scene, BOTH)


def test_the_cursor_of_the_table_moves_meanwhile() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("backslash", *"bob", "down", "down")
        assert stage.selected == "52200"
        await stage.press("f5")
        assert " flat · " in stage.text
        assert stage.app.main.prompt.text == "bob"

    play(scene, BOTH)


def test_a_paste_is_one_clean_line() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("backslash")
        stage.app.main.prompt.post_message(Paste("user=bob\r\n\x1b[31mgpu=5\x07" + "x" * 1000))
        await stage.pilot.pause()
        text = stage.app.main.prompt.text
        assert text.startswith("user=bob ")
        assert len(text) <= MOST
        assert text.isprintable()
        for hostile in STRINGS:
            stage.app.main.prompt.post_message(Paste(hostile))
            await stage.press("ctrl+u")
        assert stage.lines[-2].strip().startswith("filter")

    play(scene, BOTH)


def test_a_long_text_scrolls_with_its_cursor() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("slash", *("abcdefghij" * 12))
        assert "bcdefghij" in stage.lines[-2]
        assert cell_len(stage.lines[-2]) <= 80
        await stage.press("home")
        assert stage.lines[-2].startswith(" find  abcdefghij")

    play(scene, BOTH, size=(80, 24))


def test_enter_does_not_take_what_is_wrong() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("backslash", *"bob", "space", *"gpuu=1", "enter")
        assert stage.lines[-2].startswith(" filter  bob gpuu=1")
        assert stage.lines[-1] == " " * 13 + "^^^^ unknown field gpuu: did you mean gpu?"
        assert " bob  10 of 47 " in stage.text, "the filter is the parts before it"
        await stage.press(*["backspace"] * 7)
        assert stage.lines[-1].strip() == HINT
        await stage.press("enter")
        assert stage.lines[-1].startswith(" F1 Help")

    play(scene, BOTH)


def test_while_what_is_typed_is_wrong_nothing_that_it_was_on_the_way_there_is_in_force() -> None:
    async def scene(stage: Stage) -> None:
        for text in ("usr=alice", "time>12:30", '"bob'):
            await stage.press("backslash", *text)
            assert stage.app.main.table.listing.view.filter is None, text
            assert " of 47 " not in stage.text
            await stage.press("escape")
        await stage.press("backslash", *"user=bob", "enter", "backslash", "space", *"rank=x")
        assert " user=bob  10 of 47 " in stage.text

    play(scene, BOTH)


def test_what_is_wrong_far_to_the_right_is_told_to_the_left_of_it() -> None:
    for at, line in (
        ((5, 8), "     ^^^ wrong"),
        ((34, 38), "                            wrong ^^^^"),
        ((2, 38), " wrong"),
    ):
        assert pointing(at, "wrong", 40, Look()).strip(40).text.rstrip() == line
    assert pointing((5, 8), "w" * 100, 40, Look(PLAIN, ASCII)).strip(40).text == f"     ^^^ {'w' * 29}~ ", "cut anyway"
    assert pointing((70, 75), "w" * 100, 40, Look(PLAIN, ASCII)).strip(40).text == f" {'w' * 37}~ "


@pytest.mark.parametrize(
    ("size", "keys", "name"),
    [
        ((80, 24), ("backslash", *"user=alice read>5X"), "filter-wrong-80x24"),
        ((120, 40), ("backslash", *"user=alice gpuu=0-3"), "filter-wrong-120x40"),
        ((80, 24), ("backslash", *"user=alcie", "enter"), "filter-hides-all-80x24"),
        ((120, 40), ("backslash", *"user=alice worker"), "filter-120x40"),
        ((80, 24), ("slash", *"rank1"), "find-80x24"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_pictures(size: tuple[int, int], keys: tuple[str, ...], name: str, golden: Callable[[str, str], None]) -> None:
    named = {" ": "space", ">": "greater_than_sign", "=": "equals_sign"}

    async def scene(stage: Stage) -> None:
        await stage.press(*(named.get(key, key) for key in keys))
        golden(f"{name}.txt", "\n".join(stage.lines[1:]) + "\n")

    play(scene, BOTH, size=size)


def test_the_way_back_from_a_filter_that_hides_all_is_not_cut_on_a_narrow_screen() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("backslash", *"user=alcie", "enter")
        assert "    did you mean user alice (37 processes)?" in stage.text
        assert "Esc clear the filter" in stage.text

    play(scene, BOTH, size=(60, 20))


def test_a_user_who_does_nothing_here_is_told_so() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("u", "end", "enter")
        assert "root has no process on a GPU, and none that is busy." in stage.text
        assert "H show all 1 process of root" in stage.text
        await stage.press("H")
        assert stage.pids == ["7"]
        await stage.press("escape")
        assert "41100" in stage.pids

    play(scene, frame(LLAMA, gpus=8, loose=(process(7, user="root"),)))


def test_what_is_not_shown_of_a_command_is_found_too() -> None:
    hidden = process(
        9, name="python3.11", cpu_percent=200.0, command=("/opt/conda/bin/python3.11", "x" * 500, "--last")
    )

    async def scene(stage: Stage) -> None:
        for words in ("/opt/conda", "python3.11", "--last"):
            await stage.press("home", "slash", *words, "enter")
            assert stage.selected == "9"

    play(scene, frame(LLAMA, loose=(hidden,)))


def test_a_screen_that_becomes_too_small_for_it_ends_the_line_and_keys_are_keys_again() -> None:
    async def scene(stage: Stage) -> None:
        main = stage.app.main
        for key, words in (("f4", "user=bob"), ("slash", "rank1")):
            await stage.press(key, *words)
            await stage.pilot.resize_terminal(50, 18)
            assert (main.search.asking, main.typing) == (None, False)
            await stage.press("Z")
            assert " frozen " in stage.lines[0]
            await stage.press("Z")
            await stage.pilot.resize_terminal(120, 40)
            assert "user=bob" in stage.text, "what was typed holds"
            assert main.focused is main.table
        assert stage.selected == "52200"
        await stage.press("f4", *"x")
        await stage.pilot.resize_terminal(50, 18)
        await stage.press("q")
        assert stage.app._exit

    play(scene, BOTH)


def test_nor_does_a_real_terminal_that_shrinks_keep_the_keys(tmp_path: Path) -> None:
    argv = (sys.executable, "-m", "gputop", "demo", "healthy")
    with Program(argv, "COMMAND", env={"XDG_STATE_HOME": str(tmp_path)}).start() as terminal:
        terminal.send("f4", "al")
        terminal.wait_for("filter  al")
        terminal.resize(50, 18)
        terminal.wait_for("needs 60×20")
        terminal.send("q")
        assert terminal.wait_exit() == 0

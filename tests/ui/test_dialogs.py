"""Lists and lines of text in dialogs: what moves in them, what edits them, and that no key overtakes another."""

from __future__ import annotations

import pytest
from rich.style import Style
from textual.events import Click, Key, MouseScrollDown
from textual.keys import key_to_character

from gputop.columns import SORTABLE
from gputop.config import SETTINGS
from gputop.ui.dialogs.choices import ListDialog, SortDialog
from gputop.ui.dialogs.palette import PaletteDialog, PaletteEntry
from gputop.ui.dialogs.questions import Confirm, DelayDialog
from gputop.ui.dialogs.text_line import TextLine
from gputop.ui.theme import ASCII, DARK, LIGHT, PLAIN, TERMINAL, UNICODE, Look
from tests.headless_screens import Stage, box, play, strips
from tests.scripted_jobs import frame, process, training

SHOWN = frame(training("llama", 41000, ranks=2, loaders=2), loose=(process(7),), gpus=8)


async def at_once(stage: Stage, *keys: str) -> None:
    """Press keys that are all here before the first of them is handled."""
    for key in keys:
        stage.app.post_message(Key(key, key_to_character(key)))
    await stage.pilot.pause()


def opened(stage: Stage) -> ListDialog:  # type: ignore[type-arg]
    """The list on top."""
    over = stage.app.screen
    assert isinstance(over, ListDialog)
    return over


def test_the_cursor_moves_stops_at_the_ends_and_stays_in_sight() -> None:
    last = len(SORTABLE) - 1

    async def scene(stage: Stage) -> None:
        await stage.press("f6", "home")
        page = opened(stage).choices.size.height
        assert page < last
        for key, place in (
            ("up", 0), ("down", 1), ("pagedown", 1 + page), ("up", page), ("pageup", 0), ("end", last), ("down", last),
            ("pageup", last - page), ("pagedown", last), ("home", 0),
        ):  # fmt: skip
            await stage.press(key)
            assert opened(stage).at == place, key
            column = opened(stage).items[place]
            assert any(line.startswith(f"  {column.title} ") for line in box(stage).splitlines()), "it is in the box"

    play(scene, SHOWN, size=(80, 24))


def test_the_cursor_stays_in_sight_when_the_screen_becomes_lower() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("f6", "end")
        await stage.pilot.resize_terminal(120, 20)
        assert f"  {opened(stage).items[-1].title} " in box(stage)
        await stage.pilot.resize_terminal(120, 60)
        assert box(stage).splitlines()[2].startswith("  PID ")

    play(scene, SHOWN, size=(120, 60))


def test_the_wheel_moves_the_cursor_so_that_enter_takes_a_line_in_sight() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("f6", "home")
        over = opened(stage)
        x, y = over.choices.region.x + 9, over.choices.region.y + 2
        for place in (3, 6):
            stage.app.post_message(MouseScrollDown(None, x, y, 0, 1, 0, False, False, False))
            await stage.pilot.pause()
            assert over.at == place
            assert f"  {over.items[place].title} " in box(stage)
        await stage.press("enter")
        assert stage.app.main.table.listing.view.sort == over.items[6].id

    play(scene, SHOWN, size=(80, 24))


@pytest.mark.parametrize("typed", ["recor", "xyzzy"])
def test_a_click_below_the_last_line_is_none(typed: str) -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("ctrl+p", *typed)
        over = opened(stage)
        await stage.pilot.click(
            offset=(over.choices.region.x + 5, over.choices.region.y + over.choices.size.height - 1)
        )
        assert stage.app.screen is over

    play(scene, SHOWN, size=(80, 24))


def test_the_second_of_a_double_click_answers_nothing() -> None:
    answers: list[str | None] = []

    async def scene(stage: Stage) -> None:
        named = (("no", "Cancel"), ("run", "Run it"))
        over = Confirm(stage.app.session.look, "a command", "", named, answers.append)
        stage.app.push_screen(over)
        await stage.pilot.pause()
        place = (over.choices.region.x + 5, over.choices.region.y + 1)
        event = Click(over.choices, 5, 1, 0, 0, 1, False, False, False, *place, Style(meta={"option": 1}), 2)
        over.choices.post_message(event)
        await stage.pilot.pause()
        assert stage.app.screen is over
        assert answers == []
        await stage.pilot.click(offset=place)
        assert answers == ["run"]

    play(scene, SHOWN, size=(80, 24))


@pytest.mark.parametrize("look", [Look(), Look(TERMINAL, UNICODE), Look(PLAIN, ASCII)])
def test_a_mark_says_which_part_of_a_long_list_is_shown(look: Look) -> None:
    async def scene(stage: Stage) -> None:
        marked = []
        for key in ("home", "pagedown", "end"):
            await stage.press("f6", key)
            rows = strips(stage.app)
            over, edge = opened(stage).choices, opened(stage).choices.region.right - 1
            ends = [rows[y].crop(edge, edge + 1) for y in range(over.region.y, over.region.bottom)]
            inks = [(y, segment.text, segment.style) for y, end in enumerate(ends) for segment in end]
            frame_dim = look.style("faint").dim
            shown = [
                y for y, text, style in inks
                if text == look.glyphs.knob and style and (look.glyphs is UNICODE or style.dim != frame_dim)
            ]  # fmt: skip
            assert shown == list(range(shown[0], shown[-1] + 1))
            marked.append(shown)
            await stage.press("escape")
        assert marked[0][0] == 0
        assert 0 < marked[1][0] < marked[2][0]
        assert marked[2][-1] == len(ends) - 1
        assert len(marked[0]) == len(marked[2]) < len(ends)
        await stage.press("u")
        assert look.glyphs.knob not in box(stage) or look.glyphs is ASCII, "all of it is shown"

    play(scene, SHOWN, size=(80, 24), look=look)


@pytest.mark.parametrize("size", [(80, 24), (40, 12), (20, 6), (20, 3), (10, 1)])
@pytest.mark.parametrize("look", [Look(), Look(TERMINAL, UNICODE), Look(PLAIN, ASCII)])
def test_a_box_is_never_cut_at_its_sides_or_top(size: tuple[int, int], look: Look) -> None:
    async def scene(stage: Stage) -> None:
        for over in (SortDialog(look, "cpu", SORTABLE), DelayDialog(look, 1.0), PaletteDialog(look, list)):
            stage.app.push_screen(over)
            await stage.pilot.pause()
            parts = [part.region for part in over.children]
            assert parts[0].y >= 0
            assert parts[-1].bottom <= size[1]
            assert all((part.x, part.right) == (parts[0].x, parts[0].right) for part in parts)
            assert sum(part.height for part in parts) <= size[1]
            assert 0 <= parts[0].x < parts[0].right <= size[0]
            await stage.press("end", "1", "enter", "escape")

    play(scene, SHOWN, size=size, look=look)


def test_what_is_typed_is_edited_as_in_every_line_of_text() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("ctrl+p", *"sort-cpu x", "ctrl+w", "backspace", *["left"] * 3, "ctrl+k", *"pid")
        assert box(stage).startswith("  do  sort-pid")
        assert [entry.name for entry in opened(stage).items] == ["sort-pid"]
        await stage.press("ctrl+a", "delete", "S", "ctrl+u")
        assert box(stage).startswith("  do  ort-pid")
        await stage.press("ctrl+e", *"x" * 60)
        assert len(opened(stage).query_one(TextLine).value) == 40

    play(scene, SHOWN, size=(80, 24))


def test_a_click_in_the_text_moves_its_cursor() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("ctrl+p", *"trxee")
        line = stage.app.screen.query_one(TextLine)
        await stage.pilot.click(offset=(line.region.x + len("  do  trx"), line.region.y))
        await stage.press("backspace")
        assert line.value == "tree"

    play(scene, SHOWN)


@pytest.mark.parametrize(
    ("keys", "value", "chosen"),
    [
        (("t", "r", "x", "backspace", "e", "e"), "tree", 0),
        (("s", "o", "down", "down", "r", "t"), "sort", 0),
        (("s", "o", "r", "t", "down", "down"), "sort", 2),
        (("s", "o", "r", "t", "down", "backspace", "t", "down"), "sort", 1),
        (("end", "home", "down"), "", 1),
    ],
)
def test_no_key_overtakes_another(keys: tuple[str, ...], value: str, chosen: int) -> None:
    """On a slow link they come in one piece, also while the dialog opens."""

    async def scene(stage: Stage) -> None:
        await at_once(stage, "ctrl+p", *keys)
        over = opened(stage)
        assert (over.query_one(TextLine).value, over.at) == (value, chosen)

    play(scene, SHOWN)


def test_what_enter_takes_is_what_the_keys_before_it_chose() -> None:
    place = [setting.key for setting in SETTINGS].index("tree")

    async def scene(stage: Stage) -> None:
        await at_once(stage, "ctrl+p", *"freeze", "enter")
        assert " frozen " in stage.lines[0]
        await at_once(stage, "f2", "end", "home", *["down"] * place, "right", "escape")
        assert not stage.app.main.table.listing.view.tree
        await at_once(stage, "d", "5", "0", "backspace", "m", "backspace", "enter")
        assert stage.feed.interval_s == 5.0

    play(scene, SHOWN)


def test_a_time_that_is_none_says_so_until_it_is_changed() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("d", *"7-x[", "enter")
        assert "  new  7x" in box(stage)
        assert "not a time" in box(stage)
        await stage.press("backspace", *"200h")
        assert "not a time" not in box(stage)
        await stage.press("enter")
        assert "between 0.25s and 3600s" in box(stage)
        assert stage.feed.interval_s == 1.0

    play(scene, SHOWN)


def test_another_theme_is_seen_in_every_part_of_the_palette() -> None:
    def colours(stage: Stage) -> set[str]:
        over = opened(stage)
        shown, regions = strips(stage.app), [part.region for part in over.children]
        lines = [shown[y].crop(region.x, region.right) for region in regions for y in region.line_range]
        styles = [segment.style for line in lines for segment in line if segment.style]
        return {colour.name for style in styles for colour in (style.color, style.bgcolor) if colour}

    async def scene(stage: Stage) -> None:
        await stage.press("ctrl+p", *"sort")
        dark = colours(stage)
        assert dark <= {getattr(DARK, name) for name in DARK.__slots__}
        stage.app.session.set_theme(Look(LIGHT, UNICODE))
        await stage.pilot.pause()
        assert colours(stage) <= {getattr(LIGHT, name) for name in LIGHT.__slots__}
        assert len(colours(stage)) == len(dark) > 4

    play(scene, SHOWN)


def test_a_long_name_does_not_run_into_what_is_said_of_it() -> None:
    entry = PaletteEntry("x" * 30, "what it does", lambda: None)

    async def scene(stage: Stage) -> None:
        stage.app.push_screen(PaletteDialog(stage.app.session.look, lambda: [entry]))
        await stage.pilot.pause()
        assert "xx… what it does" in box(stage)

    play(scene, SHOWN)


def test_names_of_others_are_no_markup() -> None:
    shown = frame(loose=(process(7, user="[bold]x[/y]"), process(8, user="[@click=app.exit]z[/]")))

    async def scene(stage: Stage) -> None:
        await stage.press("u")
        assert "[bold]x[/y]" in box(stage)
        assert "[@click=app.exit]z[" in box(stage)

    play(scene, shown)


ANSWERS = (("keep", "Keep partial result"), ("drop", "Drop it"), ("on", "Go on"))
HARM = "It measures in this terminal, beside the job, which it may slow down. Ctrl+C ends it; the screen comes back."


def asked(stage: Stage, title: str = "stop it?", text: str = HARM) -> list[str | None]:
    """Ask; what is answered."""
    got: list[str | None] = []
    stage.app.push_screen(Confirm(stage.app.session.look, title, text, ANSWERS, got.append))
    return got


@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        (("enter",), "keep"), (("space",), "keep"), (("escape",), None), (("down", "enter"), "drop"),
        (("right", "right", "enter"), "on"), (("up", "enter"), "on"), (("tab", "space"), "drop"),
        (("shift+tab", "left", "enter"), "drop"), (("end", "down", "enter"), "keep"),
        (("x", "q", "down", "enter"), "drop"),
    ],
)  # fmt: skip
def test_a_question_is_answered_once_by_the_keys_of_buttons_and_of_lists(
    keys: tuple[str, ...], answer: str | None
) -> None:
    async def scene(stage: Stage) -> None:
        got = asked(stage)
        await stage.pilot.pause()
        await at_once(stage, *keys)
        assert got == [answer]
        assert stage.app.screen is stage.app.main

    play(scene, SHOWN)


def test_a_click_answers() -> None:
    async def scene(stage: Stage) -> None:
        got = asked(stage)
        await stage.pilot.pause()
        place = next(place for place, line in enumerate(stage.lines) if "Drop it" in line)
        await stage.pilot.click(offset=(40, place + 5))
        assert not got, "beside the answers is no answer"
        await stage.pilot.click(offset=(40, place))
        assert got == ["drop"]

    play(scene, SHOWN, size=(80, 24))


@pytest.mark.parametrize("size", [(80, 24), (40, 12), (24, 8), (20, 5)])
@pytest.mark.parametrize("look", [Look(), Look(PLAIN, ASCII)])
def test_every_answer_is_seen_however_small_the_screen_is(size: tuple[int, int], look: Look) -> None:
    async def scene(stage: Stage) -> None:
        asked(stage, "gputop lab loader 41207 --workers 8 --seconds 6: stop it?", HARM * 3)
        await stage.pilot.pause()
        lines = box(stage).splitlines()
        assert lines[0].strip("- ").startswith("gputop lab load")
        assert (look.glyphs.more in lines[0]) == (size[0] < 80)
        assert len(lines) <= size[1]
        assert all(any(f" {title[:15]}" in line for line in lines) for _, title in ANSWERS)

    play(scene, SHOWN, size=size, look=look)

"""The columns of the main view are somebody's choice: shown, hidden and moved in a list, at once and for good."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputop import config
from gputop.columns import BY_ID, COLUMNS, of
from gputop.config import BY_KEY, SettingsOrigin
from gputop.safe.files import read_settings
from gputop.ui.dialogs.columns import Columns
from gputop.ui.settings_editor import SettingsEditor
from gputop.ui.table.rows import places
from gputop.ui.theme import ASCII, PLAIN, Look
from tests.headless_screens import Stage, box, play
from tests.key_scenes import BOTH

SETTING = BY_KEY["columns"]
USUAL = [column.id for column in of("main")]


def shown(stage: Stage) -> list[str]:
    """The titles of the table."""
    listing = stage.app.main.table
    return [BY_ID[id].title for id in listing.columns]


def titles(stage: Stage) -> str:
    """The line of titles as it is on the screen."""
    line = next(line for line in stage.lines if line.startswith(" PID"))
    return line[: line.index("COMMAND") + len("COMMAND")]


async def to(stage: Stage, id: str) -> None:
    """Open the list, and go to a column."""
    await stage.press("ctrl+p", *"columns", "enter")
    over = stage.app.screen
    assert isinstance(over, Columns)
    await stage.press("home", *["down"] * over.items.index(id))


def test_space_shows_and_hides_at_once_and_saves(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('# mine\ntheme = "dark"  # it is\n\n[keys]\nfreeze = "x"\n')

    async def scene(stage: Stage) -> None:
        await to(stage, "wait")
        await stage.press("space")
        assert "WAIT%" not in shown(stage)
        await stage.until(lambda: "saved: columns" in stage.text, "saving")
        await stage.press("escape")
        assert "WAIT%" not in titles(stage)
        assert "VRAM" in titles(stage)
        await to(stage, "swap")
        await stage.press("enter", "escape")
        assert "SWAP" in titles(stage)
        await stage.until(lambda: "swap" in path.read_text(), "saving")

    play(scene, BOTH, size=(200, 60), origin=SettingsOrigin(path=str(path)))
    kept = [id for id in USUAL[:-1] if id != "wait"] + ["swap"]
    listed = ", ".join(f'"{id}"' for id in kept)
    assert path.read_text() == f'# mine\ntheme = "dark"  # it is\ncolumns = [{listed}]\n\n[keys]\nfreeze = "x"\n'
    settings, problems = config.load(str(path), {}, {}, read_settings)
    assert (settings.columns, [line for line in problems if "columns" in line]) == (tuple(kept), [])


@pytest.mark.parametrize(("up", "down"), [("left_square_bracket", "right_square_bracket"), ("shift+up", "shift+down")])
def test_a_column_is_moved_and_the_cursor_goes_with_it(up: str, down: str) -> None:
    async def scene(stage: Stage) -> None:
        await to(stage, "gpu")
        await stage.press(*[up] * 3)
        assert SettingsEditor(stage.app.session).current().columns == ("pid", "gpu", "user", "cpu"), "PID is first"
        await stage.press(down, down)
        assert SettingsEditor(stage.app.session).current().columns == ("pid", "user", "cpu", "gpu")
        await stage.press("escape")
        assert titles(stage).split() == ["PID", "USER", "CPU%▼", "GPU", "COMMAND"]

    play(scene, BOTH, size=(200, 60), columns=("pid", "user", "gpu", "cpu"))


def test_the_first_line_gives_it_up(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('columns = ["pid", "cpu"]\n')

    async def scene(stage: Stage) -> None:
        assert shown(stage) == ["PID", "CPU%", "COMMAND"]
        await to(stage, "cpu")
        assert "( ) automatic" in box(stage)
        await stage.press("home", "enter")
        assert "(•) automatic" in box(stage)
        assert SettingsEditor(stage.app.session).current().columns == ()
        assert shown(stage) == [place.column.title for place in places(stage.app.main.table.size.width, "main", "cpu")]
        await stage.until(lambda: "auto" in path.read_text(), "saving")

    play(scene, BOTH, origin=SettingsOrigin(path=str(path)), columns=("pid", "cpu"))
    assert path.read_text() == 'columns = "auto"\n'


def test_what_is_as_it_is_declared_is_no_choice() -> None:
    async def scene(stage: Stage) -> None:
        await to(stage, "gpu")
        await stage.press("space")
        assert SettingsEditor(stage.app.session).current().columns
        await stage.press("space")
        assert SettingsEditor(stage.app.session).current().columns == ()

    play(scene, BOTH)


def test_every_column_but_two_can_go_and_the_two_stay_at_the_ends() -> None:
    async def scene(stage: Stage) -> None:
        for id, why in (("pid", "PID is always shown"), ("command", "COMMAND is always shown")):
            await to(stage, id)
            await stage.press("space")
            assert why in box(stage)
            await stage.press("shift+up", "shift+down", "escape")
            assert SettingsEditor(stage.app.session).current().columns == ("pid", "cpu")
        await to(stage, "cpu")
        await stage.press("space", "escape")
        assert titles(stage).split() == ["PID", "COMMAND"]
        await stage.press("full_stop", "f6", "escape", "I")
        assert "llama" in stage.text

    play(scene, BOTH, columns=("pid", "cpu"))


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
@pytest.mark.parametrize("look", [Look(), Look(PLAIN, ASCII)])
def test_it_says_which_have_no_room(size: tuple[int, int], look: Look) -> None:
    everything = tuple(column.id for column in COLUMNS[:-1])

    async def scene(stage: Stage) -> None:
        await stage.press("ctrl+p", *"columns", "enter")
        over = stage.app.screen
        assert isinstance(over, Columns)
        seen = set(stage.app.main.table.columns)
        for _ in range(len(over.items) - 1):
            await stage.press("down")
            id = over.items[over.at]
            line = next(line for line in box(stage).splitlines() if f"] {BY_ID[id].title} " in f"{line} ")
            assert line.rstrip(f" |{look.glyphs.knob}").endswith("no room") == (id not in seen)

    play(scene, BOTH, size=size, look=look, columns=everything)


def test_setup_opens_the_list_and_shows_how_many_there_are() -> None:
    place = list(BY_KEY).index("columns")

    async def scene(stage: Stage) -> None:
        for key in ("enter", "space", "right", "left"):
            await stage.press("f2", "home", *["down"] * place, key)
            assert isinstance(stage.app.screen, Columns)
            await stage.press("down", "down", "space", "escape")
            assert f"{len(SettingsEditor(stage.app.session).current().columns) + 1} chosen" in box(
                stage
            ) or "auto" in box(stage)
            await stage.press("escape")

    play(scene, BOTH)


def test_a_click_shows_and_hides() -> None:
    async def scene(stage: Stage) -> None:
        await to(stage, "vram")
        place = next(y for y, line in enumerate(stage.lines) if "] VRAM " in line)
        await stage.pilot.click(offset=(60, place))
        await stage.pilot.pause()
        assert "VRAM" not in shown(stage)

    play(scene, BOTH)


def test_what_only_other_presets_read_is_read_of_what_is_on_the_screen() -> None:
    async def scene(stage: Stage) -> None:
        assert not stage.feed.interest.sight
        await to(stage, "pss")
        await stage.press("space")
        assert 41100 in stage.feed.interest.sight

    play(scene, BOTH, size=(200, 40))


def test_a_choice_is_of_the_main_view_and_shows_it() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("v", "v")
        assert "READ SIZE" in titles(stage)
        await to(stage, "user")
        await stage.press("space", "escape")
        assert "READ SIZE" not in titles(stage)
        await stage.press("v")
        assert "USER" in titles(stage), "the others are as they were"

    play(scene, BOTH)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("auto", ()), ([], ()), ("", ()),
        (["cpu", "vram"], ("pid", "cpu", "vram")),
        (["command", "cpu", "pid", "cpu"], ("pid", "cpu")),
        ("cpu, vram", ("pid", "cpu", "vram")),
        ("pid", ("pid",)),
    ],
)  # fmt: skip
def test_what_may_be_said(given: object, found: tuple[str, ...]) -> None:
    assert SETTING.value(given) == found
    assert SETTING.value(config.spelled(found)) == found, "and is read again as it is written"


@pytest.mark.parametrize(
    "given", [["cpus"], [1], 3, True, None, {"cpu": 1}, ["cpu", ["vram"]], "cpu;vram", ["auto", "cpu"]]
)
def test_what_may_not_be_said(given: object) -> None:
    with pytest.raises(ValueError, match="must be auto, or a list of pid, user"):
        SETTING.value(given)


def test_a_list_over_several_lines_is_left_to_a_person(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('columns = [\n  "pid",  # first\n  "cpu",\n]\n')

    async def scene(stage: Stage) -> None:
        await to(stage, "vram")
        await stage.press("space")
        await stage.until(lambda: "only a person can change" in stage.text, "refusing")
        assert "VRAM" in shown(stage)

    play(scene, BOTH, origin=SettingsOrigin(path=str(path)), columns=("pid", "cpu"))
    assert path.read_text() == 'columns = [\n  "pid",  # first\n  "cpu",\n]\n'

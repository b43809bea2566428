"""Setup: what it shows, that a change is seen and saved at once, and files that are left alone."""

from __future__ import annotations

import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gputop import config, toml
from gputop.config import BY_KEY, SETTINGS, SettingsOrigin
from gputop.safe.files import read_settings
from gputop.source import RECORDED
from gputop.ui.dialogs.setup import LADDER_S, beside
from gputop.ui.theme import DARK, LIGHT, TERMINAL, UNICODE, Look
from tests.headless_screens import Stage, box, play, strips
from tests.oracle import modes_ever_on
from tests.scripted_jobs import frame, process, training
from tests.terminal_endings import Program, assert_well

ARGV = (sys.executable, "-m", "gputop")
SHOWN = frame(training("llama", 41000, ranks=2, loaders=2), loose=(process(7),), gpus=8)
FILE = """\
# mine
interval = 2   # seconds
theme = 'dark'

# where the keys are
[keys]
freeze = "x"
"""


def test_every_value_is_reached_by_steps_and_may_be_written() -> None:
    for setting in (each for each in SETTINGS if not each.several):  # those have a list of their own
        seen = [setting.default]
        for step in (1, -1):
            for _ in range(len(setting.choices) + len(LADDER_S)):
                seen.append(beside(setting, seen[-1], step))
        assert all(setting.value(value) == value for value in seen)
        assert set(seen) == set(setting.choices or (LADDER_S if isinstance(setting.default, float) else (True, False)))


async def change(stage: Stage, key: str, *pressed: str) -> None:
    """Open setup, go to a setting, press keys."""
    place = [setting.key for setting in SETTINGS].index(key)
    await stage.press("escape", "f2", "home", *["down"] * place, *pressed)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_setup(size: tuple[int, int], golden: Callable[[str, str], None]) -> None:
    async def scene(stage: Stage) -> None:
        await change(stage, "theme")
        golden(f"setup-{size[0]}x{size[1]}.txt", box(stage))

    origin = SettingsOrigin(path="/home/alice/.config/gputop/config.toml", overruled={"theme": "GPUTOP_THEME"})
    play(scene, SHOWN, size=size, origin=origin)


def test_a_change_is_seen_and_saved_at_once(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(FILE)

    async def scene(stage: Stage) -> None:
        await change(stage, "interval", "right")
        assert stage.feed.interval_s == 2.0
        await stage.until(lambda: "saved: interval = 2" in stage.text, "saving")
        await change(stage, "density", "right")
        assert stage.app.main.gpus.density == "card"
        await change(stage, "sort", "right")
        await change(stage, "tree", "space")
        await change(stage, "follow", "left")
        await change(stage, "every_process", "enter", "escape")
        assert " flat · RSS▼ · not following · " in stage.text
        assert stage.feed.interest.every_process
        await stage.until(lambda: "every_process" in path.read_text(), "saving")

    play(scene, SHOWN, origin=SettingsOrigin(path=str(path)), sort="threads")
    assert path.read_text() == FILE.replace(
        "'dark'\n", '\'dark\'\ndensity = "card"\nsort = "rss"\ntree = false\nfollow = false\nevery_process = true\n'
    )
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_keys_have_changed_is_what_setup_shows() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("V", "g", "d", "5", "enter")
        await change(stage, "interval")
        assert "interval       < 5s >" in stage.text
        assert "density          card" in stage.text
        assert "sort             vram" in stage.text

    play(scene, SHOWN)


def colours(stage: Stage) -> set[str]:
    """Every colour of letters on the screen."""
    styles = [segment.style for strip in strips(stage.app) for segment in strip]
    return {style.color.name for style in styles if style and style.color}


def test_themes_change_at_once() -> None:
    async def scene(stage: Stage) -> None:
        for palette, others in ((LIGHT, (DARK,)), (TERMINAL, (DARK, LIGHT)), (DARK, (LIGHT,))):
            stage.app.session.set_theme(Look(palette, UNICODE))
            await stage.press("slash", "l")
            seen = colours(stage)
            assert palette.text in seen or palette is TERMINAL
            assert palette.busy in seen
            assert not {other.text for other in others} & seen
            await stage.press("escape")

    play(scene, SHOWN)


def test_what_overrules_the_file_is_said_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    origin = SettingsOrigin(path=str(path), overruled={"sort": "GPUTOP_SORT", "nvml": "--no-nvml"})

    async def scene(stage: Stage) -> None:
        await change(stage, "sort", "right")
        assert "from GPUTOP_SORT, which overrides the file" in stage.text
        assert "for this session only: GPUTOP_SORT overrides the file" in stage.text
        assert stage.app.main.table.listing.view.sort == "rss"
        await change(stage, "nvml", "right")
        assert "not changed: --no-nvml overrides the file" in stage.text
        assert "takes effect at the next start" in stage.text
        assert "nvml             off" in stage.text

    play(scene, SHOWN, origin=origin, sort="threads", nvml=False)
    assert not path.exists()


@pytest.mark.parametrize("text", ["interval == 2", "version = 9"])
def test_f12_a_bad_file_is_never_overwritten(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    chosen, (_,) = config.load(str(path), {}, {}, read_settings)

    async def scene(stage: Stage) -> None:
        await change(stage, "tree", "right")
        assert "for this session only: the file is not used: " in stage.text
        await stage.press("escape")
        assert " flat · " in stage.text

    play(scene, SHOWN, origin=chosen.origin)
    assert path.read_text() == text


def test_f12_a_file_that_went_bad_meanwhile_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"

    async def scene(stage: Stage) -> None:
        path.write_text("tree == oak")
        await change(stage, "tree", "right")
        await stage.until(lambda: "not saved: " in stage.text, "the refusal")

    play(scene, SHOWN, origin=SettingsOrigin(path=str(path)))
    assert path.read_text() == "tree == oak"


def test_read_only_saves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"

    async def scene(stage: Stage) -> None:
        await change(stage, "tree", "right")
        assert "for this session only: gputop is read-only" in stage.text
        await change(stage, "readonly", "right")
        assert "not changed: gputop is read-only" in stage.text
        await stage.press("escape")
        assert " flat · " in stage.text

    play(scene, SHOWN, origin=SettingsOrigin(path=str(path)), readonly=True)
    assert not path.exists()


def test_the_time_between_looks_is_that_of_a_recording_and_nothing_saves_another(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"

    async def scene(stage: Stage) -> None:
        stage.feed.elsewhere = RECORDED
        await change(stage, "interval", "right")
        assert "not changed: a recording has fixed samples" in stage.text
        await stage.press("escape")
        assert stage.app.session.source.interval_s == 1.0

    play(scene, SHOWN, origin=SettingsOrigin(path=str(path)))
    assert not path.exists()


def test_where_a_setting_comes_from() -> None:
    found, _ = config.load(
        "/x", {"GPUTOP_SORT": "pid", "GPUTOP_TREE": ""}, {"mouse": False, "interval": 2.0}, lambda _: b""
    )
    assert found.origin == SettingsOrigin(
        path="/x",
        given=frozenset({"sort", "mouse", "interval"}),
        overruled={"sort": "GPUTOP_SORT", "mouse": "--no-mouse", "interval": "--interval"},
    )
    assert config.load("/x", {}, {}, lambda _: b"x")[0].origin.trouble
    assert config.load(None, {}, {}, lambda _: None)[0].origin.path is None
    assert BY_KEY["nvml"].later


def test_the_mouse_in_setup() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("f2")
        y = next(place for place, line in enumerate(stage.lines) if " tree    " in line)
        await stage.pilot.click(offset=(40, y))
        assert not stage.app.main.table.listing.view.tree
        assert "tree           < off >" in stage.text

    play(scene, SHOWN)


def test_a_change_on_a_real_terminal_is_there_at_the_next_start(tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    program = Program((*ARGV, "demo", "healthy"), "Quit", env=env)
    with program.start() as terminal:
        terminal.send("f2")
        terminal.wait_for("every_process")
        terminal.send(*["down"] * 4, "right", "right")
        terminal.wait_for("< light >")
        terminal.wait_for('saved: theme = "light"')
        assert b"38;2;36;41;47" in terminal.output
        terminal.send("down", "down", "right")
        terminal.wait_for("< off >")
        terminal.send("f10")
        assert terminal.wait_exit() == 0
        assert_well(terminal)
    assert (tmp_path / "gputop" / "config.toml").read_text() == f'{toml.BEGIN}theme = "light"\nmouse = false\n'
    with program.start() as terminal:
        assert b"38;2;36;41;47" in terminal.output
        assert not modes_ever_on(terminal.output) & {1000, 1006}


def test_the_key_that_opens_it_closes_it_whichever_it_is() -> None:
    async def scene(stage: Stage) -> None:
        for key, opened in (("f7", True), ("f7", False), ("f7", True), ("escape", False), ("f2", False)):
            await stage.press(key)
            assert (stage.app.screen is not stage.app.main) == opened, key

    play(scene, frame(), keys=(("setup", ("f7",)), ("nice-down", ())))

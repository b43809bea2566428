"""The palette: everything by name, with its key or its reason; and the driver, let go of and taken again."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gputop.demo import SCENARIOS, Demo
from gputop.ui.commands.help import entries
from gputop.ui.commands.remap import remap
from gputop.ui.commands.table import COMMANDS
from gputop.ui.dialogs.palette import PaletteEntry, found
from gputop.ui.theme import ASCII, PLAIN, TERMINAL, UNICODE, Look
from tests.fakenvml import Fake
from tests.headless_screens import Feed, Stage, box, play
from tests.pty_programs import wait_until
from tests.scripted_jobs import frame, training
from tests.terminal_endings import Program

ARGV = (sys.executable, "-m", "gputop")
SHOWN = frame(training("llama", 41000, ranks=2, loaders=2), gpus=8)


class Held(Feed):
    """A source that holds a driver."""

    released = False


def names(typed: str) -> list[str]:
    """What is meant by it."""
    listed = [PaletteEntry(name, help, lambda: None) for name, help in TOLD]
    return [entry.name for entry in found(listed, typed)]


TOLD = [
    ("freeze", "hold the picture"),
    ("sort-read", "by bytes read"),
    ("read-only", "x"),
    ("tree", "a flat list"),
    ("read", "x"),
]


def test_names_come_before_what_is_said_and_letters_last() -> None:
    assert names("") == [name for name, _ in TOLD]
    assert names("read") == ["read", "read-only", "sort-read"]
    assert names("PICTURE hold") == ["freeze"]
    assert names("fz") == ["freeze"]
    assert names("fe") == ["freeze"]
    assert names("list") == ["tree"]
    assert names("nothing") == []


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_palette(size: tuple[int, int], golden: Callable[[str, str], None]) -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("ctrl+p", *"sort", "down")
        golden(f"palette-{size[0]}x{size[1]}.txt", box(stage))

    play(scene, SHOWN, size=size)


@pytest.mark.parametrize("look", [Look(TERMINAL, UNICODE), Look(PLAIN, ASCII)], ids=["terminal", "plain"])
def test_without_a_ground_of_its_own_a_box_has_a_frame(look: Look, golden: Callable[[str, str], None]) -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("ctrl+p", *"gpu")
        golden(f"palette-{look.palette.name}.txt", box(stage))

    play(scene, SHOWN, size=(80, 24), look=look)


def test_what_can_be_done_follows_the_updates() -> None:
    """Opened before the first frame it would say for ever that there is no GPU."""

    async def scene(stage: Stage) -> None:
        await stage.press("ctrl+p", *"gpu")
        assert "not now: no GPU is shown" in box(stage)
        await stage.press("down")
        chosen = next(line for line in box(stage).splitlines()[2:] if "sort-gpu" in line)
        await stage.show(SHOWN)
        assert "not now" not in box(stage)
        assert chosen in box(stage).splitlines(), "it is still the one under the cursor"
        await stage.press("up", "enter")
        assert "arrow keys select a GPU" in stage.text
        await stage.press("ctrl+p", *"gpu")
        await stage.show(replace(SHOWN, gpus=()))
        assert "not now: no GPU is shown" in box(stage)
        stage.app.session.set_theme(Look(PLAIN, ASCII))
        assert stage.app.screen.look.palette is PLAIN  # type: ignore[attr-defined]

    play(scene)


def test_every_key_is_in_it_with_what_it_is_called_now() -> None:
    changes, _, _ = remap({"freeze": "x", "tree": ""})

    async def scene(stage: Stage) -> None:
        listed = {entry.name: entry for entry in entries(stage.app.main)}
        assert {key.id for key in COMMANDS if "main" in key.on} - {"palette"} <= set(listed)
        assert listed["freeze"].keys == "x"
        await stage.press("ctrl+p", *"tree")
        assert "tree of jobs" in stage.text
        await stage.press("enter")
        assert " flat · " in stage.text
        await stage.press("ctrl+p", *"freze", "backspace", "backspace", "backspace", *"eze", "enter")
        assert " frozen " in stage.lines[0]
        await stage.press("ctrl+p", *"theme-light", "enter")
        assert stage.app.session.look.palette.name == "gputop-light"
        await stage.press("ctrl+p", *"xyzzy", "enter")
        assert "no match" in stage.text
        await stage.press("escape")
        assert "no match" not in stage.text

    play(scene, SHOWN, keys=tuple(changes.items()))


def test_what_cannot_be_done_now_says_why_and_stays() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("ctrl+p", *"sort-cpu")
        assert "not now: needs 60×20 to show processes" in stage.text
        await stage.press("enter")
        assert "not now: needs 60×20 to show processes" in stage.text
        await stage.press("escape", "P")
        assert stage.lines[-1] == " not now: needs 60×20 to show processes"

    play(scene, SHOWN, size=(80, 19))


def test_the_mouse_chooses() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("ctrl+p", *"freeze")
        place = next(place for place, line in enumerate(stage.lines) if "freeze the display" in line)
        await stage.pilot.click(offset=(5, place))
        assert " frozen " not in stage.lines[0], "beside the box is no answer"
        await stage.pilot.click(offset=(40, place))
        await stage.until(lambda: " frozen " in stage.lines[0], "the choice")

    play(scene, SHOWN)


def test_the_driver_is_let_go_of_and_taken_again() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("ctrl+p", *"release", "enter")
        assert source.released
        assert "driver released" in stage.lines[-1]
        await stage.press("D")
        assert not source.released

    source = Held()
    play(scene, SHOWN, feed=source)


def test_n33_the_driver_is_let_go_of_on_a_real_terminal(fake: Fake, tmp_path: Path) -> None:
    env = fake.env(XDG_STATE_HOME=str(tmp_path))
    with Program((*ARGV, "--interval", "0.5"), "H100", env=env).start() as terminal:
        terminal.send("D")
        wait_until(lambda: fake.counts()["nvmlShutdown"] == 1, 10, "letting go")
        terminal.wait_for("The driver is released")
        before = sum(fake.counts().values())
        terminal.send("D")
        wait_until(lambda: sum(fake.counts().values()) > before, 10, "taking it again")
        terminal.wait_for(lambda lines: "The driver is released" not in "\n".join(lines))
        terminal.send("q")
        assert terminal.wait_exit() == 0


class Theatre(Demo):
    """Simulated servers as `play` takes a source."""

    def give(self, _: None) -> None:
        """It has frames of its own."""


def test_another_simulated_server_is_a_choice_away() -> None:
    short = {name: replace(SCENARIOS[name], past_s=5) for name in ("idle", "healthy")}

    async def scene(stage: Stage) -> None:
        await stage.until(lambda: "No process on any GPU." in stage.text, "the first server")
        await stage.press("ctrl+p", *"demo-healthy")
        assert "demo: one busy GPU: no findings" in stage.text
        await stage.press("enter")
        await stage.until(lambda: "llama-7b" in stage.text and "demo healthy" in stage.lines[0], "the other server")
        history = stage.app.session.monitor.history.values("host", "cpu_percent", 60)
        assert sum(value is not None for value in history) <= 8, "nothing of the first is left"

    play(scene, feed=Theatre(short["idle"], interval_s=0.25, others=short))


@pytest.mark.parametrize(
    ("typed", "id"),
    [
        ("kill", "signal"), ("experiments", "experiments"), ("profiles", "profile"), ("settings", "setup"),
        ("screenshot", "save"), ("bottleneck", "advice"), ("renice", "nice-up"), ("exit", "quit"), ("trace", "torch"),
        ("traceback", "stack"), ("interval", "delay"), ("terminate", "signal"), ("flamegraph", "profile"),
    ],
)  # fmt: skip
def test_a_newcomer_finds_a_key_by_the_word_for_it(typed: str, id: str) -> None:
    async def scene(stage: Stage) -> None:
        listed = list(entries(stage.app.main))
        assert id in [entry.name for entry in found(listed, typed)][:2]

    play(scene, SHOWN)

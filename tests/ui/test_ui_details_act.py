"""Keys of the main screen that work in the details too, and are answered there."""

from __future__ import annotations

import pytest

from tests.headless_screens import Stage, play
from tests.key_scenes import ASKED_OF_MAIN, BOTH, Scenes
from tests.process_details import asked, full
from tests.real_processes import moment, unharmed
from tests.signal_dialogs import says, sleeping, trainer

RANK = next(process for process in BOTH.processes if process.pid == 41100)
SCENES = Scenes()
does = SCENES.does


def test_every_key_is_tried() -> None:
    assert set(SCENES) == ASKED_OF_MAIN


@pytest.mark.parametrize("id", sorted(ASKED_OF_MAIN))
def test_a_key_does_what_help_says(id: str) -> None:
    async def scene(stage: Stage) -> None:
        stage.feed.details[RANK.identity] = asked(full(RANK, BOTH))
        await SCENES[id](stage)

    play(scene, BOTH)


def test_a_signal_is_sent_from_the_details_and_its_result_told_there() -> None:
    with sleeping() as child, sleeping() as other:

        async def scene(stage: Stage) -> None:
            await stage.press("down", "enter", "k", "right", "enter")
            await says(stage, f"{child.pid} exited after 0.")
            assert "[1 Threads]" in stage.text

        play(scene, moment(trainer(child.pid), launcher=None))
        assert child.wait(5) == -15
        assert unharmed(other.pid)


@does("signal")
async def signal(stage: Stage) -> None:
    await stage.press("enter")
    for key in ("f9", "k"):
        await stage.press(key)
        assert "to    41100" in stage.text
        await stage.press("escape")
        assert "[1 Threads]" in stage.text, "it closes to where it was asked"


@does("profile")
async def profile(stage: Stage) -> None:
    await asks(stage, "p", "(•) py-spy record")


@does("torch")
async def torch(stage: Stage) -> None:
    await asks(stage, "t", "(•) torch.profiler")


@does("stack")
async def stack(stage: Stage) -> None:
    await asks(stage, "s", "(•) py-spy dump")


async def asks(stage: Stage, key: str, picked: str) -> None:
    """What cannot be done to a process that has ended is asked about, and said."""
    await stage.press("enter", key)
    assert picked in stage.text
    assert "of    41100" in stage.text
    assert "it exited" in stage.text
    await stage.press("escape")
    assert "[1 Threads]" in stage.text, "it closes to where it was asked"


@does("copy")
async def copy(stage: Stage) -> None:
    await stage.press("enter", "y")
    assert stage.app.clipboard == "41100"
    assert stage.lines[-1].startswith(" copied 41100"), "it is said where it was asked"
    await stage.press("y")
    assert stage.app.clipboard.endswith("train.py --config llama.yaml")


@does("show")
async def show(stage: Stage) -> None:
    await stage.press("enter", "Y")
    assert stage.lines[0] == "41100"
    await stage.press("escape")
    assert "[1 Threads]" in stage.text


@does("save")
async def save(stage: Stage) -> None:
    await stage.press("enter", "S")
    assert "save the screen as" in stage.text
    await stage.press("escape")
    assert "[1 Threads]" in stage.text


@does("setup")
async def setup(stage: Stage) -> None:
    await stage.press("enter", "f2")
    assert "Left Right Enter change it" in stage.text
    await stage.press("escape")
    assert "[1 Threads]" in stage.text


@does("palette")
async def palette(stage: Stage) -> None:
    await stage.press("enter", "ctrl+p", *"memory-tab", "enter")
    assert "[8 Memory]" in stage.text
    await stage.press("ctrl+p", *"theme-light", "enter")
    details = stage.app.screen
    assert details.look.palette.name == "gputop-light"  # type: ignore[attr-defined]
    assert details.bar.look is details.look  # type: ignore[attr-defined]
    await stage.press("escape", "enter")
    assert stage.app.screen.look.palette.name == "gputop-light"  # type: ignore[attr-defined]

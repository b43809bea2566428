"""Every key that finds, filters, tags, hides and shows does what help says of it."""

from __future__ import annotations

import pytest

from tests.headless_screens import Stage, play
from tests.key_scenes import BOTH, FOLDED, LLAMA, PANES, SD3, Scenes, elsewhere
from tests.scripted_jobs import frame, process

SCENES = Scenes()
does = SCENES.does
HERE = elsewhere("PICK", also=PANES)


def test_every_key_is_tried() -> None:
    assert set(SCENES) == HERE


@pytest.mark.parametrize("id", sorted(HERE))
def test_a_key_does_what_help_says(id: str) -> None:
    play(SCENES[id], BOTH)


@does("find")
async def find(stage: Stage) -> None:
    for key in ("slash", "f3"):
        await stage.press(key, *"bob RANK2")
        assert stage.selected == "52300"
        assert stage.lines[-2].endswith("1 of 1")
        await stage.press("enter")
        assert stage.lines[-1].startswith(" F1 Help")
        await stage.press("home")
    await stage.press("slash", *"52302")
    assert stage.selected == "52302", "what was folded is unfolded"
    await stage.press("escape")
    assert stage.selected == "llama", "Esc goes back"
    await stage.press("slash", *"nobody", "enter")
    assert stage.selected == "llama"
    await stage.press("slash", *"rank2x")
    assert stage.lines[-2].endswith("nowhere")
    assert stage.selected == "llama", "not where fewer letters led"
    await stage.press("backspace")
    assert stage.selected == "41300"
    await stage.press("x", "enter")
    assert stage.selected == "llama"


@does("find-next")
async def find_next(stage: Stage) -> None:
    await stage.press("n")
    assert "no search yet" in stage.lines[-1]
    await stage.press("slash", *"rank1", "enter")
    assert stage.selected == "41200"
    await stage.press("n")
    assert stage.selected == "52200"
    assert stage.lines[-1].startswith(" rank1: 2 of 2")
    await stage.press("n")
    assert stage.selected == "41200", "around the end"
    await stage.press("slash", *"worker", "f3", "f3")
    assert stage.selected == "41203"


@does("filter")
async def filter(stage: Stage) -> None:
    for key in ("backslash", "f4"):
        await stage.press(key, *"user=bob gpu=5")
        assert stage.pids[:3] == ["sd3", "52200", "52000"], "with the launcher, which works for all of them"
        assert stage.lines[-2].endswith("4 of 47")
        assert stage.lines[-1].startswith(" fields: ")
        await stage.press("enter")
        assert "user=bob gpu=5  4 of 47" in stage.text
        await stage.press("escape")
        assert stage.pids == FOLDED
    await stage.press("backslash", *"worker", "escape")
    assert stage.pids == FOLDED


@does("gpu")
async def gpu(stage: Stage) -> None:
    await stage.press("f")
    assert stage.app.focused is stage.app.main.gpus
    await stage.press("f")
    assert stage.pids == ["llama", "41100", "41101", "41102", "+6 more"]


@does("user")
async def user(stage: Stage) -> None:
    await stage.press("u")
    words = " ".join(stage.text.split())
    assert "alice 4 GPUs 37 processes" in words
    assert "bob 3 GPUs 10 processes" in words
    await stage.press("end", "enter")
    assert stage.pids == ["sd3", "52100", "52200", "52300"]
    assert "only bob" in stage.text
    await stage.press("u", "up", "up", "enter")
    assert stage.pids == FOLDED
    await stage.press("u", "down", "enter", "escape")
    assert stage.pids == FOLDED


@does("tag")
async def tag(stage: Stage) -> None:
    await stage.press("space", "space")
    assert stage.selected == "41102"
    assert " · 2 tagged · " in stage.text
    await stage.press("I")
    tagged = [line.split()[1] for line in stage.lines if line.startswith("●")]
    assert [stage.app.main.table.listing.tags.processes(BOTH)[place].pid for place in (0, 1)] == [41100, 41101]
    assert len(tagged) == 2
    await stage.press("up", "space")
    assert " · 1 tagged · " in stage.text


@does("tag-children")
async def tag_children(stage: Stage) -> None:
    await stage.press("c")
    assert " · 9 tagged · " in stage.text
    assert sum(line.startswith("●") for line in stage.lines) == 4, "the rank, two loaders and the line of the others"
    await stage.press("home", "c")
    assert " · 37 tagged · " in stage.text
    await stage.press("c")
    assert "tagged ·" not in stage.text
    await stage.press("H", "slash", *"41000", "enter")
    assert stage.selected == "41000"
    await stage.press("c")
    assert " · 37 tagged · " in stage.text, "the launcher and all that it has launched, though they stand beside it"
    await stage.press("U", "H", "f5", "slash", *"41200", "enter", "c")
    assert stage.selected == "41200"
    assert " · 9 tagged · " in stage.text, "in the flat list too"
    await stage.press("U", "backslash", *"role=trainer", "enter", "home", "c")
    assert " 1 process tagged" in stage.lines[-1], "nobody whom the filter hides"


@does("untag")
async def untag(stage: Stage) -> None:
    await stage.press("c", "U")
    assert "●" not in stage.text
    assert "tagged ·" not in stage.text


@does("pane-gpus")
async def pane_gpus(stage: Stage) -> None:
    await stage.press("1")
    assert stage.lines[1].startswith("─ host ─"), "the host has lines that are left"
    await stage.press("1")
    assert stage.lines[1].split()[0] == "#"


@does("pane-host")
async def pane_host(stage: Stage) -> None:
    await stage.pilot.resize_terminal(160, 40)
    assert "─ host ─" in stage.text
    await stage.press("2")
    assert "─ host ─" not in stage.text
    await stage.pilot.resize_terminal(80, 24)
    await stage.press("2")
    assert "host: no room; it needs a terminal 160 columns wide" in stage.lines[-1]


@does("pane-processes")
async def pane_processes(stage: Stage) -> None:
    await stage.press("3")
    assert "─ host ─" in stage.text, "there is room for it now"
    assert "41100" not in stage.text
    await stage.press("slash")
    assert stage.lines[-1].endswith("the processes are hidden; 3 shows them"), "z would show another pane alone"
    await stage.press("2", "4", "1")
    assert "at least one pane must be shown" in stage.lines[-1]
    await stage.press("3")
    assert stage.pids == FOLDED
    await stage.press("down")
    assert stage.selected == "41101", "the keys are about the processes again"


@does("zoom")
async def zoom(stage: Stage) -> None:
    await stage.press("z")
    assert stage.lines[1].startswith("─ jobs and processes")
    await stage.press("z")
    assert stage.lines[1].split()[0] == "#"
    await stage.press("tab", "z")
    assert "jobs and processes" not in stage.text
    await stage.press("escape")
    assert stage.pids == FOLDED


@does("everything")
async def everything(stage: Stage) -> None:
    await stage.show(frame(LLAMA, SD3, gpus=8, loose=(process(7),)))
    assert "7" not in stage.pids
    await stage.press("H")
    assert "7" in stage.pids
    assert "41000" in stage.pids, "the launcher too"
    assert " · all processes · " in stage.text
    assert stage.feed.interest.every_process
    await stage.press("H")
    assert "7" not in stage.pids
    assert not stage.feed.interest.every_process


def test_a_small_screen_hides_and_zooms_nothing_but_advice_and_says_so() -> None:
    async def scene(stage: Stage) -> None:
        before = stage.lines[:-1]
        for key in ("1", "2", "3", "z"):
            await stage.press(key)
            assert stage.lines[-1] == " not now: needs 60×20 to show panes"
            assert stage.lines[:-1] == before
        for key in ("u", "slash", "f9"):
            await stage.press(key)
            assert stage.lines[-1] == " not now: needs 60×20 to show processes"
        await stage.press("a")
        assert stage.app.main.alone == "advice"
        await stage.press("u")
        assert stage.lines[-1] == " not now: needs 60×20 to show processes", "it is not the advice that hides them"
        await stage.press("z")
        assert stage.lines[:-1] == before
        await stage.pilot.resize_terminal(120, 40)
        assert stage.pids == FOLDED
        await stage.press("1", "z")
        await stage.pilot.resize_terminal(40, 12)
        await stage.press("z")
        await stage.pilot.resize_terminal(120, 40)
        assert stage.app.main.alone is None, "what is alone already is so no longer"
        await stage.press("1")
        assert stage.pids == FOLDED

    play(scene, BOTH, size=(40, 12))

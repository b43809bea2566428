"""Every key that opens a process, and every key of its screen, does what help says of it."""

from __future__ import annotations

import pytest
from textual.events import MouseScrollDown

from gputop.ui.commands.table import COMMANDS, command
from gputop.ui.commands.time_control import REPLAY_COMMANDS
from tests.headless_screens import Stage, play
from tests.key_scenes import ASKED_OF_MAIN, BOTH, LLAMA, OPENING, Scene, Scenes, elsewhere
from tests.process_details import asked, full, of_another_user, thread
from tests.scripted_jobs import frame

RANK = next(process for process in BOTH.processes if process.pid == 41100)
MANY = tuple(thread(41100 + number, f"t{number}") for number in range(60))
SCENES = Scenes()
does = SCENES.does
REPLAYING = {command.id for command in REPLAY_COMMANDS}
SHARED = {
    "up",
    "down",
    "page-up",
    "page-down",
    "home",
    "end",
    "freeze",
    "help",
    *REPLAYING,
}  # how those go through a recording is in test_ui_replay


def test_every_key_is_tried() -> None:
    assert set(SCENES) == elsewhere("DETAILS", also=OPENING) | SHARED


HERE = [key.id for key in COMMANDS if "details" in key.on and key.group != "LEAVE" and key.id not in ASKED_OF_MAIN]


@pytest.mark.parametrize("id", [*HERE, "help"])
def test_a_key_does_what_help_says(id: str) -> None:
    async def scene(stage: Stage) -> None:
        stage.feed.details[RANK.identity] = asked(full(RANK, BOTH))
        await SCENES[id](stage)

    play(scene, BOTH)


@pytest.mark.parametrize("id", ["details"])
def test_a_key_of_the_main_screen_does_what_help_says(id: str) -> None:
    play(SCENES[id], BOTH)


@does("details")
async def details(stage: Stage) -> None:
    await stage.press("enter")
    assert "[1 Threads]" in stage.text
    assert stage.lines[0].split()[1:9] == ["dgx-07", ">", "llama", ">", "rank0", ">", "41100", "live"]
    await stage.press("escape")
    assert stage.selected == "41100"
    await stage.press("down", "down", "down", "enter")
    assert "+6 more" not in stage.pids, "what stands for several is unfolded"
    await stage.press("home", "enter")
    assert stage.pids == ["llama", "sd3", "52100", "52200", "52300"]
    await stage.press("enter")
    assert "41100" in stage.pids


@does("environment")
async def environment(stage: Stage) -> None:
    await stage.press("e")
    assert "[4 Environment]" in stage.text
    await stage.press("escape", "home", "e")
    assert "Enter expands a row of several" in stage.lines[-1]


@does("files")
async def files(stage: Stage) -> None:
    await stage.press("l")
    assert "[6 Files]" in stage.text
    await stage.press("e", "l")
    assert "[6 Files]" in stage.text


@does("close")
async def close(stage: Stage) -> None:
    await stage.press("down", "enter", "escape")
    assert stage.app.screen is stage.app.main
    assert stage.selected == "41101"
    await stage.press("enter")
    for _ in range(3):
        stage.app.simulate_key("escape")
    await stage.pilot.pause()
    assert stage.app.screen is stage.app.main


TABS = {
    "1": ("threads-tab", "[1 Threads]", "nfs_wait_bit_killable"),
    "2": ("io-tab", "[2 I/O]", "7.0G"),
    "3": ("gpu-tab", "[3 GPU]", "66.0G"),
    "4": ("environment-tab", "[4 Environment]", "OMP_NUM_THREADS"),
    "5": ("children-tab", "[5 Children]", "torchrun"),
    "6": ("files-tab", "[6 Files]", "96.0M    384M      58M  /data/shard-0042.tar"),
    "7": ("limits-tab", "[7 Limits]", "1000    98%       1024"),
    "8": ("memory-tab", "[8 Memory]", "node 0 9.0G   node 1 1.0G"),
}


def opens(number: str, title: str, text: str) -> Scene:
    """The scene of a tab: its title is marked, and it says what is in it."""

    async def scene(stage: Stage) -> None:
        await stage.press("enter", "2" if number == "1" else "1", number)
        assert title in stage.text
        assert text in stage.text

    return scene


SCENES |= {id: opens(number, title, text) for number, (id, title, text) in TABS.items()}


@does("next-tab")
async def next_tab(stage: Stage) -> None:
    await stage.press("enter")
    for _, title, text in list(TABS.values())[1:]:
        await stage.press("tab")
        assert title in stage.text
        assert text in stage.text
    await stage.press("tab")
    assert "[1 Threads]" in stage.text


@does("previous-tab")
async def previous_tab(stage: Stage) -> None:
    await stage.press("enter", "shift+tab")
    assert "[8 Memory]" in stage.text


@does("take")
async def take(stage: Stage) -> None:
    await stage.press("enter", "5")
    assert "Enter Open" in stage.lines[-1]
    await stage.press("down", "down", "enter")
    assert "worker" in stage.lines[0]
    assert "41101" in stage.lines[0]
    await stage.press("escape", "up", "up", "space")
    assert "launcher" in stage.lines[0]
    await stage.press("escape", "escape")
    assert stage.app.screen is stage.app.main


@does("others")
async def others(stage: Stage) -> None:
    stage.feed.details[RANK.identity] = of_another_user(full(RANK, BOTH))
    await stage.press("enter", "O")
    assert "O Show it" not in stage.lines[-1], "it is offered where it does something"
    await stage.press("4")
    assert "not shown: another user's process; the last line names the key that shows it" in stage.text
    assert "Enter Show" not in stage.lines[-1]
    assert "O Show it" in stage.lines[-1]
    await stage.press("O")
    assert "OMP_NUM_THREADS" in stage.text
    await stage.press("1", "4")
    assert "OMP_NUM_THREADS" not in stage.text, "it has to be asked for again"


async def many(stage: Stage) -> None:
    """The threads of a process that has sixty."""
    stage.feed.details[RANK.identity] = asked(full(RANK, BOTH, threads=MANY, threads_count=60))
    await stage.press("enter")
    assert "1-17 of 60" in stage.text


def selected(stage: Stage) -> str:
    """The thread under the cursor."""
    tab = stage.app.screen.tab  # type: ignore[attr-defined]
    line = tab.entries[tab.at].draw("selected", 0)
    assert any(line.text.rstrip() == shown for shown in stage.lines), "it is on the screen"
    return str(line.text.split()[1])


@does("down")
async def down(stage: Stage) -> None:
    await many(stage)
    await stage.press("down", "down")
    assert selected(stage) == "t2"


@does("up")
async def up(stage: Stage) -> None:
    await down(stage)
    await stage.press("up")
    assert selected(stage) == "t1"


@does("page-down")
async def page_down(stage: Stage) -> None:
    await many(stage)
    await stage.press("pagedown", "pagedown")
    assert selected(stage) == "t32"
    assert "17-33 of 60" in stage.text


@does("page-up")
async def page_up(stage: Stage) -> None:
    await page_down(stage)
    await stage.press("pageup")
    assert selected(stage) == "t16"


@does("end")
async def end(stage: Stage) -> None:
    await many(stage)
    await stage.press("end")
    assert selected(stage) == "t59"
    assert "44-60 of 60" in stage.text


@does("home")
async def home(stage: Stage) -> None:
    await end(stage)
    await stage.press("home")
    assert selected(stage) == "t0"


@does("right")
async def right(stage: Stage) -> None:
    long = full(RANK, BOTH, files=(full(RANK, BOTH).files or ())[:1])
    file = (long.files or ())[0]
    path = "/" + "a" * 100 + "/the-end"
    stage.feed.details[RANK.identity] = asked(full(RANK, BOTH, files=(type(file)(fd=3, path=path, kind="file"),)))
    await stage.press("l")
    assert "the-end" not in stage.text
    await stage.press("right", "right", "right", "right", "right", "right", "right")
    assert "aaa/the-end" in stage.text


@does("left")
async def left(stage: Stage) -> None:
    await right(stage)
    await stage.press(*["left"] * 9)
    assert "  /aaa" in stage.text


def of_time(id: str) -> Scene:
    async def scene(stage: Stage) -> None:
        await stage.press("enter", command(id).keys[0])
        assert "not now: not a recording" in stage.lines[-1]
        await stage.press("f1", "tab", "tab")
        assert "| < > [ ] { } 0 not a recording" in " ".join(stage.text.split())

    return scene


SCENES.update({id: of_time(id) for id in REPLAYING})


@does("freeze")
async def freeze(stage: Stage) -> None:
    await stage.press("enter", "Z")
    assert " frozen " in stage.lines[0]
    stage.feed.details[RANK.identity] = asked(full(RANK, BOTH, threads=(thread(1, "newer"),)))
    newer = frame(LLAMA, gpus=8)
    stage.feed.give(newer)
    await stage.until(lambda: stage.newest is newer, "collection")
    await stage.press("2", "1")
    assert "nfs-reader" in stage.text, "what is held stays"
    await stage.press("Z")
    assert " frozen " not in stage.lines[0]
    assert "newer" in stage.text


@does("help")
async def help(stage: Stage) -> None:
    await stage.press("enter", "f1")
    assert "help: under the cursor" in stage.lines[0]
    assert "BLOCKED ON" in stage.text, "the columns of the tab"
    await stage.press("tab", "tab")
    assert "help: details" in stage.lines[0]
    assert "threads, i/o, gpu" in stage.text
    await stage.press("escape")
    assert "[1 Threads]" in stage.text


def test_a_click_opens_a_tab_and_selects_a_line_and_the_wheel_scrolls() -> None:
    async def scene(stage: Stage) -> None:
        await many(stage)
        row = next(place for place, line in enumerate(stage.lines) if "[1 Threads]" in line)
        await stage.pilot.click("#details", offset=(5, row + 4))
        assert selected(stage) == "t2"
        await stage.pilot._post_mouse_events([MouseScrollDown], "#details", (5, row + 4))
        assert "4-20 of 60" in stage.text
        await stage.pilot.click("#details", offset=(stage.lines[row].index("6 Files"), row))
        assert "[6 Files]" in stage.text

    play(scene, BOTH)

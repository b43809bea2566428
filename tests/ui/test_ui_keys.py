"""Every key does what help says of it."""

from __future__ import annotations

import pytest

from gputop.ui.commands.settings import show_preset
from gputop.ui.commands.table import COMMANDS
from gputop.ui.commands.time_control import REPLAY_COMMANDS
from tests.headless_screens import Stage, play
from tests.key_scenes import ADVISING, BOTH, FOLDED, LLAMA, OPENING, PANES, SD3, Scenes, elsewhere
from tests.scripted_jobs import frame, process

SCENES = Scenes()
does = SCENES.does


ABOVE_DIALOGS = {command.id for command in COMMANDS if command.above_dialogs}
REPLAYING = {command.id for command in REPLAY_COMMANDS}
ELSEWHERE = elsewhere(
    "SORT",
    "PICK",
    "ACT",
    "DETAILS",
    "RESULT",
    "HOSTS",
    also=PANES | ADVISING | OPENING | ABOVE_DIALOGS | REPLAYING | {"record"},
)


def test_every_key_is_tried() -> None:
    assert set(SCENES) | ELSEWHERE == {key.id for key in COMMANDS}


@pytest.mark.parametrize("id", [key.id for key in COMMANDS if key.id not in ELSEWHERE])
def test_a_key_does_what_help_says(id: str) -> None:
    play(SCENES[id], BOTH)


@does("up")
async def up(stage: Stage) -> None:
    await stage.press("up")
    assert stage.selected == "llama"


@does("down")
async def down(stage: Stage) -> None:
    await stage.press("down", "down")
    assert stage.selected == "41102"


@does("page-down")
async def page_down(stage: Stage) -> None:
    await stage.pilot.resize_terminal(120, 24)
    await stage.press("asterisk", "pagedown")
    height = stage.app.main.table.listing.height
    assert stage.app.main.table.listing.at == 1 + height - 1


@does("page-up")
async def page_up(stage: Stage) -> None:
    await page_down(stage)
    await stage.press("pageup")
    assert stage.selected == "41100"


@does("home")
async def home(stage: Stage) -> None:
    await stage.press("end", "home")
    assert stage.selected == "llama"


@does("end")
async def end(stage: Stage) -> None:
    await stage.press("end")
    assert stage.selected == "52300"


@does("fold")
async def fold(stage: Stage) -> None:
    await stage.press("left")
    assert stage.pids == [pid for pid in FOLDED if pid not in ("41101", "41102", "+6 more")]
    await stage.press("left", "left")
    assert stage.pids == ["llama", "sd3", "52100", "52200", "52300"]
    assert stage.selected == "llama"
    await stage.press("f5", "right", "right")
    assert "ython train.py" not in stage.text.replace("python train.py", "")
    await stage.press("left", "left")
    assert "python train.py" in stage.text


@does("unfold")
async def unfold(stage: Stage) -> None:
    await stage.press("end", "right")
    assert stage.pids == [*FOLDED, "52301", "52302"]
    await stage.press("f5", "right")
    assert "rank0 python" not in stage.text
    assert "hon train.py" in stage.text


@does("unfold-level")
async def unfold_level(stage: Stage) -> None:
    await stage.press("plus")
    assert stage.pids.count("+6 more") == 4


@does("fold-level")
async def fold_level(stage: Stage) -> None:
    await stage.press("minus")
    assert stage.pids == [pid for pid in FOLDED if pid not in ("41101", "41102", "+6 more")], "the rank that was open"
    await stage.press("minus")
    assert stage.pids == ["llama", "sd3"]


@does("levels")
async def levels(stage: Stage) -> None:
    await stage.press("asterisk")
    assert "+6 more" not in stage.pids
    assert "41108" in stage.pids
    await stage.press("asterisk")
    assert len(stage.pids) == 9


@does("next-pane")
async def next_pane(stage: Stage) -> None:
    await stage.show(frame(gpus=64))
    await stage.press("g", "g")
    await stage.press("tab")
    assert stage.app.focused is stage.app.main.advice
    await stage.press("tab", "down")
    assert stage.lines[3].startswith("> 1 "), "arrow keys select a GPU"
    await stage.press("tab")
    assert stage.app.focused is stage.app.main.table


@does("previous-pane")
async def previous_pane(stage: Stage) -> None:
    await stage.press("shift+tab")
    assert stage.app.focused is stage.app.main.gpus
    await stage.press("shift+tab")
    assert stage.app.focused is stage.app.main.advice
    await stage.press("shift+tab")
    assert stage.app.focused is stage.app.main.host
    await stage.press("shift+tab")
    assert stage.app.focused is stage.app.main.table


@does("follow")
async def follow(stage: Stage) -> None:
    await stage.press("F")
    assert "not following" in stage.text
    listing = stage.app.main.table.listing
    listing.touch(-1000)
    listing.look(listing.view, -1000)
    at = listing.at
    await stage.show(frame(SD3, LLAMA, gpus=8, loose=(process(7, cpu_percent=90_000.0),)))
    assert stage.pids[0] == "7"
    assert listing.at == at
    await stage.press("F")
    assert "not following" not in stage.text


@does("density")
async def density(stage: Stage) -> None:
    await stage.pilot.resize_terminal(120, 60)
    seen = []
    for _ in range(4):
        await stage.press("g")
        seen.append(stage.lines[-1].split()[1])
    assert seen == ["card", "row", "cell", "automatic"]


@does("view")
async def view(stage: Stage) -> None:
    assert stage.feed.interest.sight == frozenset()
    for title, preset in (
        ("DATA WAIT%", "steps"), ("READ SIZE", "I/O"), ("MAJFLT/s", "memory"), ("AFFINITY", "scheduling"),
    ):  # fmt: skip
        await stage.press("v")
        assert title in stage.text
        assert f" {preset} · tree · CPU%▼ · " in stage.text
        assert stage.feed.interest.sight >= {41100, 41101, 41103, 52100}, "also of what is folded"
    await stage.press("v")
    assert "READ/s" in stage.text
    assert stage.feed.interest.sight == frozenset()
    show_preset(stage.app.main, "memory")
    assert "MAJFLT/s" in stage.text


@does("freeze")
async def freeze(stage: Stage) -> None:
    await stage.press("Z")
    assert " frozen " in stage.lines[0]
    stage.feed.give(frame(gpus=8))
    newer = frame(SD3, gpus=8)
    stage.feed.give(newer)
    await stage.until(lambda: stage.newest is newer, "collection")
    assert stage.pids == FOLDED
    await stage.press("Z")
    assert stage.pids == ["sd3", "52100", "52200", "52300"]
    assert " frozen " not in stage.lines[0]


@does("delay")
async def delay(stage: Stage) -> None:
    await stage.press("d", "2", "q", "backspace", "s", "enter")
    assert stage.feed.interval_s == 2.0
    assert "live 2.0s" in stage.lines[0]
    for wrong in ("9", "9", "9", "9"), ("0",), ("x",), ():
        await stage.press("d", *wrong, "enter")
        assert "refresh interval" in stage.text
        await stage.press("escape")
    assert stage.feed.interval_s == 2.0


@does("setup")
async def setup(stage: Stage) -> None:
    await stage.press("f2", "end", "up", "right")
    assert "every_process  < on >" in stage.text
    await stage.press("f2")
    assert stage.app.main.table.listing.view.every_process


@does("palette")
async def palette(stage: Stage) -> None:
    await stage.press("ctrl+p", *"levels", "enter")
    assert "41108" in stage.pids


@does("copy")
async def copy(stage: Stage) -> None:
    await stage.press("y")
    assert stage.app.clipboard == "41100"
    assert "copied 41100   y again: command line" in stage.lines[-1]
    await stage.press("y")
    assert stage.app.clipboard == "/usr/bin/python3 train.py --config llama.yaml"
    assert "copied /usr/bin/python3 train.py" in stage.lines[-1]
    await stage.press("y")
    assert stage.app.clipboard == "41100"


@does("show")
async def show(stage: Stage) -> None:
    await stage.press("Y")
    assert stage.lines[:3] == ["41100", "", "/usr/bin/python3 train.py --config llama.yaml"]
    await stage.press("Y")
    assert "gputop" in stage.lines[0]


@does("save")
async def save(stage: Stage) -> None:
    await stage.press("S")
    assert "save the screen as" in stage.text
    await stage.press("escape")


@does("release-driver")
async def release_driver(stage: Stage) -> None:
    await stage.press("D")
    assert "not now: not a live machine" in stage.lines[-1]


@does("help")
async def help(stage: Stage) -> None:
    await stage.press("f1")
    assert "help: under the cursor" in stage.text
    await stage.press("f1")
    assert "help" not in stage.lines[0]


@does("keys")
async def keys(stage: Stage) -> None:
    for key in ("h", "question_mark"):
        await stage.press(key)
        assert "help: keys" in stage.text
        await stage.press(key)
        assert "help" not in stage.lines[0]


@does("back")
async def back(stage: Stage) -> None:
    await stage.press("Z", "escape")
    assert " frozen " not in stage.lines[0]
    await stage.press("g")
    assert stage.lines[-1].startswith(" GPUs: card")
    await stage.press("escape")
    assert stage.lines[-1].startswith(" F1 Help")


def test_no_other_key_does_anything() -> None:
    async def scene(stage: Stage) -> None:
        before = stage.text
        await stage.press(*"ijWX")
        await stage.press("ctrl+q", "ctrl+s")
        assert stage.text == before

    play(scene, BOTH)


def test_what_is_said_after_a_refusal_stays() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("m")
        assert stage.lines[-1].startswith(" not now: ")
        await stage.press("down")
        assert not stage.lines[-1].startswith(" not now: "), "the next key takes it away"
        await stage.press("m")
        stage.app.session.say("recorded in ~/night.jsonl.gz", 10)
        await stage.press("down")
        assert "recorded in ~/night.jsonl.gz" in stage.lines[-1]

    play(scene, BOTH)

"""The signal dialog on real processes: what it says, every way through it, and what came of it."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable

import pytest
from textual.events import Key, MouseScrollDown, MouseScrollUp

from gputop.actions.signals import CHOICES
from gputop.demo import SCENARIOS
from gputop.demo.source import Demo
from gputop.model import Role
from gputop.ui.signal import SignalDialog
from gputop.ui.theme import ASCII, PLAIN, Look
from tests.headless_screens import Stage, play
from tests.process_watch import descriptors
from tests.real_processes import job, moment, state, unharmed, until
from tests.signal_dialogs import box, named, says, sleeping, trainer


def test_enter_at_once_sends_nothing() -> None:
    with sleeping() as child:

        async def scene(stage: Stage) -> None:
            for key in ("f9", "k"):
                await stage.press(key)
                assert f"to    {child.pid}  python train.py" in stage.text
                assert "[ Cancel ]" in stage.text
                await stage.press("enter")
                assert stage.app.screen is stage.app.main
            await stage.press("k", "escape")
            assert stage.app.screen is stage.app.main

        play(scene, moment(trainer(child.pid), launcher=None))
        assert unharmed(child.pid)


def test_it_ends_and_that_is_told() -> None:
    with sleeping() as child:

        async def scene(stage: Stage) -> None:
            await stage.press("k", "tab")
            assert "(•) 15 TERM" in stage.text
            await stage.press("shift+tab", "right")
            assert "[ Send TERM to 1 process ]" in stage.text
            await stage.press("enter")
            await says(stage, f"{child.pid} exited after 0.")

        play(scene, moment(trainer(child.pid), launcher=None))
        assert child.wait(5) == -signal.SIGTERM


def test_kill_is_asked_a_second_time_and_a_double_enter_says_no() -> None:
    with sleeping() as child:

        async def scene(stage: Stage) -> None:
            await stage.press("k", *["up"] * 4)
            await stage.press("enter")
            assert "[ Send KILL to 1 process ]" in stage.text
            await stage.press("enter")
            assert f"KILL kills {child.pid} immediately, unsaved work is lost: sure?" in stage.text
            assert "[ Cancel ]" in stage.text
            await stage.press("enter")
            assert stage.app.screen is stage.app.main
            assert state(child.pid) == "S"
            await stage.press("k", *["up"] * 4, "enter", "enter", "up", "up", "space", "right", "right")
            assert "sure?" not in stage.text, "another signal is another question"
            await stage.press(*["up"] * 4, "enter", "enter", "right")
            assert "[ Yes, KILL 1 process ]" in stage.text
            await stage.press("enter")
            await says(stage, f"{child.pid} exited after ")

        play(scene, moment(trainer(child.pid), launcher=None))
        assert child.wait(5) == -signal.SIGKILL


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_the_whole_dialog(size: tuple[int, int], golden: Callable[[str, str], None]) -> None:
    with job() as frame:

        async def scene(stage: Stage) -> None:
            await stage.press("k", "tab")
            golden(f"signal-{size[0]}x{size[1]}.txt", box(stage))
            await stage.press("shift+tab", "shift+tab", "down", "enter", "enter")
            golden(f"signal-kill-{size[0]}x{size[1]}.txt", box(stage))

        play(scene, named(frame), size=size)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_in_a_demo_it_is_refused_with_the_reason(size: tuple[int, int], golden: Callable[[str, str], None]) -> None:
    demo = Demo(SCENARIOS["showcase"], pace=False, anchor_s=1_795_185_127)

    async def scene(stage: Stage) -> None:
        stage.feed.elsewhere = demo.elsewhere
        await stage.press("k", "up")
        golden(f"signal-demo-{size[0]}x{size[1]}.txt", box(stage))

    play(scene, demo.frame(demo.at_s), size=size, past=demo.past())


def test_its_loaders_and_the_whole_job() -> None:
    with job() as frame:
        ranks = [process for process in frame.processes if process.role is Role.TRAINER]
        loaders = [process for process in frame.processes if process.role is Role.LOADER]

        async def scene(stage: Stage) -> None:
            await stage.press("k", "down", "space")
            assert "[x] its 2 workers" in stage.text
            assert "Send TERM to 3 processes" in stage.text
            await stage.press("right", "space", "left", "space")
            assert "the whole job includes them" in stage.text
            assert "Send TERM to 7 processes" in stage.text
            await stage.press("right", "space", "up", "right", "enter")
            await says(stage, "3 processes exited after ")
            mine = {ranks[0].pid, *(loader.pid for loader in loaders if loader.parent_pid == ranks[0].pid)}
            until(lambda: all(state(pid) in (None, "Z") for pid in mine))
            assert all(state(p.pid) == "S" for p in (*ranks, *loaders) if p.pid not in mine)

        play(scene, named(frame))


def test_on_the_line_of_a_job_all_of_it_is_meant() -> None:
    with job() as frame:

        async def scene(stage: Stage) -> None:
            await stage.press("home", "k")
            assert "[x] the whole job: 2 ranks, 4 workers, torchrun" in stage.text
            await stage.press("right")
            assert "[ Send TERM to 7 processes ]" in stage.text
            await stage.press("enter")
            await says(stage, "7 processes exited after ")

        play(scene, named(frame))
        assert until(lambda: all(state(process.pid) in (None, "Z") for process in frame.processes))


def test_some_who_are_gone_are_left_out_and_told() -> None:
    with job() as frame:
        gone = next(process for process in frame.processes if process.role is Role.LOADER)
        os.kill(gone.pid, signal.SIGKILL)
        until(lambda: state(gone.pid) in (None, "Z"))

        async def scene(stage: Stage) -> None:
            await stage.press("home", "k")
            why = f"it is a zombie: its parent {gone.parent_pid} has not reaped"
            assert f"1 process skipped: {gone.pid}: {why}" in stage.text
            assert "Send TERM to 6 processes" in stage.text

        play(scene, named(frame))


def test_the_mouse_ticks_chooses_and_presses() -> None:
    with job() as frame:

        async def click(stage: Stage, text: str) -> None:
            y = next(place for place, line in enumerate(stage.lines) if text in line)
            assert await stage.pilot.click(offset=(stage.lines[y].index(text) + 1, y))
            await stage.pilot.pause()

        async def scene(stage: Stage) -> None:
            await stage.press("k")
            await click(stage, "[ ] its 2 workers")
            assert "[x] its 2 workers" in stage.text
            await click(stage, "[x] its 2 workers")
            assert "[ ] its 2 workers" in stage.text
            await click(stage, "KILL")
            assert "(•)  9 KILL" in stage.text
            await click(stage, "Send KILL")
            await click(stage, "Cancel")
            assert stage.app.screen is stage.app.main
            await stage.press("k")
            await click(stage, "KILL")
            await click(stage, "Send KILL")
            await stage.pilot.pause(0.6)
            await click(stage, "Yes, KILL 1 process")
            await says(stage, " exited after ")

        play(scene, named(frame))


def test_a_click_beside_what_can_be_chosen_is_none_and_the_wheel_moves_the_cursor() -> None:
    with job() as frame:

        async def scene(stage: Stage) -> None:
            await stage.press("k")
            over = stage.app.screen
            assert isinstance(over, SignalDialog)
            before = box(stage)
            for text, beside in (
                ("also", 1),
                ("[ ] its 2 workers", -1),
                ("no signal needed", 1),
                ("[ Cancel ]", -2),
                ("to    ", 1),
            ):
                y = next(place for place, line in enumerate(stage.lines) if text in line)
                await stage.pilot.click(offset=(stage.lines[y].index(text) + beside, y))
                assert box(stage) == before, text
            for wheel, row in ((MouseScrollUp, "USR1"), (MouseScrollUp, "INT"), (MouseScrollDown, "USR1")):
                x, y = over.choices.region.offset
                stage.app.post_message(wheel(None, x, y, 0, 0, 0, False, False, False))
                await stage.pilot.pause()
                await stage.press("space")
                assert over.question.choice.name == row

        play(scene, named(frame), size=(80, 24))


@pytest.mark.parametrize(
    ("keys", "choice"),
    [(("up", "up", "space"), "STOP"), (("tab", "tab", "tab", "up", "enter", "left"), "INT"),
     (("shift+tab", "home", "down", "down", "enter"), "KILL")],
)  # fmt: skip
def test_no_key_overtakes_another_while_it_opens(keys: tuple[str, ...], choice: str) -> None:
    with sleeping() as child:

        async def scene(stage: Stage) -> None:
            for key in ("k", *keys):
                stage.app.post_message(Key(key, None))
            await stage.pilot.pause()
            assert isinstance(stage.app.screen, SignalDialog)
            assert stage.app.screen.question.choice.name == choice

        play(scene, moment(trainer(child.pid), launcher=None))
        assert unharmed(child.pid)


@pytest.mark.parametrize("height", [4, 6, 8])
@pytest.mark.parametrize("look", [Look(), Look(PLAIN, ASCII)])
def test_where_it_is_too_low_the_rows_scroll_under_whom_it_is_about(height: int, look: Look) -> None:
    with job() as frame:
        pid = next(process for process in frame.processes if process.role is Role.TRAINER).pid

        async def scene(stage: Stage) -> None:
            await stage.press("k")
            await stage.pilot.resize_terminal(60, height)
            assert "[ Cancel ]" in stage.text
            for choice in reversed(CHOICES):
                await stage.press("up", "space")
                assert re.search(rf"\({look.glyphs.picked}\) +{choice.number} {choice.name}", stage.text)
                assert f"to    {pid}  python train.py" in stage.lines[0]
                assert look.glyphs.knob in stage.text
            await stage.press("up", "up", "space")
            assert "[x] its 2 workers" in stage.text
            await stage.press("shift+tab")
            assert "[ Cancel ]" in stage.text

        play(scene, named(frame), look=look)


@pytest.mark.parametrize("moved", [0, 1])
def test_a_double_click_is_one_yes(moved: int) -> None:
    with sleeping() as child:

        async def scene(stage: Stage) -> None:
            await stage.press("k", *["up"] * 4, "space")
            y = next(place for place, line in enumerate(stage.lines) if "Send KILL" in line)
            x = stage.lines[y].index("Send KILL") + 3
            await stage.pilot.click(offset=(x, y), times=1 if moved else 3)
            if moved:
                await stage.pilot.click(offset=(x + moved, y))
            await stage.pilot.pause()
            assert f"KILL kills {child.pid} immediately, unsaved work is lost: sure?" in stage.text
            assert "[ Cancel ]" in stage.text, "nor may Enter be one"
            await stage.pilot.pause(0.6)
            assert unharmed(child.pid)
            await stage.pilot.click(offset=(x, y))
            await says(stage, f"{child.pid} exited after ")

        play(scene, moment(trainer(child.pid), launcher=None))
        assert child.wait(5) == -signal.SIGKILL


def pidfds() -> int:
    return sum("pidfd" in opened for opened in descriptors().values())


@pytest.mark.parametrize("key", ["escape", "enter", "ctrl+c"])
def test_a_closed_dialog_holds_nobody(key: str) -> None:
    with job() as frame:

        async def scene(stage: Stage) -> None:
            before = pidfds()
            await stage.press("k")
            assert pidfds() > before
            await stage.press(key)
            await stage.until(lambda: pidfds() == before, "letting go")

        play(scene, named(frame))


@pytest.mark.parametrize("size", [(1, 1), (2, 5), (10, 20), (20, 3), (40, 12), (80, 10), (300, 90)])
def test_any_size(size: tuple[int, int]) -> None:
    with job() as frame:

        async def scene(stage: Stage) -> None:
            await stage.press("k")
            await stage.pilot.resize_terminal(*size)
            for _ in range(12):
                await stage.press("down")
            if size[1] > 5 and size[0] >= 40:
                assert "Cancel" in stage.text
            assert "•" not in stage.text

        play(scene, named(frame), look=Look(glyphs=ASCII))


def test_what_a_signal_does_is_not_cut_on_a_narrow_screen() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("k")
        rows = [line for line in stage.lines if " KILL " in line or " INT " in line]
        assert [row.split("  ")[-1].strip() for row in rows] == [
            "like Ctrl+C; PyTorch saves nothing", "no checkpoint; /dev/shm may stay full",
        ]  # fmt: skip

    demo = Demo(SCENARIOS["showcase"])
    play(scene, demo.frame(demo.at_s), size=(60, 20), past=demo.past())

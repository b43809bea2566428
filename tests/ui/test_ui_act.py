"""The keys of the group ACT: what they do is done to the line under the cursor."""

from __future__ import annotations

import os
import signal
from functools import partial

import pytest

from gputop.actions.signals import SignalOrder
from gputop.demo import SCENARIOS
from gputop.demo.source import Demo
from gputop.ui.commands.table import COMMANDS
from tests.headless_screens import Stage, play
from tests.process_watch import root_only
from tests.real_processes import job, moment, program, unharmed, until
from tests.signal_dialogs import named, says, sleeping, trainer


def nice(pid: int) -> int:
    return os.getpriority(os.PRIO_PROCESS, pid)


def test_every_key_of_the_group_is_tried_here() -> None:
    assert {key.id for key in COMMANDS if key.group == "ACT"} == {
        *("signal", "nice-up", "nice-down", "profile", "torch", "stack"),
        "measure",  # in test_verify.py
    }


@pytest.mark.parametrize("key", ["k", "f9"])
def test_signal_asks(key: str) -> None:
    async def scene(stage: Stage) -> None:
        await stage.press(key)
        assert "(•) 15 TERM" in stage.text
        await stage.press("escape")
        assert "TERM" not in stage.text

    play(scene, moment(trainer(os.getpid()), launcher=None))


@pytest.mark.parametrize(("key", "picked"), [("p", "(•) py-spy record"), ("t", "(•) torch.profiler")])
def test_profile_and_trace_ask_how(key: str, picked: str) -> None:
    async def scene(stage: Stage) -> None:
        await stage.press(key)
        assert picked in stage.text
        await stage.press("escape")
        assert "py-spy record" not in stage.text

    play(scene, moment(trainer(os.getpid()), launcher=None))


def test_stacks_are_looked_at_and_what_cannot_be_stays_until_a_key() -> None:
    with sleeping() as child:

        async def scene(stage: Stage) -> None:
            await stage.press("s")
            await stage.until(lambda: "is not a Python program" in stage.lines[-2], "the reason")
            await stage.press("escape")
            assert "is not a Python program" not in stage.text

        play(scene, moment(trainer(child.pid), launcher=None))


def test_every_press_is_a_step_of_niceness() -> None:
    with sleeping() as child:
        before = nice(child.pid)

        async def scene(stage: Stage) -> None:
            await stage.press("f8", "f8", "f8")
            await stage.until(lambda: nice(child.pid) == before + 3, "three steps")
            await says(stage, f"{child.pid} has nice ")
            await stage.press("f4")
            assert stage.lines[-1].startswith(" fields: "), "what is typed now needs the line more"
            await stage.press("escape", *["f8"] * 19)
            await stage.until(lambda: nice(child.pid) == 19, "as far as it goes")

        play(scene, moment(trainer(child.pid), launcher=None))


@root_only
def test_root_takes_it_back() -> None:
    with sleeping() as child:
        before = nice(child.pid)

        async def scene(stage: Stage) -> None:
            await stage.press("f7")
            await says(stage, f"{child.pid} has nice {before - 1}")

        play(scene, moment(trainer(child.pid), launcher=None))
        assert nice(child.pid) == before - 1


def test_on_the_line_of_a_job_all_of_it_becomes_nicer() -> None:
    with job() as frame:
        pids = [process.pid for process in frame.processes]
        before = nice(pids[0])

        async def scene(stage: Stage) -> None:
            await stage.press("home", "f8")
            await says(stage, f"7 processes have nice {before + 1}")

        play(scene, named(frame))
        assert until(lambda: all(nice(pid) == before + 1 for pid in pids))


def test_what_belongs_to_a_demo_is_refused_and_the_palette_says_why() -> None:
    with sleeping() as child:
        before = nice(child.pid)

        async def scene(stage: Stage) -> None:
            stage.feed.elsewhere = Demo(SCENARIOS["idle"]).elsewhere
            await stage.press("f8")
            await says(stage, "not now: these processes belong to a demo, not to this machine")
            await stage.press("ctrl+p", *"nice-up")
            assert "not now: these processes belong to a demo" in stage.text

        play(scene, moment(trainer(child.pid), launcher=None))
        assert nice(child.pid) == before


def test_nothing_to_act_on_is_said() -> None:
    async def scene(stage: Stage) -> None:
        for key in ("k", "f8"):
            await stage.press(key)
            assert stage.lines[-1] == " no process selected"
            await stage.press("escape")

    play(scene, moment())


def test_who_is_tagged_is_meant_and_nobody_else() -> None:
    with sleeping() as one, sleeping() as two, sleeping() as spared:
        frame = moment(*(trainer(child.pid, rank=rank) for rank, child in enumerate((one, two, spared))), launcher=None)
        before = nice(spared.pid)

        async def scene(stage: Stage) -> None:
            for child in (one, two):
                await to(stage, child.pid)
                await stage.press("space")
            await to(stage, spared.pid)
            await stage.press("f8")
            await says(stage, f"2 processes have nice {before + 1}")
            await stage.press("k")
            assert "to    the 2 tagged processes" in stage.text
            assert "only  [x] the 2 tagged" in stage.text
            await stage.press("tab", "space")
            assert f"to    {spared.pid}  python" in stage.text, "without its box it is the line under the cursor"
            await stage.press("space", "shift+tab", "right")
            assert "[ Send TERM to 2 processes ]" in stage.text
            await stage.press("enter")
            await says(stage, "2 processes exited after ")

        play(scene, frame)
        assert (one.wait(5), two.wait(5)) == (-signal.SIGTERM, -signal.SIGTERM)
        assert unharmed(spared.pid)
        assert nice(spared.pid) == before


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long to see whether somebody has ended."""
    monkeypatch.setattr("gputop.ui.signal.dialog.SignalOrder", partial(SignalOrder, watch_s=0.1))


DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True)\nwhile True: time.sleep(60)"


@pytest.mark.usefixtures("soon")
def test_kill_is_proposed_for_who_did_not_end_and_for_nobody_else_who_is_tagged() -> None:
    with program(DEAF) as (deaf, _), sleeping() as one, sleeping() as two:

        async def scene(stage: Stage) -> None:
            await to(stage, deaf)
            await stage.press("k", "right", "enter")
            await says(stage, f"{deaf} is still running after ")
            await stage.press("k")
            assert "(•)  9 KILL" in stage.text
            await stage.press("escape")
            for child in (one, two):
                await to(stage, child.pid)
                await stage.press("space")
            await to(stage, deaf)
            await stage.press("k")
            assert "to    the 2 tagged processes" in stage.text
            assert "(•) 15 TERM" in stage.text
            await stage.press("escape", "U")
            await to(stage, deaf)
            await stage.press("space")
            await to(stage, one.pid)
            await stage.press("k")
            assert f"to    {deaf}  python" in stage.text, "tagged, and nobody but who was asked already"
            assert "(•)  9 KILL" in stage.text

        play(
            scene,
            moment(*(trainer(pid, rank=rank) for rank, pid in enumerate((deaf, one.pid, two.pid))), launcher=None),
        )
        assert unharmed(deaf)


@pytest.mark.usefixtures("soon")
def test_kill_is_proposed_as_long_as_that_is_news(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputop.ui.action_outcomes._RESULT_S", 0.5)
    with program(DEAF) as (deaf, _):

        async def scene(stage: Stage) -> None:
            await stage.press("k", "right", "enter")
            await says(stage, f"{deaf} is still running after ")
            await stage.pilot.pause(0.6)
            await stage.press("k")
            assert "(•) 15 TERM" in stage.text

        play(scene, moment(trainer(deaf), launcher=None))


async def to(stage: Stage, pid: int) -> None:
    """Put the cursor on a process."""
    await stage.press("home")
    for _ in stage.app.main.table.listing.rows:
        if stage.selected == str(pid):
            return
        await stage.press("down")
    raise AssertionError(f"{pid} is not there:\n{stage.text}")

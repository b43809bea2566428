"""What keys do is done to what is shown: not to who is filtered away, and not to a line that is out of sight."""

from __future__ import annotations

import os
from collections.abc import Sequence

from textual import events

from gputop.actions import Scope
from gputop.model import Frame, Process, Role
from tests.headless_screens import Stage, play
from tests.real_processes import job
from tests.scripted_jobs import frame as scripted
from tests.scripted_jobs import process
from tests.signal_dialogs import named, says, trainer
from tests.ui.test_ui_act import nice, to

FILTER = "f4"


def ranks(frame: Frame) -> list[Process]:
    """The ranks of its job, the first first."""
    return [frame.by_identity[rank] for rank in frame.jobs[0].ranks]


async def only(stage: Stage, text: str) -> None:
    """Filter, and put the cursor on the line of the job."""
    await stage.press(FILTER, *text, "enter", "home")
    assert stage.app.main.table.listing.cursor
    assert stage.app.main.table.listing.cursor.kind == "job"


def meant(stage: Stage) -> Sequence[int]:
    """The pids that the line of a job stands for."""
    row = stage.app.main.table.listing.cursor
    assert row
    return sorted(process.pid for process in row.members)


def test_on_the_line_of_a_job_only_those_become_nicer_that_the_filter_shows() -> None:
    with job() as frame:
        before = {process.pid: nice(process.pid) for process in frame.processes}

        async def scene(stage: Stage) -> None:
            await only(stage, "role=loader")
            shown = meant(stage)
            assert 1 < len(shown) < len(before)
            await stage.press("f8")
            await says(stage, f"{len(shown)} processes have nice 1")
            assert {pid for pid in before if nice(pid) != before[pid]} == set(shown)

        play(scene, named(frame))


def test_the_signal_dialog_is_about_those_and_calls_them_so() -> None:
    with job() as frame:

        async def scene(stage: Stage) -> None:
            await only(stage, "role=loader")
            count = len(meant(stage))
            await stage.press("k")
            assert f"to    the {count} shown processes" in stage.text
            assert f"only  [x] the {count} shown" in stage.text
            assert f"Send TERM to {count} processes" in stage.text
            await stage.press("escape", "escape")
            await only(stage, f"pid={ranks(frame)[1].pid}")
            await stage.press("k")
            assert f"to    {ranks(frame)[1].pid}  " in stage.text, "of one it is as on its own line"

        play(scene, named(frame))


def test_stacks_and_profiles_are_of_the_ranks_that_are_shown() -> None:
    with job() as frame:
        first, second = ranks(frame)

        async def scene(stage: Stage) -> None:
            main = stage.app.main
            await only(stage, f"pid={second.pid}")
            assert (target := main.target_to_profile("stack"))
            assert (target.process.pid, target.scope, target.others.processes) == (second.pid, Scope.PROCESS, ())
            await stage.press("escape")
            await only(stage, "role=trainer")
            assert (target := main.target_to_profile("stack"))
            assert [each.pid for each in target.others.processes] == [first.pid, second.pid]
            await stage.press("p")
            assert "[x] the 2 shown" in stage.text

        play(scene, named(frame))


def test_what_is_tagged_comes_before_what_is_shown() -> None:
    with job() as frame:
        first, second = ranks(frame)

        async def scene(stage: Stage) -> None:
            await to(stage, second.pid)
            await stage.press("space")
            await only(stage, "role=loader")
            await stage.press("k")
            assert f"to    {second.pid}  " in stage.text

        play(scene, named(frame))
        assert first.role is Role.TRAINER


def test_a_line_that_the_wheel_has_put_out_of_sight_is_shown_before_anything_is_done_to_it() -> None:
    own = os.getpid()
    before = nice(own)
    others = [process(900_000 + number, gpus=trainer(own).gpus, cpu_percent=200.0) for number in range(60)]

    async def scene(stage: Stage) -> None:
        table = stage.app.main.table
        await stage.press("H")
        await to(stage, own)
        for _ in range(10):
            table.on_mouse_scroll_down(events.MouseScrollDown(table, 30, 15, 0, 0, 0, False, False, False))
        assert str(own) not in stage.pids
        await stage.press("f8")
        assert "the selected row was not visible; nothing was changed, press again" in stage.lines[-1]
        assert (nice(own), stage.selected) == (before, str(own))
        assert str(own) in stage.pids

    play(scene, scripted(loose=(*others, trainer(own))), size=(100, 30), sort="pid")

"""The details of a process that ended, of a recording, of what may not be seen: what stays, and what is said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputop.history import History
from gputop.model import Detail, Missing
from gputop.source import UNRECORDED, DetailWish
from gputop.ui.details.process_view import ProcessView
from gputop.ui.theme import DARK, Look
from tests.headless_screens import Stage, play, strips
from tests.process_details import RANK, RUNNING, asked, full, later, unread
from tests.scripted_jobs import GIB, process


def loud(stage: Stage) -> list[str]:
    """What stands out of the lines below the header."""
    quiet = {DARK.dim, DARK.faint, DARK.track, DARK.background}
    return [
        segment.text
        for strip in strips(stage.app)[1:-1]
        for segment in strip
        if segment.text.strip() and segment.style and segment.style.color and segment.style.color.name not in quiet
    ]


def test_a_process_that_ended_stays_on_the_screen_and_says_since_when() -> None:
    async def scene(stage: Stage) -> None:
        stage.feed.details[RANK.identity] = asked(full(RANK, RUNNING))
        await stage.press("enter")
        assert loud(stage)
        del stage.feed.details[RANK.identity]
        await stage.show(later(12, RANK.pid))
        assert any(line.startswith("─ now") and "exited 12 s ago" in line for line in stage.lines)
        assert "nfs-reader" in stage.text, "what was known last stays"
        assert loud(stage) == []
        await stage.press("3")
        assert "66.0G" in stage.text
        await stage.show(later(72, RANK.pid))
        assert "exited 1 min 12 s ago" in stage.text
        await stage.press("escape")
        assert stage.app.screen is stage.app.main

    play(scene, RUNNING)


def test_p06_another_process_with_the_same_pid_is_not_it() -> None:
    other = replace(process(RANK.pid, name="impostor", cpu_percent=300.0), started_ticks=RANK.started_ticks + 5)

    async def scene(stage: Stage) -> None:
        stage.feed.details[RANK.identity] = asked(full(RANK, RUNNING))
        await stage.press("enter")
        del stage.feed.details[RANK.identity]
        stage.feed.details[other.identity] = asked(full(other, RUNNING))
        await stage.show(later(5, RANK.pid, other))
        assert "exited 5 s ago" in stage.text
        assert "impostor" not in stage.text
        assert "300" not in stage.text

    play(scene, RUNNING)


def test_what_is_read_for_the_first_time_comes_without_waiting_for_the_next_frame() -> None:
    async def scene(stage: Stage) -> None:
        stage.feed.details[RANK.identity] = unread(full(RANK, RUNNING))
        await stage.press("enter")
        assert "not read yet" in stage.text
        stage.feed.details[RANK.identity] = asked(full(RANK, RUNNING))
        await stage.until(lambda: "nfs-reader" in stage.text, "the first look")

    play(scene, RUNNING)


def test_a_recording_says_in_a_line_that_it_has_no_details_and_shows_what_it_has() -> None:
    async def scene(stage: Stage) -> None:
        stage.feed.details[RANK.identity] = UNRECORDED
        await stage.press("enter")
        assert "not in this recording: recordings hold no details" in stage.text
        for tab in "1246":
            await stage.press(tab)
            assert stage.text.count("recordings hold no details") == 1, tab
            assert "there is none" not in stage.text, tab
        await stage.press("3")
        assert "66.0G" in stage.text
        await stage.press("5")
        assert "41108" in stage.text
        await stage.show(later(9, RANK.pid))
        assert "not here: last seen 9 s before" in stage.text
        await stage.show(later(-60, RANK.pid))
        assert "not started yet" in stage.text
        await stage.show(later(10))
        assert "not here" not in stage.text
        assert loud(stage)

    play(scene, RUNNING)


def test_a_recording_shows_the_parents_and_children_that_its_frame_holds() -> None:
    shell = process(950, 900, name="bash")
    launcher = next(one for one in RUNNING.processes if one.pid == RANK.parent_pid)
    known = {launcher.pid: {"parent_pid": 950}, RANK.pid: {"pss_bytes": 11 * GIB}}
    held = [replace(one, **known.get(one.pid, {})) for one in RUNNING.processes]
    shown = replace(RUNNING, processes=(*held, shell))

    async def scene(stage: Stage) -> None:
        stage.feed.details[RANK.identity] = stage.feed.details[launcher.identity] = UNRECORDED
        await stage.press("enter", "5")
        rows = [line.split()[:3] for line in stage.lines if line.split()[1:2] in (["parent"], ["this"])]
        assert rows == [["950", "parent", "bash"], ["41000", "parent", launcher.name], ["41100", "this", RANK.name]]
        assert "parents of 950: not in this recording: recordings hold no details" in stage.text, (
            "who started the shell"
        )
        assert "8 children" in stage.text
        await stage.press("home", "down", "enter")
        assert "> 41000" in stage.lines[0]
        await stage.press("escape", "1")
        assert any("[1 Threads]" in line and line.endswith(f" {RANK.threads} threads ─") for line in stage.lines)
        await stage.press("8")
        assert any(line.split()[:2] == ["pss", "11.0G"] for line in stage.lines)

    play(scene, shown, size=(120, 40))


def test_parents_that_lead_in_a_circle_or_are_younger_are_none() -> None:
    first, second = replace(process(20, 10), started_ticks=100), process(10, 20)
    young = replace(process(30), started_ticks=101)
    for mine, others, parents in (
        (first, (second,), [10]),
        (replace(first, parent_pid=20), (), []),
        (replace(first, parent_pid=30), (young,), []),
        (first, (replace(second, verified=False),), []),
    ):
        shown = replace(RUNNING, processes=(mine, *others))
        opened = ProcessView(process=mine, frame=shown, found=UNRECORDED, past=History(), look=Look())
        assert [one.pid for one in opened.parents] == parents


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (Missing(metric="details", reason="denied", unlock="sudo gputop"), "not shown: sudo gputop"),
        (Missing(metric="details", reason="stale"), "not read yet"),
    ],
)
def test_what_cannot_be_seen_has_its_reason(found: Missing, says: str) -> None:
    async def scene(stage: Stage) -> None:
        stage.feed.details[RANK.identity] = found
        await stage.press("enter")
        for tab in "1467":
            await stage.press(tab)
            assert says in stage.text, tab

    play(scene, RUNNING)


def test_what_is_hidden_as_another_users_is_said_to_be_so() -> None:
    hidden = Missing(metric="details", reason="denied", unlock="sudo gputop")

    async def scene(stage: Stage) -> None:
        stage.feed.details[RANK.identity] = hidden
        await stage.press("enter")
        for tab in "467":
            await stage.press(tab)
            assert "not shown: another user's process: sudo gputop" in stage.text, tab

    mine = replace(RANK, uid=1000)
    others = tuple(mine if one.identity == RANK.identity else one for one in RUNNING.processes)
    play(scene, replace(RUNNING, viewer_uid=1001, processes=others))


def test_t14_details_that_cannot_be_drawn_leave_the_program() -> None:
    async def scene(stage: Stage) -> None:
        failed: list[str] = []

        def broken(_: object) -> Detail:
            raise RuntimeError("broken")

        stage.app.report = lambda error, where: failed.append(where) or f"{where}: {error}"  # type: ignore[method-assign,func-returns-value]
        stage.feed.details[RANK.identity] = broken
        await stage.press("enter")
        assert "the details: broken" in stage.text
        stage.feed.details[RANK.identity] = asked(full(RANK, RUNNING))
        await stage.show(later(1))
        assert "nfs-reader" in stage.text
        await stage.press("escape")
        assert stage.app.screen is stage.app.main

    play(scene, RUNNING)


def test_a_secret_is_shown_while_it_is_asked_for_and_no_longer() -> None:
    wishes: list[DetailWish] = []

    async def scene(stage: Stage) -> None:
        stage.feed.details[RANK.identity] = asked(full(RANK, RUNNING), wishes)
        await stage.press("e")
        assert "3 variables, 2 masked" in stage.text
        assert "••••••••" in stage.text
        assert "http://me:••••••••@proxy.example" in stage.text
        await stage.press("enter")
        assert wishes[-1].revealed == {"HF_TOKEN"}
        assert "secret of HF_TOKEN" in stage.text
        assert "••••••••@proxy" in stage.text, "one by one"
        await stage.press("space")
        assert not wishes[-1].revealed
        assert "secret of" not in stage.text
        await stage.press("down", "enter")
        assert not wishes[-1].revealed, "it is no secret"
        await stage.press("up", "enter", "Z", "3", "4")
        assert "secret of" not in stage.text, "leaving the tab hides it, also in a picture that is held"
        await stage.press("enter")
        assert "secret of HF_TOKEN" in stage.text
        await stage.press("escape", "e")
        assert "secret of" not in stage.text

    play(scene, RUNNING)


def test_the_identity_of_the_process_that_is_looked_at_is_the_source_s_interest() -> None:
    async def scene(stage: Stage) -> None:
        before = stage.feed.interest
        await stage.press("enter")
        assert stage.feed.interest.pids == {41100}
        await stage.press("5", "down", "down", "enter")
        assert stage.feed.interest.pids == {41100, 41101}
        await stage.press("escape")
        assert stage.feed.interest.pids == {41100}
        await stage.press("escape")
        assert stage.feed.interest == before

    play(scene, RUNNING)

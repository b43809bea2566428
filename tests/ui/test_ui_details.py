"""The details of a process as a person sees them: pictures in text, and what stays when something is missing."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from threading import Event
from typing import Any

import pytest

from gputop.demo import SCENARIOS
from gputop.demo.source import Demo
from gputop.history import History
from gputop.model import Detail, Frame, GpuShare, Identity, Missing, Process, Relative, Thread, Variable
from gputop.safe.text import clean
from gputop.ui.details.picture import picture
from gputop.ui.details.process_view import ProcessView
from gputop.ui.details.tabs import process_tabs
from gputop.ui.panes.header import Status
from gputop.ui.theme import ASCII, PLAIN, Look
from tests.headless_screens import Stage, play, strips
from tests.hostile import STRINGS
from tests.process_details import RANK, RUNNING, asked, full, later, thread
from tests.scripted_jobs import frame, process

pytestmark = pytest.mark.usefixtures("universal_time")

MOMENT_S = 1_795_185_127  # 2026-11-20 14:32:07 UTC
ALL_TABS = "12345678"


@cache
def showcase() -> tuple[Demo, Frame, list[Frame]]:
    """The simulated server, its newest frame, and two minutes before it."""
    demo = Demo(SCENARIOS["showcase"], anchor_s=MOMENT_S)
    past = list(demo.past())[-120:]
    return demo, next(iter(demo.frames(Event()))), past


@pytest.mark.parametrize(
    ("size", "look", "tabs"),
    [
        ((80, 24), Look(), {"1": "threads", "5": "children"}),
        ((80, 24), Look(PLAIN, ASCII), {"4 O": "environment-ascii"}),
        ((120, 40), Look(), {"1": "threads", "2": "io", "3": "gpu", "6": "files", "7": "limits"}),
        ((200, 60), Look(), {"1": "threads", "8": "memory"}),
    ],
    ids=["80x24", "80x24-ascii", "120x40", "200x60"],
)
def test_details(size: tuple[int, int], look: Look, tabs: dict[str, str], golden: Callable[[str, str], None]) -> None:
    demo, newest, past = showcase()
    rank = next(one for one in newest.processes if one.pid == 41207)

    async def scene(stage: Stage) -> None:
        stage.feed.details[rank.identity] = lambda wish: demo.inspect(rank.identity, wish)
        await stage.press("enter")
        for keys, name in tabs.items():
            await stage.press(*keys.split())
            golden(f"details-{size[0]}x{size[1]}-{name}.txt", stage.text)
            if look.palette is PLAIN:
                assert stage.text.isascii()

    play(scene, newest, size=size, past=past, look=look)


@pytest.mark.parametrize(
    ("known", "says"),
    [
        ({"state": "T"}, "! stopped"),
        ({"state": "Z"}, "! zombie"),
        ({"state": "D", "waiting_in": "io_schedule", "cpu_percent": 3.0}, " blocked in io_schedule "),
        ({"gpus": (GpuShare(uuid=RUNNING.gpus[0].uuid, busy_percent=80.0),)}, " GPU 0 busy 80 % "),
        ({"state": "D", "waiting_in": "io_schedule", "cpu_percent": 60.0}, " blocked in io_schedule "),
        ({"state": "D", "cpu_percent": 300.0}, " blocked "),
        ({"state": "S"}, " uses 300 % of one core "),
        ({"state": "R"}, " running "),
        ({"waiting_in": "do_wait", "cpu_percent": 3.0}, " sleeping in do_wait "),
        ({"unseen": "hidden"}, " hidden "),
    ],
)
def test_the_first_thing_to_read_is_what_it_does_or_waits_for(known: dict[str, Any], says: str) -> None:
    one = process(77, **{"cpu_percent": 300.0, **known})
    shown = frame(gpus=4, loose=(one,))
    shown = replace(shown, processes=(replace(shown.processes[0], read_bytes_per_s=90e6),))

    async def scene(stage: Stage) -> None:
        stage.feed.details[shown.processes[0].identity] = asked(full(shown.processes[0], shown))
        await stage.press("enter")
        assert any(line.startswith("─ now ─") and says in line for line in stage.lines)

    play(scene, shown)


@pytest.mark.parametrize("whose", ["process", "loader"])
def test_time_blocked_on_storage_is_called_an_estimate_where_it_is_not_measured(whose: str) -> None:
    unlock = Missing(metric="io_wait_percent", reason="unsupported", unlock="sudo sysctl -w kernel.task_delayacct=1")
    mine = RANK.pid if whose == "process" else RANK.pid + 8

    def told(measured: float | None) -> str:
        known = {"io_wait_percent": measured, "blocked_percent": 40.0, "missing": (unlock,) * (measured is None)}
        rest = {"io_wait_percent": 1.0, "blocked_percent": 2.0}
        processes = tuple(replace(one, **(known if one.pid == mine else rest)) for one in RUNNING.processes)
        shown = replace(RUNNING, processes=processes)
        one = shown.by_identity[RANK.identity]
        opened = ProcessView(process=one, frame=shown, found=full(one, shown), past=History(), look=Look())
        tabs = process_tabs()
        drawn = picture(opened, shown, tabs["io"], [*tabs.values()], (100, 50), Status()).strips
        return " ".join(" ".join(strip.text for strip in drawn).split())

    assert "estimate" not in told(7.0)
    assert re.search(r" time blocked on storage \d+% \d+% estimate ", told(None))
    assert "estimated from the share of samples in state D; to measure it: sudo sysctl -w kernel" in told(None)


def hostile(text: str) -> tuple[Process, Detail]:
    """A process all of whose strings are this one, cleaned as everything is that enters the model."""
    word = clean(text)
    one = replace(RANK, name=word, command=("python", word), container=word, cgroup=word, waiting_in=word, user=word)
    detail = full(
        one, RUNNING,
        threads=(Thread(tid=1, name=word, state="S", system_call=word), thread(2)),
        environment=(Variable(name=word, value=word), Variable(name="X", value=word, secret=True)),
        children=(Relative(identity=Identity(9, 9), name=word),),
    )  # fmt: skip
    file = replace((detail.files or ())[0], path=word, moved_bytes_per_s=1e6)
    return one, replace(detail, files=(file,), file_now=file)


@pytest.mark.parametrize("look", [Look(), Look(PLAIN, ASCII)], ids=["unicode", "ascii"])
@pytest.mark.parametrize("id", process_tabs())
def test_p02_whatever_things_are_called_the_picture_holds(id: str, look: Look) -> None:
    for text in STRINGS:
        one, detail = hostile(text)
        shown = replace(RUNNING, processes=(*(each for each in RUNNING.processes if each.pid != one.pid), one))
        opened = ProcessView(process=one, frame=shown, found=detail, past=History(), look=look)
        for width, height in ((50, 12), (200, 59)):
            tabs = process_tabs()
            tabs[id].press("sideways", 1)
            drawn = picture(opened, shown, tabs[id], [*tabs.values()], (width, height), Status()).strips
            assert [strip.cell_length for strip in drawn] == [width] * height, repr(text)
            assert all(clean(strip.text, 1000) == strip.text for strip in drawn), repr(text)
            assert look.glyphs is not ASCII or all(strip.text.isascii() for strip in drawn), repr(text)


def test_p02_nor_does_the_screen_fall_over_it() -> None:
    async def scene(stage: Stage) -> None:
        one, detail = hostile("[/foo][@click=app.quit]\x1b[2J\u202e訓練" * 20)
        others = tuple(each for each in RUNNING.processes if each.pid != one.pid)
        stage.feed.details[one.identity] = asked(detail)
        await stage.show(replace(RUNNING, processes=(*others, one)))
        await stage.press("enter")
        for tab in ALL_TABS:
            await stage.press(tab)
            assert f"[{tab} " in stage.text
            assert "[/foo]" in stage.text

    play(scene, RUNNING)


@pytest.mark.parametrize("size", [(1, 1), (2, 5), (20, 3), (40, 12), (300, 100)])
def test_t09_any_size(size: tuple[int, int]) -> None:
    async def scene(stage: Stage) -> None:
        stage.feed.details[RANK.identity] = asked(full(RANK, RUNNING))
        await stage.press("enter")
        for tab in "158":
            await stage.press(tab)
            await stage.pilot.resize_terminal(*size)
            await stage.press("down", "end")
            assert {strip.cell_length for strip in strips(stage.app)} == {size[0]}
            assert len(strips(stage.app)) == size[1]
            await stage.pilot.resize_terminal(120, 40)
            await stage.pilot.pause()
            assert f"[{tab} " in stage.text

    play(scene, RUNNING)


def test_threads_keep_their_places_for_a_while_and_the_cursor_its_thread() -> None:
    def busy(*tids: int) -> Detail:
        threads = tuple(thread(tid, f"t{tid}", cpu_percent=90.0 if tid in tids else 0.0) for tid in (1, 2, 3))
        return full(RANK, RUNNING, threads=threads)

    def order(stage: Stage) -> list[str]:
        return [word for line in stage.lines for word in line.split()[1:2] if word in ("t1", "t2", "t3")]

    async def scene(stage: Stage) -> None:
        stage.feed.details[RANK.identity] = asked(busy(2))
        await stage.press("enter")
        assert order(stage) == ["t2", "t1", "t3"]
        await stage.press("down")
        stage.feed.details[RANK.identity] = asked(busy(3))
        await stage.show(later(1))
        assert order(stage) == ["t2", "t1", "t3"], "not within three seconds of a key"
        tab = stage.app.screen.tab  # type: ignore[attr-defined]
        tab.touch(-1000.0)
        tab._ranked_s = -1000.0
        await stage.show(later(2))
        assert order(stage)[0] == "t3"
        assert tab.selected == 1

    play(scene, RUNNING)

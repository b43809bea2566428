"""The details where there is little room: the open tab is named, and a number is whole or not there."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from gputop.history import History
from gputop.model import Process
from gputop.ui.details.head import head
from gputop.ui.details.picture import picture
from gputop.ui.details.process_view import ProcessView
from gputop.ui.details.tabs import process_tabs
from gputop.ui.panes.header import Status
from gputop.ui.theme import ASCII, PLAIN, Look
from gputop.ui.widgets.tabs import TabPicture
from tests.headless_screens import Stage, play
from tests.process_details import RANK, RUNNING, asked, full

WIDTHS = (40, 52, 60, 73, 80)
OLD = replace(RANK, age_s=45_108.0, user="alice", nice=-11)  # since 12:31:48


def drawn(tab: str, width: int, process: Process = OLD, look: Look | None = None) -> TabPicture:
    opened = ProcessView(
        process=process, frame=RUNNING, found=full(process, RUNNING), past=History(), look=look or Look()
    )
    tabs = process_tabs()
    return picture(opened, RUNNING, tabs[tab], [*tabs.values()], (width, 30), Status())


def lines(tab: str, width: int, process: Process = OLD) -> list[str]:
    return [strip.text.rstrip() for strip in drawn(tab, width, process).strips]


@pytest.mark.parametrize("look", [Look(), Look(PLAIN, ASCII)], ids=["unicode", "ascii"])
@pytest.mark.parametrize("width", [16, 24, *WIDTHS])
def test_the_open_tab_is_named_and_a_mark_says_that_there_are_others(width: int, look: Look) -> None:
    first, *_, last = tabs = [*process_tabs().values()]
    for number, tab in enumerate(tabs, 1):
        picture = drawn(tab.id, width, look=look)
        rule, named = picture.strips[picture.tabs_y].text, [spot[2] for spot in picture.spots]
        assert f"[{number} {tab.title}]" in rule or f"[{number} {tab.short}]" in rule, rule
        places = [start for start, _, other in picture.spots if other.id == tab.id]
        assert rule[places[0]] == "["
        assert (rule[0] == look.glyphs.before) == (f"1 {first.title}" not in rule)
        assert (f" {look.glyphs.after}" in rule) == (f"8 {last.title}" not in rule)
        for at, sign in ((0, look.glyphs.before), (-1, look.glyphs.after)):
            start, end, _ = sorted(picture.spots, key=lambda spot: spot[0])[at]
            assert end - start > 1 or rule[start] == sign, "a mark opens the tab behind it"
        assert len(named) == len(set(map(id, named)))


def test_a_click_on_the_mark_opens_the_next_tab_that_is_not_named() -> None:
    async def scene(stage: Stage) -> None:
        stage.feed.details[RANK.identity] = asked(full(RANK, RUNNING))
        await stage.pilot.resize_terminal(120, 40)
        await stage.press("enter")
        await stage.pilot.resize_terminal(40, 12)
        (y,) = [y for y, line in enumerate(stage.lines) if "[1 Threads]" in line]
        await stage.pilot.click("#details", offset=(stage.lines[y].index("›"), y))
        assert "[5 Children]" in stage.lines[y]
        assert stage.lines[y].startswith("‹")

    play(scene, RUNNING)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_limits_tab_shows_limits(width: int) -> None:
    shown = lines("limits", width)
    (titles,) = [line for line in shown if line.startswith("  LIMIT")]
    (files,) = [line for line in shown if line.startswith("  open files")]
    assert "SOFT" in titles
    assert "1024" in files
    assert "98%" in files
    assert ("1000" in files.split()) == ("USED" in titles) == (width >= 52)


@pytest.mark.parametrize("width", WIDTHS)
def test_what_was_moved_since_the_start_is_there_whole_or_not_at_all(width: int) -> None:
    shown = lines("io", width)
    (read,) = [line for line in shown if line.startswith("  read from storage")]
    assert any("SINCE START" in line for line in shown) == ("7.0G" in read) == (width >= 52)
    assert not any(line.endswith(("  S", "SINCE", "7.")) for line in shown)


@pytest.mark.parametrize("width", WIDTHS)
def test_numbers_of_a_gpu_and_of_children_are_whole(width: int) -> None:
    gpu = next(line for line in lines("gpu", width) if line.lstrip().startswith("vram"))
    assert gpu.split()[1:5] == ["66.0G", "66.1G", "of", "80.0G"]
    child = next(line for line in lines("children", width) if line.lstrip().startswith("41108"))
    busy = next(one for one in RUNNING.processes if one.pid == 41108).cpu_percent
    assert child.split()[3] == f"{busy:.0f}"


@pytest.mark.parametrize("width", [16, 24, *WIDTHS, 120])
def test_the_head_has_a_number_whole_or_not_at_all(width: int) -> None:
    crowded = replace(OLD, user="a-user-with-a-long-name", affinity="0-15,32-47,128-143,160-175,200-215")
    for process in (OLD, crowded):
        opened = ProcessView(process=process, frame=RUNNING, found=full(process, RUNNING), past=History(), look=Look())
        words = " ".join(strip.text for strip in head(opened, width, 4)).split()
        for label, value in (("up", "12:31:48"), ("nice", "-11")):
            assert all(word == value for before, word in pairwise(words) if before == label)
            assert label in words or width < 80, "there is room"
        ranges = [word for before, word in pairwise(words) if before == "cpus"]
        assert all(part in ("…", *(process.affinity or "").split(",")) for word in ranges for part in word.split(","))


def test_the_head_names_the_slurm_step_and_the_pod() -> None:
    placed = replace(OLD, slurm_job="812", slurm_step="0", pod="8f0c2a4e-1b3d-4c5f-9a7b-0123456789ab")
    frame = replace(RUNNING, jobs=tuple(replace(job, slurm_job="812") for job in RUNNING.jobs))
    opened = ProcessView(process=placed, frame=frame, found=full(placed, frame), past=History(), look=Look())
    words = " ".join(strip.text for strip in head(opened, 200, 4))
    assert "(slurm 812.0)" in words
    assert "(pod 8f0c2a4e)" in words


@pytest.mark.parametrize("width", WIDTHS)
def test_what_stands_beside_the_title_of_a_chart_is_whole_or_not_there(width: int) -> None:
    shown = lines("threads", width)
    (titles,) = [line for line in shown if line.lstrip().startswith("gpu 0 ")]
    assert "…" not in titles

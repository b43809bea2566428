"""Where the panes stand, at every size."""

from __future__ import annotations

from itertools import combinations

import pytest

from gputop.ui.gpus.pane import DENSITIES, gpus
from gputop.ui.panes.header import Status, header
from gputop.ui.panes.host import host
from gputop.ui.panes.layout import Panes, Rect, arrange
from gputop.ui.theme import Look
from tests.servers import server

SIZES = [*range(1, 121, 7), 60, 20, 80, 23, 24, 160, 200]


def rects(panes: Panes) -> dict[str, Rect]:
    names = ("header", "gpus", "note", "host", "processes", "advice", "preview", "prompt", "notice", "replay", "keys")
    return {name: rect for name in names if (rect := getattr(panes, name)) is not None}


def check(panes: Panes, width: int, height: int) -> None:
    """Inside the screen, nothing over anything else."""
    places = rects(panes)
    for name, rect in places.items():
        assert rect.width > 0, name
        assert rect.height > 0, name
        assert 0 <= rect.x <= rect.x + rect.width <= width, name
        assert 0 <= rect.y <= rect.y + rect.height <= height, name
    for (one, a), (two, b) in combinations(places.items(), 2):
        apart = a.x + a.width <= b.x or b.x + b.width <= a.x or a.y + a.height <= b.y or b.y + b.height <= a.y
        assert apart, f"{one} over {two} at {width}x{height}"


@pytest.mark.parametrize("count", [0, 1, 2, 8, 16, 64])
@pytest.mark.parametrize("more", [False, True])
@pytest.mark.parametrize("replay", [False, True])
def test_t09_every_size(count: int, more: bool, replay: bool) -> None:
    for width in SIZES:
        for height in SIZES:
            for density in (None, *DENSITIES):
                panes = arrange(
                    width, height, count, density=density, empty=9, note=more, prompt=more, replay=replay, calm=more
                )
                check(panes, width, height)
                if panes.processes:
                    assert panes.processes.height >= 8
                    assert (panes.gpus.height if panes.gpus else 0) <= height * 0.45


@pytest.mark.parametrize("count", [1, 8, 64])
def test_t09_every_pane_can_be_drawn_at_every_size(count: int) -> None:
    now, past = server(count)
    for width in range(1, 121, 7):
        for height in range(1, 121, 17):
            panes = arrange(width, height, count)
            assert header(now, width, Look(), Status()).cell_length == width
            assert len(host(now, past, width, height, Look())) in (0, height)
            if panes.gpus:
                strips = gpus(now, past, panes.gpus.width, panes.gpus.height, Look(), density=panes.density)
                assert 0 < len(strips) <= panes.gpus.height
                assert {strip.cell_length for strip in strips} == {width}


@pytest.mark.parametrize(("width", "height"), [(0, 0), (0, 5), (5, 0), (-1, -1), (500, 2000), (2000, 500)])
def test_t09_absurd_sizes(width: int, height: int) -> None:
    check(arrange(width, height, 8), width, height)


@pytest.mark.parametrize(
    ("width", "height", "count", "places"),
    [
        (80, 24, 8, {"header": (0, 0, 80, 1), "gpus": (0, 1, 80, 9), "processes": (0, 10, 80, 12),
                     "advice": (0, 22, 80, 1), "keys": (0, 23, 80, 1)}),
        (80, 24, 1, {"header": (0, 0, 80, 1), "gpus": (0, 1, 80, 8), "processes": (0, 9, 80, 10),
                     "advice": (0, 19, 80, 4), "keys": (0, 23, 80, 1)}),
        (120, 40, 8, {"header": (0, 0, 120, 1), "gpus": (0, 1, 120, 9), "processes": (0, 10, 120, 20),
                      "advice": (0, 30, 120, 9), "keys": (0, 39, 120, 1)}),
        (120, 40, 4, {"header": (0, 0, 120, 1), "gpus": (0, 1, 120, 18), "processes": (0, 19, 120, 11),
                      "advice": (0, 30, 120, 9), "keys": (0, 39, 120, 1)}),
        (200, 60, 8, {"header": (0, 0, 200, 1), "gpus": (0, 1, 200, 24), "processes": (0, 25, 134, 22),
                      "preview": (0, 47, 134, 12), "host": (134, 25, 66, 13), "advice": (134, 38, 66, 21),
                      "keys": (0, 59, 200, 1)}),
        # what tmux leaves of 80x24, and the least that processes are shown on
        (80, 23, 8, {"header": (0, 0, 80, 1), "gpus": (0, 1, 80, 9), "processes": (0, 10, 80, 11),
                     "advice": (0, 21, 80, 1), "keys": (0, 22, 80, 1)}),
        (60, 20, 8, {"header": (0, 0, 60, 1), "gpus": (0, 1, 60, 5), "processes": (0, 6, 60, 12),
                     "advice": (0, 18, 60, 1), "keys": (0, 19, 60, 1)}),
        (40, 12, 8, {"header": (0, 0, 40, 1), "gpus": (0, 1, 40, 8), "advice": (0, 9, 40, 1),
                     "notice": (0, 10, 40, 1), "keys": (0, 11, 40, 1)}),
        (10, 2, 8, {"header": (0, 0, 10, 1), "gpus": (0, 1, 10, 1)}),
        (10, 1, 8, {"header": (0, 0, 10, 1)}),
    ],
)  # fmt: skip
def test_places(width: int, height: int, count: int, places: dict[str, tuple[int, int, int, int]]) -> None:
    assert {name: tuple(rect) for name, rect in rects(arrange(width, height, count, calm=False)).items()} == places


def test_a_note_stands_between_gpus_and_processes() -> None:
    panes = arrange(80, 24, 8, note=True)
    assert panes.note == Rect(0, 10, 80, 1)
    assert panes.processes == Rect(0, 11, 80, 11)


def test_the_bar_of_a_recording_stands_above_the_keys() -> None:
    panes = arrange(80, 24, 8, replay=True)
    assert panes.replay == Rect(0, 22, 80, 1)
    assert panes.processes == Rect(0, 10, 80, 11)
    assert arrange(40, 12, 8, replay=True).replay == Rect(0, 10, 40, 1)
    assert arrange(40, 5, 8, replay=True).replay is None


def test_an_empty_state_folds_the_gpus() -> None:
    panes = arrange(120, 40, 0, empty=9)
    assert panes.gpus == Rect(0, 1, 120, 9)
    assert arrange(80, 24, 0, empty=40).gpus == Rect(0, 1, 80, 10), "a long one leaves room for processes"
    assert arrange(80, 24, 0).gpus is None


def test_what_is_hidden_gives_its_place_away() -> None:
    panes = arrange(200, 60, 8, hidden={"gpus", "host"})
    assert rects(panes).keys() == {"header", "processes", "advice", "preview", "keys"}
    assert panes.processes == Rect(0, 1, 200, 42)
    panes = arrange(200, 60, 64, hidden={"processes", "host"})
    assert panes.density == "cell"
    assert panes.processes is None
    assert arrange(160, 40, 8, hidden={"processes"}).host == Rect(0, 10, 160, 23)
    assert arrange(120, 40, 8, hidden={"processes"}).host == Rect(0, 10, 120, 25), "where it has no room beside them"
    assert arrange(120, 40, 8, hidden={"processes", "gpus"}).host == Rect(0, 1, 120, 34)
    assert arrange(120, 40, 8, hidden={"processes", "host"}).advice == Rect(0, 10, 120, 29)
    assert arrange(200, 60, 16, hidden={"advice"}).host == Rect(134, 18, 66, 41)
    assert arrange(80, 24, 8, hidden={"advice"}).processes == Rect(0, 10, 80, 13)


def test_what_processes_leave_blank_shows_the_host() -> None:
    """Across, where it has no column; processes keep their lines and one of air."""
    panes = arrange(120, 40, 8, rows=9, calm=False)
    assert panes.host == Rect(0, 10, 120, 8)
    assert panes.host_across
    assert panes.processes == Rect(0, 18, 120, 12)
    assert arrange(120, 40, 8, rows=12, calm=False).host == Rect(0, 10, 120, 5)
    assert arrange(120, 40, 8, rows=14, calm=False).host == Rect(0, 10, 120, 3)
    assert arrange(120, 40, 8, rows=15, calm=False).host is None
    assert arrange(120, 40, 8, rows=1, calm=False, hidden={"host"}).host is None
    wide = arrange(200, 60, 8, rows=1)
    assert not wide.host_across, "there it has a column"


@pytest.mark.parametrize(("rows", "lines"), [(0, 14), (8, 12), (10, 16), (12, 14), (14, 12), (40, 12)])
def test_cards_give_lines_to_processes_down_to_their_least(rows: int, lines: int) -> None:
    panes = arrange(120, 40, 4, rows=rows, calm=False)
    assert panes.density == "card"
    assert panes.gpus == Rect(0, 1, 120, lines)


def test_the_host_is_there_wherever_rows_are_free() -> None:
    for width in (60, 80, 100, 120, 159):
        for height in range(20, 70):
            for count in (1, 2, 4, 8):
                for rows in (1, 5, 12):
                    for calm in (True, False):
                        panes = arrange(width, height, count, rows=rows, calm=calm)
                        assert panes.processes
                        free = panes.processes.height - max(8, rows + 3)
                        assert panes.host or free < 3, (width, height, count, rows, calm)


def test_a_finding_about_the_host_shows_it_before_larger_cards_and_processes_that_scroll() -> None:
    assert arrange(120, 40, 4, rows=40, calm=False).host is None
    leads = arrange(120, 40, 4, rows=40, calm=False, host_leads=True)
    assert (leads.density, leads.host) == ("card", Rect(0, 13, 120, 5))
    assert leads.processes == Rect(0, 18, 120, 12)
    assert leads.advice == Rect(0, 30, 120, 9)
    assert arrange(80, 24, 1, rows=5, calm=False).density == "card"
    low = arrange(80, 24, 1, rows=5, calm=False, host_leads=True)
    assert (low.density, low.host, low.advice) == ("row", Rect(0, 3, 80, 5), Rect(0, 16, 80, 7))
    assert arrange(80, 24, 1, rows=5, calm=False, host_leads=True, density="card").density == "card", "it was asked for"


def test_many_gpus_have_cards_only_where_all_processes_have_their_lines() -> None:
    assert arrange(200, 60, 8, rows=20).density == "card"
    assert arrange(200, 60, 8, rows=60).density == "row"
    assert arrange(120, 56, 8, rows=15, calm=False).density == "row"


@pytest.mark.parametrize("rows", [0, 7, 20, 200])
@pytest.mark.parametrize("count", [0, 1, 4, 8])
def test_t09_every_size_with_rows(rows: int, count: int) -> None:
    for width in SIZES:
        for height in SIZES:
            for calm in (True, False):
                check(arrange(width, height, count, rows=rows, empty=9, calm=calm), width, height)


def test_while_nothing_is_wrong_the_advice_is_small() -> None:
    """It grows once there is something to say, and is never more than the processes leave it."""
    heights = {
        (width, height): tuple(
            (arrange(width, height, 1, calm=calm).advice or Rect(0, 0, 0, 0)).height for calm in (True, False)
        )
        for width, height in ((40, 12), (80, 24), (120, 40), (200, 60), (80, 28))
    }
    assert heights == {(40, 12): (0, 1), (80, 24): (1, 4), (120, 40): (4, 9), (200, 60): (6, 26), (80, 28): (1, 4)}


def test_a_prompt_stands_above_the_keys() -> None:
    panes = arrange(80, 24, 8, prompt=True)
    assert panes.prompt == Rect(0, 22, 80, 1)
    assert panes.processes == Rect(0, 10, 80, 11)
    assert arrange(80, 24, 8, prompt=True, zoom="processes").processes == Rect(0, 1, 80, 21)


def test_the_selected_process_has_a_pane_from_fifty_lines_on() -> None:
    assert arrange(120, 49, 8).preview is None
    assert arrange(120, 50, 8).preview == Rect(0, 33, 120, 12)
    assert arrange(120, 50, 8, hidden={"processes"}).preview is None


def test_zoom_gives_one_pane_the_middle() -> None:
    panes = arrange(120, 40, 8, zoom="gpus")
    assert panes.gpus == Rect(0, 1, 120, 38)
    assert rects(panes).keys() == {"header", "gpus", "keys"}
    assert arrange(120, 40, 4, zoom="gpus").density == "card"
    assert arrange(120, 40, 8, zoom="advice").advice == Rect(0, 1, 120, 38)
    assert arrange(40, 12, 8, zoom="advice").advice == Rect(0, 1, 40, 10), "also where there is no room for processes"
    assert arrange(120, 40, 8, zoom="host").host == Rect(0, 1, 120, 38)
    assert arrange(120, 40, 8, zoom="processes").processes == Rect(0, 1, 120, 38)
    assert arrange(40, 12, 8, zoom="processes").processes is None, "too small for processes"

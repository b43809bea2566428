"""The cursor, the window, folding and when lines may change places."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputop.model import Frame
from gputop.ui.table.listing import Listing
from gputop.ui.table.tree import TableView
from gputop.ui.widgets.cursor_list import CALM_S
from tests.scripted_jobs import frame, process, training

LLAMA = training("llama", 41000, ranks=4, loaders=8)
SD3 = training("sd3", 52000, ranks=3, loaders=2, first_gpu=4, user="bob")
BOTH = frame(LLAMA, SD3, gpus=8)


def listing(shown: Frame = BOTH, height: int = 50, **view: object) -> Listing:
    """A listing that somebody has already touched: nothing unfolds by itself."""
    made = Listing(TableView(**view))  # type: ignore[arg-type]
    made.resize(height)
    made.touch(-1000)
    made.feed(shown, 0)
    return made


def labels(made: Listing) -> list[str]:
    return [row.label for row in made.rows]


def loose(**cpu: float) -> Frame:
    """Processes p1, p2, … of nobody, with this much CPU."""
    return frame(loose=tuple(process(int(name[1:]), cpu_percent=percent) for name, percent in cpu.items()))


def test_the_first_frame_with_rates_is_sorted_at_once_and_a_key_sorts_strictly() -> None:
    """Rates are known from the second sample on; nearly equal ones then keep their places until a key asks."""
    first = tuple(process(pid, cpu_percent=None, libraries=frozenset({"cuda"})) for pid in (1, 2, 3))
    made = Listing(TableView(every_process=True))
    made.feed(frame(loose=first), 0)
    made.feed(loose(p1=201, p2=207, p3=300), 1)
    assert labels(made) == ["3", "2", "1"]
    made.feed(loose(p1=207, p2=201, p3=300), 1 + CALM_S)
    assert labels(made) == ["3", "2", "1"], "it wiggles"
    made.look(made.view, 2 + CALM_S)
    assert labels(made) == ["3", "1", "2"]


def test_nothing_moves_just_after_a_key_though_values_become_known() -> None:
    made = Listing(TableView(every_process=True))
    made.feed(frame(loose=tuple(process(pid, cpu_percent=None) for pid in (1, 2))), 0)
    made.touch(0.5)
    made.feed(loose(p1=1, p2=200), 1)
    assert labels(made) == ["1", "2"]
    made.feed(loose(p1=1, p2=200), 0.5 + CALM_S)
    assert labels(made) == ["2", "1"]


def test_the_first_rank_opens_by_itself_and_gets_the_cursor() -> None:
    made = Listing(TableView())
    made.resize(50)
    made.feed(frame(), 0)
    made.feed(BOTH, 1)
    assert labels(made)[:6] == ["llama", "41100", "41101", "41102", "+6 more", "41200"]
    assert made.cursor is not None
    assert made.cursor.label == "41100"
    made.fold()
    made.feed(BOTH, 2)
    assert "+6 more" not in labels(made), "once is enough"


def test_after_a_key_nothing_opens_by_itself() -> None:
    assert labels(listing()) == ["llama", "41100", "41200", "41300", "41400", "sd3", "52100", "52200", "52300"]


def test_fold_goes_up_and_unfold_down() -> None:
    made = listing()
    made.move(1)
    made.unfold()
    made.move(3)
    assert made.cursor is not None
    assert made.cursor.label == "+6 more"
    made.unfold()
    assert made.rows[made.at].label == "41103", "the cursor is on the first of those that were hidden"
    made.fold()
    assert made.rows[made.at].label == "41100"
    made.fold()
    made.unfold()
    assert "+6 more" in labels(made), "folding a rank folds its workers again"
    made.fold()
    made.fold()
    made.fold()
    assert labels(made) == ["llama", "sd3", "52100", "52200", "52300"]
    assert made.rows[made.at].label == "llama"


@pytest.mark.parametrize(("steps", "lines"), [([-1], 2), ([1], 27), ([1, 1], 49), ([0], 49), ([0, 0], 9), ([-1, 1], 9)])
def test_levels(steps: list[int], lines: int) -> None:
    made = listing()
    for step in steps:
        made.level(step)
    assert len(made.rows) == lines


def test_the_cursor_stays_with_its_process_and_goes_to_what_folds_over_it() -> None:
    made = listing(level=3)
    made.at = labels(made).index("41105")
    made.level(-1)
    assert made.rows[made.at].label == "41100"
    made.level(-1)
    made.level(-1)
    assert made.rows[made.at].label == "llama"


def test_the_cursor_keeps_its_process_when_lines_change_places() -> None:
    made = listing(loose(p1=300, p2=200, p3=150))
    made.move(2)
    made.feed(loose(p1=300, p2=200, p3=900), 100)
    assert labels(made) == ["3", "1", "2"]
    assert (made.at, made.cursor and made.cursor.label) == (0, "3")


def test_without_follow_it_keeps_its_line() -> None:
    made = listing(loose(p1=300, p2=200, p3=150))
    made.follow = False
    made.move(2)
    made.feed(loose(p1=300, p2=200, p3=900), 100)
    assert (made.at, made.cursor and made.cursor.label) == (2, "2")


def test_p06_a_process_that_ended_leaves_the_cursor_on_its_line_and_its_pid_to_another() -> None:
    made = listing(loose(p1=300, p2=200, p3=150))
    made.move(1)
    again = replace(process(2, cpu_percent=900.0), started_ticks=77)
    made.feed(frame(loose=(process(1, cpu_percent=300.0), again, process(3, cpu_percent=150.0))), 100)
    assert labels(made) == ["2", "1", "3"]
    assert made.cursor is not None
    assert made.cursor.label == "1", "not the new process with the old pid"
    made.feed(loose(p1=300), 200)
    made.feed(frame(), 300)
    assert (made.at, made.cursor) == (0, None)


def test_lines_change_places_at_most_every_three_seconds() -> None:
    made = listing(loose(p1=300, p2=200))
    turned = loose(p1=200, p2=300)
    made.feed(turned, CALM_S - 0.1)
    assert labels(made) == ["1", "2"]
    made.feed(turned, CALM_S)
    assert labels(made) == ["2", "1"]


def test_nor_soon_after_a_key() -> None:
    made = listing(loose(p1=300, p2=200))
    turned = loose(p1=200, p2=300)
    made.touch(10)
    made.feed(turned, 10 + CALM_S - 0.1)
    assert labels(made) == ["1", "2"]
    made.feed(turned, 10 + CALM_S)
    assert labels(made) == ["2", "1"]


def test_a_sort_key_sorts_at_once() -> None:
    made = listing()
    made.touch(1)
    made.look(replace(made.view, sort="user"), 1)
    assert [row.label for row in made.rows if not row.rails] == ["llama", "sd3"]
    assert not made.view.descending
    made.look(replace(made.view, reverse=True), 1)
    assert [row.label for row in made.rows if not row.rails] == ["sd3", "llama"]
    assert made.view.descending


def test_the_window_follows_the_cursor_and_the_wheel_leaves_it() -> None:
    made = listing(level=3, height=10)
    made.move(20)
    assert made.top == 11
    made.scroll(-5)
    assert (made.top, made.at) == (6, 20)
    made.feed(BOTH, 1)
    assert made.top == 6, "an update does not pull the window back"
    made.scroll(10_000)
    assert made.top == len(made.rows) - 10
    made.move(-1_000_000)
    assert (made.top, made.at) == (0, 0)
    made.move(1_000_000)
    made.resize(3)
    assert made.top == len(made.rows) - 3


def test_to_a_line_that_is_not_there_nobody_goes() -> None:
    made = listing(user="bob")
    made.move(1)
    before, view = made.cursor, made.view
    assert not made.go(("process", 41100, 411000))
    assert (made.cursor, made.view) == (before, view)
    assert made.go(("process", 52101, 521010))
    assert made.cursor is not None
    assert made.cursor.label == "52101"


def test_keys_do_nothing_without_lines() -> None:
    made = Listing(TableView())
    for act in (made.fold, made.unfold, lambda: made.move(1), lambda: made.level(1)):
        act()
    made.look(replace(made.view, sort="pid"), 0)
    assert (made.rows, made.cursor) == ([], None)

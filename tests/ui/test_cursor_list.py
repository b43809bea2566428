"""A cursor and a window: whatever happens to the list, the window is full and the cursor on a line."""

from __future__ import annotations

import random

from gputop.ui.widgets.cursor_list import CALM_S, CursorList


class Numbers(CursorList):
    """A list of so many lines."""

    def __init__(self, count: int, height: int) -> None:
        self.lines, self.height = count, height

    @property
    def count(self) -> int:
        return self.lines


def test_the_window_moves_as_little_as_shows_the_cursor() -> None:
    listed = Numbers(100, 10)
    listed.move(9)
    assert (listed.at, listed.top) == (9, 0)
    listed.move(1)
    assert (listed.at, listed.top) == (10, 1)
    listed.move(-9)
    assert (listed.at, listed.top) == (1, 1)
    listed.move(1 << 20)
    assert (listed.at, listed.top) == (99, 90)


def test_the_wheel_leaves_the_cursor_and_a_key_brings_the_window_back() -> None:
    listed = Numbers(100, 10)
    listed.scroll(50)
    assert (listed.at, listed.top, listed.in_sight) == (0, 50, False)
    listed.settle(listed.in_sight)
    assert listed.top == 50, "what is new does not either"
    listed.move(1)
    assert (listed.at, listed.top, listed.in_sight) == (1, 1, True)


def test_whatever_happens_no_line_of_the_window_is_wasted() -> None:
    dice = random.Random(24)
    for _ in range(200):
        listed = Numbers(dice.randrange(40), dice.randrange(1, 12))
        for _ in range(30):
            in_sight = listed.in_sight
            what = dice.choice(("move", "scroll", "resize", "settle"))
            if what == "settle":
                listed.lines = dice.randrange(40)
                listed.settle(in_sight)
            else:
                getattr(listed, what)(dice.randrange(-12, 13))
            assert 0 <= listed.at < max(1, listed.count)
            assert 0 <= listed.top <= max(0, listed.count - listed.height)
            assert listed.in_sight or what == "scroll" or (what == "settle" and not in_sight)


def test_lines_change_places_seldom_and_not_soon_after_a_key() -> None:
    listed = Numbers(3, 3)
    assert listed.may_rank(0.0)
    assert not listed.touched
    listed.touch(10.0)
    assert listed.touched
    assert (listed.may_rank(10.0 + CALM_S - 0.1), listed.may_rank(10.0 + CALM_S)) == (False, True)

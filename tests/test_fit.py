"""What yields first where there is not room for all."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from gputop.fit import fit


class Item(NamedTuple):
    """Something with a size."""

    name: str
    keep: int
    size: int = 1


ITEMS = (Item("a", 9, 4), Item("b", 1, 3), Item("c", 5, 2), Item("d", 1, 3), Item("e", 7, 1))


@pytest.mark.parametrize(
    ("room", "names"),
    [
        (13, "abcde"),
        (12, "abce"),
        (10, "abce"),
        (9, "ace"),
        (7, "ace"),
        (6, "ae"),
        (5, "ae"),
        (4, "a"),
        (3, ""),
        (-1, ""),
    ],
)
def test_the_lowest_yields_first_and_of_equals_the_last(room: int, names: str) -> None:
    assert "".join(item.name for item in fit(ITEMS, room, lambda item: item.size)) == names


def test_what_is_kept_always_stays_whatever_the_room() -> None:
    assert [item.name for item in fit(ITEMS, 0, lambda item: item.size, always=7)] == ["a", "e"]
    assert fit(ITEMS, 13, lambda item: item.size, always=0) == list(ITEMS)


def test_what_is_the_same_twice_yields_where_it_stands_last() -> None:
    twice = Item("x", 1)
    assert fit([twice, Item("y", 2), twice], 2, lambda item: item.size) == [twice, Item("y", 2)]


def test_how_dearly_may_be_said_by_the_caller() -> None:
    assert fit(["aa", "b", "cc"], 3, len, keep=lambda text: -ord(text[0])) == ["aa", "b"]
    assert fit([], 0, len) == []

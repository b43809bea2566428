"""Tabs: the line that names them at any width, and what a click does in a list with a cursor and in one without."""

from __future__ import annotations

import pytest

from gputop.ui.theme import Look
from gputop.ui.widgets.drawing import Run
from gputop.ui.widgets.tabs import Body, ListTab, TabPicture, tabbed, text_entry

LOOK = Look()


class NumbersTab(ListTab):
    """A hundred lines under a head."""

    def __init__(self, title: str, *, cursor: bool = True) -> None:
        self.id, self.title, self.cursor = title.lower(), title, cursor

    def body(self, width: int, look: Look) -> Body:
        entries = [text_entry(number, [Run(f"line {number}")], width, look) for number in range(100)]
        return Body(entries, [text_entry("head", [Run("HEAD")], width, look).draw("background", 0)], "a hundred")


TITLES = ("Threads", "Files", "Memory", "Limits")


def drawn(tab: NumbersTab, tabs: list[NumbersTab], width: int = 60, height: int = 12) -> TabPicture:
    return tabbed([], tab, tabs, [], (width, height), LOOK)


@pytest.mark.parametrize("width", [16, 24, 30, 60])
def test_what_is_open_may_be_none_of_the_tabs_on_the_line(width: int) -> None:
    tabs = [*map(NumbersTab, TITLES)]
    shown = drawn(NumbersTab("Compared"), tabs, width)
    assert "[" not in shown.strips[0].text
    assert " 1 Threads" in shown.strips[0].text
    assert (LOOK.glyphs.after in shown.strips[0].text) == (width < 60)
    assert {strip.cell_length for strip in shown.strips} == {width}


def test_a_click_on_a_title_opens_its_tab() -> None:
    tabs = [*map(NumbersTab, TITLES)]
    shown = drawn(tabs[0], tabs)
    at = shown.strips[0].text.index("Memory")
    assert shown.opens(at, 0) is tabs[2]
    assert shown.opens(at, 1) is None
    assert shown.opens(59, 0) is None


@pytest.mark.parametrize(("cursor", "at", "top"), [(True, 4, 0), (False, 0, 0)], ids=["cursor", "text"])
def test_a_click_selects_a_line_and_moves_nothing_where_none_can_be_selected(cursor: bool, at: int, top: int) -> None:
    tab = NumbersTab("Files", cursor=cursor)
    drawn(tab, [tab])
    tab.click(3, 0)  # the head
    assert (tab.at, tab.top) == (0, 0)
    tab.click(3, 5)
    assert (tab.at, tab.top, tab.selected) == (at, top, 4 if cursor else None)
    tab.page(1)
    assert tab.facts(LOOK)[1] == ("5-14 of 100" if cursor else "10-19 of 100")
    tab.scroll(1 << 10)
    assert tab.facts(LOOK) == ("a hundred  91-100 of 100", "91-100 of 100", LOOK.glyphs.up)

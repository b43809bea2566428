"""The tabs in their order, and the line that names them. A new one is declared here and has its key in keys.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from rich.cells import cell_len
from textual.strip import Strip

from gputop.ui.details import environment, files, gpus, io, limits, memory, relatives, threads
from gputop.ui.details.tab import Tab
from gputop.ui.theme import Look
from gputop.ui.widgets.drawing import Line

TABS: tuple[Tab, ...] = (
    threads.TAB, io.TAB, gpus.TAB, environment.TAB, relatives.TAB, files.TAB, limits.TAB, memory.TAB,
)  # fmt: skip
BY_ID = {tab.id: tab for tab in TABS}


class Titled(Protocol):
    """What has a place on the line of tabs."""

    @property
    def title(self) -> str:
        """Its name."""

    @property
    def short(self) -> str:
        """Its name where there is little room; empty: the same."""


AnyTab = TypeVar("AnyTab", bound=Titled)
Spot = tuple[int, int, AnyTab]  # from cell, to cell, the tab a click there opens


def strip(
    view: AnyTab, width: int, look: Look, facts: Sequence[str], tabs: Sequence[AnyTab]
) -> tuple[Strip, list[Spot[AnyTab]]]:
    """The rule with the tabs on it, and where on it which is; the open one always is, with those that fit beside it.

    Of `facts`, which say the same ever more briefly, the first that fits stands at its end.
    """
    shown, glyphs = _shown(view, width, tabs), look.glyphs
    (first, *_), (last, *_) = shown[0], shown[-1]
    line, spots = Line(look), []
    line.add(*((glyphs.before, "busy") if first else (glyphs.rule, "faint")))
    if first:
        spots.append((0, 1, tabs[first - 1]))
    for place, tab, title in shown:
        start, chosen = line.cells, tab is view
        line.add("[" if chosen else " ", "busy")
        line.add(f"{(place + 1) % 10}", "busy", bold=chosen).add(
            f" {title}", "bright" if chosen else "dim", bold=chosen
        )
        line.add("]" if chosen else " ", "busy")
        spots.append((start, line.cells, tab))
    line.add(" ")
    if last < len(tabs) - 1:
        spots.append((line.cells, line.cells + 1, tabs[last + 1]))
        line.add(glyphs.after, "busy")
    right = next((f" {each} " for each in facts if each and line.cells + cell_len(each) + 3 <= width), "")
    line.add(glyphs.rule * (width - line.cells - cell_len(right) - bool(right)), "faint")
    if right:
        line.add(right, "dim").add(glyphs.rule, "faint")
    return line.strip(width), spots


def _shown(view: AnyTab, width: int, tabs: Sequence[AnyTab]) -> list[tuple[int, AnyTab, str]]:
    """The tabs that fit, and how they are called there: short where there is little room; where there is less, fewer.

    Those that are farther from the open one are left out first.
    """
    long, short = [tab.title for tab in tabs], [tab.short or tab.title for tab in tabs]
    mixed = [tab.title if tab is view else tab.short or tab.title for tab in tabs]
    titles = next((each for each in (long, mixed) if 2 + _cells(each) <= width), short)
    shown = list(zip(range(len(tabs)), tabs, titles, strict=True))
    room = width - 2 if 2 + _cells(titles) <= width else width - 3  # a mark says that there are more
    while len(shown) > 1 and _cells([title for _, _, title in shown]) > room:
        before = tabs.index(view) - shown[0][0]
        shown.pop(0 if before > len(shown) - 1 - before else -1)
    return shown


def _cells(titles: Sequence[str]) -> int:
    return sum(map(cell_len, titles)) + 4 * len(titles)

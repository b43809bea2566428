"""The tabs in their order, and the line that names them. A new one is declared here and has its key in keys.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from rich.cells import cell_len
from textual.strip import Strip

from gputop.ui.details import environment, files, gpus, io, limits, memory, relatives, threads
from gputop.ui.details.tab import Tab
from gputop.ui.draw import Line
from gputop.ui.look import Look

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
    opened: AnyTab, width: int, look: Look, facts: Sequence[str], tabs: Sequence[AnyTab]
) -> tuple[Strip, list[Spot[AnyTab]]]:
    """The rule with the tabs on it, and where on it which is; titles are short where there is little room.

    Of `facts`, which say the same ever more briefly, the first that fits stands at its end.
    """
    long, short = [tab.title for tab in tabs], [tab.short or tab.title for tab in tabs]
    mixed = [tab.title if tab is opened else tab.short or tab.title for tab in tabs]
    titles = next((each for each in (long, mixed) if 2 + sum(map(len, each)) + 4 * len(tabs) <= width), short)
    glyph = look.glyphs.rule
    line, spots = Line(look).add(glyph, "faint"), []
    for number, (tab, title) in enumerate(zip(tabs, titles, strict=True), 1):
        start, chosen = line.cells, tab is opened
        line.add("[" if chosen else " ", "busy")
        line.add(f"{number % 10}", "busy", bold=chosen).add(f" {title}", "bright" if chosen else "dim", bold=chosen)
        line.add("]" if chosen else " ", "busy")
        spots.append((start, line.cells, tab))
    line.add(" ")
    right = next((f" {each} " for each in facts if each and line.cells + cell_len(each) + 3 <= width), "")
    line.add(glyph * (width - line.cells - cell_len(right) - bool(right)), "faint")
    if right:
        line.add(right, "dim").add(glyph, "faint")
    return line.strip(width), spots

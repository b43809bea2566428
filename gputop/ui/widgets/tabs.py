"""Tabs: what one is, one that is a list with a cursor, the line that names them, the picture around the open one."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence

from rich.cells import cell_len
from textual.strip import Strip

from gputop.frozen_dataclass import frozen_dataclass
from gputop.ui.theme import Ground, Look
from gputop.ui.widgets import drawing
from gputop.ui.widgets.cursor_list import CursorList
from gputop.ui.widgets.drawing import Line, Run

_FEW = 3  # lines of a list that are worth a glance
_SHIFT = 8  # cells a key scrolls long lines


class Tab(ABC):
    """One of several views. Drawing it also fits its window to the room there is."""

    id = ""
    title = ""
    short = ""  # its title where there is little room; empty: the same
    keys: frozenset[str] = frozenset()  # what its screen's keys can do here, see `press`
    takes = ""  # what Enter does here, in the key bar
    leads_to = ""  # the tab that a key of this one opens
    terms: tuple[str, ...] = ()  # of the glossary, that F1 explains beside the titles of its columns

    def facts(self, look: Look) -> Sequence[str]:  # noqa: ARG002
        """What is shown, in a few words, then the same ever more briefly; for the line of the tabs."""
        return ()

    @abstractmethod
    def draw(self, width: int, height: int, look: Look) -> list[Strip]:
        """It in at most `height` lines."""

    @abstractmethod
    def natural(self, width: int, look: Look) -> int:
        """How many lines all of it takes."""

    def move(self, lines: int) -> None:  # noqa: B027
        """Up or down."""

    def page(self, pages: int) -> None:
        """A page up or down."""
        self.move(10 * pages)

    def press(self, what: str, amount: int = 0) -> str:  # noqa: ARG002
        """Do what a key means here; what there is to say of it."""
        return ""

    def find(self, text: str) -> str:  # noqa: ARG002
        """Mark what has this text; how much it is."""
        return ""

    def click(self, x: int, y: int) -> None:  # noqa: B027
        """A click in a cell of it."""


@frozen_dataclass(frozen=True, slots=True)
class Entry:
    """A line of a list. The cursor keeps its `key`; the highest `rank` is on top."""

    key: Hashable
    draw: Callable[[Ground, int], Strip]  # on a ground, with its long text scrolled by some cells
    rank: float | None = None


@frozen_dataclass(frozen=True, slots=True)
class Body:
    """What a list shows now: lines that scroll, and lines above them that stay."""

    entries: Sequence[Entry]
    head: Sequence[Strip] = ()
    facts: str = ""  # in a few words, how much there is


class ListTab(CursorList, Tab):
    """A tab that is a list: some of its lines from `top` on, with a cursor where one of them can be selected."""

    keys = frozenset({"left", "right"})
    cursor = True
    entries: Sequence[Entry] = ()
    _facts = ""
    _head = _shift = 0

    @abstractmethod
    def body(self, width: int, look: Look) -> Body:
        """Its lines now."""

    @property
    def count(self) -> int:
        """How many lines there are."""
        return len(self.entries)

    @property
    def selected(self) -> Hashable:
        """The key of the line under the cursor."""
        return self.entries[self.at].key if self.cursor and self.entries else None

    @property
    def shown(self) -> Sequence[Entry]:
        """The lines in sight."""
        return self.entries[self.top : self.top + self.height]

    def facts(self, look: Look) -> Sequence[str]:
        """How much there is, and which of it is to be seen: at the least, how many lines there are below."""
        count, bottom = self.count, self.top + self.height
        if count <= self.height:
            return (self._facts,)
        seen = f"{self.top + 1}-{min(bottom, count)} of {count}"
        below = f"{look.glyphs.down}{count - bottom}" if bottom < count else look.glyphs.up
        return f"{self._facts}  {seen}" if self._facts else seen, seen, below

    def draw(self, width: int, height: int, look: Look) -> list[Strip]:
        """Its head, and the lines that fit."""
        body = self.body(width, look)
        head = list(body.head)[: max(0, height - 1)]
        self._feed(body.entries, height - len(head), time.monotonic())
        self._facts, self._head = body.facts, len(head)
        lines = [
            entry.draw("selected" if self.cursor and place == self.at else "background", self._shift)
            for place, entry in enumerate(self.shown, self.top)
        ]
        return [*head, *lines][: max(0, height)]

    def _feed(self, entries: Sequence[Entry], height: int, now_s: float) -> None:
        """Take in the newest lines; they change places only when no key was just pressed."""
        in_sight = self.cursor and self.in_sight
        selected, before = self.selected, {entry.key: place for place, entry in enumerate(self.entries)}
        if self.may_rank(now_s):
            self._ranked_s, before = now_s, {}
        if any(entry.rank is not None for entry in entries):
            entries = sorted(entries, key=lambda entry: (before.get(entry.key, len(before)), -(entry.rank or 0.0)))
        self.entries, self.height = entries, max(1, height)
        if self.touched:  # before a key the cursor stays on top
            self.at = next((place for place, entry in enumerate(entries) if entry.key == selected), self.at)
        self.settle(in_sight)

    def natural(self, width: int, look: Look) -> int:
        """Its head and all of its lines."""
        body = self.body(width, look)
        return len(body.head) + max(1, len(body.entries))

    def glance(self, width: int, height: int, look: Look) -> list[Strip]:
        """Its first lines, below another tab: nothing is selected there. None where only a few would fit."""
        body = self.body(width, look)
        room = height - len(body.head)
        if room < min(_FEW, len(body.entries)) or not body.entries:
            return []
        return [*body.head, *(each.draw("background", 0) for each in body.entries[:room])]

    def move(self, lines: int) -> None:
        """The cursor, or the window where there is none."""
        self.touch(time.monotonic())
        if self.cursor:
            super().move(lines)
        else:
            self.scroll(lines)

    def page(self, pages: int) -> None:
        """A page up or down."""
        self.move(pages * max(1, self.height - 1))

    def press(self, what: str, amount: int = 0) -> str:
        """Long lines from further on."""
        if what == "sideways":
            self._shift = max(0, self._shift + _SHIFT * amount)
        return ""

    def click(self, x: int, y: int) -> None:  # noqa: ARG002
        """Select the line."""
        if self.cursor and 0 <= y - self._head < len(self.shown):
            self.move(self.top + y - self._head - self.at)


def text_entry(key: Hashable, runs: Sequence[Run], width: int, look: Look) -> Entry:
    """A line of text, further on where it is scrolled."""

    def drawn(on: Ground, shift: int) -> Strip:
        strip = Line(look, on).add(" ").runs(runs).strip(1 << 12 if shift else width)
        return strip.crop(shift, shift + width) if shift else strip

    return Entry(key, drawn)


Spot = tuple[int, int, Tab]  # from cell, to cell, the tab a click there opens


@frozen_dataclass(frozen=True, slots=True)
class TabPicture:
    """A screen of tabs: its lines, and where on them a click opens a tab."""

    strips: Sequence[Strip]
    tabs_y: int
    spots: Sequence[Spot]

    def opens(self, x: int, y: int) -> Tab | None:
        """The tab that a click opens."""
        return next((tab for start, end, tab in self.spots if y == self.tabs_y and start <= x < end), None)


def tabbed(
    above: Sequence[Strip], tab: Tab, tabs: Sequence[Tab], below: Sequence[Strip], size: tuple[int, int], look: Look
) -> TabPicture:
    """In exactly `size` cells what stands above, the line of the tabs, the open one, what stands at the bottom."""
    width, height = size
    tabs_y = len(above)
    body = tab.draw(width, height - tabs_y - 1 - len(below), look)
    rule, spots = _rule(tab, tabs, width, look)
    strips = [*above, rule, *body]
    strips += [drawing.blank(width, look)] * (height - len(strips) - len(below))
    return TabPicture([*strips, *below][:height], tabs_y, spots)


def _rule(view: Tab, tabs: Sequence[Tab], width: int, look: Look) -> tuple[Strip, list[Spot]]:
    """The rule with the tabs on it, and where on it which is; the open one always is, with those that fit beside it.

    At its end stand the first facts that fit.
    """
    shown, glyphs = _named(view, tabs, width), look.glyphs
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
    facts = view.facts(look)
    right = next((f" {each} " for each in facts if each and line.cells + cell_len(each) + 3 <= width), "")
    line.add(glyphs.rule * (width - line.cells - cell_len(right) - bool(right)), "faint")
    if right:
        line.add(right, "dim").add(glyphs.rule, "faint")
    return line.strip(width), spots


def _named(view: Tab, tabs: Sequence[Tab], width: int) -> list[tuple[int, Tab, str]]:
    """The tabs that fit, and how they are called there: short where there is little room; where there is less, fewer.

    Those that are farther from the open one are left out first; what is open may be none of them.
    """
    long, short = [tab.title for tab in tabs], [tab.short or tab.title for tab in tabs]
    mixed = [tab.title if tab is view else tab.short or tab.title for tab in tabs]
    titles = next((each for each in (long, mixed) if 2 + _cells(each) <= width), short)
    shown = list(zip(range(len(tabs)), tabs, titles, strict=True))
    room = width - 2 if 2 + _cells(titles) <= width else width - 3  # a mark says that there are more
    at = next((place for place, tab in enumerate(tabs) if tab is view), 0)
    while len(shown) > 1 and _cells([title for _, _, title in shown]) > room:
        before = at - shown[0][0]
        shown.pop(0 if before > len(shown) - 1 - before else -1)
    return shown


def _cells(titles: Sequence[str]) -> int:
    return sum(map(cell_len, titles)) + 4 * len(titles)

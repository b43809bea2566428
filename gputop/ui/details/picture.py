"""The whole screen of one process as strips: what has room where. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from textual.strip import Strip

from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Frame
from gputop.ui.details import tabs
from gputop.ui.details.activity import now
from gputop.ui.details.head import head, names
from gputop.ui.details.process_view import ProcessView
from gputop.ui.details.relatives import pane
from gputop.ui.details.tab import Tab
from gputop.ui.panes.header import Status, fresh, trail
from gputop.ui.theme import Look
from gputop.ui.widgets import drawing
from gputop.ui.widgets.window import ListWindow

CHART_FROM = 16  # lines: below, the tab has all the room
ROOMY = 36
LOADERS_SHARE = 0.4  # of what is below the tabs, at most


@frozen_dataclass(frozen=True, slots=True)
class DetailsPicture:
    """The lines, and where on them the mouse can do something."""

    strips: Sequence[Strip]
    tabs_y: int
    spots: Sequence[tabs.Spot[Tab]]
    list_y: int


def picture(
    view: ProcessView, newest: Frame, tab: Tab, window: ListWindow, size: tuple[int, int], status: Status, shift: int,
    now_s: float,
) -> DetailsPicture:  # fmt: skip
    """All of it in exactly `size` cells; the window is fed with the lines of the tab."""
    width, height = size
    look = view.look
    roomy = height >= ROOMY
    above = trail(newest.hostname, names(view), fresh(newest, status, look), width, look)
    strips = [above, *head(view, width, 4 if roomy else 2)]
    strips += now(view, width, _chart_lines(height))
    tabs_y = len(strips)
    room = height - tabs_y - 1
    below_it = tab.loaders and height >= CHART_FROM
    loaders = pane(view, width, int(room * LOADERS_SHARE)) if below_it else []
    air = [drawing.blank(width, look)] if loaders and roomy else []
    body = tab.body(view, width)
    window.feed(body.entries, room - len(body.head) - len(air) - len(loaders), now_s)
    rule, spots = tabs.strip(tab, width, look, _facts(body.facts, window, look), tabs.TABS)
    strips += [rule, *body.head]
    list_y = len(strips)
    strips += [
        entry.draw("selected" if tab.cursor and place == window.at else "background", shift)
        for place, entry in enumerate(window.shown, window.top)
    ]
    below = [*air, *loaders]
    strips += [drawing.blank(width, look)] * (height - len(strips) - len(below))
    return DetailsPicture([*strips, *below][:height], tabs_y, spots, list_y)


def _chart_lines(height: int) -> int:
    if height < CHART_FROM:
        return 0
    return 2 if height < ROOMY else 4 if height < 50 else 6


def _facts(facts: str, window: ListWindow, look: Look) -> tuple[str, ...]:
    """How much there is, and which of it is to be seen: at the least, how many lines there are below."""
    count, bottom = len(window.entries), window.top + window.height
    if count <= window.height:
        return (facts,)
    seen = f"{window.top + 1}-{min(bottom, count)} of {count}"
    below = f"{look.glyphs.down}{count - bottom}" if bottom < count else look.glyphs.up
    return f"{facts}  {seen}" if facts else seen, seen, below

"""The whole screen of one process as strips: what has room where."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.model import Frame
from gputop.ui.details.activity import now
from gputop.ui.details.head import head, names
from gputop.ui.details.process_view import ProcessView
from gputop.ui.details.relatives import pane
from gputop.ui.details.tabs import ProcessTab
from gputop.ui.panes.header import Status, fresh, trail
from gputop.ui.widgets import drawing
from gputop.ui.widgets.tabs import TabPicture, tabbed

CHART_FROM = 16  # lines: below, the tab has all the room
ROOMY = 36
LOADERS_SHARE = 0.4  # of what is below the tabs, at most


def picture(
    view: ProcessView, newest: Frame, tab: ProcessTab, tabs: Sequence[ProcessTab], size: tuple[int, int], status: Status
) -> TabPicture:
    """All of it in exactly `size` cells."""
    width, height = size
    look = view.look
    roomy = height >= ROOMY
    above = [trail(newest.hostname, names(view), fresh(newest, status, look), width, look)]
    above += [*head(view, width, 4 if roomy else 2), *now(view, width, _chart_lines(height))]
    below_it = tab.loaders and height >= CHART_FROM
    loaders = pane(view, width, int((height - len(above) - 1) * LOADERS_SHARE)) if below_it else []
    air = [drawing.blank(width, look)] if loaders and roomy else []
    tab.view = view
    return tabbed(above, tab, tabs, [*air, *loaders], size, look)


def _chart_lines(height: int) -> int:
    if height < CHART_FROM:
        return 0
    return 2 if height < ROOMY else 4 if height < 50 else 6

"""The whole screen of a result as strips: what it says, its tabs, below the first of them more at a glance. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from textual.strip import Strip

from gputop import units
from gputop.diagnose import Finding
from gputop.model import Frame
from gputop.ui.panes.header import Piece, trail
from gputop.ui.result import files, verdicts
from gputop.ui.result.about import names
from gputop.ui.result.content import Content
from gputop.ui.theme import Look, Token
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line, Run
from gputop.ui.widgets.tabs import ListTab, Tab, TabPicture, tabbed

AIR_FROM = 26  # lines: below, nothing is left blank
GLANCE_FROM = 16  # lines for a tab: from there on, others stand below the first
_GLANCE_ROWS = 5  # of a table, with its titles
_GLANCED = {"functions": "top functions", "operators": "operators", "kernels": "kernels"}
_LEAST_ROWS = 7  # of the tab itself


def picture(
    content: Content,
    tab: Tab,
    frame: Frame | None,
    live: Sequence[Finding],
    size: tuple[int, int],
    look: Look,
) -> TabPicture:
    """All of it in exactly `size` cells; `live` are the findings of its processes."""
    width, height = size
    roomy = height >= AIR_FROM
    air = [drawing.blank(width, look)] if roomy else []
    most = 3 if height < 20 else 4 if not roomy else 5 if height < 50 else 8
    said = verdicts.strips(content.says, live, width, most, look)
    above = [_above(content, frame, width, look), *air, *said, *air]
    glance = _glance(content, tab, width, max(0, height - len(above) - 1), look)
    return tabbed(above, tab, content.tabs, glance, size, look)


def _glance(content: Content, tab: Tab, width: int, room: int, look: Look) -> list[Strip]:
    """What stands below the first tab where that leaves room: the table after it, and the files."""
    if tab is not content.tabs[0] or room < GLANCE_FROM:
        return []
    lists = [each for each in content.tabs if isinstance(each, ListTab) and each.id in _GLANCED]
    wanted = tab.natural(width, look)
    left = room - min(wanted, max(room * 3 // 5 - 2, _LEAST_ROWS))
    shown = files.summary(content.about.files, look)
    right = "y copies a path, Y shows an scp line"
    beneath = [drawing.rule("files", width, look, right=right), *(line.strip(width) for line in shown)]
    blank = [drawing.blank(width, look)]
    with_files = bool(shown) and left >= 2 + _GLANCE_ROWS + 1 + len(beneath)
    strips: list[Strip] = []
    room = left - (len(beneath) + 1 if with_files else 0)
    for each in lists:
        table = each.glance(width, room - len(strips) - 2, look)
        if table:
            strips += [
                *blank,
                drawing.rule(_GLANCED[each.id], width, look, right="".join(each.facts(look)[:1])),
                *table,
            ]
    strips += blank * (room - len(strips))
    if with_files:
        strips += [*blank, *beneath]
    return strips


def _above(content: Content, frame: Frame | None, width: int, look: Look) -> Strip:
    """Where it is from; at the right which rank, and where it is kept."""
    about, ranks = content.about, content.ranks
    several = f"{ranks[content.rank]} of {len(ranks)}  " if len(ranks) > 1 else ""
    saved = f"saved {units.size(about.size_bytes)}B" if about.files else "not saved"
    right: Piece = (90, [Run(several, "text"), Run(saved, "dim")])
    return trail(frame.hostname if frame else "", names(about, frame), [right], width, look)


def waiting(text: str, size: tuple[int, int], look: Look, token: Token = "dim") -> list[Strip]:
    """The screen while there is nothing to show yet, or nothing at all."""
    width, height = size
    top = Line(look, on="raised").add(" gputop ", "busy", bold=True, reverse=True)
    said = Line(look).add(f" {drawing.cut(text, max(0, width - 2), look.glyphs.more)}", token)
    strips = [top.strip(width), drawing.blank(width, look), said.strip(width)]
    return [*strips, *[drawing.blank(width, look)] * (height - 3)][:height]

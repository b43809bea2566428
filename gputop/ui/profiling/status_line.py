"""The line above the keys: how the newest of what is under way goes, or what has come of one that ended."""

from __future__ import annotations

from collections.abc import Callable

from textual import events
from textual.strip import Strip

from gputop.ui.profiling.background_jobs import BackgroundJobs
from gputop.ui.theme import Look
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line, wrap
from gputop.ui.widgets.strip_pane import Lines

_MOST = 3  # lines of a reason
_WIDE = 100  # from here on there is room for what Esc can do


def height(jobs: BackgroundJobs, width: int) -> int:
    """How many lines it needs: none while there is nothing to say."""
    if jobs.news is not None:
        return len(wrap(jobs.news.text, width - 2)[:_MOST])
    return 1 if jobs.newest is not None else 0


def drawn(jobs: BackgroundJobs, width: int, look: Look, escape: str) -> list[Strip]:
    """Those lines. `escape` is the key that asks whether to end it, empty where there is none."""
    news, newest = jobs.news, jobs.newest
    if news is not None:
        pieces = wrap(news.text, width - 2)[:_MOST]
        return [Line(look, "raised").add(f" {piece}", news.token, bold=True).strip(width) for piece in pieces]
    if newest is None:
        return []
    more = f" {look.glyphs.dot} and {len(jobs.under_way) - 1} more" if len(jobs.under_way) > 1 else ""
    long = newest.tool.id == "profile" and width >= _WIDE
    asks = f"  {escape}: {'keep or discard?' if long else 'stop it?'} " if escape else " "
    line = (
        Line(look, "raised").add(f" {look.glyphs.shut} ", "busy", bold=True).add(newest.run.title, "bright", bold=True)
    )
    said = newest.run.line.replace(" · ", f" {look.glyphs.dot} ")
    text = f" {look.glyphs.dot} {said}{more}" if said else more
    line.add(drawing.cut(text, max(0, width - line.cells - len(asks)), look.glyphs.more), "text")
    return [line.to(width - len(asks)).add(asks, "dim").strip(width)]


class JobLine(Lines):
    """The line on a screen."""

    def __init__(self, jobs: BackgroundJobs, look: Look, escape: Callable[[], str]) -> None:
        """`escape` says which key asks now whether to end it: none while that key is for what is typed."""
        super().__init__(id="jobs")
        self._jobs, self._look, self._escape = jobs, look, escape

    def restyle(self, look: Look) -> None:
        """Draw with other colours or glyphs."""
        self._look = look
        self.redraw()

    def redraw(self) -> None:
        """Draw it again."""
        self.show(drawn(self._jobs, self.app.size.width, self._look, self._escape()))

    def on_resize(self) -> None:
        """Another width."""
        self.redraw()

    def on_click(self, event: events.Click) -> None:
        """It is asked about, or opened."""
        event.stop()
        self._jobs.click()

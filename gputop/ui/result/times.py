"""The timeline tab: one moves through time, zooms, jumps from gap to gap, and reads what was under way there."""

from __future__ import annotations

from textual.strip import Strip

from gputop.trace.lanes import Lanes
from gputop.ui.draw import Line
from gputop.ui.look import Look
from gputop.ui.result.tab import Tab
from gputop.ui.result.timeline import NAMES, Stretch, gap_at, next_gap, strips, took, under

_ZOOM = 2.0
_SHORTEST_US = 1.0  # of a whole screen
_AFTER = 1.12  # a step is shown with the beginning of the next
_MOVES = 40  # key presses across the screen
_LEAST_GAP = 0.01  # of what is looked at


class Timeline(Tab):
    """The lanes under a cursor."""

    id, title, short = "timeline", "Timeline", "Time"
    keys = frozenset({"result-left", "result-right", "result-in", "result-less", "result-gap"})

    def __init__(self, lanes: Lanes) -> None:
        self.lanes = lanes
        self.at = first(lanes)
        self._width = 80
        self._drawn: tuple[object, list[Strip]] | None = None  # of many kernels it is not quickly made

    @property
    def facts(self) -> str:
        """What of the whole is looked at."""
        whole = max(1.0, self.lanes.end - self.lanes.start)
        part = "" if self.at.span >= whole * 0.999 else f", {took(self.at.span)} shown"
        return f"{len(self.lanes.steps)} steps, {took(whole)}{part}"

    def natural(self, width: int, look: Look) -> int:  # noqa: ARG002
        """The axis, the lanes, a line on what is under the cursor."""
        return len(self.lanes.lanes) + 2

    def draw(self, width: int, height: int, look: Look) -> list[Strip]:
        """As many lanes as fit, and what is under the cursor."""
        self._width = max(1, width - NAMES - 1)
        if self._drawn is None or self._drawn[0] != (self.at, width, look):
            self._drawn = (self.at, width, look), strips(self.lanes, self.at, width, look)
        drawn = self._drawn[1]
        foot = [self._foot(width, look)] if height >= 5 else []
        return [*drawn[: max(1, height - len(foot))], *foot][: max(0, height)]

    def _foot(self, width: int, look: Look) -> Strip:
        """When the cursor is, whether nothing happens then, and what does."""
        line = Line(look).add(f" {took(self.at.cursor - self.lanes.start)}  ", "bright", bold=True)
        gap = gap_at(self.lanes, self.at.cursor)
        if gap:
            line.add(f"{self.lanes.gaps_of} does nothing for {took(gap[1] - gap[0])}  ", "warn")
        for title, text in under(self.lanes, self.at, self._width):
            line.add(f"{title} ", "dim").add(f"{text}   ", "text")
        return line.strip(width)

    def show(self, start: float, end: float) -> None:
        """Look at a stretch."""
        self.at = Stretch(start, max(end, start + _SHORTEST_US), start)

    def move(self, lines: int) -> None:
        """Down is later."""
        if abs(lines) > 1000:
            self._to(self.lanes.start if lines < 0 else self.lanes.end)
        else:
            self.press("sideways", lines)

    def page(self, pages: int) -> None:
        """A screen later or earlier."""
        self._to(self.at.cursor + pages * self.at.span)

    def press(self, what: str, amount: int = 0) -> str:
        """Move, zoom around the cursor, or go to the next gap."""
        if what == "sideways":
            self._to(self.at.cursor + amount * self.at.span / _MOVES)
        elif what == "zoom":
            self._zoom(1 / _ZOOM if amount > 0 else _ZOOM)
        elif what == "next":
            return self._gap()
        return ""

    def _to(self, time: float) -> None:
        """The cursor to a time; the stretch follows where it would leave it."""
        whole, span = self.lanes, self.at.span
        time = min(max(whole.start, time), whole.end)
        start = (
            min(max(self.at.start, time - 0.9 * span), time - 0.1 * span)
            if not (self.at.start <= time <= self.at.end)
            else self.at.start
        )
        self._look(start, span, time)

    def _look(self, start: float, span: float, cursor: float) -> None:
        whole = self.lanes.end - self.lanes.start
        span = min(max(_SHORTEST_US, span), max(whole, _SHORTEST_US))
        start = min(max(self.lanes.start, start), self.lanes.end - span)
        self.at = Stretch(start, start + span, cursor)

    def _zoom(self, factor: float) -> None:
        at = self.at
        span = at.span * factor
        share = (at.cursor - at.start) / at.span if at.span else 0.5
        self._look(at.cursor - share * span, span, at.cursor)

    def _gap(self) -> str:
        found = next_gap(self.lanes, self.at.cursor, _LEAST_GAP * self.at.span)
        if found is None:
            return f"no gap of the {self.lanes.gaps_of} that could be seen here: + shows shorter ones"
        start, end = found
        self._to((start + end) / 2)
        return ""

    def click(self, x: int, y: int) -> None:  # noqa: ARG002
        """The cursor to where one clicks."""
        if x >= NAMES:
            self._to(self.at.start + (x - NAMES) / self._width * self.at.span)


def first(lanes: Lanes) -> Stretch:
    """What is looked at first: a step of usual length with the beginning of the next, or everything."""
    if not lanes.steps:
        return Stretch(lanes.start, max(lanes.end, lanes.start + _SHORTEST_US), lanes.start)
    times = sorted(end - start for _, start, end in lanes.steps)
    usual = times[len(times) // 2]
    _, start, end = min(lanes.steps[:-1] or lanes.steps, key=lambda step: abs(step[2] - step[1] - usual))
    span = min((end - start) * _AFTER, lanes.end - start)
    return Stretch(start, start + span, start)

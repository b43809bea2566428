"""A stretch of time in cells: lanes under one axis, a cursor, the steps. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from textual.strip import Strip

from gputop.frozen_dataclass import frozen_dataclass
from gputop.trace.lanes import Lanes, SpanTrack, TimelineLane
from gputop.ui.result.phases import PHASE_TERMS
from gputop.ui.theme import PLAIN, Look, Token
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line, Run
from gputop.ui.widgets.tabs import Tab

NAMES = 13  # cells for the names of lanes
_TOKENS: dict[str, Token] = {
    "data": "warn",
    "forward": "busy",
    "backward": "busy area",
    "optimizer": "memory",
    "zero": "memory",
    "comm": "owner",
    "compute": "busy",
    "copy": "command",
    "thread": "dim",
}
_MOSTLY = 0.6  # covered so far, a row of spans is one that lasts
_LEAST = 0.02  # of a cell; less than this of it is as good as nothing


@frozen_dataclass(frozen=True, slots=True)
class Stretch:
    """The visible part: from, to, and where the cursor stands; microseconds."""

    start: float
    end: float
    cursor: float

    @property
    def span(self) -> float:
        """How long it is."""
        return self.end - self.start


def strips(lanes: Lanes, at: Stretch, width: int, look: Look) -> list[Strip]:
    """The axis, then a line for each lane."""
    names = min(NAMES, max(6, width // 6))
    room = max(1, width - names - 1)
    lines = [axis(lanes, at, names, room, look)]
    for lane in lanes.lanes:
        line = Line(look).add(" ").add(drawing.fit(lane.title, names - 1, more=look.glyphs.more), "dim").to(names)
        _fill(line, lane, at, room, look)
        lines.append(line)
    return [line.strip(width) for line in lines]


def axis(lanes: Lanes, at: Stretch, names: int, room: int, look: Look) -> Line:
    """Times from the beginning of the trace, where steps begin, where the cursor is."""
    unit_us, unit = (1e6, "s") if at.end - lanes.start >= 10e6 else (1e3, "ms")
    tick = _tick(at.span / unit_us, room)
    marks: dict[int, tuple[str, Token]] = {}
    first = int((at.start - lanes.start) / unit_us / tick)
    for number in range(first, first + room):
        value = number * tick
        cell = _cell(lanes.start + value * unit_us, at, room)
        if cell >= room:
            break
        if cell >= 0:
            marks[cell] = f"{value:.10g}", "dim"
    for number, start, _ in lanes.steps:
        cell = _cell(start, at, room)
        if 0 <= cell < room and start > at.start - at.span / room:
            marks[cell] = (f"{look.glyphs.column} step {number}", "text")
    cursor = _cell(at.cursor, at, room)
    line = Line(look).add(f"{unit:>{names - 2}}", "dim").to(names)
    for cell in sorted(marks):
        text, token = marks[cell]
        if line.cells < names + cell + (cell == 0) and names + cell + len(text) <= names + room:
            line.to(names + cell).add(text, token).add(" ")
    return _marked(line, names + cursor, names + room, look)


def _marked(line: Line, cell: int, width: int, look: Look) -> Line:
    """The line with the cursor on it."""
    text = line.to(width).strip(width).text
    made = Line(look)
    if not 0 <= cell < width:
        return line
    before, after = text[:cell], text[cell + 1 :]
    return made.add(before, "dim").add(look.glyphs.down, "bright", bold=True).add(after, "dim")


def _tick(span: float, room: int) -> float:
    """A step of the axis: 1, 2 or 5 times a power of ten, at least 12 cells apart."""
    return drawing.ceiling(span * 12 / room, 1e-4)


def _cell(time: float, at: Stretch, room: int) -> int:
    return int((time - at.start) / at.span * room // 1) if at.span > 0 else 0


def _fill(line: Line, lane: TimelineLane, at: Stretch, room: int, look: Look) -> None:
    """One lane: runs of cells in which the same kind takes most of the time; blank is nothing."""
    each = at.span / room
    if lane.area:
        shares = [
            lane.tracks[0].covered(at.start + cell * each, at.start + (cell + 1) * each) / each for cell in range(room)
        ]
        line.add(drawing.chart_lines(shares, room, 1, 1.0, look)[0], "busy")
        return
    owners: list[SpanTrack | None] = []
    for cell in range(room):
        start = at.start + cell * each
        taken = [(track.covered(start, start + each), track) for track in lane.tracks]
        most, track = max(taken, key=lambda pair: pair[0])
        owners.append(track if most >= _LEAST * each else None)
    cell = 0
    while cell < room:
        owner, first = owners[cell], cell
        while cell < room and owners[cell] is owner:
            cell += 1
        if owner is None:
            line.add(look.glyphs.rule * (cell - first), "faint")
        else:
            span = at.start + first * each, at.start + cell * each
            _block(line, owner, span, cell - first, look)


def _block(line: Line, track: SpanTrack, span: tuple[float, float], cells: int, look: Look) -> None:
    """What takes some cells, with its name where that fits."""
    token = _TOKENS.get(track.kind, "dim")
    count, start, end = track.within(*span)
    name = track.name(*span)
    lasts = f" {took(end - start)}" if count == 1 or track.covered(*span) > _MOSTLY * (end - start) else ""
    whole = next((text for text in (f"{name}{lasts}", name) if len(text) + 2 <= cells), "")
    text = whole.center(cells) if whole else _short(name, cells, look)
    if look.palette is PLAIN and cells > 2:
        text = f"|{text[1:]}"
    line.add(drawing.fit(text, cells), token, reverse=True)


def _short(name: str, cells: int, look: Look) -> str:
    """As much of a name as fits; a single letter says nothing, and the line below names what is at the cursor."""
    return f" {drawing.cut(name, cells - 2, look.glyphs.more)}" if cells >= 6 else ""


def took(us: float) -> str:
    if us >= 1e6:
        return f"{us / 1e6:.3g} s"
    return f"{us / 1e3:.3g} ms" if us >= 100 else f"{us:.0f} µs"


def under(lanes: Lanes, at: Stretch, width: int) -> list[tuple[str, str]]:
    """What is under the cursor, lane by lane: its name, what runs there and for how long."""
    found = []
    each = at.span / max(1, width)
    for lane in lanes.lanes:
        if lane.area:
            continue
        taken = [(track.covered(at.cursor - each / 2, at.cursor + each / 2), track) for track in lane.tracks]
        most, track = max(taken, key=lambda pair: pair[0])
        if most > 0:
            _, start, end = track.within(at.cursor - each / 2, at.cursor + each / 2)
            found.append((lane.title, f"{track.name(start, end)} {took(end - start)}"))
    return found


def gap_at(lanes: Lanes, time: float) -> tuple[float, float] | None:
    """The gap that holds a time."""
    for start, end in lanes.gaps.within(time, time + 1e-3):
        return _whole(lanes, start, end)
    return None


def _whole(lanes: Lanes, start: float, end: float) -> tuple[float, float]:
    around = lanes.gaps.within(start - 1e12, end + 1e12)
    return next(((a, b) for a, b in around if a <= start and end <= b), (start, end))


def next_gap(lanes: Lanes, after: float, least: float) -> tuple[float, float] | None:
    """The first gap that begins after a time and is long enough; from the beginning where there is none."""
    long = [(start, end) for start, end in lanes.gaps if end - start >= least]
    return next((gap for gap in long if gap[0] > after), long[0] if long else None)


_ZOOM = 2.0
_SHORTEST_US = 1.0  # of a whole screen
_AFTER = 1.12  # a step is shown with the beginning of the next
_MOVES = 40  # key presses across the screen
_LEAST_GAP = 0.01  # of the visible part


class TimelineTab(Tab):
    """The lanes under a cursor."""

    id, title, short = "timeline", "Timeline", "Time"
    keys = frozenset({"left", "right", "in", "less", "gap"})
    terms = (*PHASE_TERMS, "GPU compute", "gap")

    def __init__(self, lanes: Lanes) -> None:
        self.lanes = lanes
        self.at = first(lanes)
        self._width = 80
        self._drawn: tuple[object, list[Strip]] | None = None  # of many kernels it is not quickly made

    def facts(self, look: Look) -> Sequence[str]:  # noqa: ARG002
        """Which part of the whole is visible."""
        whole = max(1.0, self.lanes.end - self.lanes.start)
        part = "" if self.at.span >= whole * 0.999 else f", {took(self.at.span)} shown"
        return (f"{len(self.lanes.steps)} steps, {took(whole)}{part}",)

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
        """`at 0 µs: GPU idle 92.4 ms · main: DataLoader.__next__ 91.9 ms`: what happens where the cursor is."""
        line = Line(look).add(f" at {took(self.at.cursor - self.lanes.start)}:", "bright", bold=True)
        parts: list[list[Run]] = []
        if gap := gap_at(self.lanes, self.at.cursor):
            parts.append([Run(f"{self.lanes.gaps_of} idle {took(gap[1] - gap[0])}", "warn")])
        for title, text in under(self.lanes, self.at, self._width):
            parts.append([Run(f"{title}: ", "dim"), Run(text, "text")])
        for number, runs in enumerate(parts or [[Run("nothing traced", "dim")]]):
            line.add(f" {look.glyphs.dot} " if number else " ", "dim").runs(runs)
        return line.strip(width)

    def show(self, start: float, end: float) -> None:
        """Show a stretch."""
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
            return f"no visible {self.lanes.gaps_of} gap: + shows shorter ones"
        start, end = found
        self._to((start + end) / 2)
        return ""

    def click(self, x: int, y: int) -> None:  # noqa: ARG002
        """The cursor to where one clicks."""
        if x >= NAMES:
            self._to(self.at.start + (x - NAMES) / self._width * self.at.span)


def first(lanes: Lanes) -> Stretch:
    """What is shown first: a step of usual length with the beginning of the next, or everything."""
    if not lanes.steps:
        return Stretch(lanes.start, max(lanes.end, lanes.start + _SHORTEST_US), lanes.start)
    times = sorted(end - start for _, start, end in lanes.steps)
    usual = times[len(times) // 2]
    _, start, end = min(lanes.steps[:-1] or lanes.steps, key=lambda step: abs(step[2] - step[1] - usual))
    span = min((end - start) * _AFTER, lanes.end - start)
    return Stretch(start, start + span, start)

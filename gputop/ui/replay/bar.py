"""The line of a recording: its name and span, how fast it plays, where it stands, what happened when, and the keys."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from textual import events
from textual.message import Message

from gputop import units
from gputop.fit import fit
from gputop.source import RecordedEvent
from gputop.ui.commands.command import Command
from gputop.ui.replay.player import Player, stands
from gputop.ui.theme import Look, Token
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line, Run
from gputop.ui.widgets.strip_pane import Lines

_LOOK_S = 0.5  # between two checks for what may have changed without a frame: marks that are still being found
_NAME_CELLS = 40
_WORD_CELLS = len("the end")  # of what it does: the track does not move when it is paused
_ROOMY = 150  # cells in which the keys also say what they do
_ALWAYS = 90  # how dearly it is kept what the recording does: that stays
_DAY_S = 86400.0
_KEYS = (
    ("pause", ("pause",)), ("speed", ("slower", "faster")), ("1 s", ("second-back", "second-on")),
    ("60 s", ("minute-back", "minute-on")), ("end", ("recording-end",)),
)  # fmt: skip
_WEIGHT = {"info": 0, "warn": 1, "crit": 2}


class Piece(NamedTuple):
    """A part of the line: how dearly it is kept, how it reads, which key a click on it presses."""

    keep: int
    runs: list[Run]
    key: Command | None = None
    gap: int = 2  # cells before it


@dataclass(slots=True)
class DrawnBar:
    """The line, and where on it is what."""

    line: Line
    spots: list[tuple[int, int, Command]]  # from cell, to cell, the key a click there presses
    track: range = range(0)  # the cells of the track

    def put(self, piece: Piece) -> None:
        """Append a piece."""
        self.line.add(" " * (piece.gap if self.line.cells else 1))
        start = self.line.cells
        self.line.runs(piece.runs)
        if piece.key:
            self.spots.append((start, self.line.cells, piece.key))


def replay_bar(player: Player, name: str, keys: Sequence[Command], width: int, look: Look) -> DrawnBar:
    """The line: what leaves the track no room goes, the least important first."""
    by_id = {key.id: key for key in keys}
    right = _right(by_id, said=width >= _ROOMY)
    parts = [*([piece] for piece in _left(player, name, look, by_id.get("pause"))), right]
    shown = fit(parts, width - max(8, width // 4) - 2, _cells, keep=_least, always=_ALWAYS)
    right = right if right in shown else []
    drawn = DrawnBar(Line(look, "raised"), [])
    for piece in chain(*(part for part in shown if part is not right)):
        drawn.put(piece)
    drawn.line.add("  ")
    start = drawn.line.cells
    drawn.track = range(start, max(start + 1, width - 1 - _cells(right)))
    drawn.line.runs(_track(player, len(drawn.track), look))
    for piece in right:
        drawn.put(piece)
    return drawn


def _cells(pieces: Sequence[Piece]) -> int:
    return sum(piece.gap + drawing.cells(piece.runs) for piece in pieces)


def _least(part: Sequence[Piece]) -> int:
    """How dearly a part is kept: all of the keys or none, as some would be less than none."""
    return min((piece.keep for piece in part), default=0)


def _left(player: Player, name: str, look: Look, pause: Command | None) -> list[Piece]:
    return [
        Piece(30, [Run(drawing.cut(name, _NAME_CELLS, look.glyphs.more), "text")]),
        Piece(20, [Run(_span(*player.span), "dim")]),
        Piece(_ALWAYS, [_state(player, look)], pause if pause and pause.keys else None),
        Piece(80, [Run(units.clock(player.position_s), "bright")]),
        Piece(35, [Run(f"of {units.clock(player.length_s)}", "dim")], gap=1),
    ]


def _state(player: Player, look: Look) -> Run:
    """What it does, and how fast it plays or would."""
    word: str = look.glyphs.shut
    token: Token = "busy"
    if player.seeking:
        word, token = "seeking", "dim"
    elif standing := stands(player):
        word, token = standing, "bright"
    speed = f"{player.speed:g}{look.glyphs.times}"
    return Run(drawing.fit(f"{word} {speed}", _WORD_CELLS + 1 + len(speed)), token, token != "dim")


def _span(first_s: float, last_s: float) -> str:
    """From when to when: the date of the end only where it is not plain."""
    first, last = time.localtime(first_s), time.localtime(last_s)
    end = "%H:%M" if last_s - first_s < _DAY_S else "%m-%d %H:%M"
    return f"{time.strftime('%Y-%m-%d %H:%M', first)} to {time.strftime(end, last)}"


def _right(by_id: dict[str, Command], *, said: bool) -> list[Piece]:
    """The keys, and where there is room what they do."""
    pieces = []
    for what, ids in _KEYS:
        keys = [by_id[id] for id in ids if id in by_id and by_id[id].keys]
        pieces += [
            Piece(40, [Run(key.names[0], "busy", True)], key, 1 if place else 2) for place, key in enumerate(keys)
        ]
        if keys and said:
            pieces.append(Piece(5, [Run(what, "dim")], gap=1))
    return pieces


def _track(player: Player, cells: int, look: Look) -> list[Run]:
    """What has been played, where it stands, and what happened; the worst of a cell is shown."""
    glyphs = look.glyphs
    here = cell(player.position_s, player.length_s, cells)
    played: list[Run] = [Run(glyphs.line, "busy") if at < here else Run(glyphs.rule, "faint") for at in range(cells)]
    worst: dict[int, RecordedEvent] = {}
    for mark in player.marks:
        at = cell(mark.at_s, player.length_s, cells)
        if at not in worst or _WEIGHT[mark.severity] > _WEIGHT[worst[at].severity]:
            worst[at] = mark
    for at, mark in worst.items():
        played[at] = _sign(mark, look)
    played[here] = Run(glyphs.knob, "bright", True)
    return played


def _sign(mark: RecordedEvent, look: Look) -> Run:
    token: Token = "text" if mark.severity == "info" else mark.severity
    return Run({"info": look.glyphs.dot, "warn": look.glyphs.warn, "crit": look.glyphs.crit}[mark.severity][:1], token)


def cell(at_s: float, length_s: float, cells: int) -> int:
    """The cell of a track in which a position is; the ends are the ends."""
    share = at_s / length_s if length_s > 0 else 0.0
    return round(min(1.0, max(0.0, share)) * (cells - 1))


class ReplayBar(Lines):
    """The line on the screen. A click on its track goes there, a click on a key presses it."""

    class Sought(Message):
        """A click goes to this moment; a mark that stands there says what it is."""

        def __init__(self, position_s: float, said: str) -> None:
            super().__init__()
            self.position_s = position_s
            self.said = said

    def __init__(self, player: Player, name: str, keys: Sequence[Command], look: Look) -> None:
        super().__init__(id="replay")
        self.look = look
        self._player = player
        self._called = name
        self._keys = keys
        self._drawn: DrawnBar | None = None

    def on_mount(self) -> None:
        """Follow what changes by itself."""
        self.set_interval(_LOOK_S, self.redraw)

    def restyle(self, look: Look) -> None:
        """Draw with other colours or glyphs."""
        self.look = look
        self.redraw()

    def redraw(self) -> None:
        """Draw the line again."""
        width = self.size.width
        if width:
            self._drawn = replay_bar(self._player, self._called, self._keys, width, self.look)
            self.show([self._drawn.line.strip(width)])

    def on_resize(self) -> None:
        """More or less fits."""
        self.redraw()

    async def on_click(self, event: events.Click) -> None:
        """Go there, or press the key."""
        event.stop()
        if not self._drawn:
            return
        track = self._drawn.track
        if event.x in track:
            self.post_message(self._sought(event.x - track.start, len(track)))
            return
        for start, end, key in self._drawn.spots:
            if start <= event.x < end:
                self.app.simulate_key(key.keys[0])

    def _sought(self, at: int, cells: int) -> Sought:
        length_s = self._player.length_s
        here = [mark for mark in self._player.marks if cell(mark.at_s, length_s, cells) == at]
        if here:
            mark = max(here, key=lambda mark: _WEIGHT[mark.severity])
            return self.Sought(mark.at_s, mark.text)
        return self.Sought(length_s * at / max(1, cells - 1), "")

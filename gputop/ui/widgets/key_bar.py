"""The last line: keys by priority, each one clickable; for a moment, what there is to say."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.strip import Strip
from textual.timer import Timer

from gputop.fit import fit
from gputop.ui.commands.command import Command, Names
from gputop.ui.theme import Look, Token
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line, Run
from gputop.ui.widgets.strip_pane import Lines

SAY_S = 4.0
Spot = tuple[int, int, Command]  # from cell, to cell, what a click there does


def chosen(keys: Sequence[Command], width: int) -> list[Command]:
    """The keys that fit a line, the least important left out first, in the order they were declared."""
    named = (key for key in keys if key.keep and key.keys)
    return fit(named, width, lambda key: len(key.names[0]) + len(key.title) + 3)


def bar(keys: Sequence[Command], width: int, look: Look) -> tuple[Strip, list[Spot]]:
    """The line, and where on it which key is."""
    line, spots = Line(look, "raised").add(" "), []
    for key in chosen(keys, width):
        start = line.cells
        line.add(key.names[0], "busy", bold=True).add(f" {key.title}", "dim")
        spots.append((start, line.cells, key))
        line.add("  ")
    return line.strip(width), spots


def pressed(names: Names, id: str, what: str) -> list[Run]:
    """A key and what it does; nothing where it has no key."""
    name = names.get(id)
    return [Run(name, "busy", True), Run(f" {what}", "dim")] if name else []


class KeyBar(Lines):
    """The key bar."""

    def __init__(self, look: Look, keys: Sequence[Command]) -> None:
        super().__init__(id="keys")
        self.look = look
        self._spots: list[Spot] = []
        self._keys = keys
        self.said = ""
        self._token: Token = "bright"
        self._lent: Line | None = None
        self._silence: Timer | None = None

    def restyle(self, look: Look) -> None:
        """Draw with other colours or glyphs."""
        self.look = look
        self.redraw()

    def offer(self, keys: Sequence[Command]) -> None:
        """Show these keys, those that do something on this screen."""
        if keys != self._keys:
            self._keys = keys
            self.redraw()

    def say(self, text: str, seconds: float = SAY_S, token: Token = "bright") -> None:
        """Show a line instead of the keys, for a while."""
        if self._silence:
            self._silence.stop()
        self.said, self._token = text, token
        self._silence = self.set_timer(seconds, self.hush)
        self.redraw()

    def lend(self, line: Line | None) -> None:
        """Show this line instead of the keys, until there is none; what was said before it is over."""
        self._lent = line
        if line:
            self.said = ""
        self.redraw()

    def hush(self) -> None:
        """Show the keys again."""
        self.said = ""
        self.redraw()

    def redraw(self) -> None:
        """Draw the line again."""
        width, look = self.size.width, self.look
        if self.said:
            said = self.said.replace(" · ", f" {look.glyphs.dot} ")
            text = drawing.cut(said, max(0, width - 2), look.glyphs.more)
            strip, self._spots = Line(look, "raised").add(" ").add(text, self._token).strip(width), []
        elif self._lent:
            strip, self._spots = self._lent.strip(width), []
        else:
            strip, self._spots = bar(self._keys, width, look)
        self.show([strip])

    def on_resize(self) -> None:
        """Other keys fit."""
        self.redraw()

    def masked(self) -> Sequence[Strip]:
        """The keys: what it says is of a moment, and perhaps of the file before this one."""
        return [bar(self._keys, self.size.width, self.look)[0]]

    async def on_click(self, event: events.Click) -> None:
        """A click on a key presses it."""
        event.stop()
        for start, end, key in self._spots:
            if start <= event.x < end:
                self.app.simulate_key(key.keys[0])

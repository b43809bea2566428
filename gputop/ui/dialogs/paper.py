"""What the lines of every dialog that asks for an action have in common."""

from __future__ import annotations

from collections.abc import Iterator

from gputop.ui import draw
from gputop.ui.draw import Line, wrap
from gputop.ui.look import Look, Token

_NARROWEST = 20  # cells of a sentence: below, words would stand one under the other


class Paper:
    """Draws a question in a width; the lines of each kind of question come on top."""

    def __init__(self, look: Look, width: int) -> None:
        self.look, self.width = look, width

    def line(self, chosen: bool = False) -> Line:
        """An empty line, as all begin."""
        return Line(self.look, "selected" if chosen else "raised").add("  ")

    def cut(self, text: str, taken: int) -> str:
        """As much of it as fits beside this many cells."""
        return draw.cut(text, max(0, self.width - taken - 2), self.look.glyphs.more)

    def mark(self, picked: bool) -> str:
        """Of one of several, whether it is the one."""
        return f"({self.look.glyphs.picked if picked else ' '})"

    def sentence(self, mark: str, text: str, token: Token) -> Iterator[Line]:
        """Something to know, with its mark, broken between words."""
        start = 3 + max(len(mark), 1)
        for place, piece in enumerate(wrap(text, max(_NARROWEST, self.width - start - 2))):
            line = self.line().add("" if place else mark, token, bold=True).to(start)
            yield line.add(self.cut(piece, line.cells), token)

    def last(self, foot: str, told: str) -> Line:
        """Which keys there are, or what was just told instead."""
        return self.line().add(self.cut(told or foot, 2), "warn" if told else "dim")

"""One line in which something is typed, above the key bar: a cursor, what is wrong, what came of it."""

from __future__ import annotations

from collections.abc import Callable

from rich.cells import cell_len
from textual import events

from gputop.safe.text import clean
from gputop.ui.theme import Look, Token
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line
from gputop.ui.widgets.strip_pane import Lines

MOST = 200  # characters
PASSED = frozenset({"up", "down", "pageup", "pagedown", "ctrl+c", "ctrl+z"})  # not for a line of text


class Prompt(Lines, can_focus=True):
    """Where something is typed. It gets a function for the text, and calls another when Enter or Esc ends it."""

    def __init__(self, look: Look) -> None:
        super().__init__(id="prompt")
        self.look = look
        self.text = ""
        self._at = 0
        self._label = ""
        self._said = ""
        self._wrong: tuple[int, int] | None = None
        self._changed: Callable[[str], None] = lambda _: None
        self._ended: Callable[[bool], None] = lambda _: None

    def restyle(self, look: Look) -> None:
        """Draw with other colours or glyphs."""
        self.look = look
        self.redraw()

    def ask(self, label: str, text: str, changed: Callable[[str], None], ended: Callable[[bool], None]) -> None:
        """Begin: `changed` hears each new text, `ended` whether it was taken (Enter) or not (Esc)."""
        self._label, self._changed, self._ended = label, changed, ended
        self.text, self._at = text, len(text)
        self.tell("")

    def tell(self, said: str, wrong: tuple[int, int] | None = None) -> None:
        """What to say at the right, and which part of the text is wrong."""
        self._said, self._wrong = said, wrong
        self.redraw()

    def column(self, place: int) -> int:
        """The cell in which a character of the text stands."""
        return self._head + cell_len(self.text[self._first : max(self._first, place)])

    @property
    def _head(self) -> int:
        return len(self._label) + 3

    @property
    def _first(self) -> int:
        """The first character that is shown: the cursor stays in sight."""
        room = max(1, self.size.width - self._head - len(self._said) - 3)
        first = 0
        while cell_len(self.text[first : self._at]) >= room:
            first += 1
        return first

    def redraw(self) -> None:
        """Draw the line again."""
        width, text, at = self.size.width, self.text, self._at
        line = Line(self.look, "raised").add(" ").add(self._label, "busy", bold=True).add("  ")
        end = max(0, width - len(self._said) - 2)
        start, stop = self._wrong or (0, 0)
        for place in range(self._first, len(text) + 1):
            if line.cells >= end:
                break
            token: Token = "warn" if start <= place < stop else "bright"
            line.add(text[place : place + 1] or " ", token, reverse=place == at)
        self.show([line.to(end).add(" ").add(self._said, "dim").strip(width)])

    def on_resize(self) -> None:
        """Another width."""
        self.redraw()

    def take(self, event: events.Key) -> bool:
        """Type a key, or leave it to the screen: whether it was for a line of text."""
        key = event.key
        if key in PASSED or (key[0] == "f" and key[1:].isdecimal()):
            return False
        if key in ("enter", "escape"):
            self._ended(key == "enter")
        elif event.is_printable and event.character:
            self._insert(event.character)
        else:
            self._edit(key)
        return True

    def on_paste(self, event: events.Paste) -> None:
        """What is pasted is typed: one line, nothing that is not text."""
        event.stop()
        self._insert(clean(" ".join(event.text[: 4 * MOST].split()), MOST))

    def _insert(self, typed: str) -> None:
        typed = typed[: max(0, MOST - len(self.text))]
        self._change(self.text[: self._at] + typed + self.text[self._at :], self._at + len(typed))

    def _edit(self, key: str) -> None:
        text, at = self.text, self._at
        word = len(text[:at].rstrip().rpartition(" ")[0])
        moves = {"left": at - 1, "right": at + 1, "home": 0, "ctrl+a": 0, "end": len(text), "ctrl+e": len(text)}
        cuts = {
            "backspace": (at - 1, at), "ctrl+h": (at - 1, at), "delete": (at, at + 1), "ctrl+u": (0, at),
            "ctrl+k": (at, len(text)), "ctrl+w": (word, at),
        }  # fmt: skip
        if key in moves:
            self._at = min(max(0, moves[key]), len(text))
            self.redraw()
        elif key in cuts:
            start, end = max(0, cuts[key][0]), cuts[key][1]
            self._change(text[:start] + text[end:], start)

    def _change(self, text: str, at: int) -> None:
        changed, self.text, self._at = text != self.text, text, at
        if changed:
            self._changed(text)
        self.redraw()


def pointing(at: tuple[int, int], message: str, width: int, look: Look) -> Line:
    """The line below a text: `^^^^` under the cells that are wrong, and why."""
    start, end = at
    marks = "^" * max(1, end - start)
    whole, behind = max(0, width - 2), width - end - 2
    # what is cut in any case is cut behind the marks, where there is room for most of it
    message = drawing.cut(message, behind if len(message) > whole <= 2 * behind else whole, look.glyphs.more)
    line = Line(look, "raised")
    if end + 1 + len(message) < width:
        return line.to(start).add(marks, "warn", bold=True).add(f" {message}", "warn")
    if len(message) + 2 < start and end <= width:
        return line.to(start - len(message) - 1).add(f"{message} ", "warn").add(marks, "warn", bold=True)
    return line.add(f" {message}", "warn")

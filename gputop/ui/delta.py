"""Between Textual and the terminal: knows what the terminal shows and lets through only what differs."""

from __future__ import annotations

import re
from unicodedata import category

from rich.cells import cell_len

from gputop.ui.pens import UNKNOWN, Pens
from gputop.ui.spans import Place, Row, move, spans, written
from gputop.ui.stretches import Stretch, stretches

BEGIN, END = "\x1b[?2026h", "\x1b[?2026l"  # of what the terminal is to show at once
_BRACKETS = re.compile(r"\x1b\[\?2026[hl]")


class Delta:
    """The cells of a terminal as they were sent to it.

    After `reduce` its cells, cursor and pen are those that the data itself would have left, but for the ink of blanks.
    A stretch with other than one-cell characters is sent as it came, as terminals differ about their widths. Whatever
    is not understood goes through at once, and the screen counts as unknown after it. The terminal must not wrap lines.
    """

    def __init__(self, width: int, height: int) -> None:
        self.size = width, height
        self._width, self._height = width, height
        self._pens = Pens()
        self._atomic = False
        # where the data has left cursor and pen, and the lines it changed
        self._at: Place | None = None
        self._pen = UNKNOWN
        self._wanted: dict[int, Row] = {}
        self._wide: dict[tuple[int, int, int], Stretch] = {}  # line, columns from and to
        self.forget()

    def forget(self) -> None:
        """Nobody knows what the terminal shows: all is sent until it is known again."""
        # a new list: a signal may bring us here in the middle of the other methods, which are then not to be believed
        self._rows: list[Row] = [(UNKNOWN * self._width, UNKNOWN * self._width)] * self._height
        self._cursor: Place | None = None
        self._ink = UNKNOWN

    def reduce(self, data: str) -> str:
        """What to send instead of this, and of what was kept; nothing where the terminal shows it already."""
        out = self.keep(data)
        shown = self._shown()
        return f"{out}{BEGIN}{shown}{END}" if shown and self._atomic else f"{out}{shown}"

    def keep(self, data: str) -> str:
        """What of this cannot wait for the next `reduce`: of pictures nothing."""
        if BEGIN[:-1] in data:
            self._atomic |= BEGIN in data
            data = _BRACKETS.sub("", data)
        if not data:
            return ""
        parts = stretches(data, self._pen, self._pens)
        return "".join([self._through(part) for part in parts if not self._taken(part)])

    def _taken(self, part: Stretch) -> bool:
        """Takes a stretch for the next `reduce`, if that is all there is to it."""
        start = part.start(self._at)
        if start is None or not part.understood or part.scrolls(self._at, self._height):
            return False
        (y, x), text, inks = start, part.text, part.inks
        end = x + len(text)
        # left behind the margin, only the terminal knows where its cursor is
        if y >= self._height or x >= self._width or (part.last and text and end >= self._width):
            return False
        row = self._wanted.get(y)
        if end <= self._width and part.narrow:
            self._at = y, end
        elif part.last or category(text[0])[0] == "M":
            return False
        else:
            end = min(self._width, x + cell_len(text))
            # the last one written over all of another is enough; the order counts
            self._wide.pop((y, x, end), None)
            self._wide[y, x, end] = part
            self._at = y, self._width
            # nobody knows what it touches to the end of the line, but for what is written there next
            end = end if row else self._width
            text = inks = UNKNOWN * (end - x)
        shown, pens = row or self._rows[y]
        if shown[x:end] != text or pens[x:end] != inks:
            self._wanted[y] = shown[:x] + text + shown[end:], pens[:x] + inks + pens[end:]
        self._pen = part.after
        return True

    def _through(self, part: Stretch) -> str:
        """Whatever it does, it does it where the data would have had cursor and pen."""
        out = self._shown() + "".join(part.raw)
        self.forget()
        self._at, self._pen = None, part.after
        self._ink = part.after
        return out

    def _shown(self) -> str:
        """What brings the terminal up to all that was kept."""
        pens, rows = self._pens, self._rows
        out = [self._as_it_came((y, x), part) for (y, x, _), part in self._wide.items()]
        self._wide.clear()
        changed = [span for y, row in self._wanted.items() for span in spans(y, rows[y], row, pens)]
        for y, row in self._wanted.items():
            rows[y] = row
        self._wanted.clear()
        if changed:
            as_read = written(changed, self._cursor, self._ink, pens)
            # where looks are long, as those of 24 bits, going to and fro is cheaper than changing them
            changed.sort(key=lambda span: (pens.look(span.pen), span.y, span.x))
            by_look = written(changed, self._cursor, self._ink, pens)
            text, self._cursor, self._ink = min(as_read, by_look, key=lambda found: len(found[0]))
            out.append(text)
        if self._pen not in (UNKNOWN, self._ink):
            text, self._ink = pens.step(self._ink, self._pen)
            out.append(text)
        if self._at is not None:
            out.append(move(self._cursor, self._at))
            self._cursor = self._at
        return "".join(out)

    def _as_it_came(self, place: Place, part: Stretch) -> str:
        y, x = place
        text, inks = self._rows[y]
        # to the end of the line nobody knows what it has touched
        unknown = UNKNOWN * (self._width - x)
        self._rows[y] = text[:x] + unknown, inks[:x] + unknown
        out = move(self._cursor, place)
        if part.before not in (UNKNOWN, self._ink):
            out += self._pens.step(self._ink, part.before)[0]
        self._cursor, self._ink = None, part.after
        return out + "".join(part.raw[1:] if part.move else part.raw)

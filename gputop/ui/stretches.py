"""What Textual writes, cut at each move of the cursor."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from gputop.ui.pens import UNKNOWN, Pens
from gputop.ui.spans import Place

# looks, the end of one and the next one together, and moves; a common start makes the search four times as fast
_TOKENS = re.compile(r"(\x1b\[(?:(?:0m\x1b\[)?[0-9;]*m|[0-9]{1,4};[0-9]{1,4}H))")
# one cell in every terminal: Latin, Greek, Cyrillic, punctuation, arrows, pictures of controls, lines, blocks, Braille
_NARROW = re.compile(
    "[ -~\xa1-\xac\xae-\u02ff\u0391-\u03a1\u03a3-\u0482\u2010-\u2027"
    "\u2190-\u21ff\u2400-\u2426\u2500-\u25fc\u2800-\u28ff\ufffd]*"
)


class Stretch(NamedTuple):
    """Text from one move to the next, a pen for each character, and the pens before and after it."""

    move: str  # empty: it goes on where the data before has ended
    raw: list[str]  # all of it as it came
    text: str
    inks: str
    before: str
    after: str
    last: bool

    @property
    def understood(self) -> bool:
        """Whether text and looks are all there is to it."""
        return self.after != UNKNOWN and UNKNOWN not in self.inks

    @property
    def narrow(self) -> bool:
        """Whether each character takes one cell."""
        return self.text.isascii() or _NARROW.fullmatch(self.text) is not None

    def start(self, at: Place | None) -> Place | None:
        """Where it begins, the cursor having been left at a place."""
        return _place(self.move) if self.move else at

    def scrolls(self, at: Place | None, height: int) -> bool:
        """Whether the end of the line before it may be that of the last line."""
        return self.move[:1] == "\n" and (at is None or at[0] >= height - 1)


@lru_cache(maxsize=4096)
def _place(sequence: str) -> Place:
    y, _, x = sequence.strip("\n")[2:-1].partition(";")
    return max(1, int(y)) - 1, max(1, int(x)) - 1


def stretches(data: str, pen: str, pens: Pens) -> Iterator[Stretch]:
    """The stretches of what is written with a pen."""
    pieces = _TOKENS.split(data)
    pieces.append("")
    before, first, to = pen, 0, ""
    texts: list[str] = []
    inks: list[str] = []
    for i in range(0, len(pieces), 2):
        text, sequence = pieces[i : i + 2]
        if text:
            # a line end is understood before a move only, which makes its column known
            if text[-1] == "\n" and sequence[-1:] == "H":
                text = pieces[i] = text[:-1]
                sequence = pieces[i + 1] = f"\n{sequence}"
            if not text.isprintable():
                pen = UNKNOWN
            texts.append(text)
            inks.append(pen * len(text))
        if sequence[-1:] == "m":
            pen = pens.turn(pen, sequence)
            continue
        if i or texts:
            yield Stretch(to, pieces[first : i + 1], "".join(texts), "".join(inks), before, pen, not sequence)
        before, first, to, texts, inks = pen, i + 1, sequence, [], []

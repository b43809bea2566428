"""Questions: for a time, an answer; and the parts that larger ones are made of."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Generic, TypeVar

from textual import events, on
from textual.app import ComposeResult

from gputop import units
from gputop.config import BY_KEY
from gputop.fit import fit
from gputop.ui.dialogs.box import Answer, Dialog
from gputop.ui.dialogs.choices import ListDialog
from gputop.ui.dialogs.text_line import TextLine
from gputop.ui.theme import Look, Token
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line, wrap
from gputop.ui.widgets.strip_pane import Lines

FASTEST_S, SLOWEST_S = BY_KEY["interval"].low, BY_KEY["interval"].high


class DelayDialog(Dialog[float]):
    """How long to wait between two looks."""

    TITLE_TEXT = "time between two looks"
    FOOT = "Enter takes it   Esc leaves it as it is"

    def __init__(self, look: Look, now_s: float) -> None:
        super().__init__(look)
        self._now_s = now_s
        self._wrong = ""
        self._above, self._text, self._below = Lines(), TextLine(8, restrict="[A-Za-z0-9.]*"), Lines()

    def compose(self) -> ComposeResult:
        """What is typed, between what is above and below it."""
        yield from (self._above, self._text, self._below)

    def on_mount(self) -> None:
        """Follow what is typed."""
        self.watch(self._text, "value", self._typed, init=False)
        self.watch(self._text, "selection", self.redraw, init=False)

    def lines(self) -> Sequence[Line]:
        """The time now, the one being typed, and what is wrong with it."""
        hint = f"{FASTEST_S:g}s to {SLOWEST_S:g}s, for example 2s or 500ms"
        return [
            self.line().add("now  ", "dim").add(f"{self._now_s:g}s", "text"),
            self._text.write(self.line().add("new  ", "dim")),
            self.line().add(self._wrong or hint, "warn" if self._wrong else "dim"),
        ]

    def redraw(self) -> None:
        """Draw the box again."""
        strips = self.boxed(self.body())
        self.stack((self._above, 3), (self._text, 1), (self._below, len(strips) - 4))
        self._above.show(strips[:3])
        self._text.show(strips[3:4])
        self._below.show(strips[4:])

    def press(self, event: events.Key) -> None:
        """Type, or take it."""
        if event.key == "enter":
            self._take()
        else:
            self._text.press(event)

    def _typed(self) -> None:
        self._wrong = ""
        self.redraw()

    def _take(self) -> None:
        try:
            seconds = units.duration(self._text.value)
        except ValueError:
            self._wrong = "not a time: use for example 2s or 500ms"
        else:
            if FASTEST_S <= seconds <= SLOWEST_S:
                self.dismiss(seconds)
                return
            self._wrong = f"between {FASTEST_S:g}s and {SLOWEST_S:g}s"
        self.redraw()


LABEL = 8  # cells before what a line says
STEPS = {"up": -1, "left": -1, "down": 1, "right": 1}
JUMPS = {"tab": 1, "shift+tab": -1}


class Keep(IntEnum):
    """What stays where it is too low for all: the blanks go first, then the foot and what is told at length."""

    BLANK = 1
    FOOT = 2
    ABOUT = 3
    SAID = 4
    CHOICE = 5
    FIRST = 6
    MUST = 7
    LAST = 8


Stop = TypeVar("Stop", bound=Hashable)  # where the cursor of a dialog can be


@dataclass(slots=True)
class DialogPart(Generic[Stop]):
    """A line of the dialog; with the higher `keep` it stays where there is no room for all."""

    line: Line
    keep: Keep = Keep.MUST
    spots: list[tuple[int, int, Stop]] = field(default_factory=list)  # from cell, to cell, what is there


def fitting(parts: Sequence[DialogPart[Stop]], height: int) -> list[DialogPart[Stop]]:
    """As many of these as there is room for."""
    return fit(parts, height, lambda _: 1)


def buttons(line: Line, width: int, named: Sequence[tuple[Stop, str, Token]], at: object) -> DialogPart[Stop]:
    """The last line of what is asked: its buttons at the right, the one with the cursor in brackets."""
    room = sum(len(text) + 5 for _, text, _ in named) - 1
    part: DialogPart[Stop] = DialogPart(line.to(max(2, width - room - 2)), Keep.LAST)
    for stop, text, token in named:
        here, start = at == stop, part.line.cells
        part.line.add(f"[ {text} ]" if here else f"  {text}  ", token, bold=here, reverse=here)
        part.spots.append((start, part.line.cells, stop))
        part.line.add(" ")
    return part


class PartsDialog(Dialog[Answer], Generic[Answer, Stop]):
    """It has a heading and a foot of its own, which a low screen does without."""

    @abstractmethod
    def parts(self) -> list[DialogPart[Stop]]:
        """All of it, as much as there is room for."""

    @abstractmethod
    def take(self, stop: Stop) -> None:
        """What a click there does."""

    def clicked(self, stop: Stop) -> None:
        """There was a click."""
        self.take(stop)

    def lines(self) -> Sequence[Line]:
        """The lines of its parts."""
        self._parts = self.parts()
        return [part.line for part in self._parts]

    def body(self) -> Sequence[Line]:
        """Nothing else."""
        return self.lines()

    @on(events.Click)
    def click(self, event: events.Click) -> None:
        """A click is Space on what is there; the second of a double-click was meant for what stood there before."""
        event.stop()
        if event.chain > 1:
            return
        box = self.query_one(Lines).region
        place, x = event.screen_y - box.y, event.screen_x - box.x
        if not (box.contains(event.screen_x, event.screen_y) and place < len(self._parts)):
            return
        for start, end, stop in self._parts[place].spots:
            if start <= x < end:
                self.clicked(stop)
                break
        if self.is_current:
            self.redraw()


_NARROWEST = 20  # cells of a sentence: below, words would stand one under the other


class DialogLines:
    """Draws a question in a width; the lines of each kind of question come on top."""

    def __init__(self, look: Look, width: int) -> None:
        self.look, self.width = look, width

    def line(self, chosen: bool = False) -> Line:
        """An empty line, as all begin."""
        return Line(self.look, "selected" if chosen else "raised").add("  ")

    def cut(self, text: str, taken: int) -> str:
        """As much of it as fits beside this many cells."""
        return drawing.cut(text, max(0, self.width - taken - 2), self.look.glyphs.more)

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


class Confirm(ListDialog[None, tuple[str, str]]):
    """`answers` are those there are and how each reads; `answered` gets one of them, or None however else it ends."""

    FOOT = "Enter takes it   Esc goes back"
    WIDTH = 64

    def __init__(
        self,
        look: Look,
        title: str,
        text: str,
        answers: Sequence[tuple[str, str]],
        answered: Callable[[str | None], object],
    ) -> None:
        super().__init__(look, answers)
        self._title, self._text = title, text
        self._answered: Callable[[str | None], object] | None = answered

    def heading(self) -> Line:
        """What is asked."""
        title = drawing.cut(self._title, self.width - 4, self.look.glyphs.more)
        return self.line().add(title, "bright", bold=True)

    def above(self) -> Sequence[Line]:
        """What to know before."""
        text = [self.line().add(each, "text") for each in wrap(self._text, self.width - 4) if each]
        return [*text, self.line()] if text else ()

    def row(self, answer: tuple[str, str], line: Line, chosen: bool) -> Line:
        """An answer."""
        return line.add("  ").add(answer[1], "bright" if chosen else "text")

    def press(self, event: events.Key) -> None:
        """Move, also as between buttons, or take the answer with the cursor."""
        if step := STEPS.get(event.key) or JUMPS.get(event.key):
            self.choices.highlighted = (self.at + step) % len(self.items)
        elif event.key == "space":
            self.take(self.items[self.at])
        else:
            super().press(event)

    def take(self, answer: tuple[str, str]) -> None:
        """This one."""
        self._answer(answer[0])
        self.dismiss()

    def on_unmount(self) -> None:
        """However it ended, once."""
        self._answer(None)

    def _answer(self, answer: str | None) -> None:
        answered, self._answered = self._answered, None
        if answered is not None:
            answered(answer)

"""Dialogs made of parts: lines, and what a click on them means. What a low screen has no room for is left out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Generic, TypeVar

from textual import events, on

from gputop.ui.dialogs.modal import Answer
from gputop.ui.dialogs.questions import Dialog
from gputop.ui.draw import Line
from gputop.ui.look import Token
from gputop.ui.panes.lines import Lines

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
class Part(Generic[Stop]):
    """A line of the dialog; with the higher `keep` it stays where there is no room for all."""

    line: Line
    keep: Keep = Keep.MUST
    spots: list[tuple[int, int, Stop]] = field(default_factory=list)  # from cell, to cell, what is there


def fitting(parts: Sequence[Part[Stop]], height: int) -> list[Part[Stop]]:
    """As many of these as there is room for."""
    found = list(parts)
    while len(found) > height:
        found.remove(min(reversed(found), key=lambda part: part.keep))
    return found


def buttons(line: Line, width: int, named: Sequence[tuple[Stop, str, Token]], at: object) -> Part[Stop]:
    """The last line of what is asked: its buttons at the right, the one with the cursor in brackets."""
    room = sum(len(text) + 5 for _, text, _ in named) - 1
    part: Part[Stop] = Part(line.to(max(2, width - room - 2)), Keep.LAST)
    for stop, text, token in named:
        here, start = at == stop, part.line.cells
        part.line.add(f"[ {text} ]" if here else f"  {text}  ", token, bold=here, reverse=here)
        part.spots.append((start, part.line.cells, stop))
        part.line.add(" ")
    return part


class PartsDialog(Dialog[Answer], Generic[Answer, Stop]):
    """It has a heading and a foot of its own, which a low screen does without."""

    @abstractmethod
    def parts(self) -> list[Part[Stop]]:
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

"""The profile dialog on the screen: keys and clicks. Who is meant was decided when it opened, and does not change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from textual import events

from gputop.safe.ptrace_access import Barred
from gputop.ui.dialogs.parts import JUMPS, Part, PartsDialog
from gputop.ui.look import Look
from gputop.ui.profiling.paper import ProfilePaper
from gputop.ui.profiling.past import Past
from gputop.ui.profiling.question import CANCEL, OLDER, START, Question, Stop
from gputop.ui.profiling.tools import Order, Tool, ToolId

_MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}

_TAKES = {START: "start", CANCEL: "cancel", OLDER: "list older ones"}  # what taking a button does; others are chosen

Answer = Literal["older"]  # older ones are asked for
Start = Callable[[Tool, Order], object]


class ProfileDialog(PartsDialog[Answer, Stop]):
    """Asks until it is clear what to do, has it started, and lets go of the processes when it closes."""

    WIDTH = 80

    def __init__(
        self,
        question: Question,
        look: Look,
        keys: Mapping[str, ToolId],
        start: Start,
        copy: Callable[[str], object],
    ) -> None:
        """`keys` choose a tool, as they do on the screen below; `copy` takes a command to the clipboard."""
        super().__init__(look)
        self.question = question
        self._keys, self._start, self._copy = keys, start, copy

    def parts(self) -> list[Part[Stop]]:
        """All of it, as much as there is room for."""
        return ProfilePaper(self.question, self.look, self.width).parts(self.app.size.height, self._foot)

    @property
    def _foot(self) -> str:
        question = self.question
        keys = ["arrows move", f"Space, Enter {_TAKES.get(question.at, 'choose')}"]
        keys += ["h older ones"] if question.past and question.past.older else []
        keys += ["y copies the command"] if question.unlock else []
        return "   ".join([*keys, "Esc cancels"])

    def on_unmount(self) -> None:
        """However it ended: what was started keeps what it needs."""
        self.question.hold.close()

    def recall(self, past: Past) -> None:
        """What was taken of it before is known now."""
        self.question.past = past
        if self.is_attached:
            self.redraw()

    def answer(self, tool: ToolId, barred: Barred | None) -> None:
        """It is known now why a tool cannot be used, or that it can."""
        self.question.barred[tool] = barred
        if self.is_attached:
            self.redraw()

    def press(self, event: events.Key) -> None:
        """Move, choose, copy; the keys that ask for a tool choose it."""
        question = self.question
        if event.key in _MOVES:
            question.move(*_MOVES[event.key])
        elif event.key in JUMPS:
            question.jump(JUMPS[event.key])
        elif event.key in ("enter", "space"):
            self.take(question.at)
            if event.key == "enter" and question.at.kind != "button":
                question.at = START if question.ready else CANCEL
        elif event.key in self._keys:
            self.take(Stop("tool", self._keys[event.key]))
            question.at = START if question.ready else question.at
        elif event.key == "h":
            self.take(OLDER)
        elif event.key == "y" and question.unlock:
            self._copy(question.unlock)
            question.told = f"copied: {question.unlock}"
        if self.is_current:
            self.redraw()

    def take(self, stop: Stop) -> None:
        """Press a button, choose a tool or a value, tick a box."""
        question = self.question
        if stop == CANCEL:
            self.dismiss(None)
        elif stop == OLDER:
            if question.past and question.past.older:
                self.dismiss("older")
            else:
                question.told = "nothing was taken of it before"
        elif stop == START:
            question.at = stop
            if (order := question.order()) is not None:
                self._start(question.tool, order)
                self.dismiss(None)
        else:
            question.take(stop)

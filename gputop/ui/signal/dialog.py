"""The signal dialog on the screen: keys and clicks. Who is meant was decided when it opened, and does not change."""

from __future__ import annotations

import time
from collections.abc import Callable

from textual import events

from gputop.actions.signals import Choice, Order
from gputop.ui.dialogs.parts import JUMPS, STEPS, Part, PartsDialog
from gputop.ui.look import Look
from gputop.ui.signal.paper import SignalPaper
from gputop.ui.signal.question import Question, Stop

_READ_S = 0.5  # in which nobody has read a question that a click has brought up
_FOOT = "arrows, Tab move   Space, Enter choose   Esc cancels"


class SignalDialog(PartsDialog[None, Stop]):
    """Asks until there is an order, gives it to `send`, and lets go of the processes when it closes."""

    WIDTH = 80

    def __init__(self, question: Question, send: Callable[[Order], object], look: Look) -> None:
        super().__init__(look)
        self.question = question
        self._send = send
        self._asked_s = 0.0  # when it asked a second time

    def parts(self) -> list[Part[Stop]]:
        """All of it, as much as there is room for."""
        return SignalPaper(self.question, self.look, self.width).parts(self.app.size.height, _FOOT)

    def on_unmount(self) -> None:
        """However it ended: a signal that is being sent keeps what it needs."""
        self.question.hold.close()

    def press(self, event: events.Key) -> None:
        """Move, choose, type the pid where that is asked for."""
        question = self.question
        if event.key in STEPS:
            question.move(STEPS[event.key])
        elif event.key in JUMPS:
            question.jump(JUMPS[event.key])
        elif event.key in ("enter", "space"):
            self.take(question.at)
            if event.key == "enter" and isinstance(question.at, Choice):
                question.at = "send"
        elif event.key == "backspace":
            question.type("")
        elif event.character and event.character.isdecimal():
            question.type(event.character)
        if self.is_current:
            self.redraw()

    def take(self, stop: Stop) -> None:
        """Press a button, tick a box, choose a signal."""
        if stop == "cancel":
            self.dismiss(None)
        elif stop == "send":
            self.question.at = stop
            if order := self.question.order():
                self._send(order)
                self.dismiss(None)
            elif self.question.sure:
                self._asked_s = time.monotonic()
        else:
            self.question.take(stop)

    def clicked(self, stop: Stop) -> None:
        """The same, but that one double-click, though the mouse moved, is no answer to both questions."""
        if stop != "send" or not self.question.sure or time.monotonic() - self._asked_s >= _READ_S:
            self.take(stop)

"""The signal dialog on the screen: keys and clicks. Who is meant was decided when it opened, and does not change."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual import events, on

from gputop.actions.signals import Choice, Order
from gputop.ui.dialogs.questions import Dialog
from gputop.ui.draw import Line
from gputop.ui.look import Look
from gputop.ui.panes.lines import Lines
from gputop.ui.signal.paper import Paper, Part
from gputop.ui.signal.question import Question, Stop

_FOOT = "arrows, Tab move   Space, Enter choose   Esc cancels"
_STEPS = {"up": -1, "left": -1, "down": 1, "right": 1}
_JUMPS = {"tab": 1, "shift+tab": -1}


class SignalDialog(Dialog[None]):
    """Asks until there is an order, gives it to `send`, and lets go of the processes when it closes."""

    WIDTH = 80

    def __init__(self, question: Question, send: Callable[[Order], object], look: Look) -> None:
        super().__init__(look)
        self.question = question
        self._send = send
        self._parts: list[Part] = []

    def lines(self) -> Sequence[Line]:
        """All of it, as much as there is room for."""
        self._parts = Paper(self.question, self.look, self.width).parts(self.app.size.height, _FOOT)
        return [part.line for part in self._parts]

    def body(self) -> Sequence[Line]:
        """It has a heading and a foot of its own, which a low screen does without."""
        return self.lines()

    def on_unmount(self) -> None:
        """However it ended: a signal that is being sent keeps what it needs."""
        self.question.hold.close()

    def press(self, event: events.Key) -> None:
        """Move, choose, type the pid where that is asked for."""
        question = self.question
        if event.key in _STEPS:
            question.move(_STEPS[event.key])
        elif event.key in _JUMPS:
            question.jump(_JUMPS[event.key])
        elif event.key in ("enter", "space"):
            self._take(question.at)
            if event.key == "enter" and isinstance(question.at, Choice):
                question.at = "send"
        elif event.key == "backspace":
            question.type("")
        elif event.character and event.character.isdecimal():
            question.type(event.character)
        if self.is_current:
            self.redraw()

    def _take(self, stop: Stop) -> None:
        if stop == "cancel":
            self.dismiss(None)
        elif stop == "send":
            self.question.at = stop
            if order := self.question.order():
                self._send(order)
                self.dismiss(None)
        else:
            self.question.take(stop)

    @on(events.Click)
    def click(self, event: events.Click) -> None:
        """A click is Space on what is there."""
        event.stop()
        box = self.query_one(Lines).region
        place, x = event.screen_y - box.y, event.screen_x - box.x
        if not (box.contains(event.screen_x, event.screen_y) and place < len(self._parts)):
            return
        for start, end, stop in self._parts[place].spots:
            if start <= x < end:
                self._take(stop)
                break
        if self.is_current:
            self.redraw()

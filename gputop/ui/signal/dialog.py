"""The signal dialog: to which processes, which signal, what it will do, and a yes that is meant."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Literal

from textual import events

from gputop import labels
from gputop.actions import Handles, Reach, Scope
from gputop.actions.signals import BY_NAME, CHOICES, SignalChoice, SignalOrder, warnings
from gputop.model import Process
from gputop.ui.dialogs.form import LABEL, Form, Keep, Question, Row
from gputop.ui.theme import Look, Token

Button = Literal["cancel", "send"]
Stop = Scope | SignalChoice | Button  # where the cursor can be
_ITSELF = Scope.PROCESS


class SignalQuestion(Question):
    """The state of one dialog. `why` is why nothing at all can be sent to the process."""

    def __init__(
        self, handles: Handles, why: str | None, scope: Scope = _ITSELF, choice: SignalChoice = BY_NAME["TERM"]
    ) -> None:
        self.handles = handles
        self.choice = choice
        self.typed = ""  # the pid, where a person must insist
        self.sure = False  # asked a second time
        self._why = why
        self._ticked = {scope} - {_ITSELF}
        self._weigh()

    @property
    def boxes(self) -> tuple[Reach, ...]:
        """What can be ticked: as long as others are meant instead, nothing that belongs to the process."""
        instead = self.scope is Scope.TAGGED
        return tuple(reach for reach in self.handles.reaches if not instead or reach.scope is Scope.TAGGED)

    @property
    def scope(self) -> Scope:
        """The scope: the widest of what is ticked."""
        return next((scope for scope in (Scope.TAGGED, Scope.JOB, Scope.LOADERS) if scope in self._ticked), _ITSELF)

    @property
    def first(self) -> Process:
        """The process it names, or the first of the other targets."""
        return self.handles.processes(self.scope)[0] if self.scope is Scope.TAGGED else self.handles.process

    def ticked(self, scope: Scope) -> bool:
        """Whether its box is ticked; those of a job have their loaders among them."""
        return scope in self._ticked or (scope is Scope.LOADERS and Scope.JOB in self._ticked)

    @property
    def why_not(self) -> str | None:
        """Why nothing can be sent to any of the targets; None if something can."""
        if self.count:
            return None
        return (self._why if self.scope is _ITSELF else None) or next(iter(self.spared.values()), "no process is left")

    @property
    def count(self) -> int:
        """How many would get it."""
        if self._why and self.scope is _ITSELF:
            return 0
        return len(self.handles.processes(self.scope)) - len(self.spared)

    def take(self, stop: Scope | SignalChoice) -> None:
        """Tick a box or choose a signal."""
        if isinstance(stop, Scope):
            self._tick(stop)
        else:
            self.choice = stop
        self.sure = False
        self._weigh()

    def type(self, text: str) -> None:
        """Digits of the pid, or an empty text to take one back."""
        if self.cautions:
            self.typed = (self.typed + text)[:10] if text else self.typed[:-1]

    def order(self) -> SignalOrder | None:
        """What is to be sent; None while something is missing, which `notice` then says or `sure` asks."""
        pid = str(self.first.pid)
        if self.why_not:
            self.notice = f"nothing can be sent: {self.why_not}"
        elif self.cautions and self.typed != pid:
            self.notice = f"type {pid} first"
        elif self.choice.confirm and not self.sure:
            self.sure = True
        else:
            return SignalOrder(self.choice, self.scope, confirmed=self.sure, insists=bool(self.cautions))
        return None

    def _tick(self, scope: Scope) -> None:
        if why := self.handles.why_not(scope):
            self.notice = why
        elif scope is Scope.LOADERS and Scope.JOB in self._ticked:
            self.notice = "the whole job includes them"
        elif scope is Scope.TAGGED:
            self._ticked = set() if scope in self._ticked else {scope}
        else:
            self._ticked = (self._ticked ^ {scope}) - {Scope.TAGGED}
        self.typed = ""

    def _weigh(self) -> None:
        """Ask again what would happen: reads /proc."""
        self.spared = self.handles.spared(self.scope)
        self.cautions = () if self.why_not else self.handles.cautions(self.scope)
        self.warnings = () if self.why_not else warnings(self.handles, self.scope, self.choice)


_SAID = 3  # lines there always are for what would happen, so that the box stays where it is
_READ_S = 0.5  # too short to have read a question that a click has brought up


class SignalDialog(Form[None, Stop]):
    """Asks until there is an order, gives it to `send`, and lets go of the processes when it closes."""

    TITLE_TEXT = "signal"
    FOOT = "arrows, Tab move   Space, Enter choose   Esc cancels"
    question: SignalQuestion

    def __init__(self, question: SignalQuestion, send: Callable[[SignalOrder], object], look: Look) -> None:
        """The cursor starts on Cancel."""
        super().__init__(look, question, "cancel")
        self._send = send
        self._asked_s = 0.0  # when it asked a second time

    def on_unmount(self) -> None:
        """However it ended: a signal that is being sent keeps what it needs."""
        self.question.handles.close()

    def group(self, stop: Stop) -> object:
        """The boxes, the signals, the buttons."""
        return type(stop)

    def prefers(self, stop: Stop) -> bool:
        """The chosen signal, and Cancel."""
        return stop in (self.question.choice, "cancel")

    def other_key(self, event: events.Key) -> None:
        """The pid where that is asked for."""
        if event.key == "backspace":
            self.question.type("")
        elif event.character and event.character.isdecimal():
            self.question.type(event.character)

    def choose(self, stop: Stop) -> None:
        """Press a button, tick a box, choose a signal."""
        if stop == "cancel":
            self.dismiss(None)
        elif stop != "send":
            self.question.take(stop)
        elif order := self.question.order():
            self._send(order)
            self.dismiss(None)
        elif self.question.sure:
            self._asked_s = time.monotonic()
            self.go("cancel")

    def after(self, stop: Stop) -> Stop:
        """From a signal on to the button that sends it."""
        return "send" if isinstance(stop, SignalChoice) else stop

    def click_on(self, stop: Stop) -> None:
        """One double-click, though the mouse moved, is no answer to both questions."""
        if stop != "send" or not self.question.sure or time.monotonic() - self._asked_s >= _READ_S:
            super().click_on(stop)

    def groups(self) -> Iterator[Iterator[Row[Stop]] | list[Row[Stop]]]:
        """Its targets, which signal, what it will do."""
        yield self._targets()
        yield self._boxes()
        yield map(self._choice, CHOICES)
        said = self.said(self._sentences())
        yield said + [Row[Stop](self.line(), Keep.BLANK)] * (_SAID - len(said))
        question = self.question
        send: Token = "dim" if question.why_not else "crit" if question.choice.confirm else "bright"
        yield self.buttons(("cancel", "Cancel"), ("send", self._send_title()), tokens={"send": send})

    def _targets(self) -> Iterator[Row[Stop]]:
        question = self.question
        others = question.handles.processes(Scope.TAGGED) if question.scope is Scope.TAGGED else ()
        if len(others) > 1:
            title = next(reach.title for reach in question.boxes if reach.scope is Scope.TAGGED)
            yield Row(self.line().add("to", "dim").to(LABEL).add(f"{title} processes", "bright", bold=True))
            yield self.fact(" ".join(str(process.pid) for process in others))
        else:
            yield from self.about("to", question.handles.frame, question.first)

    def _boxes(self) -> Iterator[Row[Stop]]:
        for label, tagged in (("also", False), ("only", True)):
            boxes = [reach for reach in self.question.boxes if (reach.scope is Scope.TAGGED) == tagged]
            yield from self.flow(label, map(self._box, boxes))

    def _box(self, reach: Reach) -> tuple[Stop, str, Token]:
        tick = self.tick(self.question.ticked(reach.scope))
        return reach.scope, f"{tick} {reach.title}", "dim" if reach.why_not else "text"

    def _choice(self, choice: SignalChoice) -> Row[Stop]:
        here, picked = self.cursor == choice, self.question.choice is choice
        line = self.line(here)
        line.add(self.mark(picked), "busy" if picked or here else "dim", bold=picked)
        line.add(f" {choice.number:>2} {choice.name:6}", "bright" if picked or here else "text", bold=picked)
        whole = self.cut(choice.text, line.cells)
        text = whole if whole == choice.text else self.cut(choice.brief or choice.text, line.cells)
        line.add(text, "bright" if picked else "dim")
        return Row(line, stops={choice: range(self.width)})

    def _sentences(self) -> Iterator[tuple[str, str, Token]]:
        question, glyphs = self.question, self.look.glyphs
        if question.why_not:
            yield glyphs.crit, f"nothing can be sent: {question.why_not}", "crit"
            return
        pid = question.first.pid
        if question.cautions:
            yield glyphs.crit, f"type {pid} if you mean it: {question.typed}_", "crit"
        if question.sure:
            target = str(pid) if question.count == 1 else labels.amount(question.count, "process")
            yield glyphs.crit, f"{question.choice.name} kills {target} immediately, unsaved work is lost: sure?", "crit"
        for caution in question.cautions:
            yield glyphs.warn, caution, "warn"
        if question.spared:
            first, why = next(iter(question.spared.items()))
            skipped = labels.amount(len(question.spared), "process")
            yield glyphs.warn, f"{skipped} skipped: {first}: {why}", "warn"
        for warning in question.warnings:
            yield glyphs.warn, warning, "warn"

    def _send_title(self) -> str:
        question, name = self.question, self.question.choice.name
        if question.why_not:
            return f"Send {name}"
        amount = labels.amount(question.count, "process")
        return f"Yes, {name} {amount}" if question.sure else f"Send {name} to {amount}"

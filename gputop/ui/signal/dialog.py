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
from gputop.ui.dialogs import dialog
from gputop.ui.dialogs.dialog import JUMPS, LABEL, STEPS, DialogLines, DialogPart, Keep, PartsDialog, fitting
from gputop.ui.signal import target_lines
from gputop.ui.theme import Look, Token

Button = Literal["cancel", "send"]
Stop = Scope | SignalChoice | Button  # where the cursor can be
BUTTONS: tuple[Button, ...] = ("cancel", "send")
_ANYBODY = Scope.PROCESS


class SignalQuestion:
    """The state of one dialog. `why` is why nothing at all can be sent to the process; the cursor starts on Cancel."""

    def __init__(
        self, handles: Handles, why: str | None, scope: Scope = _ANYBODY, choice: SignalChoice = BY_NAME["TERM"]
    ) -> None:
        self.handles = handles
        self.choice = choice
        self.at: Stop = "cancel"
        self.typed = ""  # the pid, where a person must insist
        self.sure = False  # asked a second time
        self.told = ""  # what became of the last key
        self._why = why
        self._ticked = {scope} - {_ANYBODY}
        self._weigh()

    @property
    def boxes(self) -> tuple[Reach, ...]:
        """What can be ticked: as long as others are meant instead, nothing that belongs to the process."""
        instead = self.scope is Scope.TAGGED
        return tuple(reach for reach in self.handles.reaches if not instead or reach.scope is Scope.TAGGED)

    @property
    def stops(self) -> tuple[Stop, ...]:
        """Where the cursor can be, in order."""
        return (*(reach.scope for reach in self.boxes), *CHOICES, *BUTTONS)

    @property
    def scope(self) -> Scope:
        """Who is meant: the widest of what is ticked."""
        return next((scope for scope in (Scope.TAGGED, Scope.JOB, Scope.LOADERS) if scope in self._ticked), _ANYBODY)

    @property
    def first(self) -> Process:
        """Whom it names: the process, or the first of those that are meant instead."""
        return self.handles.who(self.scope)[0] if self.scope is Scope.TAGGED else self.handles.process

    def ticked(self, scope: Scope) -> bool:
        """Whether its box is ticked; those of a job have their loaders among them."""
        return scope in self._ticked or (scope is Scope.LOADERS and Scope.JOB in self._ticked)

    @property
    def why_not(self) -> str | None:
        """Why nothing can be sent to any of the targets; None if something can."""
        if self.count:
            return None
        return (self._why if self.scope is _ANYBODY else None) or next(iter(self.spared.values()), "nobody is left")

    @property
    def count(self) -> int:
        """How many would get it."""
        if self._why and self.scope is _ANYBODY:
            return 0
        return len(self.handles.who(self.scope)) - len(self.spared)

    def move(self, steps: int) -> None:
        """Move the cursor, around the ends."""
        self.at = self.stops[(self.stops.index(self.at) + steps) % len(self.stops)]
        self.told = ""

    def jump(self, step: int) -> None:
        """To the next group: the boxes, the chosen signal, the buttons."""
        groups: list[Stop] = [*self.stops[:1], self.choice, "cancel"] if self.boxes else [self.choice, "cancel"]
        kind = next(place for place, stop in enumerate(groups) if isinstance(self.at, type(stop)))
        self.at = groups[(kind + step) % len(groups)]
        self.told = ""

    def take(self, stop: Stop) -> None:
        """Tick a box or choose a signal; the cursor goes there. For buttons see `order`."""
        self.at, self.told = stop, ""
        if isinstance(stop, Scope):
            self._tick(stop)
        elif isinstance(stop, SignalChoice):
            self.choice = stop
        self.sure = False
        self._weigh()

    def type(self, text: str) -> None:
        """Digits of the pid, or an empty text to take one back."""
        if self.cautions:
            self.typed = (self.typed + text)[:10] if text else self.typed[:-1]
            self.told = ""

    def order(self) -> SignalOrder | None:
        """What is to be sent; None while something is missing, which is then said in `told` or asked by `sure`."""
        pid = str(self.first.pid)
        if self.why_not:
            self.told = f"nothing can be sent: {self.why_not}"
        elif self.cautions and self.typed != pid:
            self.told = f"type {pid} first"
        elif self.choice.confirm and not self.sure:
            self.sure, self.at = True, "cancel"
        else:
            return SignalOrder(self.choice, self.scope, confirmed=self.sure, insists=bool(self.cautions))
        return None

    def _tick(self, scope: Scope) -> None:
        if why := self.handles.why_not(scope):
            self.told = why
        elif scope is Scope.LOADERS and Scope.JOB in self._ticked:
            self.told = "they are in the whole job"
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


_Part = DialogPart[Stop]
_SAID = 3  # lines there always are for what would happen, so that the box stays where it is


class SignalLines(DialogLines):
    """Draws which signal, and to which processes."""

    def __init__(self, question: SignalQuestion, look: Look, width: int) -> None:
        super().__init__(look, width)
        self._question = question

    def parts(self, height: int, foot: str) -> list[_Part]:
        """Every line from the heading to the foot, at most `height` of them."""
        blank = (_Part(self.line(), Keep.BLANK),)
        told = self._question.told
        last = _Part(self.last(foot, told), Keep.MUST if told else Keep.FOOT)
        groups = (self._who(), self._also(), self._choices(), self._said(), (self._buttons(),), (last,))
        found = [_Part(self.line().add("signal", "bright", bold=True), Keep.FOOT)]
        for group in map(list, groups):
            found += [*blank, *group] if group else []
        return fitting(found, height)

    def _who(self) -> Iterator[_Part]:
        question = self._question
        frame, first = question.handles.frame, question.first
        line = self.line().add("to", "dim").to(LABEL)
        others = question.handles.who(Scope.TAGGED) if question.scope is Scope.TAGGED else ()
        if len(others) > 1:
            title = next(reach.title for reach in question.boxes if reach.scope is Scope.TAGGED)
            line.add(f"{title} processes", "bright", bold=True)
            facts = " ".join(str(process.pid) for process in others)
        else:
            line.add(f"{first.pid}  ", "bright", bold=True)
            line.add(self.cut(target_lines.command(first), line.cells), "command")
            facts = target_lines.facts(frame, first, self.look.glyphs.dot)
        yield _Part(line, Keep.LAST)
        yield _Part(self.line().to(LABEL).add(self.cut(facts, LABEL), "dim"), Keep.ABOUT)

    def _also(self) -> Iterator[_Part]:
        """The boxes side by side where they fit, or a line for each."""
        part = _Part(self.line().add("also", "dim").to(LABEL))
        for reach in self._question.boxes:
            if reach.scope is Scope.TAGGED:
                if part.spots:
                    yield part
                part = _Part(self.line().add("only", "dim").to(LABEL))
            elif part.spots and part.line.cells + 3 + len(reach.title) + 6 > self.width:
                yield part
                part = _Part(self.line().to(LABEL))
            self._box(part, reach)
        if part.spots:
            yield part

    def _box(self, part: _Part, reach: Reach) -> None:
        question, line = self._question, part.line.add("   " if part.spots else "")
        here, start = question.at is reach.scope, line.cells
        title: Token = "dim" if reach.why_not else "text"
        line.add("[x]" if question.ticked(reach.scope) else "[ ]", "busy", bold=True, reverse=here)
        line.add(" ").add(self.cut(reach.title, line.cells), "bright" if here else title)
        part.spots.append((start, line.cells, reach.scope))

    def _choices(self) -> Iterator[_Part]:
        for choice in CHOICES:
            yield self._choice(choice)

    def _choice(self, choice: SignalChoice) -> _Part:
        question = self._question
        here, picked = question.at is choice, question.choice is choice
        line = self.line(here)
        line.add(self.mark(picked), "busy" if picked or here else "dim", bold=picked)
        token: Token = "bright" if picked or here else "text"
        line.add(f" {choice.number:>2} {choice.name:6}", token, bold=picked)
        whole = self.cut(choice.text, line.cells)
        text = whole if whole == choice.text else self.cut(choice.brief or choice.text, line.cells)
        line.add(text, token if picked else "dim")
        return _Part(line, Keep.MUST if here or picked else Keep.CHOICE, [(0, self.width, choice)])

    def _said(self) -> list[_Part]:
        found: list[_Part] = []
        for mark, text, token in self._sentences():
            for line in self.sentence(mark, text, token):
                keep = Keep.MUST if token == "crit" else Keep.SAID if found else Keep.FIRST
                found.append(_Part(line, keep))
        found += [_Part(self.line(), Keep.BLANK) for _ in range(_SAID - len(found))]
        return found

    def _sentences(self) -> Iterator[tuple[str, str, Token]]:
        question, glyphs = self._question, self.look.glyphs
        if question.why_not:
            yield glyphs.crit, f"nothing can be sent: {question.why_not}", "crit"
            return
        pid = question.first.pid
        if question.cautions:
            yield glyphs.crit, f"type {pid} if you mean it: {question.typed}_", "crit"
        if question.sure:
            whom = str(pid) if question.count == 1 else labels.amount(question.count, "process")
            yield glyphs.crit, f"{question.choice.name} ends {whom} at once, and nothing can be saved: really?", "crit"
        for caution in question.cautions:
            yield glyphs.warn, caution, "warn"
        if question.spared:
            first, why = next(iter(question.spared.items()))
            left_out = labels.amount(len(question.spared), "process")
            yield glyphs.warn, f"{left_out} left out: {first}: {why}", "warn"
        for warning in question.warnings:
            yield glyphs.warn, warning, "warn"

    def _buttons(self) -> _Part:
        question = self._question
        send: Token = "dim" if question.why_not else "crit" if question.choice.confirm else "bright"
        named: list[tuple[Stop, str, Token]] = [("cancel", "Cancel", "bright"), ("send", self._send(), send)]
        return dialog.buttons(self.line(), self.width, named, question.at)

    def _send(self) -> str:
        question, name = self._question, self._question.choice.name
        if question.why_not:
            return f"Send {name}"
        amount = labels.amount(question.count, "process")
        return f"Yes, {name} {amount}" if question.sure else f"Send {name} to {amount}"


_READ_S = 0.5  # too short to have read a question that a click has brought up
_FOOT = "arrows, Tab move   Space, Enter choose   Esc cancels"


class SignalDialog(PartsDialog[None, Stop]):
    """Asks until there is an order, gives it to `send`, and lets go of the processes when it closes."""

    WIDTH = 80

    def __init__(self, question: SignalQuestion, send: Callable[[SignalOrder], object], look: Look) -> None:
        super().__init__(look)
        self.question = question
        self._send = send
        self._asked_s = 0.0  # when it asked a second time

    def parts(self) -> list[DialogPart[Stop]]:
        """All of it, as much as there is room for."""
        return SignalLines(self.question, self.look, self.width).parts(self.app.size.height, _FOOT)

    def on_unmount(self) -> None:
        """However it ended: a signal that is being sent keeps what it needs."""
        self.question.handles.close()

    def press(self, event: events.Key) -> None:
        """Move, choose, type the pid where that is asked for."""
        question = self.question
        if event.key in STEPS:
            question.move(STEPS[event.key])
        elif event.key in JUMPS:
            question.jump(JUMPS[event.key])
        elif event.key in ("enter", "space"):
            self.take(question.at)
            if event.key == "enter" and isinstance(question.at, SignalChoice):
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

"""The signal dialog as lines, and what a click on them means. What a low screen has no room for is left out."""

from __future__ import annotations

from collections.abc import Iterator

from gputop import labels
from gputop.actions import Reach, Scope
from gputop.actions.signals import CHOICES, Choice
from gputop.ui.dialogs import parts
from gputop.ui.dialogs.paper import Paper
from gputop.ui.dialogs.parts import LABEL, Keep, Part, fitting
from gputop.ui.look import Look, Token
from gputop.ui.signal import named
from gputop.ui.signal.question import Question, Stop

_Part = Part[Stop]
_SAID = 3  # lines there always are for what would happen, so that the box stays where it is


class SignalPaper(Paper):
    """Draws which signal, and to whom."""

    def __init__(self, question: Question, look: Look, width: int) -> None:
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
        frame, first = question.hold.frame, question.first
        line = self.line().add("to", "dim").to(LABEL)
        others = question.hold.who(Scope.TAGGED) if question.scope is Scope.TAGGED else ()
        if len(others) > 1:
            title = next(reach.title for reach in question.boxes if reach.scope is Scope.TAGGED)
            line.add(f"{title} processes", "bright", bold=True)
            facts = " ".join(str(process.pid) for process in others)
        else:
            line.add(f"{first.pid}  ", "bright", bold=True)
            line.add(self.cut(named.command(first), line.cells), "command")
            facts = named.facts(frame, first, self.look.glyphs.dot)
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

    def _choice(self, choice: Choice) -> _Part:
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
        return parts.buttons(self.line(), self.width, named, question.at)

    def _send(self) -> str:
        question, name = self._question, self._question.choice.name
        if question.why_not:
            return f"Send {name}"
        amount = labels.amount(question.count, "process")
        return f"Yes, {name} {amount}" if question.sure else f"Send {name} to {amount}"

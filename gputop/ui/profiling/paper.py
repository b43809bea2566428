"""The profile dialog as lines, and what a click on them means. What a low screen has no room for is left out."""

from __future__ import annotations

from collections.abc import Iterator

from gputop.actions import Handles
from gputop.ui import draw
from gputop.ui.dialogs import parts
from gputop.ui.dialogs.paper import Paper
from gputop.ui.dialogs.parts import LABEL, Keep, Part, fitting
from gputop.ui.look import Look, Token
from gputop.ui.profiling.asking import ASKING
from gputop.ui.profiling.question import CANCEL, OLDER, START, Question, Stop
from gputop.ui.profiling.tools import TOOLS, Tool
from gputop.ui.signal import named

_Part = Part[Stop]
_TITLE = 20  # cells of a tool's mark and name
_MIDDLE = 9  # lines there always are for options and what they mean, so that the box stays where it is
_APART = "   "


def slower(hold: Handles) -> str:
    """What a trace costs: on a GPU CUPTI stays attached."""
    if hold.process.gpus:
        return "it is slower while it records, small steps afterwards too"
    return "it is slower only while it records"


class ProfilePaper(Paper):
    """Draws how to look into a process."""

    def __init__(self, question: Question, look: Look, width: int) -> None:
        super().__init__(look, width)
        self._question = question

    def parts(self, height: int, foot: str) -> list[_Part]:
        """Every line from the heading to the foot, at most `height` of them."""
        blank = _Part(self.line(), Keep.BLANK)
        said = list(self._said())
        middle = [*self._options(), *self._facts(), blank, *said] if self._question.ready else said
        middle += [blank] * (_MIDDLE - len(middle))
        found = [_Part(self.line().add("profile", "bright", bold=True), Keep.FOOT), blank, *self._who(), blank]
        found += [*self._tools(), blank, *middle, blank, self._buttons()]
        found.append(_Part(self.last(foot, self._question.told), Keep.FOOT))
        return fitting(found, height)

    def _who(self) -> Iterator[_Part]:
        hold = self._question.hold
        line = self.line().add("of", "dim").to(LABEL).add(f"{hold.process.pid}  ", "bright", bold=True)
        yield _Part(line.add(self.cut(named.command(hold.process), line.cells), "command"), Keep.LAST)
        facts = named.facts(hold.frame, hold.process, self.look.glyphs.dot)
        yield _Part(self.line().to(LABEL).add(self.cut(facts, LABEL), "dim"), Keep.ABOUT)
        if hold.leader is not None:
            text = f"the first rank that {hold.leader.pid} {named.command(hold.leader)} started"
            yield _Part(self.line().to(LABEL).add(self.cut(text, LABEL), "dim"), Keep.ABOUT)

    def _tools(self) -> Iterator[_Part]:
        for tool in TOOLS:
            yield self._tool(tool)

    def _tool(self, tool: Tool) -> _Part:
        question, stop = self._question, Stop("tool", tool.id)
        here, picked, barred = question.at == stop, question.picked(stop), question.barred[tool.id]
        line = self.line(here)
        if tool is TOOLS[0]:
            line.add("with", "dim")
        line.to(LABEL).add(self.mark(picked), "busy" if picked or here else "dim", bold=picked)
        line.add(f" {tool.title}", "bright" if picked or here else "text", bold=picked).to(LABEL + _TITLE)
        state = "ready" if barred is None else "asking" if barred is ASKING else "no"
        end = self.width - len(state) - 2
        if end - line.cells > _TITLE:
            line.add(draw.cut(tool.about, end - line.cells - 1, self.look.glyphs.more), "text" if picked else "dim")
        line.to(end).add(state, "command" if barred is None else "warn")
        return _Part(line, Keep.MUST if here or picked else Keep.CHOICE, [(0, self.width, stop)])

    def _options(self) -> Iterator[_Part]:
        """The options of the tool, each value a thing to choose; nothing to choose where it cannot be used."""
        question = self._question
        if not question.ready:
            return
        for option in question.tool.several:
            marked = [
                (Stop(option.id, value), f"{self.mark(question.picked(Stop(option.id, value)))} {title}")
                for value, title in option.values
            ]
            yield from self._flow(option.label, marked)
        boxes = [(Stop("box", box.id), title) for box, title in question.boxes]
        yield from self._flow(
            "also", [(stop, f"[{'x' if question.picked(stop) else ' '}] {title}") for stop, title in boxes]
        )

    def _flow(self, label: str, marked: list[tuple[Stop, str]]) -> Iterator[_Part]:
        """Side by side where they fit, else on the next line."""
        part = _Part(self.line().add(label, "dim").to(LABEL))
        for stop, text in marked:
            if part.spots and part.line.cells + len(_APART) + len(text) + 2 > self.width:
                yield self._kept(part)
                part = _Part(self.line().to(LABEL))
            line, here = part.line.add(_APART if part.spots else ""), self._question.at == stop
            start, picked = line.cells, self._question.picked(stop)
            line.add(text[:3], "busy", bold=True, reverse=here)
            line.add(self.cut(text[3:], line.cells), "bright" if here or picked else "text")
            part.spots.append((start, line.cells, stop))
        if part.spots:
            yield self._kept(part)

    def _kept(self, part: _Part) -> _Part:
        stops = [stop for _, _, stop in part.spots]
        part.keep = Keep.MUST if self._question.at in stops else Keep.CHOICE
        return part

    def _facts(self) -> Iterator[_Part]:
        question, tool = self._question, self._question.tool.id
        past, facts = question.past, []
        if question.ready and tool == "profile":
            facts.append(("rate", question.rate))
        if question.ready and tool != "stack":
            cost = past.cost(trace=tool == "trace") if past else ""
            usual = "it is not paused" if tool == "profile" else slower(question.hold)
            facts.append(("cost", f"{usual}; measured on this one before: {cost}" if cost else usual))
            if past and past.place:
                facts.append(("save", f"{past.place}/"))
        for label, text in facts:
            for place, piece in enumerate(draw.wrap(text, max(_TITLE, self.width - LABEL - 2))):
                line = self.line().add("" if place else label, "dim").to(LABEL)
                yield _Part(line.add(self.cut(piece, LABEL), "text"), Keep.ABOUT)

    def _said(self) -> Iterator[_Part]:
        for mark, text, token in self._sentences():
            for line in self.sentence(mark, text, token):
                yield _Part(line, Keep.SAID if token == "dim" else Keep.FIRST)

    def _sentences(self) -> Iterator[tuple[str, str, Token]]:
        question, glyphs = self._question, self.look.glyphs
        barred = question.barred[question.tool.id]
        if barred:
            yield glyphs.info if barred is ASKING else glyphs.crit, barred.text, "warn"
            if barred.unlock:
                yield "", barred.unlock, "command"
            return
        if question.recorded:
            yield glyphs.info, "what it shows is recorded: it comes with the demo", "dim"
        for warning in question.warnings:
            yield glyphs.warn, warning, "warn"
        told: set[str] = set()
        for tool in TOOLS:
            other = question.barred[tool.id]
            if other and other.text not in told:
                told.add(other.text)
                yield glyphs.info, f"{tool.title}: {other.line}", "dim"

    def _buttons(self) -> _Part:
        question = self._question
        older: list[tuple[Stop, str, Token]] = []
        if question.past and question.past.older:
            older = [(OLDER, f"Older: {len(question.past.older)}", "bright")]
        start: Token = "bright" if question.ready else "dim"
        both: list[tuple[Stop, str, Token]] = [(CANCEL, "Cancel", "bright"), (START, "Start", start)]
        return parts.buttons(self.line(), self.width, [*older, *both], question.at)

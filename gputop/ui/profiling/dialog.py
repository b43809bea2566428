"""The profile dialog: the tool, its options, why one cannot be used, what it will do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal, NamedTuple

from textual import events

from gputop import labels
from gputop.actions import Handles, Scope
from gputop.actions.pyspy.record import FASTEST, rate, threads
from gputop.model import Process, Role
from gputop.safe.ptrace_access import Barred
from gputop.ui.dialogs.form import LABEL, Form, Keep, Question, Row, command
from gputop.ui.profiling.tools import (
    ASKING,
    BY_ID,
    TAGGED,
    TOOLS,
    Answers,
    CheckOption,
    Order,
    PastResults,
    Tool,
    ToolId,
    sampling,
)
from gputop.ui.theme import Look, Token
from gputop.ui.widgets import drawing


class Stop(NamedTuple):
    """Where the cursor can be: a tool, a value of an option, a box, a button."""

    kind: str
    value: str | float


CANCEL, START, OLDER = Stop("button", "cancel"), Stop("button", "start"), Stop("button", "older")


class ProfileQuestion(Question):
    """The state of one dialog. Its targets are what the handles hold, whatever becomes of its row.

    `barred` says why a tool cannot be used on it, or that this is not known yet.
    """

    def __init__(
        self, handles: Handles, tool: ToolId, barred: Answers, *, everybody: bool = False, recorded: bool = False
    ) -> None:
        self.handles = handles
        self.tool = BY_ID[tool]
        self.past: PastResults | None = None  # what was taken of it before, once that is known
        self.barred = barred
        self.recorded = recorded  # what the tools show comes with a demo
        self._chosen = {key: value for tool in TOOLS for key, value in _usual(tool, handles)}
        self._chosen["stack", "ranks"] = float(everybody and not self._chosen["stack", "tagged"])

    @property
    def ready(self) -> bool:
        """Whether the tool can be used on it."""
        return self.barred[self.tool.id] is None

    @property
    def unlock(self) -> str:
        """The command that would make the tool usable; empty if there is none, or no need."""
        barred = self.barred[self.tool.id]
        return (barred.unlock or "") if barred else ""

    @property
    def boxes(self) -> list[tuple[CheckOption, str]]:
        """The boxes of the tool and what they say; those that mean nothing to these processes are not there."""
        return [(box, title) for box in self.tool.boxes if (title := box.title(self.handles))]

    def picked(self, stop: Stop) -> bool:
        """Whether what is there is chosen."""
        if stop.kind == "tool":
            return stop.value == self.tool.id
        if stop.kind == "box":
            return bool(self._chosen[self.tool.id, str(stop.value)])
        return self._chosen.get((self.tool.id, stop.kind)) == stop.value

    def take(self, stop: Stop) -> None:
        """Choose a tool or a value, tick a box."""
        if stop.kind == "tool":
            self.tool = BY_ID[stop.value]  # type: ignore[index]
        elif stop.kind == "box":
            self._tick(str(stop.value))
        else:
            self._chosen[self.tool.id, stop.kind] = float(stop.value)

    def order(self) -> Order | None:
        """What the tool's action is to do; None if it cannot, which `notice` then says."""
        if barred := self.barred[self.tool.id]:
            self.notice = barred.text
            return None
        if self.tool.id == "profile" and len(self.each) > _MOST_AT_ONCE:
            self.notice = f"at most {_MOST_AT_ONCE} are recorded at once: tag fewer"
            return None
        return self.tool.options(self._values())

    @property
    def each(self) -> tuple[Process, ...]:
        """The processes the tool is started for, one by one: py-spy records one process, the others several."""
        chosen, leader = self._values(), self.handles.leader
        if leader is not None and chosen.get("leader"):
            return (leader,)
        scope = {"tagged": Scope.TAGGED, "ranks": Scope.JOB} if self.tool.id == "profile" or self.recorded else {}
        several = next((self.handles.processes(scope[box]) for box in scope if chosen[box]), ())
        return tuple(each for each in several if each.role is Role.TRAINER) or several or (self.handles.process,)

    @property
    def rate(self) -> str:
        """How often py-spy would look, and why no oftener."""
        chosen = sampling(self._values())
        count, processes = threads(self.handles.frame, self.handles.process, chosen.children)
        hertz = rate(chosen, count)
        if hertz >= FASTEST:
            return f"{hertz} samples/s"
        where = f" in {labels.amount(processes, 'process')}" if processes > 1 else ""
        why = "each sample pauses it" if chosen.native else f"it has {labels.amount(count, 'thread')}{where}"
        return f"{hertz} samples/s, not {FASTEST}: {why}"

    @property
    def warnings(self) -> Iterator[str]:
        """What the chosen options do to the process, or to what is seen of it."""
        on = {box.id for box, _ in self.boxes if self._chosen[self.tool.id, box.id]}
        if "native" in on:
            long = "for each sample" if self.tool.id == "profile" else "for a third of a second"
            yield f"native adds C and C++ frames, and pauses the process {long}"
        if self.tool.id == "profile" and ("gil" in on or "waiting" not in on):
            yield "idle threads are not sampled then: waiting for data does not show"
        if self.tool.id == "torch" and on & {"stacks", "shapes", "memory"}:
            yield "slows the job while recording and enlarges the trace: few steps are enough"
        if self.tool.id == "torch" and self._chosen["torch", "steps"] >= _MANY:
            yield "many steps take long to write, and the job is stopped for it: 3 to 5 are enough"

    def _values(self) -> dict[str, float]:
        return {id: value for (tool, id), value in self._chosen.items() if tool == self.tool.id}

    def _tick(self, id: str) -> None:
        key = (self.tool.id, id)
        self._chosen[key] = 1.0 - self._chosen[key]
        scopes = tuple(
            box for box in _SCOPES if box != "children" or self.tool.id != "profile"
        )  # there it is more of each
        if self._chosen[key] and id in scopes:  # one or the other
            others = [(self.tool.id, other) for other in scopes if other != id]
            self._chosen.update((other, 0.0) for other in others if other in self._chosen)


_MANY = 30
_MOST_AT_ONCE = 8  # py-spys, each of which takes some of a CPU
_SCOPES = ("tagged", "ranks", "children", "leader")  # boxes that choose the processes


def _usual(tool: Tool, handles: Handles) -> Iterator[tuple[tuple[ToolId, str], float]]:
    """What is chosen at first; what is not there for these processes is not wanted, but for children yet to come."""
    for option in tool.several:
        yield (tool.id, option.id), option.usual
    tagged = bool(TAGGED.title(handles))
    for box in tool.boxes:
        there = not tagged and bool(box.title(handles)) if box.id == "ranks" else tagged if box is TAGGED else True
        yield (tool.id, box.id), float(box.usual and there)


_TITLE = 20  # cells of a tool's mark and name
_MIDDLE = 9  # lines there always are for options and what they mean, so that the box stays where it is
_TAKES = {
    START: "start",
    CANCEL: "cancel",
    OLDER: "list earlier profiles",
}  # what taking a button does; others are chosen

Answer = Literal["older"]  # older ones are asked for
Start = Callable[[Tool, Order], object]


def slower(handles: Handles) -> str:
    """What a trace costs: on a GPU CUPTI stays attached."""
    if handles.process.gpus:
        return "slower while recording; short steps stay slower afterwards"
    return "slower only while recording"


class ProfileDialog(Form[Answer, Stop]):
    """Asks until it is clear what to do, has it started, and lets go of the processes when it closes."""

    TITLE_TEXT = "profile"
    question: ProfileQuestion

    def __init__(
        self,
        question: ProfileQuestion,
        look: Look,
        keys: Mapping[str, ToolId],
        start: Start,
        copy: Callable[[str], object],
    ) -> None:
        """`keys` choose a tool, as they do on the screen below; `copy` takes a command to the clipboard."""
        super().__init__(look, question, START if question.ready else Stop("tool", question.tool.id))
        self._keys, self._start, self._copy = keys, start, copy

    def on_unmount(self) -> None:
        """However it ended: what was started keeps what it needs."""
        self.question.handles.close()

    def recall(self, past: PastResults) -> None:
        """What was taken of it before is known now."""
        self.question.past = past
        if self.is_attached:
            self.redraw()

    def answer(self, tool: ToolId, barred: Barred | None) -> None:
        """It is known now why a tool cannot be used, or that it can."""
        self.question.barred[tool] = barred
        if self.is_attached:
            self.redraw()

    def group(self, stop: Stop) -> object:
        """The tools, the options, the buttons."""
        return stop.kind if stop.kind in ("tool", "button") else "option"

    def prefers(self, stop: Stop) -> bool:
        """The button that is meant next, and what is chosen."""
        return stop == self._usual if stop.kind == "button" else stop.kind != "box" and self.question.picked(stop)

    @property
    def _usual(self) -> Stop:
        return START if self.question.ready else CANCEL

    def other_key(self, event: events.Key) -> None:
        """Copy; the keys that ask for a tool choose it."""
        question = self.question
        if event.key in self._keys:
            self.go(Stop("tool", self._keys[event.key]))
            self.choose(self.cursor)
            if question.ready:
                self.go(START)
        elif event.key == "h":
            self.choose(OLDER)
        elif event.key == "y" and question.unlock:
            self._copy(question.unlock)
            question.notice = f"copied: {question.unlock}"

    def choose(self, stop: Stop) -> None:
        """Press a button, choose a tool or a value, tick a box."""
        question = self.question
        if stop == CANCEL:
            self.dismiss(None)
        elif stop == OLDER:
            if question.past and question.past.older:
                self.dismiss("older")
            else:
                question.notice = "no earlier profile of it"
        elif stop != START:
            question.take(stop)
        elif (order := question.order()) is not None:
            self._start(question.tool, order)
            self.dismiss(None)

    def after(self, stop: Stop) -> Stop:
        """From what is chosen on to the buttons."""
        return stop if stop.kind == "button" else self._usual

    @property
    def keys(self) -> str:
        """What is said of the keys."""
        question = self.question
        keys = ["arrows move", f"Space, Enter {_TAKES.get(self.cursor, 'choose')}"]
        keys += ["h earlier profiles"] if question.past and question.past.older else []
        keys += ["y copies the command"] if question.unlock else []
        return "   ".join([*keys, "Esc cancels"])

    def groups(self) -> Iterator[Iterator[Row[Stop]] | list[Row[Stop]]]:
        """Which process, with which tool and options, what it will do."""
        question, said = self.question, self.said(self._sentences())
        yield self._targets()
        yield map(self._tool, TOOLS)
        blank = Row[Stop](self.line(), Keep.BLANK)
        middle = [*self._options(), *self._facts(), blank, *said] if question.ready else said
        yield middle + [blank] * (_MIDDLE - len(middle))
        older = question.past.older if question.past else ()
        named = [(OLDER, f"Older: {len(older)}")] if older else []
        start: Token = "bright" if question.ready else "dim"
        yield self.buttons(*named, (CANCEL, "Cancel"), (START, "Start"), tokens={START: start})

    def _targets(self) -> Iterator[Row[Stop]]:
        handles = self.question.handles
        yield from self.about("of", handles.frame, handles.process)
        if handles.leader is not None:
            yield self.fact(f"the first rank that {handles.leader.pid} {command(handles.leader)} started")

    def _tool(self, tool: Tool) -> Row[Stop]:
        question, stop = self.question, Stop("tool", tool.id)
        here, picked, barred = self.cursor == stop, question.picked(stop), question.barred[tool.id]
        line = self.line(here)
        if tool is TOOLS[0]:
            line.add("with", "dim")
        line.to(LABEL).add(self.mark(picked), "busy" if picked or here else "dim", bold=picked)
        line.add(f" {tool.title}", "bright" if picked or here else "text", bold=picked).to(LABEL + _TITLE)
        state = "ready" if barred is None else "asking" if barred is ASKING else "no"
        end = self.width - len(state) - 2
        if end - line.cells > _TITLE:
            line.add(drawing.cut(tool.about, end - line.cells - 1, self.look.glyphs.more), "text" if picked else "dim")
        line.to(end).add(state, "command" if barred is None else "warn")
        return Row(line, stops={stop: range(self.width)})

    def _options(self) -> Iterator[Row[Stop]]:
        """The options of the tool, each value a thing to choose."""
        for option in self.question.tool.several:
            values = [self._cell(self.mark, Stop(option.id, value), title) for value, title in option.values]
            yield from self.flow(option.label, values)
        boxes = [self._cell(self.tick, Stop("box", box.id), title) for box, title in self.question.boxes]
        yield from self.flow("also", boxes)

    def _cell(self, mark: Callable[[bool], str], stop: Stop, title: str) -> tuple[Stop, str, Token]:
        picked = self.question.picked(stop)
        return stop, f"{mark(picked)} {title}", "bright" if picked else "text"

    def _facts(self) -> Iterator[Row[Stop]]:
        question, tool = self.question, self.question.tool.id
        past, facts = question.past, []
        if question.ready and tool == "profile":
            facts.append(("rate", question.rate))
        if question.ready and tool != "stack":
            cost = past.cost(trace=tool == "torch") if past else ""
            usual = "not paused" if tool == "profile" else slower(question.handles)
            facts.append(("cost", f"{usual}; measured on this process before: {cost}" if cost else usual))
            if past and past.place:
                facts.append(("save", f"{past.place}/"))
        for label, text in facts:
            for place, piece in enumerate(drawing.wrap(text, max(_TITLE, self.width - LABEL - 2))):
                line = self.line().add("" if place else label, "dim").to(LABEL)
                yield Row(line.add(self.cut(piece, LABEL), "text"), Keep.ABOUT)

    def _sentences(self) -> Iterator[tuple[str, str, Token]]:
        question, glyphs = self.question, self.look.glyphs
        barred = question.barred[question.tool.id]
        if barred:
            yield glyphs.info if barred is ASKING else glyphs.crit, barred.text, "warn"
            if barred.unlock:
                yield "", barred.unlock, "command"
            return
        if question.recorded:
            yield glyphs.info, "the result is a recording that comes with the demo", "dim"
        for warning in question.warnings:
            yield glyphs.warn, warning, "warn"
        named: set[str] = set()
        for tool in TOOLS:
            other = question.barred[tool.id]
            if other and other.text not in named:
                named.add(other.text)
                yield glyphs.info, f"{tool.title}: {other.line}", "dim"

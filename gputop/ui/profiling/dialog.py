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
from gputop.ui.dialogs import dialog
from gputop.ui.dialogs.dialog import JUMPS, LABEL, DialogLines, DialogPart, Keep, PartsDialog, fitting
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
from gputop.ui.signal import target_lines
from gputop.ui.theme import Look, Token
from gputop.ui.widgets import drawing


class Stop(NamedTuple):
    """Where the cursor can be: a tool, a value of an option, a box, a button."""

    kind: str
    value: str | float


CANCEL, START, OLDER = Stop("button", "cancel"), Stop("button", "start"), Stop("button", "older")


class ProfileQuestion:
    """The state of one dialog. Who is meant is what the handles hold, whatever becomes of its row.

    `barred` says why a tool cannot be used on it, or that this is not known yet.
    """

    def __init__(
        self, handles: Handles, tool: ToolId, barred: Answers, *, everybody: bool = False, recorded: bool = False
    ) -> None:
        self.handles = handles
        self.tool = BY_ID[tool]
        self.past: PastResults | None = None  # what was taken of it before, once that is known
        self.told = ""  # what became of the last key
        self.barred = barred
        self.recorded = recorded  # what the tools show comes with a demo
        self._chosen = {key: value for tool in TOOLS for key, value in _usual(tool, handles)}
        self._chosen["stack", "ranks"] = float(everybody and not self._chosen["stack", "tagged"])
        self.at = START if self.ready else Stop("tool", tool)

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

    @property
    def rows(self) -> list[list[Stop]]:
        """Where the cursor can be, line by line."""
        found = [[Stop("tool", tool.id)] for tool in TOOLS]
        if self.ready:
            found += [[Stop(option.id, value) for value, _ in option.values] for option in self.tool.several]
            found += [[Stop("box", box.id) for box, _ in self.boxes]]
        older = [OLDER] if self.past and self.past.older else []
        return [*filter(None, found), [*older, CANCEL, START]]

    def picked(self, stop: Stop) -> bool:
        """Whether what is there is chosen."""
        if stop.kind == "tool":
            return stop.value == self.tool.id
        if stop.kind == "box":
            return bool(self._chosen[self.tool.id, str(stop.value)])
        return self._chosen.get((self.tool.id, stop.kind)) == stop.value

    def move(self, rows: int, places: int) -> None:
        """Move the cursor by lines, or along its line, around the ends."""
        lines = self.rows
        here = next((line for line in lines if self.at in line), lines[-1])
        self.told = ""
        if places and len(here) > 1:
            self.at = here[(here.index(self.at) + places) % len(here)]
        else:
            self._enter(lines[(lines.index(here) + (rows or places)) % len(lines)])

    def jump(self, step: int) -> None:
        """To the next group: the tools, the options, the buttons."""
        lines = self.rows
        groups = [[Stop("tool", self.tool.id)], *lines[len(TOOLS) : len(TOOLS) + 1]]
        groups += [lines[-1]] if groups[-1] is not lines[-1] else []
        kinds = ["tool", "option", "button"] if len(groups) > 2 else ["tool", "button"]
        kind = self.at.kind if self.at.kind in ("tool", "button") else "option"
        self.told = ""
        self._enter(groups[(kinds.index(kind) + step) % len(groups)])

    def take(self, stop: Stop) -> None:
        """Choose a tool or a value, tick a box; the cursor goes there. For buttons see `order`."""
        self.at, self.told = stop, ""
        if stop.kind == "tool":
            self.tool = BY_ID[stop.value]  # type: ignore[index]
        elif stop.kind == "box":
            self._tick(str(stop.value))
        elif stop.kind != "button":
            self._chosen[self.tool.id, stop.kind] = float(stop.value)

    def order(self) -> Order | None:
        """What the tool's action is to do; None if it cannot, which is then said in `told`."""
        if barred := self.barred[self.tool.id]:
            self.told = barred.text
            return None
        if self.tool.id == "profile" and len(self.each) > _MOST_AT_ONCE:
            self.told = f"at most {_MOST_AT_ONCE} are recorded at once: tag fewer, or tick them off"
            return None
        return self.tool.options(self._values())

    @property
    def each(self) -> tuple[Process, ...]:
        """The processes the tool is started for, one by one: py-spy records one process, the others look at several."""
        chosen, leader = self._values(), self.handles.leader
        if leader is not None and chosen.get("leader"):
            return (leader,)
        scope = {"tagged": Scope.TAGGED, "ranks": Scope.JOB} if self.tool.id == "profile" or self.recorded else {}
        several = next((self.handles.who(scope[box]) for box in scope if chosen[box]), ())
        return tuple(each for each in several if each.role is Role.TRAINER) or several or (self.handles.process,)

    @property
    def rate(self) -> str:
        """How often py-spy would look, and why no oftener."""
        chosen = sampling(self._values())
        count, processes = threads(self.handles.frame, self.handles.process, chosen.children)
        hertz = rate(chosen, count)
        if hertz >= FASTEST:
            return f"{hertz} samples a second"
        where = f" in {labels.amount(processes, 'process')}" if processes > 1 else ""
        why = "each pauses it" if chosen.native else f"it has {labels.amount(count, 'thread')}{where}"
        return f"{hertz} samples a second, not {FASTEST}: {why}"

    @property
    def warnings(self) -> Iterator[str]:
        """What the chosen options do to the process, or to what is seen of it."""
        on = {box.id for box, _ in self.boxes if self._chosen[self.tool.id, box.id]}
        if "native" in on:
            long = "for each sample" if self.tool.id == "profile" else "for a third of a second"
            yield f"native shows C and C++ too, and pauses the process {long}"
        if self.tool.id == "profile" and ("gil" in on or "waiting" not in on):
            yield "a thread that waits gives no sample then: waiting for data is not seen"
        if self.tool.id == "trace" and on & {"stacks", "shapes", "memory"}:
            yield "the job is slower while it records, and the trace larger: few steps are enough"
        if self.tool.id == "trace" and self._chosen["trace", "steps"] >= _MANY:
            yield "many steps take long to write, and the job stands still meanwhile: 3 to 5 are enough"

    def _values(self) -> dict[str, float]:
        return {id: value for (tool, id), value in self._chosen.items() if tool == self.tool.id}

    def _tick(self, id: str) -> None:
        key = (self.tool.id, id)
        self._chosen[key] = 1.0 - self._chosen[key]
        whom = tuple(box for box in _WHOM if box != "children" or self.tool.id != "profile")  # there it is more of each
        if self._chosen[key] and id in whom:  # one or the other
            others = [(self.tool.id, other) for other in whom if other != id]
            self._chosen.update((other, 0.0) for other in others if other in self._chosen)

    def _enter(self, line: list[Stop]) -> None:
        picked = (stop for stop in line if stop.kind not in ("tool", "box", "button") and self.picked(stop))
        usual = START if self.ready else CANCEL
        self.at = usual if usual in line else next(picked, line[0])


_MANY = 30
_MOST_AT_ONCE = 8  # py-spys, each of which takes some of a CPU
_WHOM = ("tagged", "ranks", "children", "leader")  # boxes that choose the processes


def _usual(tool: Tool, handles: Handles) -> Iterator[tuple[tuple[ToolId, str], float]]:
    """What is chosen at first; what is not there for these processes is not wanted, but for children yet to come."""
    for option in tool.several:
        yield (tool.id, option.id), option.usual
    tagged = bool(TAGGED.title(handles))
    for box in tool.boxes:
        there = not tagged and bool(box.title(handles)) if box.id == "ranks" else tagged if box is TAGGED else True
        yield (tool.id, box.id), float(box.usual and there)


_Part = DialogPart[Stop]
_TITLE = 20  # cells of a tool's mark and name
_MIDDLE = 9  # lines there always are for options and what they mean, so that the box stays where it is
_APART = "   "


def slower(handles: Handles) -> str:
    """What a trace costs: on a GPU CUPTI stays attached."""
    if handles.process.gpus:
        return "it is slower while it records, small steps afterwards too"
    return "it is slower only while it records"


class ProfileLines(DialogLines):
    """Draws how to look into a process."""

    def __init__(self, question: ProfileQuestion, look: Look, width: int) -> None:
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
        handles = self._question.handles
        line = self.line().add("of", "dim").to(LABEL).add(f"{handles.process.pid}  ", "bright", bold=True)
        yield _Part(line.add(self.cut(target_lines.command(handles.process), line.cells), "command"), Keep.LAST)
        facts = target_lines.facts(handles.frame, handles.process, self.look.glyphs.dot)
        yield _Part(self.line().to(LABEL).add(self.cut(facts, LABEL), "dim"), Keep.ABOUT)
        if handles.leader is not None:
            text = f"the first rank that {handles.leader.pid} {target_lines.command(handles.leader)} started"
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
            line.add(drawing.cut(tool.about, end - line.cells - 1, self.look.glyphs.more), "text" if picked else "dim")
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
            usual = "it is not paused" if tool == "profile" else slower(question.handles)
            facts.append(("cost", f"{usual}; measured on this one before: {cost}" if cost else usual))
            if past and past.place:
                facts.append(("save", f"{past.place}/"))
        for label, text in facts:
            for place, piece in enumerate(drawing.wrap(text, max(_TITLE, self.width - LABEL - 2))):
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
        return dialog.buttons(self.line(), self.width, [*older, *both], question.at)


_MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}

_TAKES = {START: "start", CANCEL: "cancel", OLDER: "list older ones"}  # what taking a button does; others are chosen

Answer = Literal["older"]  # older ones are asked for
Start = Callable[[Tool, Order], object]


class ProfileDialog(PartsDialog[Answer, Stop]):
    """Asks until it is clear what to do, has it started, and lets go of the processes when it closes."""

    WIDTH = 80

    def __init__(
        self,
        question: ProfileQuestion,
        look: Look,
        keys: Mapping[str, ToolId],
        start: Start,
        copy: Callable[[str], object],
    ) -> None:
        """`keys` choose a tool, as they do on the screen below; `copy` takes a command to the clipboard."""
        super().__init__(look)
        self.question = question
        self._keys, self._start, self._copy = keys, start, copy

    def parts(self) -> list[DialogPart[Stop]]:
        """All of it, as much as there is room for."""
        return ProfileLines(self.question, self.look, self.width).parts(self.app.size.height, self._foot)

    @property
    def _foot(self) -> str:
        question = self.question
        keys = ["arrows move", f"Space, Enter {_TAKES.get(question.at, 'choose')}"]
        keys += ["h older ones"] if question.past and question.past.older else []
        keys += ["y copies the command"] if question.unlock else []
        return "   ".join([*keys, "Esc cancels"])

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

"""What the profile dialog asks, without a screen: the tool, its options, why one cannot be used, what it will do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gputop import labels
from gputop.actions import Handles, Scope
from gputop.actions.pyspy.record import FASTEST, rate, threads
from gputop.model import Process, Role
from gputop.ui.profiling.asking import Answers
from gputop.ui.profiling.past import Past
from gputop.ui.profiling.tools import BY_ID, TAGGED, TOOLS, Box, Order, Tool, ToolId, sampling


class Stop(NamedTuple):
    """Where the cursor can be: a tool, a value of an option, a box, a button."""

    kind: str
    value: str | float


CANCEL, START, OLDER = Stop("button", "cancel"), Stop("button", "start"), Stop("button", "older")


class Question:
    """The state of one dialog. Who is meant is what the hold has, whatever becomes of its row.

    `barred` says why a tool cannot be used on it, or that this is not known yet.
    """

    def __init__(
        self, hold: Handles, tool: ToolId, barred: Answers, *, everybody: bool = False, recorded: bool = False
    ) -> None:
        self.hold = hold
        self.tool = BY_ID[tool]
        self.past: Past | None = None  # what was taken of it before, once that is known
        self.told = ""  # what became of the last key
        self.barred = barred
        self.recorded = recorded  # what the tools show comes with a demo
        self._chosen = {key: value for tool in TOOLS for key, value in _usual(tool, hold)}
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
    def boxes(self) -> list[tuple[Box, str]]:
        """The boxes of the tool and what they say; those that mean nothing to these processes are not there."""
        return [(box, title) for box in self.tool.boxes if (title := box.title(self.hold))]

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
        """For whom the tool is started, each by itself: py-spy records one process, the others look at several."""
        chosen, leader = self._values(), self.hold.leader
        if leader is not None and chosen.get("leader"):
            return (leader,)
        scope = {"tagged": Scope.TAGGED, "ranks": Scope.JOB} if self.tool.id == "profile" or self.recorded else {}
        several = next((self.hold.who(scope[box]) for box in scope if chosen[box]), ())
        return tuple(each for each in several if each.role is Role.TRAINER) or several or (self.hold.process,)

    @property
    def rate(self) -> str:
        """How often py-spy would look, and why no oftener."""
        chosen = sampling(self._values())
        count, processes = threads(self.hold.frame, self.hold.process, chosen.children)
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
_WHOM = ("tagged", "ranks", "children", "leader")  # boxes that say who is meant


def _usual(tool: Tool, hold: Handles) -> Iterator[tuple[tuple[ToolId, str], float]]:
    """What is chosen at first; what is not there for these processes is not wanted, but for children yet to come."""
    for option in tool.several:
        yield (tool.id, option.id), option.usual
    tagged = bool(TAGGED.title(hold))
    for box in tool.boxes:
        there = not tagged and bool(box.title(hold)) if box.id == "ranks" else tagged if box is TAGGED else True
        yield (tool.id, box.id), float(box.usual and there)

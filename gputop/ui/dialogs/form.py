"""A form about a process: rows of what can be chosen, the last with its buttons. Textual scrolls where it is low."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Generic, TypeVar

from textual import events, on
from textual.strip import Strip

from gputop import labels, units
from gputop.actions.signals import elsewhere
from gputop.fit import fit
from gputop.model import Frame, Process, Role
from gputop.ui.dialogs.box import Answer
from gputop.ui.dialogs.choices import JUMPS, STEPS, ListDialog
from gputop.ui.theme import Look, Token
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line, wrap

LABEL = 8  # cells before what a line says
_APART = "   "
_NARROWEST = 20  # cells of a sentence: below, words would stand one under the other


class Keep(IntEnum):
    """What stays on a low screen: the blanks go first. Where even what is always there has no room, rows scroll."""

    BLANK = 1
    FOOT = 2
    ABOUT = 3
    SAID = 4
    ALWAYS = 5


Stop = TypeVar("Stop", bound=Hashable)  # where the cursor can be


@dataclass(slots=True)
class Row(Generic[Stop]):
    """A line, and what can be chosen on it: each thing with its cells."""

    line: Line
    keep: Keep = Keep.ALWAYS
    stops: dict[Stop, range] = field(default_factory=dict)


class Question:
    """What a form asks, as far as it is answered."""

    notice = ""  # what became of the last key


class Form(ListDialog[Answer, Row[Stop]], Generic[Answer, Stop]):
    """The list has the row with the cursor, `cursor` is what it is on there. Rows scroll between what stands above the
    first thing to choose and below the last."""

    WIDTH = 80

    def __init__(self, look: Look, question: Question, cursor: Stop) -> None:
        super().__init__(look, ())
        self.question, self.cursor = question, cursor

    @abstractmethod
    def groups(self) -> Iterable[Iterable[Row[Stop]]]:
        """Everything between the heading and the foot; a blank line stands before each group."""

    @abstractmethod
    def group(self, stop: Stop) -> object:
        """Tab goes from one of these to the next."""

    @abstractmethod
    def prefers(self, stop: Stop) -> bool:
        """Whether the cursor comes here first when it comes to a row or a group."""

    @abstractmethod
    def choose(self, stop: Stop) -> None:
        """What Space does there; the cursor is there already."""

    @abstractmethod
    def after(self, stop: Stop) -> Stop:
        """Where Enter goes after that."""

    def go(self, stop: Stop) -> None:
        """Put the cursor there."""
        self.cursor = stop
        self.choices.highlighted = next((at for at, row in enumerate(self.items) if stop in row.stops), self.at)

    def press(self, event: events.Key) -> None:
        """Move by rows, by stops or by groups, around the ends, or choose."""
        self._follow()
        self.question.notice = ""
        key, stops = event.key, self._stops
        if key in ("left", "right"):
            self.go(stops[(stops.index(self.cursor) + STEPS[key]) % len(stops)])
        elif key in STEPS:
            (self.choices.action_cursor_up if key == "up" else self.choices.action_cursor_down)()
        elif key in JUMPS:
            self._jump(JUMPS[key])
        elif key in ("enter", "space"):
            stop = self.cursor
            self.choose(stop)
            if key == "enter" and self.cursor == stop:
                self.go(self.after(stop))
        else:
            super().press(event)
            self.other_key(event)
        if self.is_current:
            self.redraw()

    def other_key(self, event: events.Key) -> None:
        """A key that neither moves nor chooses."""

    def take(self, row: Row[Stop]) -> None:  # noqa: ARG002
        """Choose what the cursor is on."""
        self.choose(self.cursor)

    def click_on(self, stop: Stop) -> None:
        """A click is Space on what is there."""
        self.go(stop)
        self.question.notice = ""
        self.choose(stop)

    @on(events.Click)
    def click(self, event: events.Click) -> None:
        """Whatever of the row is under the mouse."""
        event.stop()
        if there := event.style.meta.get("stop"):
            row, number = there
            self.click_on([*self.items[row].stops][number])
            if self.is_current:
                self.redraw()

    @property
    def _stops(self) -> list[Stop]:
        return [stop for row in self.items for stop in row.stops]

    def _jump(self, step: int) -> None:
        groups: dict[object, list[Stop]] = {}
        for stop in self._stops:
            groups.setdefault(self.group(stop), []).append(stop)
        kinds = list(groups)
        self.go(self._first(groups[kinds[(kinds.index(self.group(self.cursor)) + step) % len(kinds)]]))

    def _first(self, stops: Collection[Stop]) -> Stop:
        return next(filter(self.prefers, stops), next(iter(stops)))

    def _follow(self) -> None:
        """The cursor goes to the row that the list has it in."""
        stops = self.items[self.at].stops
        if self.cursor not in stops:
            self.cursor = self._first(stops)

    def can_choose(self, row: Row[Stop]) -> bool:
        """The cursor skips lines that only say something."""
        return bool(row.stops)

    def row(self, row: Row[Stop], line: Line, chosen: bool) -> Line:  # noqa: ARG002
        """It was drawn with all the others."""
        return row.line

    def clickable(self, strip: Strip, place: int) -> Strip:
        """Each thing on a row is clicked by itself; a style can only carry what is plain."""
        for number, cells in enumerate(self.items[place].stops.values()):
            there = strip.crop(cells.start, cells.stop).apply_meta({"stop": (place, number)})
            strip = Strip.join([strip.crop(0, cells.start), there, strip.crop(cells.stop)])
        return strip

    def _draw_around(self) -> None:
        if self.items:
            self._follow()
        rows = self._rows()
        if not any(self.cursor in row.stops for row in rows):
            self.cursor = self._first([row for row in rows if row.stops][-1].stops)
            rows = self._rows()
        places = [place for place, row in enumerate(rows) if row.stops]
        head, items, foot = rows[: places[0]], rows[places[0] : places[-1] + 1], rows[places[-1] + 1 :]
        self.put(items, next(place for place, row in enumerate(items) if self.cursor in row.stops))
        strips = self.boxed([row.line for row in (*head, *(foot or [Row(self.line())]))])
        height = max(1, min(len(items), self.app.size.height - len(head) - len(foot)))
        self.stack((self.head, len(head)), (self.choices, height), (self._foot, len(foot)))
        self.head.show(strips[: len(head)])
        self._foot.show(strips[len(head) :])
        self.choices.refresh()

    def _rows(self) -> list[Row[Stop]]:
        blank, found = Row[Stop](self.line(), Keep.BLANK), [Row[Stop](self.heading(), Keep.FOOT)]
        last = Row[Stop](self.foot(), Keep.ALWAYS if self.question.notice else Keep.FOOT)
        for group in map(list, (*self.groups(), [last])):
            found += [blank, *group] if group else []
        return fit(found, self.app.size.height, lambda _: 1, always=Keep.ALWAYS)

    @property
    def keys(self) -> str:
        """What is said of the keys."""
        return self.FOOT

    def foot(self) -> Line:
        """Which keys there are, or the latest notice instead."""
        notice = self.question.notice
        return self.line().add(self.cut(notice or self.keys, 2), "warn" if notice else "dim")

    def line(self, chosen: bool = False) -> Line:
        """An empty line, as all begin."""
        return Line(self.look, "selected" if chosen else "raised").add("  ")

    def cut(self, text: str, taken: int) -> str:
        """As much of it as fits beside this many cells."""
        return drawing.cut(text, max(0, self.width - taken - 2), self.look.glyphs.more)

    def mark(self, picked: bool) -> str:
        """Of one of several, whether it is the one."""
        return f"({self.look.glyphs.picked if picked else ' '})"

    def tick(self, ticked: bool) -> str:
        """Of a box, whether it is ticked."""
        return f"[{'x' if ticked else ' '}]"

    def said(self, sentences: Iterable[tuple[str, str, Token]]) -> list[Row[Stop]]:
        """What to know, each with its mark, broken between words; the first line of it stays, and what is critical."""
        rows: list[Row[Stop]] = []
        for mark, text, token in sentences:
            start = 3 + max(len(mark), 1)
            for place, piece in enumerate(wrap(text, max(_NARROWEST, self.width - start - 2))):
                line = self.line().add("" if place else mark, token, bold=True).to(start)
                stays = token == "crit" or not (rows or token == "dim")
                rows.append(Row(line.add(self.cut(piece, line.cells), token), Keep.ALWAYS if stays else Keep.SAID))
        return rows

    def flow(self, label: str, cells: Iterable[tuple[Stop, str, Token]]) -> Iterator[Row[Stop]]:
        """Marks and titles side by side where they fit, else on the next line."""
        row = Row[Stop](self.line().add(label, "dim").to(LABEL))
        for stop, text, token in cells:
            if row.stops and row.line.cells + len(_APART) + len(text) + 2 > self.width:
                yield row
                row = Row(self.line().to(LABEL))
            line, here = row.line.add(_APART if row.stops else ""), self.cursor == stop
            start = line.cells
            line.add(text[:3], "busy", bold=True, reverse=here)
            line.add(self.cut(text[3:], line.cells), "bright" if here else token)
            row.stops[stop] = range(start, line.cells)
        if row.stops:
            yield row

    def buttons(self, *named: tuple[Stop, str], tokens: Mapping[Stop, Token]) -> list[Row[Stop]]:
        """The last row: the buttons at the right, the one with the cursor in brackets."""
        room = sum(len(text) + 5 for _, text in named) - 1
        row = Row[Stop](self.line().to(max(2, self.width - room - 2)))
        for stop, text in named:
            here, start, token = self.cursor == stop, row.line.cells, tokens.get(stop, "bright")
            row.line.add(f"[ {text} ]" if here else f"  {text}  ", token, bold=here, reverse=here)
            row.stops[stop] = range(start, row.line.cells)
            row.line.add(" ")
        return [row]

    def about(self, label: str, frame: Frame, process: Process) -> Iterator[Row[Stop]]:
        """The process in two lines: a pid alone is not enough to trust."""
        line = self.line().add(label, "dim").to(LABEL).add(f"{process.pid}  ", "bright", bold=True)
        yield Row(line.add(self.cut(command(process), line.cells), "command"))
        yield self.fact(facts(frame, process, self.look.glyphs.dot))

    def fact(self, text: str) -> Row[Stop]:
        """More about it."""
        return Row(self.line().to(LABEL).add(self.cut(text, LABEL), "dim"), Keep.ABOUT)


def command(process: Process) -> str:
    """What it runs; its rank stands in the other line."""
    return labels.command(replace(process, rank=None))


def facts(frame: Frame, process: Process, dot: str) -> str:
    """`alice · rank 0 of 4 of llama-7b · running for 12:30:51 · GPU 0, 66.1G`, as far as it is known."""
    parts = [process.user or "", _place(frame, process)]
    parts.append(f"running for {units.clock(process.age_s)}" if process.age_s is not None else "")
    parts.append(_gpus(frame, process))
    return f" {dot} ".join(part for part in parts if part)


def _place(frame: Frame, process: Process) -> str:
    job = next((job for job in frame.jobs if job.key == process.job), None)
    if job is None:
        return ""
    here = [frame.by_identity[rank] for rank in job.ranks if rank in frame.by_identity]
    ranks = len(job.ranks) + elsewhere(job, here)
    if process.role is Role.TRAINER and process.rank is not None and ranks > 1:
        return f"rank {process.rank} of {ranks} of {job.name}"
    role = f"{labels.role(process.role)} of " if process.role in (Role.LOADER, Role.LAUNCHER) else ""
    return f"{role}{job.name}"


def _gpus(frame: Frame, process: Process) -> str:
    known = frame.by_uuid
    shares = [share for share in process.gpus if share.uuid in known]
    if not shares:
        return ""
    indexes = dict.fromkeys(known[share.uuid].index for share in shares)
    held = [share.vram_bytes for share in shares if share.vram_bytes is not None]
    memory = f", {units.size(sum(held))}" if held else ""
    return f"GPU{'s' if len(indexes) > 1 else ''} {','.join(indexes)}{memory}"

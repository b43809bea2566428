"""The panes of the main screen: where they stand, and an update drawn in all of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol

from textual.app import ComposeResult
from textual.screen import Screen
from textual.strip import Strip

from gputop.config import Settings
from gputop.diagnose.limits import Limits
from gputop.history import History
from gputop.monitor import Monitor, Update
from gputop.proven import Proofs
from gputop.source import Seekable
from gputop.ui import program
from gputop.ui.advice.alarm import Alarm, sequence
from gputop.ui.advice.finding_list import Sheet, host_leads
from gputop.ui.advice.pages import PAGES
from gputop.ui.advice.resolved import Clearing
from gputop.ui.advice.scene import Scene
from gputop.ui.advice.states import States, states
from gputop.ui.file_worker import Aside
from gputop.ui.gpus.pane import Density
from gputop.ui.gpus.scene import with_instances
from gputop.ui.gpus.state import idle_for
from gputop.ui.keys.declared import Key
from gputop.ui.keys.held import at_once
from gputop.ui.keys.hints import hint, names
from gputop.ui.keys.remap import remapped
from gputop.ui.panes import empty
from gputop.ui.panes.layout import HEIGHT_FOR_PROCESSES, WIDTH_FOR_PROCESSES, Pane, Panes, Rect, arrange, small
from gputop.ui.panes.parts import Parts
from gputop.ui.profiling.background_jobs import Errands
from gputop.ui.profiling.status_line import ErrandLine
from gputop.ui.profiling.status_line import height as errand_lines
from gputop.ui.replay.bar import ReplayBar
from gputop.ui.replay.player import Player
from gputop.ui.replay.recorder import Tape
from gputop.ui.table.row import Row
from gputop.ui.table.tree import View
from gputop.ui.table.widget import Table
from gputop.ui.theme import Look, Token
from gputop.ui.then import Then
from gputop.ui.widgets.drawing import Line
from gputop.ui.widgets.key_bar import SAY_S, KeyBar
from gputop.ui.widgets.prompt import Prompt
from gputop.ui.widgets.strip_pane import Lines

if TYPE_CHECKING:
    from gputop.diagnose.experiments import Together

AROUND = ("header", "gpus", "note", "host", "preview", "advice", "notice")  # the panes around the table
_UNUSED_S = 20.0
_ROWS_LEAVE_S = 20.0
_DENSITIES = ("auto", "card", "row", "cell")
CHOICES: tuple[Density | None, ...] = (None, "card", "row", "cell")


class Program(program.Program, Protocol):
    """What the screen asks of the program it belongs to, beyond what all do."""

    monitor: Monitor
    aside: Aside
    tape: Tape
    errands: Errands
    proofs: Proofs | None

    @property
    def overtaken(self) -> bool:
        """Whether the next key is here already: what this one changes is then drawn with that."""

    def pace(self, seconds: float | None) -> None:
        """Another time between two looks."""

    def wear(self, look: Look) -> None:
        """Other colours or glyphs."""

    def lend(self, arguments: list[str]) -> int | None:
        """Give the terminal to a command of gputop until it has been read; its exit code, None where it cannot be."""

    def ring(self, sequence: str) -> None:
        """Write what makes a terminal ring."""


def _first_view(settings: Settings) -> View:
    """Of the table, as it is set up."""
    return View(
        tree=settings.tree, sort=settings.sort, reverse=settings.reverse, every_process=settings.every_process,
        columns=settings.columns,
    )  # fmt: skip


class Board(Screen[None], inherit_bindings=False):
    """The panes and what is in them; what the keys do comes on top."""

    AUTO_FOCUS = "#processes"

    def __init__(self, program: Program, look: Look, settings: Settings, history: History) -> None:
        super().__init__()
        self.program = program
        self.look = look
        self.settings = settings
        self.readonly = settings.readonly
        self.past = Then(history)
        self.density = CHOICES[_DENSITIES.index(settings.density)]
        self.table = Table(look, _first_view(settings), self._table_drawn)
        self.table.listing.follow = settings.follow
        self.table.shows_all, self.table.overtaken = self.shows_all, self._overtaken
        self.every_key = remapped(settings.keys)
        self.keys = [key for key in self.every_key if "main" in key.on]
        self.names = self.table.names = names(self.keys)
        self.bar = KeyBar(look, self.keys)
        source = program.source
        self.player = Player(source) if isinstance(source, Seekable) else None
        self.table.records = not (self.player or self.readonly)
        self.replay = ReplayBar(self.player, source.label, self.keys, look) if self.player else None
        # found by a query they are gone while the program ends, when an update may still arrive
        self.lines = {name: Lines(id=name) for name in AROUND}
        self.gpus, self.host, self.advice = (self.lines[name] for name in ("gpus", "host", "advice"))
        self.gpus.can_focus = self.host.can_focus = self.advice.can_focus = True
        self.sheet, self.clearing, self.alarm = Sheet(), Clearing(), Alarm()
        self.states = States()
        self._label = program.source.label
        self.page, self.page_first = PAGES[0], 0
        self.measured: Mapping[str, str] = {}  # by the command that verifies a finding
        self.first_gpu = 0
        self.gpu = ""  # by uuid: the GPU that was chosen last
        self.prompt = Prompt(look)
        escape = self.names.get("back", "")
        self.errand_line = ErrandLine(lambda: program.errands, look, lambda: "" if self.asking else escape)
        self.asking: Literal["find", "filter"] | None = None
        self.hidden: frozenset[Pane] = frozenset()
        self.alone: Pane | None = None
        self.shown: Update | None = None
        self._rows_wanted, self._rows_enough_s = 0, 0.0
        self.panes: Panes | None = None
        self._undrawn = False

    def compose(self) -> ComposeResult:
        """Every pane; `arrange` says which are shown."""
        for name in ("header", "note", "notice", "preview"):
            yield self.lines[name]
        yield self.gpus
        yield self.table
        yield self.host
        yield self.advice
        yield self.prompt
        if self.replay:
            yield self.replay
        yield self.errand_line
        yield self.bar

    def on_mount(self) -> None:
        """Everything has a place before the first frame is here; what was said before is covered by the screen."""
        self.place()
        self.redraw()
        if unused := self.settings.origin.unused:
            self.bar.say(unused, _UNUSED_S, "warn")

    def on_resize(self) -> None:
        """Arrange anew; the cursor keeps its process."""
        self.place()
        self.redraw()

    def show(self, update: Update) -> None:
        """Draw an update."""
        self.shown = update
        self.past.at_s = update.frame.mono_s
        if self.program.source.label != self._label:  # another server: nothing of it is news, or over
            self._label, self.clearing, self.alarm = self.program.source.label, Clearing(), Alarm()
        self.sheet.feed(update)
        self.clearing.feed(update, self.past, self.sheet.muted)
        news = self.alarm.news(self.sheet, update.frame)
        if news and self.settings.alert != "off" and not self.player:
            self.program.ring(sequence(self.settings.alert, news, update.frame))
        self.states = states(update.findings, update.frame, update.jobs)
        self.place()
        self.redraw()
        try:
            idle = partial(idle_for, past=self.past)
            self.table.feed(update.frame, idle, update.last_job, self.states.jobs)
        except Exception as error:
            self.table.show([self._failed(error, "processes", self.table.size.width)])
        self.look_closer()

    def _overtaken(self) -> bool:
        """Whether nothing is drawn now, as the next key is here already; it then is when keys are caught up with."""
        self._undrawn |= self.program.overtaken
        return self.program.overtaken

    def caught_up(self) -> None:
        """Draw what keys have changed that were overtaken by the next."""
        if self._undrawn:
            self._undrawn = False
            self.offer()
            self.redraw()
            self.table.redraw()

    def _table_drawn(self) -> None:
        """The table may show another process, or more lines, which then are not the host's."""
        before = self.panes
        if self.shown:
            self.place()
        self.redraw(*(("preview",) if self.panes == before else ()))

    def rows_wanted(self) -> int:
        """Lines that the processes fill: more at once, fewer only after a while, or panes would jump as they come."""
        rows, now_s = len(self.table.listing.rows), time.monotonic()
        if rows >= self._rows_wanted:
            self._rows_wanted, self._rows_enough_s = rows, now_s
        elif now_s - self._rows_enough_s > _ROWS_LEAVE_S:
            self._rows_wanted = rows
        return self._rows_wanted

    def _unknown(self) -> bool:
        """Whether a verdict is due that cannot be given: why takes as much room as one that is."""
        return self.shown is not None and any(one.due and one.state == "unknown" for one in self.shown.jobs)

    def look_closer(self) -> None:
        """Tell the source what is on the screen: some of it is only read then."""
        source = self.program.source
        row, sight = self.table.listing.cursor, self.table.sight
        if row and row.process and self.panes and self.panes.preview:
            sight |= {row.process.pid}
        wanted = replace(source.interest, sight=sight, every_process=self.table.listing.view.every_process)
        if wanted != source.interest:
            source.interest = wanted

    def place(self) -> None:
        """Give every pane its place, if that changed."""
        width, height = self.app.size
        frame = self.shown.frame if self.shown else None
        gpu_count = len(with_instances(frame.gpus)) if frame else 0
        panes = arrange(
            width, height, gpu_count, density=self.density,
            empty=len(empty.without_gpus(frame, width, self.look)) if frame and not gpu_count else 0,
            note=bool(frame and empty.noted(frame)), replay=self.replay is not None,
            prompt=self.asking is not None, errands=errand_lines(self.program.errands, width),
            calm=self.sheet.calm and not self._unknown(), rows=self.rows_wanted(),
            host_leads=host_leads(self.sheet.told), hidden=self.hidden, zoom=self.alone,
        )  # fmt: skip
        if panes == self.panes:
            return
        self.panes = panes
        self.offer()
        for pane in self.query(Lines):
            rect = getattr(panes, pane.id or "")
            pane.display = rect is not None
            if rect:
                pane.styles.offset = (rect.x, rect.y)
                pane.styles.width, pane.styles.height = rect.width, rect.height

    def progressed(self) -> None:
        """Draw the line of what is under way anew, and all else around it where it needs more room, or less."""
        before = self.panes
        self.place()
        self.errand_line.redraw()
        self.offer()
        if self.alone == "advice":
            self.redraw("advice")  # a result that has come is there to be opened
        if self.panes != before:
            self.redraw()
            self.table.redraw()

    def offer(self) -> None:
        """The key bar has the keys that do something now, by what they do now."""
        if self._overtaken():
            return
        self.bar.offer([replace(key, title=self.label(key)) for key in self.keys if not self.why_not(key)])

    def label(self, key: Key) -> str:
        """What a key is called in the key bar."""
        return key.title

    def shows_all(self) -> bool:
        """Whether Esc, pressed now, ends what hides processes, and not something that comes before it."""
        view, errands = self.table.listing.view, self.program.errands
        free = self.asking is None or (self.asking == "filter" and view.user is None and view.gpu is None)
        busy = self.alone is not None or self.focused is self.advice
        return free and not busy and errands.newest is None and errands.news is None

    @property
    def typing(self) -> bool:
        """Whether a person is writing something."""
        return self.asking is not None

    def why_not(self, key: Key) -> str:
        """Why a key does nothing now; empty if it does."""
        of_processes = key.group in ("PICK", "SORT", "ACT") or key.action.startswith("open")
        if not of_processes or not self.panes or self.panes.processes:
            return ""
        ways = ("pane-processes",) if self.alone is None or "processes" in self.hidden else ("pane-processes", "zoom")
        shown = hint(self.names, ": {} shows them", *ways)
        return self.too_small("processes") or f"the processes are hidden{shown}"

    def too_small(self, what: str) -> str:
        """What the screen is too small for, said of some panes; empty if it has room."""
        return f"needs {WIDTH_FOR_PROCESSES}×{HEIGHT_FOR_PROCESSES} for {what}" if small(*self.app.size) else ""

    async def action_press(self, id: str) -> None:
        """Do what a key does, or say why not now."""
        if self.program.errands.press(id):
            return
        for key in self.keys:
            if key.id == id and (reason := self.why_not(key)):
                self.say(f"not now: {reason}")
            elif key.id == id:
                await self.run_action(at_once(self.app, key.action))

    def say(self, text: str, seconds: float = SAY_S, token: Token = "bright") -> None:
        """Say something on the last line, on that of the details where they cover this screen."""
        bars = (
            bar for screen in reversed(self.app.screen_stack) if isinstance(bar := getattr(screen, "bar", 0), KeyBar)
        )
        next(bars, self.bar).say(text, seconds, token)

    def redraw(self, *only: str) -> None:
        """Draw the newest update again in every pane but the table, which redraws itself; or in these alone."""
        panes, update = self.panes, self.shown
        if not panes or self._overtaken():
            return
        if not update:
            line = Line(self.look, "raised").add(" gputop ", "busy", bold=True, reverse=True).add("  looking", "dim")
            self.lines["header"].show([line.strip(self.app.size.width)])
            return
        self.past.at_s = update.frame.mono_s
        shown = [(name, rect) for name in only or AROUND if (rect := getattr(panes, name))]
        if not shown:
            return
        parts = self.parts(update, panes, self.table.listing.cursor)
        for name, rect in shown:
            self.lines[name].show(self.strips(name, rect, parts))

    def parts(self, update: Update, panes: Panes, selected: Row | None) -> Parts:
        """What the panes around the table are drawn from."""
        return Parts(
            frame=update.frame, past=self.past, status=self.program.status(), density=panes.density,
            first_gpu=self.first_gpu, host_across=panes.host_across, selected=selected, look=self.look,
            scene=self.scene(update), states=self.states, only_gpu=self.table.listing.view.gpu,
            page=self.page if self.alone == "advice" else None, page_first=self.page_first,
        )  # fmt: skip

    @property
    def measures(self) -> bool:
        """Whether a finding may be verified from here: its processes are of this machine, and files may be written."""
        return self.program.source.elsewhere is None and not self.readonly

    def scene(self, update: Update) -> Scene:
        """What the advice is drawn from."""
        return Scene(
            update=update, sheet=self.sheet, look=self.look, focused=self.focused is self.advice,
            keys=self.names, looked_into=self.program.errands.looked_into,
            ended=self.program.status().ended or bool(self.player and self.player.ended),
            cleared=self.clearing.cleared, proven=self.program.proofs.lines if self.program.proofs else (),
            leaving=self.program.monitor.leaving,
            measures=self.measures, measured=self.measured,
            together=lambda: _together(update, self.past, self.program.monitor.limits),
        )  # fmt: skip

    def strips(self, name: str, rect: Rect, parts: Parts) -> Sequence[Strip]:
        """The lines of a pane; one that cannot be drawn says so, and the others live."""
        try:
            return parts.strips(name, rect)
        except Exception as error:
            return [self._failed(error, name, rect.width)]

    def _failed(self, error: Exception, name: str, width: int) -> Strip:
        return Line(self.look).add(f" {self.program.failed(error, f'the {name} pane')}", "warn").strip(width)


def _together(update: Update, past: Then, limits: Limits) -> Together:
    # late: it is a page of the advice, and comes with rules
    from gputop.diagnose.experiments import together

    return together(update.frame, past, limits, update.contention)

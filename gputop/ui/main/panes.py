"""The panes of the main screen: where they stand, which of them has the keys, and an update drawn in all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from textual import events, on
from textual.app import ComposeResult
from textual.geometry import Region
from textual.strip import Strip

from gputop.config import Setting, Settings
from gputop.monitor import Update
from gputop.ui.advice.finding_list import host_leads
from gputop.ui.advice.pane import AdvicePane
from gputop.ui.commands.command import hint
from gputop.ui.gpus.pane import GpuPane
from gputop.ui.gpus.scene import with_instances
from gputop.ui.gpus.state import idle_for
from gputop.ui.job_screen import JobScreen
from gputop.ui.panes import empty
from gputop.ui.panes.layout import HEIGHT_FOR_PROCESSES, WIDTH_FOR_PROCESSES, Pane, Panes, Rect, arrange, small
from gputop.ui.panes.parts import Parts
from gputop.ui.profiling.background_jobs import BackgroundJobs
from gputop.ui.profiling.status_line import height as job_lines
from gputop.ui.session import Session
from gputop.ui.table.row import masked
from gputop.ui.table.tree import TableView
from gputop.ui.table.widget import JobTable
from gputop.ui.theme import Look
from gputop.ui.widgets.drawing import Line
from gputop.ui.widgets.prompt import Prompt
from gputop.ui.widgets.strip_pane import Lines

AROUND = ("header", "gpus", "note", "host", "preview", "advice", "notice")  # the panes around the table
_UNUSED_S = 20.0
_ROWS_LEAVE_S = 20.0
_NEWS_S = 10.0  # of a recording: a path is read slowly
_VIEW = ("sort", "reverse", "tree", "every_process", "columns")  # settings of the table's view


@dataclass(slots=True)
class Search:
    """What is typed to find or filter processes; `asking` is which of them, while it is typed."""

    asking: Literal["find", "filter"] | None = None
    words: str = ""  # the last that were looked for
    wrong: bool = False  # the filter cannot be understood


class PanesScreen(JobScreen, inherit_bindings=False):
    """The panes and what is in them."""

    PLACE = "main"
    AUTO_FOCUS = "#processes"

    def __init__(self, session: Session, jobs: BackgroundJobs) -> None:
        super().__init__(session, jobs)
        settings, look = session.settings, session.look
        self.search = Search()
        self.hidden: frozenset[Pane] = frozenset()
        self.alone: Pane | None = None
        self.table = JobTable(look, TableView(**{name: getattr(settings, name) for name in _VIEW}), self._table_drawn)
        self.table.listing.follow = settings.follow
        self.table.shows_all, self.table.overtaken = self.shows_all, self._overtaken
        self.table.names = self.names
        self.table.records = not (session.player or session.readonly)
        # found by a query they are gone while the program ends, when an update may still arrive
        self.gpus = GpuPane(settings.density, self._gpus_changed)
        self.advice = AdvicePane(session, jobs, partial(self.redraw, "advice"), self.refocused)
        self.lines = {name: Lines(id=name) for name in AROUND} | {"gpus": self.gpus, "advice": self.advice}
        self.host = self.lines["host"]
        self.host.can_focus = True
        self.prompt = Prompt(look)
        self.panes: Panes | None = None
        self._rows_wanted, self._rows_enough_s = 0, 0.0
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
        yield self.job_line
        yield self.bar

    def on_mount(self) -> None:
        """Everything has a place before the first frame is here; what was said before is covered by the screen."""
        self.place()
        self.redraw()
        if unused := self.session.settings.origin.unused:
            self.bar.say(unused, _UNUSED_S, "warn")

    def on_resize(self) -> None:
        """Arrange the panes again; the cursor keeps its process."""
        self.place()
        self.redraw()

    def show(self, update: Update) -> None:
        """Draw an update."""
        past, before = self.session.past, self.shown
        only = self.table.listing.view.gpu
        self.shown, self.gpus.cards = update, with_instances(update.frame.gpus)
        past.at_s = update.frame.mono_s
        self.advice.feed(update)
        self.place()
        self.redraw()
        try:
            idle = partial(idle_for, past=past)
            self.table.feed(update.frame, idle, update.last_job, self.advice.states.jobs)
        except Exception as error:
            self.table.show([self._failed(error, "processes", self.table.size.width)])
        self.look_closer()
        self._say_news(before, update, only)

    def _say_news(self, before: Update | None, update: Update, only: str | None) -> None:
        """Report the end of a recording, and that the GPU whose processes alone were shown is gone."""
        if news := self.session.recorder.news():
            self.session.say(news, _NEWS_S)
        if before and only is not None and only not in update.frame.by_uuid:
            gone = before.frame.by_uuid.get(only)
            first = f"GPU {gone.index} is gone: " if gone else ""
            self.session.say(f"{first}showing the processes of all GPUs")

    def _overtaken(self) -> bool:
        """Whether nothing is drawn now, as the next key is here already; it then is when keys are caught up with."""
        self._undrawn |= self.session.app.overtaken
        return self.session.app.overtaken

    def caught_up(self) -> None:
        """Draw what keys have changed that were overtaken by the next."""
        if self._undrawn:
            self._undrawn = False
            self.offer()
            self.redraw()
            self.table.redraw()

    @property
    def advised(self) -> bool:
        """Whether the keys are about the advice."""
        return self.advice.active and self.advice.display

    @property
    def on_gpus(self) -> bool:
        """Whether the arrows choose a GPU; where there is no room for processes they scroll."""
        return bool(self.focused is self.gpus and self.gpus.display and self.gpus.cards) and not small(*self.app.size)

    @on(events.DescendantFocus)
    @on(events.DescendantBlur)
    def refocused(self) -> None:
        """Show what the keys are about now, and which processes the chosen finding is about."""
        self.table.active = self.focused is self.table
        self.redraw()
        self.table.mark(self.advice.scene(self.shown).marked_processes if self.shown else frozenset())
        self.table.redraw()
        self.offer()

    def _gpus_changed(self) -> None:
        """Another GPU is chosen, or in sight."""
        self.offer()
        self.redraw("gpus")

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
        """Set what the source reads by what is on the screen: some of it is only read then."""
        source = self.session.source
        row, sight = self.table.listing.cursor, self.table.sight
        if row and row.process and self.panes and self.panes.preview:
            sight |= {row.process.pid}
        wanted = replace(source.interest, sight=sight, every_process=self.table.listing.view.every_process)
        if wanted != source.interest:
            source.interest = wanted

    def place(self) -> None:
        """Give every pane its place, if that changed."""
        before, panes = self.panes, self._arranged()
        self.advice.fit(panes.advice and panes.advice[2:], alone=self.alone == "advice")
        if panes == before:
            return
        self.panes = panes
        self.gpus.fit(panes.density, panes.gpus and panes.gpus[2:])
        self.offer()
        for pane in self.query(Lines):
            rect = getattr(panes, pane.id or "")
            pane.display = rect is not None
            if rect:
                pane.styles.offset = (rect.x, rect.y)
                pane.styles.width, pane.styles.height = rect.width, rect.height
        if before and before.notice and panes.processes and self.focused is not self.advice:
            self.set_focus(self.table)  # while the screen was too small for the processes, the GPUs had the keys
        if self.search.asking is not None and not panes.prompt:
            self.end_typing()  # what was typed holds

    def _arranged(self) -> Panes:
        width, height = self.app.size
        frame, gpu_count = (self.shown.frame if self.shown else None), len(self.gpus.cards)
        return arrange(
            width, height, gpu_count, density=self.gpus.density,
            empty=len(empty.without_gpus(frame, width, self.look)) if frame and not gpu_count else 0,
            note=bool(frame and empty.noted(frame)), replay=self.replay is not None,
            prompt=self.search.asking is not None, jobs=job_lines(self.jobs, width),
            calm=self.advice.finding_list.calm and not self._unknown(), rows=self.rows_wanted(),
            host_leads=host_leads(self.advice.finding_list.shown), hidden=self.hidden, zoom=self.alone,
        )  # fmt: skip

    def rearrange(self) -> None:
        """Other panes are shown: all of them again; the keys go to the table where theirs is gone."""
        self.gpus.first = 0
        self.place()
        if self.focused is None or not self.focused.display:
            self.set_focus(self.table)
        self.redraw()
        self.table.redraw()

    def unzoom(self) -> bool:
        """Show all panes again; whether one was alone."""
        if self.alone is None:
            return False
        self.alone = None
        self.rearrange()
        return True

    def progressed(self) -> None:
        """Draw the line of what is under way again, and all else around it where it needs more room, or less."""
        before = self.panes
        self.place()
        self.job_line.redraw()
        self.offer()
        if self.alone == "advice":
            self.redraw("advice")  # a result that has come is there to be opened
        if self.panes != before:
            self.redraw()
            self.table.redraw()

    def offer(self) -> None:
        """The key bar has the keys that do something now, by what they do now."""
        if not self._overtaken():
            self.bar.offer(self.offered())

    def shows_all(self) -> bool:
        """Whether Esc, pressed now, ends what hides processes, and not something that comes before it."""
        view, asking = self.table.listing.view, self.search.asking
        free = asking is None or (asking == "filter" and view.user is None and view.gpu is None)
        busy = self.alone is not None or self.focused is self.advice
        return free and not busy and self.jobs.newest is None and self.jobs.news is None

    @property
    def typing(self) -> bool:
        """Whether something is being typed."""
        return self.search.asking is not None

    def key_that_stops(self) -> str:
        """The key that asks whether to end what is under way: none while it ends what is typed."""
        return "" if self.search.asking else self.names.get("back", "")

    @property
    def replay_is_shown(self) -> bool:
        """Whether there is a line for the recording."""
        return bool(self.panes and self.panes.replay)

    def begin_typing(
        self,
        what: Literal["find", "filter"],
        text: str,
        changed: Callable[[str], None],
        ended: Callable[[bool], None],
    ) -> None:
        """Have something typed above the key bar."""
        self.search.asking = what
        self.place()
        self.job_line.redraw()
        self.prompt.ask(what, text, changed, ended)
        self.set_focus(self.prompt)  # at once: the next key may be here already

    def end_typing(self) -> None:
        """The keys are commands again."""
        self.search.asking = None
        self.bar.lend(None)
        self.place()
        self.job_line.redraw()
        self.set_focus(self.table if self.table.display else None)  # a small screen may not have it

    def hint(self, text: str) -> None:
        """Say on the last line what can be typed, as long as it is."""
        self.bar.lend(Line(self.look, "raised").add(f" {text}", "dim"))

    def no_processes(self) -> str:
        """Why nothing can be done to a process here; empty if it can."""
        if not self.panes or self.panes.processes:
            return ""
        ways = ("pane-processes",) if self.alone is None or "processes" in self.hidden else ("pane-processes", "zoom")
        shown = hint(self.names, "; {} shows them", *ways)
        return self.too_small("processes") or f"the processes are hidden{shown}"

    def no_processes_of_gpu(self) -> str:
        """The same of those of a GPU: a pane that is alone makes room for them."""
        if self.alone is not None and "processes" not in self.hidden:
            return self.too_small("processes")
        return self.no_processes()

    def too_small(self, what: str) -> str:
        """What the screen is too small for, said of some panes; empty if it has room."""
        return f"needs {WIDTH_FOR_PROCESSES}×{HEIGHT_FOR_PROCESSES} to show {what}" if small(*self.app.size) else ""

    def redraw(self, *only: str) -> None:
        """Draw the newest update again in every pane but the table, which redraws itself; or in these alone."""
        self._redraw_around(only)
        if self.replay:
            self.replay.redraw()

    def _redraw_around(self, only: Sequence[str]) -> None:
        panes, update = self.panes, self.shown
        if not panes or self._overtaken():
            return
        if not update:
            line = Line(self.look, "raised").add(" gputop ", "busy", bold=True, reverse=True).add("  starting", "dim")
            self.lines["header"].show([line.strip(self.app.size.width)])
            return
        self.session.past.at_s = update.frame.mono_s
        shown = [(name, rect) for name in only or AROUND if (rect := getattr(panes, name))]
        if not shown:
            return
        parts = self.parts(update, panes)
        for name, rect in shown:
            self.lines[name].show(self._strips(name, rect, parts))

    def parts(self, update: Update, panes: Panes) -> Parts:
        """What the panes around the table are drawn from."""
        advice, table = self.advice, self.table.listing
        gpu = self.gpus.chosen if self.on_gpus else None
        return Parts(
            frame=update.frame, past=self.session.past, status=self.status(), density=panes.density,
            first_gpu=self.gpus.first, host_across=panes.host_across, selected=table.cursor, look=self.look,
            scene=advice.scene(update), states=advice.states, only_gpu=table.view.gpu,
            page=advice.page if advice.alone else None, page_first=advice.first, gpu=gpu.uuid if gpu else None,
        )  # fmt: skip

    def _strips(self, name: str, rect: Rect, parts: Parts) -> Sequence[Strip]:
        """The lines of a pane; one that cannot be drawn says so, and the others live."""
        try:
            return parts.strips(name, rect)
        except Exception as error:
            return [self._failed(error, name, rect.width)]

    def _failed(self, error: Exception, name: str, width: int) -> Strip:
        return Line(self.look).add(f" {self.session.failed(error, f'the {name} pane')}", "warn").strip(width)

    def drawn_without_secrets(self) -> list[tuple[Region, Sequence[Strip]]]:
        """What each pane shows; those around the table are drawn again from what may leave the machine."""
        update, panes, row = self.shown, self.panes, self.table.listing.cursor
        if update is None or panes is None:
            return []
        from gputop.export.format import redacted  # late

        self.session.past.at_s = update.frame.mono_s
        safe = replace(update, frame=redacted(update.frame))
        parts = replace(self.parts(safe, panes), selected=row and masked(row))
        drawn = {name: self._strips(name, rect, parts) for name in AROUND if (rect := getattr(panes, name)) is not None}
        return [
            (pane.region, drawn[pane.id] if pane.id in drawn else pane.masked())
            for pane in self.query(Lines)
            if pane.display
        ]

    def set_theme(self, look: Look) -> None:
        """Draw everything with other colours or glyphs."""
        self.table.restyle(look)
        self.prompt.restyle(look)
        super().set_theme(look)

    def columns_in_sight(self) -> Collection[str]:
        """The ids of the columns that there is room for."""
        return self.table.columns

    def settings_now(self, settings: Settings) -> Settings:
        """The settings with what keys have changed here."""
        listing = self.table.listing
        view = {name: getattr(listing.view, name) for name in _VIEW}
        return replace(settings, density=self.gpus.density or "auto", follow=listing.follow, **view)

    def apply_setting(self, setting: Setting) -> None:
        """Let the panes follow a setting that was changed."""
        settings = self.session.settings
        if setting.field in _VIEW:
            if setting.field == "columns":
                self.table.preset("main")  # they are of this one
            self.table.see(**{setting.field: getattr(settings, setting.field)})
            self.look_closer()
        self.table.listing.follow = settings.follow
        self.gpus.set_density(settings.density)
        self.place()
        self.redraw()
        self.table.redraw()

"""The main screen: puts the panes where they belong, draws an update in all of them, does what the keys say."""

from __future__ import annotations

from typing import ClassVar, Protocol

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen
from textual.strip import Strip

from gputop.config import Settings
from gputop.history import History
from gputop.monitor import Update
from gputop.source import Source
from gputop.ui import bindings, empty
from gputop.ui.arrange import Panes, Rect, arrange
from gputop.ui.columns import beside
from gputop.ui.dialogs import DelayDialog, OrderDialog, SortDialog
from gputop.ui.draw import Line
from gputop.ui.gpus import Density, fitting, furthest
from gputop.ui.header import Status
from gputop.ui.help import Help
from gputop.ui.keybar import KeyBar
from gputop.ui.keys import KEYS
from gputop.ui.lines import Lines
from gputop.ui.look import Look
from gputop.ui.models import with_instances
from gputop.ui.parts import Parts
from gputop.ui.state import idle_for
from gputop.ui.table import WHEEL, Table
from gputop.ui.then import Then
from gputop.ui.tree import View

AROUND = ("header", "gpus", "note", "host", "notice")  # the panes around the table
_DENSITIES = ("auto", "card", "row", "cell")
_CHOICES: tuple[Density | None, ...] = (None, "card", "row", "cell")


class Program(Protocol):
    """What the screen asks of the program it belongs to."""

    source: Source
    frozen: bool

    @property
    def newest_s(self) -> float:
        """The monotonic time of the newest frame, which may not be on the screen."""

    def status(self) -> Status:
        """What the header says of the monitor itself."""

    def failed(self, error: Exception, where: str) -> str:
        """Keep what went wrong; the line to show for it."""

    def freeze(self) -> None:
        """Hold the picture, or let it go on."""

    def pace(self, seconds: float | None) -> None:
        """Another time between two looks."""


class Main(Screen[None], inherit_bindings=False):
    """GPUs above, jobs below, the host beside them where there is room."""

    AUTO_FOCUS = "#processes"
    BINDINGS: ClassVar[list[BindingType]] = bindings.main()
    CSS = "Main Lines { position: absolute; display: none; width: 1; height: 1; }"

    def __init__(self, program: Program, look: Look, settings: Settings, history: History) -> None:
        super().__init__()
        self.program = program
        self.look = look
        self.past = Then(history)
        self.density = _CHOICES[_DENSITIES.index(settings.density)]
        view = View(
            tree=settings.tree, sort=settings.sort, reverse=settings.reverse, every_process=settings.every_process
        )
        self.table = Table(look, view)
        self.table.listing.follow = settings.follow
        self.bar = KeyBar(look)
        self.gpus = Lines(id="gpus")
        self.gpus.can_focus = True
        self._first_gpu = 0
        self.shown: Update | None = None
        self._panes: Panes | None = None

    def compose(self) -> ComposeResult:
        """Every pane; `arrange` says which are shown."""
        for name in ("header", "note", "host", "notice"):
            yield Lines(id=name)
        yield self.gpus
        yield self.table
        yield self.bar

    def on_mount(self) -> None:
        """Everything has a place before the first frame is here."""
        self.place()
        self.redraw()

    def on_resize(self) -> None:
        """Arrange anew; the cursor keeps its process."""
        self.place()
        self.redraw()

    def show(self, update: Update) -> None:
        """Draw an update."""
        self.shown = update
        self.place()
        self.redraw()
        try:
            self.table.feed(update.frame, lambda uuid: idle_for(uuid, self.past), update.last_job)
        except Exception as error:
            self.table.show([self._failed(error, "processes", self.table.size.width)])

    def place(self) -> None:
        """Give every pane its place, if that changed."""
        width, height = self.app.size
        frame = self.shown.frame if self.shown else None
        gpu_count = len(with_instances(frame.gpus)) if frame else 0
        panes = arrange(
            width, height, gpu_count, density=self.density,
            empty=len(empty.without_gpus(frame, width, self.look)) if frame and not gpu_count else 0,
            note=bool(frame and empty.noted(frame)),
        )  # fmt: skip
        if panes == self._panes:
            return
        self._panes = panes
        self.bar.offer([key for key in KEYS if panes.processes or key.group != "SORT"])
        for name in (*AROUND, "processes", "keys"):
            pane, rect = self.query_one(f"#{name}", Lines), getattr(panes, name)
            pane.display = rect is not None
            if rect:
                pane.styles.offset = (rect.x, rect.y)
                pane.styles.width, pane.styles.height = rect.width, rect.height

    def redraw(self) -> None:
        """Draw the newest update again in every pane but the table, which redraws itself."""
        panes, update = self._panes, self.shown
        if not panes:
            return
        if not update:
            line = Line(self.look, "raised").add(" gputop ", "busy", bold=True, reverse=True).add("  looking", "dim")
            self.query_one("#header", Lines).show([line.strip(self.app.size.width)])
            return
        self.past.lag_s = self.program.newest_s - update.frame.mono_s
        parts = Parts(
            frame=update.frame, past=self.past, status=self.program.status(), density=panes.density,
            first_gpu=self._first_gpu, look=self.look,
        )  # fmt: skip
        for name in AROUND:
            if rect := getattr(panes, name):
                self._draw(name, rect, parts)

    def _draw(self, name: str, rect: Rect, parts: Parts) -> None:
        """A pane that cannot be drawn says so; the others live."""
        try:
            strips = parts.strips(name, rect)
        except Exception as error:
            strips = [self._failed(error, name, rect.width)]
        self.query_one(f"#{name}", Lines).show(strips)

    def _failed(self, error: Exception, name: str, width: int) -> Strip:
        return Line(self.look).add(f" {self.program.failed(error, f'the {name} pane')}", "warn").strip(width)

    # what the keys do

    def _moved(self, lines: int) -> None:
        if self._moves_gpus():
            self._scroll_gpus(lines)
            return
        self.table.key()
        self.table.listing.move(lines)
        self.table.redraw()

    def _moves_gpus(self) -> bool:
        return self.focused is self.gpus or not (self._panes and self._panes.processes)

    def _scroll_gpus(self, lines: int) -> None:
        panes, update = self._panes, self.shown
        if panes and panes.gpus and update:
            most = furthest(panes.density, *panes.gpus[2:], len(with_instances(update.frame.gpus)))
            self._first_gpu = min(max(0, self._first_gpu + lines), most)
            self.redraw()

    @on(events.MouseScrollDown, "#gpus")
    @on(events.MouseScrollUp, "#gpus")
    def wheel(self, event: events.MouseEvent) -> None:
        """The wheel over the GPUs; the table has its own."""
        self._scroll_gpus(WHEEL if isinstance(event, events.MouseScrollDown) else -WHEEL)

    def action_move(self, lines: int) -> None:
        """Lines up or down."""
        self._moved(lines)

    def action_page(self, pages: int) -> None:
        """A page up or down."""
        panes, height = self._panes, self.table.listing.height
        if panes and panes.gpus and self._moves_gpus():
            height = fitting(panes.density, panes.gpus.height)
        self._moved(pages * max(1, height - 1))

    def action_fold(self) -> None:
        """Fold, or go to the parent."""
        self.table.key()
        self.table.fold(-1)

    def action_unfold(self) -> None:
        """Unfold."""
        self.table.key()
        self.table.fold(1)

    def action_level(self, step: int) -> None:
        """Fold or unfold everywhere."""
        self.table.key()
        self.table.listing.level(step)
        self.table.redraw()

    def action_pane(self, step: int) -> None:
        """The next pane takes the keys."""
        if step > 0:
            self.focus_next()
        else:
            self.focus_previous()
        self.table.active = self.focused is self.table
        self.table.redraw()
        if self.focused is self.gpus:
            self.bar.say("the arrows scroll the GPUs; Tab goes back")

    def action_follow(self) -> None:
        """The cursor follows its process, or stays on its line."""
        listing = self.table.listing
        listing.follow = not listing.follow
        self.bar.say("the cursor follows its process" if listing.follow else "the cursor stays on its line")
        self.table.redraw()

    def action_sort(self, column: str) -> None:
        """Sort by a column."""
        self.table.key()
        self.table.sort(column)

    def action_shift_sort(self, step: int) -> None:
        """Sort by the column beside."""
        self.action_sort(beside(self.table.listing.view.sort, step))

    def action_reverse(self) -> None:
        """Sort the other way round."""
        self.table.key()
        self.table.reverse()

    def action_order(self) -> None:
        """Sort by a letter."""
        self.app.push_screen(OrderDialog(self.look), self._sort_by)

    def action_choose_sort(self) -> None:
        """Sort by a column from a list."""
        self.app.push_screen(SortDialog(self.look, self.table.listing.view.sort), self._sort_by)

    def _sort_by(self, column: str | None) -> None:
        if column:
            self.action_sort(column)

    def action_tree(self) -> None:
        """A tree or a flat list."""
        self.table.key()
        self.table.nest()

    def action_density(self) -> None:
        """The GPUs in another size."""
        place = _CHOICES.index(self.density) + 1
        self.density = _CHOICES[place % len(_CHOICES)]
        self._first_gpu = 0
        self.place()
        self.redraw()
        fits = not self._panes or self.density in (None, self._panes.density)
        self.bar.say(f"GPUs: {self.density or 'what fits best'}" if fits else f"GPUs: no room for a {self.density}")

    def action_freeze(self) -> None:
        """Hold the picture."""
        self.program.freeze()

    def action_delay(self) -> None:
        """Another time between two looks."""
        self.app.push_screen(DelayDialog(self.look, self.program.source.interval_s), self.program.pace)

    def action_help(self) -> None:
        """Help."""
        self.app.push_screen(Help(self.look, empty.noted(self.shown.frame) if self.shown else ()))

    def action_back(self) -> None:
        """End what is frozen or said."""
        self.bar.hush()
        if self.program.frozen:
            self.program.freeze()

"""The main screen: puts the panes where they belong, draws an update in all of them, does what the keys say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen
from textual.strip import Strip

from gputop.config import Settings
from gputop.history import History
from gputop.model import Frame
from gputop.monitor import Update
from gputop.source import Source
from gputop.ui import bindings, empty
from gputop.ui.arrange import HEIGHT_FOR_PROCESSES, WIDTH_FOR_PROCESSES, Panes, Rect, arrange
from gputop.ui.columns import beside
from gputop.ui.dialogs import DelayDialog, OrderDialog, SortDialog
from gputop.ui.draw import Line
from gputop.ui.gpus import Density, gpus
from gputop.ui.header import Status, header
from gputop.ui.help import Help
from gputop.ui.host import host
from gputop.ui.keybar import KeyBar
from gputop.ui.keys import KEYS
from gputop.ui.lines import Lines
from gputop.ui.look import Look
from gputop.ui.models import with_instances
from gputop.ui.state import idle_for
from gputop.ui.table import Table
from gputop.ui.tree import View

Drawn = Callable[[Frame, Rect], Sequence[Strip]]

_DENSITIES = ("auto", "card", "row", "cell")
_CHOICES: tuple[Density | None, ...] = (None, "card", "row", "cell")


class Program(Protocol):
    """What the screen asks of the program it belongs to."""

    source: Source
    frozen: bool

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

    AUTO_FOCUS = "#table"
    BINDINGS: ClassVar[list[BindingType]] = bindings.main()
    CSS = "Main Lines { position: absolute; display: none; width: 1; height: 1; }"

    def __init__(self, program: Program, look: Look, settings: Settings, history: History) -> None:
        super().__init__()
        self.program = program
        self.look = look
        self.history = history
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

    def on_resize(self) -> None:
        """Arrange anew; the cursor keeps its process."""
        self.place()
        self.redraw()

    def show(self, update: Update) -> None:
        """Draw an update."""
        self.shown = update
        self.place()
        self.redraw()
        self.table.feed(update.frame, lambda uuid: idle_for(uuid, self.history))

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
        for name, rect in (
            ("header", panes.header), ("gpus", panes.gpus), ("note", panes.note), ("table", panes.processes),
            ("host", panes.host), ("notice", panes.notice), ("keys", panes.keys),
        ):  # fmt: skip
            pane = self.query_one(f"#{name}", Lines)
            pane.display = rect is not None
            if rect:
                pane.styles.offset = (rect.x, rect.y)
                pane.styles.width, pane.styles.height = rect.width, rect.height

    def redraw(self) -> None:
        """Draw the newest update again in every pane but the table, which redraws itself."""
        panes, update = self._panes, self.shown
        if not panes or not update:
            return
        for name, rect, drawn in (
            ("header", panes.header, self._header),
            ("gpus", panes.gpus, self._gpus),
            ("note", panes.note, self._note),
            ("host", panes.host, self._host),
            ("notice", panes.notice, self._notice),
        ):
            if rect:
                self._draw(name, rect, drawn, update.frame)

    def _draw(self, name: str, rect: Rect, drawn: Drawn, frame: Frame) -> None:
        """A pane that cannot be drawn says so; the others live."""
        try:
            strips = drawn(frame, rect)
        except Exception as error:
            said = self.program.failed(error, f"the {name} pane")
            strips = [Line(self.look).add(f" {said}", "warn").strip(rect.width)]
        self.query_one(f"#{name}", Lines).show(strips)

    def _header(self, frame: Frame, rect: Rect) -> Sequence[Strip]:
        return [header(frame, rect.width, self.look, self.program.status())]

    def _gpus(self, frame: Frame, rect: Rect) -> Sequence[Strip]:
        if not frame.gpus:
            return empty.without_gpus(frame, rect.width, self.look)
        density = self._panes.density if self._panes else None
        return gpus(frame, self.history, *rect[2:], self.look, density=density, first=self._first_gpu)

    def _note(self, frame: Frame, rect: Rect) -> Sequence[Strip]:
        strip = empty.note_line(frame, rect.width, self.look)
        return [strip] if strip else []

    def _host(self, frame: Frame, rect: Rect) -> Sequence[Strip]:
        return host(frame, self.history, rect.width, rect.height, self.look)

    def _notice(self, _: Frame, rect: Rect) -> Sequence[Strip]:
        text = f"  needs {WIDTH_FOR_PROCESSES}{self.look.glyphs.times}{HEIGHT_FOR_PROCESSES} for processes"
        return [Line(self.look).add(text, "dim").strip(rect.width)]

    # what the keys do

    def _moved(self, lines: int) -> None:
        if self.focused is self.gpus:
            self._first_gpu = max(0, self._first_gpu + lines)
            self.redraw()
            return
        self.table.key()
        self.table.listing.move(lines)
        self.table.redraw()

    def action_move(self, lines: int) -> None:
        """A line up or down."""
        self._moved(lines)

    def action_page(self, pages: int) -> None:
        """A page up or down."""
        self._moved(pages * max(1, self.table.listing.height - 1))

    def action_first(self) -> None:
        """To the first line."""
        self._moved(-1_000_000)

    def action_last(self) -> None:
        """To the last line."""
        self._moved(1_000_000)

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
        self.bar.say(f"GPUs: {self.density or 'what fits best'}")

    def action_freeze(self) -> None:
        """Hold the picture."""
        self.program.freeze()

    def action_delay(self) -> None:
        """Another time between two looks."""
        self.app.push_screen(DelayDialog(self.look, self.program.source.interval_s), self.program.pace)

    def action_help(self) -> None:
        """Help."""
        self.app.push_screen(Help(self.look))

    def action_back(self) -> None:
        """End what is frozen or said."""
        self.bar.hush()
        if self.program.frozen:
            self.program.freeze()

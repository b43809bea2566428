"""The screen of one process: asks for its details while it is open, and stays when the process has ended."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Literal

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.geometry import Region
from textual.strip import Strip

from gputop.model import Identity
from gputop.monitor import Update
from gputop.ui.details import tabs
from gputop.ui.details.around import Main, Program
from gputop.ui.details.inquiry import Inquiry
from gputop.ui.details.picture import Picture, picture
from gputop.ui.details.process_view import Opened
from gputop.ui.details.replaying import Replaying
from gputop.ui.details.saving import numbers, private
from gputop.ui.details.tab import Tab
from gputop.ui.dialogs.help import Help
from gputop.ui.dialogs.palette import Deed, Palette, do, of_keys
from gputop.ui.dialogs.saving import Shot
from gputop.ui.gpus.state import Past
from gputop.ui.keys import bindings
from gputop.ui.keys.declared import Key
from gputop.ui.profiling.status_line import ErrandLine, height
from gputop.ui.profiling.tools import ToolId
from gputop.ui.replay.bar import ReplayBar
from gputop.ui.table.widget import SHIFT, WHEEL
from gputop.ui.theme import Look
from gputop.ui.widgets.drawing import Line
from gputop.ui.widgets.key_bar import KeyBar
from gputop.ui.widgets.strip_pane import Lines
from gputop.ui.widgets.window import Window

AGAIN_S, AGAIN_TIMES = 0.1, 10  # what is read the first time is asked for soon
TabId = Literal["threads", "io", "gpu", "environment", "children", "files", "limits", "memory"]


class Details(Replaying, inherit_bindings=False):
    """One process, for as long as somebody looks at it: never another one with the same pid."""

    BINDINGS: ClassVar[list[BindingType]] = bindings.on("details")
    CSS = "Details #keys { height: 1; } Details #errands, Details #replay { height: 0; }"
    typing = False  # what has ended may open over it

    def __init__(
        self,
        program: Program,
        main: Main,
        identity: Identity,
        update: Update,
        past: Past,
        look: Look,
        keys: Sequence[Key],
        tab: str = "threads",
    ) -> None:
        super().__init__()
        self.program, self.main, self.look, self.past = program, main, look, past
        self.keys = keys
        self.inquiry = Inquiry(program.source, identity, update.frame)
        self.bar = KeyBar(look, ())
        self.replay = ReplayBar(main.player, program.source.label, keys, look) if main.player else None
        self.errand_line = ErrandLine(lambda: program.errands, look)
        self._update = update
        self._tab = tabs.BY_ID[tab]
        self._windows: dict[str, Window] = {}
        self._shift = 0
        self._tries = 0
        self._left = False
        self._picture: Picture | None = None
        self._interest = program.source.interest.pids

    def compose(self) -> ComposeResult:
        """One pane, where a recording stands, what is under way, the keys."""
        yield Lines(id="details")
        if self.replay:
            yield self.replay
        yield self.errand_line
        yield self.bar

    def on_mount(self) -> None:
        """Have it looked at closely from now on."""
        source = self.program.source
        source.interest = replace(source.interest, pids=source.interest.pids | {self.inquiry.identity.pid})
        self.redraw()

    def on_unmount(self) -> None:
        """Look at it no closer than before."""
        source = self.program.source
        source.interest = replace(source.interest, pids=self._interest)

    def on_resize(self) -> None:
        """Draw it at another size."""
        self.redraw()

    def show(self, update: Update) -> None:
        """Draw an update."""
        self._update = update
        self.redraw()

    def wear(self, look: Look) -> None:
        """Draw it with other colours or glyphs."""
        self.look = look
        self.bar.restyle(look)
        if self.replay:
            self.replay.restyle(look)
        self.errand_line.look = look
        self.redraw()

    def progressed(self) -> None:
        """Draw what is under way anew; all of it where that takes more lines, or fewer."""
        if self.errand_line.size.height != height(self.program.errands, self.app.size.width):
            self.redraw()
        self.errand_line.redraw()

    @property
    def window(self) -> Window:
        """The lines of the tab that is open."""
        return self._windows.setdefault(self._tab.id, Window(self._tab.cursor))

    @property
    def opened(self) -> Opened:
        """The process as it is known now."""
        return self.inquiry.opened(self.past, self.look, self._update.findings)

    def redraw(self) -> None:
        """Ask for the details and draw them; soon again while they are being read for the first time."""
        try:
            self.inquiry.ask(self._update.frame, self._tab, held=self.program.frozen)
            self._draw()
        except Exception as error:  # the program lives
            line = Line(self.look).add(f" {self.program.failed(error, 'the details')}", "warn")
            self.query_one("#details", Lines).show([line.strip(self.app.size.width)])
        if self.inquiry.unread and self._tries < AGAIN_TIMES:
            self._tries += 1
            self.set_timer(AGAIN_S, self.redraw)

    def _draw(self) -> None:
        width, tall = self.app.size
        taken = self.errand_line.styles.height = height(self.program.errands, width)
        self.errand_line.redraw()
        self._picture = self._pictured(self.opened, (width, max(0, tall - taken - self.place_bar() - 1)))
        self.query_one("#details", Lines).show(self._picture.strips)
        self.bar.offer(self._here())

    def _pictured(self, opened: Opened, size: tuple[int, int]) -> Picture:
        status, now_s = self.status(), time.monotonic()
        return picture(opened, self._update.frame, self._tab, self.window, size, status, self._shift, now_s)

    def _here(self) -> list[Key]:
        """The keys that do something now, those of this screen alone first."""
        here = [_named(key, self._tab) for key in self.keys if self._offered(key)]
        return sorted(here, key=lambda key: key.group != "DETAILS")

    def _offered(self, key: Key) -> bool:
        if "details" not in key.on:
            return False
        if key.id == "take":
            return bool(self._tab.takes) and not self.inquiry.withheld
        return key.id != "others" or self.inquiry.withheld

    def action_back(self) -> None:
        """Back to where it was opened, once: a second Esc may be on its way."""
        if self.is_current and not self._left:
            self._left = True
            self.dismiss()

    def action_open(self, tab: str) -> None:
        """Another tab; secrets are hidden again."""
        if tab != self._tab.id:
            self.inquiry.hide()
            self._tab, self._shift, self._tries = tabs.BY_ID[tab], 0, 0
            self.redraw()

    def action_turn(self, step: int) -> None:
        """The next tab."""
        self.action_open(tabs.TABS[(tabs.TABS.index(self._tab) + step) % len(tabs.TABS)].id)

    def action_move(self, lines: int) -> None:
        """Up or down."""
        self.window.touch(time.monotonic())
        self.window.move(lines)
        self.redraw()

    def action_page(self, pages: int) -> None:
        """A page up or down."""
        self.action_move(pages * max(1, self.window.height - 1))

    def action_sideways(self, step: int) -> None:
        """Long lines from further on."""
        self._shift = max(0, self._shift + SHIFT * step)
        self.redraw()

    def action_take(self) -> None:
        """Show or hide the selected secret; open the selected parent or child."""
        selected = self.window.selected
        self.window.touch(time.monotonic())
        if self._tab.id == "environment" and isinstance(selected, str):
            self.inquiry.reveal(selected)
            self._tries = 0
            self.redraw()
        elif isinstance(selected, Identity) and selected != self.inquiry.identity:
            self._open(selected)

    def _open(self, identity: Identity) -> None:
        frame = self._update.frame
        if identity in frame.by_identity:
            screen = Details(self.program, self.main, identity, self._update, self.past, self.look, self.keys)
            self.app.push_screen(screen)
        else:
            self.bar.say(f"{identity.pid} is not there now")

    def action_others(self) -> None:
        """Show the environment of another user's process, because root asked for it."""
        if self.inquiry.withheld:
            self.inquiry.others, self._tries = True, 0
            self.redraw()

    def action_signal(self) -> None:
        """Ask which signal to send to it."""
        opened = self.opened
        self.main.ask_signal(opened.frame, opened.process)

    def action_stack(self) -> None:
        """Where its threads are, now."""
        opened = self.opened
        self.main.ask_stack(opened.frame, opened.process)

    def action_profile(self, tool: ToolId) -> None:
        """Ask how to look into it, with one of the tools preselected."""
        opened = self.opened
        self.main.ask_profile(opened.frame, opened.process, False, tool)

    def action_copy(self) -> None:
        """Its pid to the clipboard; pressed again, its command line."""
        self.main.copy_of(self.opened.process)

    def action_show(self) -> None:
        """What can be copied of it, for the mouse."""
        self.main.show_of(self.opened.process)

    def action_save(self) -> None:
        """What is on the screen into a file."""
        self.main.save_of(Shot(self._panes, lambda: numbers(self.opened)))

    def _panes(self) -> list[tuple[Region, Sequence[Strip]]]:
        drawn = {"details": self._pictured(private(self.opened), self.query_one("#details").size).strips}
        return [(pane.region, drawn.get(pane.id or "") or pane.masked()) for pane in self.query(Lines) if pane.display]

    def action_setup(self) -> None:
        """Every setting."""
        self.main.action_setup()

    def action_palette(self) -> None:
        """Choose what to do."""

        def deeds() -> list[Deed]:
            return [*of_keys(self._here(), self.act, self.why_not), *self.main.themes()]

        self.app.push_screen(Palette(self.look, deeds), do)

    def action_freeze(self) -> None:
        """Hold the picture."""
        self.program.freeze()
        self.redraw()

    def action_help(self) -> None:
        """Help, at the keys of this screen."""
        self.app.push_screen(Help(self.look, (), self.keys, page=1, why_not=self.why_not))

    @on(events.Click, "#details")
    def click(self, event: events.Click) -> None:
        """Open the tab, or select the line."""
        drawn = self._picture
        if drawn is None:
            return
        if event.y == drawn.tabs_y:
            for start, end, tab in drawn.spots:
                if start <= event.x < end:
                    self.action_open(tab.id)
        elif 0 <= event.y - drawn.list_y < len(self.window.shown):
            self.action_move(self.window.top + event.y - drawn.list_y - self.window.at)

    @on(events.MouseScrollDown, "#details")
    @on(events.MouseScrollUp, "#details")
    def wheel(self, event: events.MouseEvent) -> None:
        """Scroll."""
        self.window.scroll(WHEEL if isinstance(event, events.MouseScrollDown) else -WHEEL)
        self.redraw()


def _named(key: Key, tab: Tab) -> Key:
    """The key as the bar names it: what Enter does depends on the tab."""
    return replace(key, title=tab.takes) if key.id == "take" else key

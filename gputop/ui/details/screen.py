"""The screen of one process: asks for its details while it is open, and stays when the process has ended."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from dataclasses import replace

from textual import events, on
from textual.app import ComposeResult
from textual.geometry import Region
from textual.strip import Strip

from gputop.model import Identity
from gputop.monitor import Update
from gputop.ui import copy_texts
from gputop.ui.commands.command import Command
from gputop.ui.copy_texts import CopyText
from gputop.ui.details.detail_request import DetailRequest
from gputop.ui.details.export import numbers, private
from gputop.ui.details.picture import picture
from gputop.ui.details.process_view import ProcessView
from gputop.ui.details.tabs import process_tabs
from gputop.ui.dialogs.saving import Shot
from gputop.ui.job_screen import JobScreen
from gputop.ui.panes.layout import HEIGHT_FOR_REPLAY
from gputop.ui.profiling.background_jobs import BackgroundJobs
from gputop.ui.profiling.status_line import height
from gputop.ui.session import Session
from gputop.ui.targets import CommandTarget
from gputop.ui.widgets.cursor_list import WHEEL
from gputop.ui.widgets.drawing import Line
from gputop.ui.widgets.strip_pane import Lines
from gputop.ui.widgets.tabs import TabPicture

AGAIN_S, AGAIN_TIMES = 0.1, 10  # what is read the first time is asked for soon


class ProcessScreen(JobScreen, inherit_bindings=False):
    """One process, for as long as the screen is open: never another one with the same pid."""

    PLACE = "details"
    CSS = "ProcessScreen #keys { height: 1; } ProcessScreen #jobs, ProcessScreen #replay { height: 0; }"

    def __init__(
        self, session: Session, jobs: BackgroundJobs, identity: Identity, update: Update, tab: str = "threads"
    ) -> None:
        super().__init__(session, jobs)
        self.shown: Update = update
        self.request = DetailRequest(session.source, identity, update.frame)
        self.tabs = process_tabs()
        self.tab = self.tabs[tab]
        self._tries = 0
        self._left = False
        self._picture: TabPicture | None = None
        self._interest = session.source.interest.pids

    def compose(self) -> ComposeResult:
        """One pane, where a recording stands, what is under way, the keys."""
        yield Lines(id="details")
        if self.replay:
            yield self.replay
        yield self.job_line
        yield self.bar

    def on_mount(self) -> None:
        """Have its details read from now on."""
        source = self.session.source
        source.interest = replace(source.interest, pids=source.interest.pids | {self.request.identity.pid})
        self.redraw()

    def on_unmount(self) -> None:
        """Stop reading its details."""
        source = self.session.source
        source.interest = replace(source.interest, pids=self._interest)

    def on_resize(self) -> None:
        """Draw it at another size."""
        self.redraw()

    def progressed(self) -> None:
        """Draw what is under way again; all of it where that takes more lines, or fewer."""
        if self.job_line.size.height != height(self.jobs, self.app.size.width):
            self.redraw()
        self.job_line.redraw()

    @property
    def view(self) -> ProcessView:
        """The process as it is known now."""
        return self.request.view(self.session.past, self.look, self.shown.findings)

    @property
    def replay_is_shown(self) -> bool:
        """Whether there is a line for the recording."""
        return self.app.size.height >= HEIGHT_FOR_REPLAY

    def redraw(self) -> None:
        """Ask for the details and draw them; soon again while they are being read for the first time."""
        if not self.is_attached:
            return
        try:
            self.request.ask(self.shown.frame, self.tab, held=self.session.frozen)
            self._draw()
        except Exception as error:  # the program lives
            line = Line(self.look).add(f" {self.session.failed(error, 'the details')}", "warn")
            self.query_one("#details", Lines).show([line.strip(self.app.size.width)])
        if self.request.unread and self._tries < AGAIN_TIMES:
            self._tries += 1
            self.set_timer(AGAIN_S, self.redraw)

    def _draw(self) -> None:
        width, tall = self.app.size
        taken = height(self.jobs, width)
        self.job_line.styles.height = taken
        self.job_line.redraw()
        if self.replay:
            self.replay.styles.height = int(self.replay_is_shown)
            self.replay.redraw()
            taken += self.replay_is_shown
        self._picture = self._pictured(self.view, (width, max(0, tall - taken - 1)))
        self.query_one("#details", Lines).show(self._picture.strips)
        self.bar.offer(self.offered())

    def _pictured(self, view: ProcessView, size: tuple[int, int]) -> TabPicture:
        return picture(view, self.shown.frame, self.tab, [*self.tabs.values()], size, self.status())

    def offered(self) -> Sequence[Command]:
        """What can be done now, what only this screen does first."""
        return sorted(super().offered(), key=lambda command: command.group != "DETAILS")

    def leave(self) -> None:
        """Back to where it was opened, once: a second Esc may be on its way."""
        if self.is_current and not self._left:
            self._left = True
            self.dismiss()

    def open_tab(self, tab: str) -> None:
        """Open another tab; secrets are hidden again."""
        if tab != self.tab.id:
            self.request.hide()
            self.tab, self._tries = self.tabs[tab], 0
            self.redraw()

    def next_tab(self, step: int) -> None:
        """Open the tab beside."""
        ids = [*self.tabs]
        self.open_tab(ids[(ids.index(self.tab.id) + step) % len(ids)])

    def move(self, lines: int) -> None:
        """Move the cursor by lines."""
        self.tab.move(lines)
        self.redraw()

    def page(self, pages: int) -> None:
        """Move the cursor by pages."""
        self.tab.page(pages)
        self.redraw()

    def sideways(self, step: int) -> None:
        """Show long lines from further on."""
        self.tab.press("sideways", step)
        self.redraw()

    def take(self) -> None:
        """Show or hide the selected secret; open the selected parent or child."""
        selected = self.tab.selected
        self.tab.touch(time.monotonic())
        if self.tab.id == "environment" and isinstance(selected, str):
            self.request.reveal(selected)
            self._tries = 0
            self.redraw()
        elif isinstance(selected, Identity) and selected != self.request.identity:
            self._open(selected)

    def _open(self, identity: Identity) -> None:
        if identity in self.shown.frame.by_identity:
            self.app.push_screen(ProcessScreen(self.session, self.jobs, identity, self.shown))
        else:
            self.bar.say(f"{identity.pid} is gone")

    def show_environment_of_others(self) -> None:
        """Show the environment of another user's process, because root asked for it."""
        if self.request.withheld:
            self.request.others, self._tries = True, 0
            self.redraw()

    def target(self) -> CommandTarget:
        """The process of this screen."""
        view = self.view
        return CommandTarget(view.frame, view.process)

    def copy_texts(self) -> Sequence[CopyText]:
        """Its pid, then its command line."""
        return copy_texts.of_process(self.view.process)

    def copy_owner(self) -> Hashable:
        """The process."""
        return self.request.identity

    def shot(self) -> Shot:
        """What is on the screen, without secrets, to be saved."""
        return Shot(self._drawn_without_secrets, lambda: numbers(self.view))

    def _drawn_without_secrets(self) -> list[tuple[Region, Sequence[Strip]]]:
        drawn = {"details": self._pictured(private(self.view), self.query_one("#details").size).strips}
        return [(pane.region, drawn.get(pane.id or "") or pane.masked()) for pane in self.query(Lines) if pane.display]

    @on(events.Click, "#details")
    def click(self, event: events.Click) -> None:
        """Open the tab, or select the line."""
        drawn = self._picture
        if drawn is None:
            return
        if tab := drawn.opens(event.x, event.y):
            self.open_tab(tab.id)
        else:
            self.tab.click(event.x, event.y - drawn.tabs_y - 1)
            self.redraw()

    @on(events.MouseScrollDown, "#details")
    @on(events.MouseScrollUp, "#details")
    def wheel(self, event: events.MouseEvent) -> None:
        """Scroll."""
        self.tab.scroll(WHEEL if isinstance(event, events.MouseScrollDown) else -WHEEL)
        self.redraw()

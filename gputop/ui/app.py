"""The full-screen monitor: takes updates from the monitor's thread, shows the newest, leaves within two seconds."""

from __future__ import annotations

import gc
import os
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from rich.console import RenderableType
from textual import on
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.driver import Driver
from textual.events import Event, Key
from textual.message import Message
from textual.screen import Screen

from gputop.config import Settings
from gputop.monitor import Monitor
from gputop.proven import Proofs
from gputop.safe.terminal import Guard
from gputop.ui import theme
from gputop.ui.commands.remap import remapped
from gputop.ui.latest_update import LatestUpdate
from gputop.ui.main.screen import MainScreen
from gputop.ui.profiling.background_jobs import BackgroundJobs
from gputop.ui.screen import CommandScreen
from gputop.ui.session import Session
from gputop.ui.terminal.canvas import Painter
from gputop.ui.terminal.driver import clamped
from gputop.ui.terminal.guarded import GuardedApp, run_guarded
from gputop.ui.theme import Look

if TYPE_CHECKING:
    from gputop.alerts.sink import AlertSink

ALERTS_S = 0.3  # for messages that are on their way when the screen is left
AGAIN_S = 4.0  # a second Ctrl+C within this time quits


class Arrived(Message):
    """There is an update to show; which one is decided when it is shown."""

    def can_replace(self, message: Message) -> bool:
        """One such message in the queue is enough."""
        return isinstance(message, Arrived)


class Gputop(GuardedApp, inherit_bindings=False):
    """The program on the screen."""

    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False

    def __init__(
        self, monitor: Monitor, latest: LatestUpdate, settings: Settings, look: Look, guard: Guard | None = None,
        proofs: Proofs | None = None, alerts: AlertSink | None = None,
    ) -> None:  # fmt: skip
        super().__init__(guard, ansi_color=theme.is_native(look))
        self.animation_level = "none"
        self.session = Session(self, monitor, latest, settings, look, remapped(settings.keys), proofs, alerts)
        self.jobs = BackgroundJobs(self.session)
        self.main: Any = self.first_screen()
        self._painter = Painter(self)
        self._interrupted_s = -AGAIN_S
        self._above_dialogs = {
            key: command for command in self.session.commands if command.above_dialogs for key in command.keys
        }

    def first_screen(self) -> CommandScreen:
        """The screen below all others."""
        return MainScreen(self.session, self.jobs)

    async def on_one(self, event: Event) -> None:
        """Handle a key at once: one that travels by way of the focus could be overtaken by the next."""
        if isinstance(event, Key) and not event.is_forwarded and await self._press(event):
            return
        await super().on_one(event)

    async def _press(self, event: Key) -> bool:
        """Take a key as text, or run its command; whether it was either."""
        if not self.screen_stack:
            return False
        top = self.screen_stack[-1]
        if isinstance(top, CommandScreen):
            return top.type(event) or await top.press_key(event.aliases)
        command = self._above_dialogs.get(event.key)
        if command is None or _is_text(event, top):
            return False
        command.run(top)
        return True

    def caught_up(self) -> None:
        """Draw what keys have changed that were overtaken by the next."""
        for screen in self.screen_stack:
            if isinstance(screen, CommandScreen):
                screen.caught_up()

    def on_mount(self) -> None:
        """Show the main screen, and what has been collected by then."""
        self.session.paint_ground()
        self.push_screen(self.main)
        self.session.latest.open(lambda: self.post_message(Arrived()))

    def on_arrived(self) -> None:
        """Show the newest update."""
        self.session.show_newest()

    def tell(self, line: str) -> None:
        """Show that something failed while the rest goes on."""
        self.session.say(line, 10)

    def exit(self, result: None = None, return_code: int = 0, message: Any = None) -> None:
        """Leave; nothing waits for the source, which may be inside the driver."""
        self.session.monitor.stop()
        self.jobs.leave()
        self.session.recorder.leave()
        super().exit(result, return_code, message)

    def left(self) -> None:
        """Nothing looks into a process any more; the recording is closed, and its file is the last word."""
        self.jobs.close()
        if self.session.alerts:
            self.session.alerts.close(ALERTS_S)
        if line := self.session.recorder.close():
            with suppress(OSError):  # the terminal may be what is gone
                sys.stdout.write(f"{line}\n")
                sys.stdout.flush()

    def interrupt(self) -> None:
        """Leave at the second press: the first may have been meant for a job."""
        now = time.monotonic()
        if now - self._interrupted_s < AGAIN_S:
            self.exit()
        self._interrupted_s = now
        while self.screen is not self.main:
            self.pop_screen()
        self.session.say("Ctrl+C again to quit", AGAIN_S)

    def on_resize(self) -> None:
        """After a resize the terminal's contents are unknown: draw everything, and say which part is not drawn on."""
        self._painter.forget()
        if self.screen_stack and (said := clamped()):
            self.session.say(said)

    @on(Driver.SignalResume)
    def back_from_the_shell(self) -> None:
        """Draw everything again."""
        self.session.resumed()
        self._painter.forget()
        self.refresh(layout=True)

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        if self.is_headless or self._batch_count or not isinstance(renderable, (ChopsUpdate, LayoutUpdate)):
            super()._display(screen, renderable)
        elif self._running and not self._closed:
            self._painter.draw(renderable)


def _is_text(event: Key, screen: Screen[Any]) -> bool:
    """Whether a key is a letter on a dialog that takes letters as text."""
    return len(event.key) == 1 and bool(getattr(screen, "takes_text", False))


def show(
    monitor: Monitor, latest: LatestUpdate, settings: Settings, proofs: Proofs | None = None,
    alerts: AlertSink | None = None,
) -> NoReturn:  # fmt: skip
    """Show a running monitor on this terminal until the user quits; ends the process."""
    look = theme.choose(settings.theme, settings.ascii, getattr(sys.stdout, "encoding", None), os.environ)
    gc.freeze()  # what is imported stays: no search for circles goes through it again
    run_guarded(
        lambda guard: Gputop(monitor, latest, settings, look, guard, proofs, alerts), settings.mouse, settings.readonly
    )

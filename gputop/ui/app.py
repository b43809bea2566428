"""The full-screen monitor: takes updates from the monitor's thread, shows the newest, leaves within two seconds."""

from __future__ import annotations

import gc
import os
import sys
import time
from contextlib import suppress
from typing import Any, ClassVar, NoReturn, Protocol, runtime_checkable

from rich.console import RenderableType
from textual import on
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.binding import BindingType
from textual.driver import Driver
from textual.events import Event, Key
from textual.message import Message
from textual.screen import Screen

from gputop.config import Settings
from gputop.monitor import Monitor, Update
from gputop.proven import Proofs
from gputop.safe.terminal import Guard
from gputop.source import Seekable
from gputop.ui import theme
from gputop.ui.file_worker import Aside
from gputop.ui.keys import bindings
from gputop.ui.latest_update import Link, Mailbox
from gputop.ui.main import Main
from gputop.ui.panes.header import Status
from gputop.ui.profiling.background_jobs import Errands
from gputop.ui.replay.recorder import Tape
from gputop.ui.terminal.canvas import Painter
from gputop.ui.terminal.driver import TerminalDriver, behind, clamped
from gputop.ui.terminal.guarded import GuardedApp, run_guarded
from gputop.ui.theme import Look

AGAIN_S = 4.0  # a second Ctrl+C within this time quits


class Arrived(Message):
    """There is an update to show; which one is decided when it is shown."""

    def can_replace(self, message: Message) -> bool:
        """One such message in the queue is enough."""
        return isinstance(message, Arrived)


@runtime_checkable
class Shows(Protocol):
    """A screen of frames: it gets every update and every look, also while another one covers it."""

    def show(self, update: Update) -> None:
        """Draw an update."""

    def wear(self, look: Look) -> None:
        """Draw everything with other colours or glyphs."""


@runtime_checkable
class Types(Protocol):
    """A screen on which something can be typed."""

    def type(self, event: Key) -> bool:
        """Take a key as text while something is typed; whether it was."""


class Gputop(GuardedApp, inherit_bindings=False):
    """The program on the screen."""

    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = bindings.everywhere()

    def __init__(
        self, monitor: Monitor, mailbox: Mailbox, settings: Settings, look: Look, guard: Guard | None = None,
        proofs: Proofs | None = None,
    ) -> None:  # fmt: skip
        super().__init__(guard, ansi_color=theme.is_native(look))
        self.animation_level = "none"
        self.monitor = monitor
        self.mailbox = mailbox
        self.source = monitor.source
        self.proofs = proofs
        self.look = look
        self.frozen = False
        self._ended, self._failure = False, ""
        self.aside = Aside(self)
        self.tape = Tape(monitor, self.aside)
        self._painter = Painter(self)
        self._link = Link()
        self._interrupted_s = -AGAIN_S
        self.set_keymap(bindings.keymap(settings.keys))
        self.main = Main(self, look, settings, monitor.history)
        self.errands = Errands(self, self.main.every_key)

    async def on_one(self, event: Event) -> None:
        """A key that is text is typed here and now: what goes round by the focus is overtaken by the next key."""
        if isinstance(event, Key) and not event.is_forwarded and self._typed(event):
            return
        await super().on_one(event)

    def caught_up(self) -> None:
        """Draw what keys have changed that were overtaken by the next."""
        self.main.caught_up()

    def _typed(self, event: Key) -> bool:
        screens = self.screen_stack
        return bool(screens) and isinstance(screen := screens[-1], Types) and screen.type(event)

    def on_mount(self) -> None:
        """Show the main screen, and what has been collected meanwhile."""
        self._ground()
        self.push_screen(self.main)
        self.mailbox.open(lambda: self.post_message(Arrived()))

    def on_arrived(self) -> None:
        """Show the newest update, unless the picture is held or the terminal has not taken the last one yet."""
        if self.mailbox.closed and not self._ended:
            error = self.mailbox.error
            self._failure = self.failed(error, "collection") if error else ""
            self._ended = True
        update = self.mailbox.newest
        if update is None or self.frozen:
            return
        if behind(self):
            self._link.skip(update)
            return
        self._link.draw(time.monotonic())
        for screen in self.screen_stack:
            if isinstance(screen, Shows):
                screen.show(update)

    def status(self) -> Status:
        """What the header says of the monitor itself."""
        return Status(
            label=self._failure or self.source.label,
            interval_s=self.source.interval_s,
            frozen=self.frozen,
            slow_link_s=None if isinstance(self.source, Seekable) else self._link.slow_s,  # that may play too fast
            replay=isinstance(self.source, Seekable) and not self._failure,
            taped=self.tape.taped,
            ended=self._ended and not self._failure,
            readonly=self.main.readonly,
        )

    def failed(self, error: Exception, where: str) -> str:
        """Keep what went wrong for a report; the line to show for it."""
        if self._guard is None:
            raise error
        return self._guard.crashes.report(error, where)

    def freeze(self) -> None:
        """Hold the picture, or let it go on from the newest update."""
        self.frozen = not self.frozen
        self._link.clear()
        self.on_arrived()
        self.main.redraw()

    def pace(self, seconds: float | None) -> None:
        """Another time between two looks."""
        if seconds:
            self.source.interval_s = seconds
            self._link.clear()
            self.main.redraw()
            self.main.say(f"a look every {seconds:g}s")

    def wear(self, look: Look) -> None:
        """Other colours or glyphs, at once."""
        self.look = look
        self._ground()
        for screen in self.screen_stack:
            if isinstance(screen, Shows):
                screen.wear(look)

    def _ground(self) -> None:
        chosen = theme.textual_theme(self.look)
        self.register_theme(chosen)
        self.ansi_color = theme.is_native(self.look)
        self.theme = chosen.name

    def listen_to_mouse(self, on: bool) -> None:
        """Have the terminal report clicks and the wheel, or leave them to it."""
        if isinstance(self._driver, TerminalDriver):
            self._driver.listen_to_mouse(on)

    def ring(self, sequence: str) -> None:
        """Write what makes the terminal ring, or tell the desktop."""
        if self._driver:
            self._driver.write(sequence)

    def tell(self, line: str) -> None:
        """Show that something failed while the rest goes on."""
        self.main.say(line, 10)

    def exit(self, result: None = None, return_code: int = 0, message: Any = None) -> None:
        """Leave; nothing waits for the source, which may be inside the driver."""
        self.monitor.stop()
        self.errands.leave()
        self.tape.leave()
        super().exit(result, return_code, message)

    def left(self) -> None:
        """Nothing looks into a process any more; the recording is closed, and its file is the last word."""
        self.errands.close()
        if line := self.tape.close():
            with suppress(OSError):  # the terminal may be what is gone
                sys.stdout.write(f"{line}\n")
                sys.stdout.flush()

    async def action_quit(self) -> None:
        """Leave."""
        self.exit()

    def action_interrupt(self) -> None:
        """Leave at the second press: the first may have been meant for a job."""
        now = time.monotonic()
        if now - self._interrupted_s < AGAIN_S:
            self.exit()
        self._interrupted_s = now
        while self.screen is not self.main:
            self.pop_screen()
        self.main.say("Ctrl+C again to quit", AGAIN_S)

    def on_resize(self) -> None:
        """What a terminal shows after it changed its size, nobody knows; what of it is not drawn on is said."""
        self._painter.forget()
        if self.screen_stack and (said := clamped()):
            self.main.say(said)

    @on(Driver.SignalResume)
    def back_from_the_shell(self) -> None:
        """Draw everything again."""
        self._link.clear()
        self._painter.forget()
        self.refresh(layout=True)

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        if self.is_headless or self._batch_count or not isinstance(renderable, (ChopsUpdate, LayoutUpdate)):
            super()._display(screen, renderable)
        elif self._running and not self._closed:
            self._painter.draw(renderable)


def show(monitor: Monitor, mailbox: Mailbox, settings: Settings, proofs: Proofs | None = None) -> NoReturn:
    """Show a running monitor on this terminal until somebody quits; ends the process."""
    look = theme.choose(settings.theme, settings.ascii, getattr(sys.stdout, "encoding", None), os.environ)
    gc.freeze()  # what is imported stays: no search for circles goes through it again
    run_guarded(
        lambda guard: Gputop(monitor, mailbox, settings, look, guard, proofs), settings.mouse, settings.readonly
    )

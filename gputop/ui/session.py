"""What every screen and every command works with: the monitor, settings and theme, and the last line."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from gputop.actions.target import Rights
from gputop.config import Settings
from gputop.monitor import Monitor, Update
from gputop.proven import Proofs
from gputop.source import Seekable
from gputop.ui import theme
from gputop.ui.action_outcomes import ActionOutcomes
from gputop.ui.commands.command import Command, names
from gputop.ui.copy_texts import CopyCycle
from gputop.ui.file_worker import FileWorker
from gputop.ui.frozen_history import FrozenHistory
from gputop.ui.latest_update import LatestUpdate, SlowLink
from gputop.ui.panes.header import Status
from gputop.ui.replay.player import Player
from gputop.ui.replay.recorder import ScreenRecorder
from gputop.ui.terminal.driver import behind
from gputop.ui.terminal.guarded import GuardedApp
from gputop.ui.theme import Look, Token
from gputop.ui.widgets.key_bar import SAY_S, KeyBar

if TYPE_CHECKING:
    from gputop.alerts.sink import AlertSink
    from gputop.hosts.remote_action import RemoteActions


@runtime_checkable
class ShowsFrames(Protocol):
    """A screen of frames: it gets every update and every theme, also while another one covers it."""

    def show(self, update: Update) -> None:
        """Draw an update."""

    def set_theme(self, look: Look) -> None:
        """Draw everything with other colours or glyphs."""

    def redraw(self) -> None:
        """Draw everything again."""


class Session:
    """One run of the monitor on one terminal. It knows no screen, and is known by all of them."""

    def __init__(
        self, app: GuardedApp, monitor: Monitor, latest: LatestUpdate, settings: Settings, look: Look,
        commands: tuple[Command, ...], proofs: Proofs | None = None, alerts: AlertSink | None = None,
    ) -> None:  # fmt: skip
        """`commands` are all there are, with the keys of the settings."""
        self.app, self.monitor, self.latest, self.proofs = app, monitor, latest, proofs
        self.settings, self.look, self.commands = settings, look, commands
        self.names = names(command for command in commands if "main" in command.on)
        self.source = monitor.source
        self.remote: RemoteActions | None = None  # where the processes are those of another host
        self.player = Player(self.source) if isinstance(self.source, Seekable) else None
        self.past = FrozenHistory(monitor.history)
        self.files = FileWorker(app)
        self.recorder = ScreenRecorder(monitor, self.files)
        self.outcomes = ActionOutcomes(app, self.say, self.names)
        self.frozen = False
        self.copies = CopyCycle()
        self.hinted: set[str] = set()  # what was said once and is not repeated
        self._link = SlowLink()
        self._ended, self._failure = False, ""
        self.alerts = alerts

    @property
    def readonly(self) -> bool:
        """Whether nothing may be changed from here, and no file written."""
        return self.settings.readonly

    @property
    def rights(self) -> Rights:
        """What may be done to the processes on the screen at all."""
        return Rights(readonly=self.readonly, elsewhere=self.source.elsewhere)

    def status(self) -> Status:
        """What the header says of the monitor itself."""
        return Status(
            label=self._failure or self.source.label,
            interval_s=self.source.interval_s,
            frozen=self.frozen,
            slow_link_s=None if self.player else self._link.slow_s,  # a recording may play too fast
            replay=self.player is not None and not self._failure,
            taped=self.recorder.taped,
            ended=self._ended and not self._failure,
            readonly=self.readonly,
        )

    def failed(self, error: Exception, where: str) -> str:
        """Keep what went wrong for a report; the line to show for it."""
        return self.app.report(error, where)

    def show_newest(self) -> None:
        """Draw the newest update, unless the display is frozen or the terminal has not taken the last one yet."""
        if self.latest.closed and not self._ended:
            error = self.latest.error
            self._failure = self.failed(error, "collection") if error else ""
            self._ended = True
        if self.alerts and not behind(self.app):
            self._show_alerts(self.alerts)
        update = self.latest.newest
        if update is None or self.frozen:
            return
        if behind(self.app):
            self._link.skip(update)
            return
        self._link.draw(time.monotonic())
        for screen in self.app.screen_stack:
            if isinstance(screen, ShowsFrames) and getattr(screen, "session", self) is self:
                screen.show(update)

    def _show_alerts(self, alerts: AlertSink) -> None:
        """Ring for alerts that are sent to the terminal, and say which receivers do not answer."""
        for sequence in alerts.sequences():
            self.app.ring(sequence)
        for line in alerts.lines():
            self.say(line, 10)

    def freeze(self) -> None:
        """Freeze the display, or continue from the newest update."""
        self.frozen = not self.frozen
        self._link.clear()
        self.show_newest()
        self.redraw()

    def redraw(self) -> None:
        """Draw again what the screens show."""
        for screen in self.app.screen_stack:
            if isinstance(screen, ShowsFrames):
                screen.redraw()

    def set_theme(self, look: Look) -> None:
        """Other colours or glyphs, at once, on every screen."""
        self.look = look
        self.paint_ground()
        for screen in self.app.screen_stack:
            if isinstance(screen, ShowsFrames):
                screen.set_theme(look)

    def paint_ground(self) -> None:
        """Have Textual paint what is behind our lines as the theme has it."""
        chosen = theme.textual_theme(self.look)
        self.app.register_theme(chosen)
        self.app.ansi_color = theme.is_native(self.look)
        self.app.theme = chosen.name

    def set_interval(self, seconds: float | None) -> None:
        """Change the refresh interval; none for None."""
        if seconds:
            self.source.interval_s = seconds
            self._link.clear()
            self.redraw()
            self.say(f"refresh interval: {seconds:g} s")

    def resumed(self) -> None:
        """The program was stopped: what was not drawn during that says nothing of the link."""
        self._link.clear()

    def say(self, text: str, seconds: float = SAY_S, token: Token = "bright") -> None:
        """Say something on the last line of the topmost screen that has one."""
        bars = (
            bar for screen in reversed(self.app.screen_stack) if isinstance(bar := getattr(screen, "bar", 0), KeyBar)
        )
        if bar := next(bars, None):
            bar.say(text, seconds, token)

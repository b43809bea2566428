"""The program that shows several hosts: the overview, and over it the whole screen of one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn, cast

from textual.timer import Timer

from gputop.config import Settings
from gputop.hosts.remote_action import RemoteActions
from gputop.hosts.spanning import SpanningSource
from gputop.hosts.watch import Hosts, HostWatch
from gputop.model import Frame
from gputop.monitor import Monitor
from gputop.safe.terminal import Guard
from gputop.ui import theme
from gputop.ui.app import Arrived, Gputop
from gputop.ui.hosts.board import Board, SshBoard
from gputop.ui.hosts.screen import HostsScreen
from gputop.ui.latest_update import LatestUpdate
from gputop.ui.main.screen import MainScreen
from gputop.ui.profiling.background_jobs import BackgroundJobs
from gputop.ui.screen import CommandScreen
from gputop.ui.session import Session
from gputop.ui.terminal.guarded import run_guarded
from gputop.ui.theme import Look
from gputop.ui.widgets.key_bar import SAY_S

_LOOK_S = 0.2  # between two looks whether a host has values that was asked for
_CONNECTING_S, _REFUSED_S = 60.0, 15.0  # how long it is said that a host is connected to, and why it was not
_REMARK_S = 8.0


class HostsApp(Gputop, inherit_bindings=False):
    """The overview of several hosts; over it the whole screen of one."""

    def __init__(
        self, board: Board, monitor: Monitor, latest: LatestUpdate, settings: Settings, look: Look,
        guard: Guard | None = None,
    ) -> None:  # fmt: skip
        """`monitor` is that of the overview: its updates have the time, and jobs on several hosts."""
        self.board = board
        self._opened: Session | None = None
        self._opened_jobs: BackgroundJobs | None = None
        self._waiting: Timer | None = None
        super().__init__(monitor, latest, settings, look, guard)

    def first_screen(self) -> CommandScreen:
        """The overview."""
        return HostsScreen(self.session, self.board, self.open_host)

    def on_arrived(self) -> None:
        """Show the newest lines, or the newest update of the opened host."""
        super().on_arrived()
        if self.screen is self.main and (said := self.board.remark()):
            self.session.say(said, _REMARK_S)
        if self._opened:
            self._opened.show_newest()

    def open_host(self, name: str) -> None:
        """Open the whole screen of a host, at once or when it has values; or say why not."""
        if said := self.board.open(name):
            self.session.say(said, _CONNECTING_S if self.board.wanted else SAY_S)
        self._follow()
        if self.board.wanted and self._waiting is None:
            self._waiting = self.set_interval(_LOOK_S, self._follow)

    def _follow(self) -> None:
        """Show the host that was asked for once it has values, unless the cursor has left it."""
        overview = cast(HostsScreen, self.main)
        cursor = overview.list.cursor
        if (wanted := self.board.wanted) and (
            self.screen is not overview or overview.typing or cursor is None or cursor.name != wanted
        ):
            self.board.show(None)
            overview.bar.hush()
        elif not isinstance(found := self.board.opened(), str):
            overview.bar.hush()
            self._show_host(found)
        elif found:
            self.session.say(found, _REFUSED_S, "warn")
            overview.redraw()
        if self._waiting and not self.board.wanted:
            self._waiting.stop()
            self._waiting = None

    def _show_host(self, watch: HostWatch) -> None:
        """The whole screen of a host that has values."""
        before, latest = self.session, LatestUpdate()
        session = self._opened = Session(self, watch.monitor, latest, before.settings, before.look, before.commands)
        session.remote = RemoteActions(watch.name)
        jobs = self._opened_jobs = BackgroundJobs(session)
        main = MainScreen(session, jobs)
        main.overview = partial(self._close_host, watch, session)
        assert watch.newest, "it has values"
        latest.put(watch.newest)
        watch.listener = latest.put
        self.board.show(watch)
        self.push_screen(main)
        latest.open(lambda: self.post_message(Arrived()))

    def _close_host(self, watch: HostWatch, session: Session) -> None:
        """Back to the overview, with the settings changed since."""
        watch.listener = None
        self.board.show(None)
        self._end_opened()
        while self.screen is not self.main:
            self.pop_screen()
        self.session.settings = session.settings
        if session.look is not self.session.look:
            self.session.set_theme(session.look)
        cast(HostsScreen, self.main).refresh_rows()

    def _end_opened(self) -> None:
        if self._opened_jobs:
            self._opened_jobs.leave()
        if self._opened:
            self._opened.recorder.leave()
            self._opened.recorder.close()
        self._opened = self._opened_jobs = None

    def interrupt(self) -> None:
        """Leave at the second press."""
        if self._opened and isinstance(self.screen_stack[1], MainScreen):
            overview = self.screen_stack[1].overview
            if overview:
                overview()
        super().interrupt()

    def exit(self, result: None = None, return_code: int = 0, message: Any = None) -> None:
        """Leave; nothing waits for a host."""
        self._end_opened()
        self.board.close()
        super().exit(result, return_code, message)


def newest_frames(hosts: Hosts) -> Callable[[], Mapping[str, Frame]]:
    """The newest frame of each host whose values are of now."""

    def frames() -> Mapping[str, Frame]:
        live = (watch for watch in hosts.watches if watch.newest and watch.row().state == "live")
        return {watch.name: watch.newest.frame for watch in live if watch.newest}

    return frames


def show(hosts: Hosts, label: str, settings: Settings) -> NoReturn:
    """Show the overview on this terminal until the user quits; ends the process."""
    source = SpanningSource(newest_frames(hosts), label, settings.interval_s)
    monitor, latest = Monitor(source, settings.thresholds, unjudged=1), LatestUpdate()
    hosts.start()
    monitor.start(latest.put, latest.close)
    look = theme.choose(settings.theme, settings.ascii, getattr(sys.stdout, "encoding", None), os.environ)
    board = SshBoard(hosts, label, lambda: source.jobs)
    run_guarded(
        lambda guard: HostsApp(board, monitor, latest, settings, look, guard), settings.mouse, settings.readonly
    )

"""The screen of the overview: one line per host, sorted and filtered; Enter opens the whole screen of one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from textual import events, on
from textual.app import ComposeResult
from textual.strip import Strip

from gputop.hosts.columns import BY_ID, matches, ordered
from gputop.hosts.overview import HostRow
from gputop.hosts.slow_host import SlowHost, SlowHosts
from gputop.hosts.spanning import JobKey
from gputop.monitor import Update
from gputop.ui.commands.command import Command, hint
from gputop.ui.hosts import picture
from gputop.ui.hosts.board import Board
from gputop.ui.hosts.picture import DETAIL_LINES, HostsScene, HostTable
from gputop.ui.screen import CommandScreen
from gputop.ui.session import Session
from gputop.ui.theme import Look
from gputop.ui.widgets import drawing
from gputop.ui.widgets.cursor_list import WHEEL, CursorList
from gputop.ui.widgets.prompt import Prompt
from gputop.ui.widgets.strip_pane import Lines

_LEAST_ROWS = 6  # of hosts, before details of one are shown
_LOW, _TALL = 24, 32  # lines of a terminal from which some details are shown, and all, however many hosts there are
_FEW_DETAILS = 6


class HostList(CursorList):
    """The hosts that are shown. The cursor follows its host once a key was pressed; lines change places only when
    nobody presses keys."""

    def __init__(self) -> None:
        self.rows: list[HostRow] = []
        self.every: Sequence[HostRow] = ()
        self.sort, self.reverse, self.filter = "finding", False, ""

    @property
    def count(self) -> int:
        """How many hosts are shown."""
        return len(self.rows)

    @property
    def cursor(self) -> HostRow | None:
        """The selected host."""
        return self.rows[self.at] if self.at < len(self.rows) else None

    def feed(self, every: Sequence[HostRow], now_s: float, *, rank: bool = False) -> None:
        """Take in the newest line of each host; `rank`: sort now, as a key asked for it."""
        before, in_sight = self.cursor, self.in_sight
        self.every = every
        shown = [row for row in every if matches(row, self.filter)]
        if rank or self.may_rank(now_s):
            self.rows, self._ranked_s = ordered(shown, self.sort, reverse=self.reverse), now_s
        else:
            places = {row.name: place for place, row in enumerate(self.rows)}
            self.rows = sorted(shown, key=lambda row: places.get(row.name, len(places)))
        if not self.touched:  # nobody has chosen a host yet: the first one is the worst
            self.at = 0
        elif before:
            self.at = next((at for at, row in enumerate(self.rows) if row.name == before.name), self.at)
        self.settle(in_sight)


class HostsScreen(CommandScreen, inherit_bindings=False):
    """The overview of several hosts."""

    PLACE = "hosts"
    CSS = "HostsScreen #keys, HostsScreen #prompt { height: 1; }"

    def __init__(
        self,
        session: Session,
        board: Board,
        open_host: Callable[[str], None],
    ) -> None:
        """`open_host` opens the screen of a host, or says why it cannot."""
        super().__init__(session)
        self.list = HostList()
        self.pane, self.prompt = Lines(id="hosts"), Prompt(session.look)
        self.asking = False  # a filter is being typed
        self._watch_slow, self._slow_hosts = SlowHosts(), dict[JobKey, SlowHost]()
        self.board, self._open = board, open_host
        self._above = 2  # lines above the hosts: header, notices, titles

    def compose(self) -> ComposeResult:
        """One pane, a line to type in, and the keys."""
        yield self.pane
        yield self.prompt
        yield self.bar

    def on_mount(self) -> None:
        """Draw what there is."""
        self.prompt.display = False
        self.refresh_rows(rank=True)
        self.set_interval(max(1.0, self.session.settings.interval_s), self.refresh_rows)
        if unused := self.session.settings.origin.unused:
            self.bar.say(unused, 20, "warn")

    def on_resize(self) -> None:
        """Draw at another size."""
        self.redraw()

    def set_theme(self, look: Look) -> None:
        """Draw everything with other colours or glyphs."""
        self.session.look = look
        self.prompt.restyle(look)
        super().set_theme(look)

    @property
    def typing(self) -> bool:
        """Whether something is being typed."""
        return self.asking

    def type(self, event: events.Key) -> bool:
        """Take a key as text while something is typed; whether it was."""
        return self.asking and self.prompt.take(event)

    def caught_up(self) -> None:
        """Draw what keys have changed that were overtaken by the next."""
        self.redraw()

    def show(self, update: Update) -> None:
        """Take in what is known of the jobs on several hosts; lines of hosts are refreshed by a timer."""
        self.shown = update
        self._slow_hosts = self._watch_slow.update(self.board.jobs(), update.frame.mono_s)
        if self.list.every:
            self.redraw()
        else:  # the first lines
            self.refresh_rows(rank=True)

    def refresh_rows(self, *, rank: bool = False) -> None:
        """Read the newest lines and draw them."""
        self.list.feed(self.board.rows(), time.monotonic(), rank=rank)
        self.redraw()

    def redraw(self) -> None:
        """Draw everything again."""
        if not self.pane.is_attached:
            return
        width, height = self.app.size
        height -= 1 + self.asking
        look, scene = self.look, self._scene()
        table = HostTable(scene.every, width)
        wall_s = self.board.wall_s() or (self.shown.frame.wall_s if self.shown else time.time())
        top = [
            picture.header(scene, wall_s, width, look, self.session.readonly),
            *picture.notices(scene, width, look, hint(self.names, "{} shows all", "show-all-hosts")),
            picture.titles(table, scene.sort, scene.reverse, look),
        ]
        self._above = len(top)
        below = self._below(scene, width, height - len(top), look)
        self.list.resize(max(1, height - len(top) - len(below)))
        rows = picture.lines(self._scene(), table, self.list.height, look)
        blank = [drawing.blank(width, look)] * (self.list.height - len(rows))
        self.pane.show([*top, *rows, *blank, *below])
        self.bar.offer(self.offered())

    def _below(self, scene: HostsScene, width: int, height: int, look: Look) -> list[Strip]:
        """What stands below the hosts, where these leave room: jobs on several hosts, and the selected host."""
        least = min(max(self.list.count, 1), _LEAST_ROWS)
        spare = height - least
        jobs = picture.job_lines(scene, width, look)
        jobs = jobs if spare >= len(jobs) else []
        tall = self.app.size.height
        always = DETAIL_LINES if tall >= _TALL else _FEW_DETAILS if tall >= _LOW else 0
        details = max(0, spare - len(jobs) - max(0, self.list.count - least))
        details = max(min(DETAIL_LINES, details), min(always, spare - len(jobs)))
        way = hint(self.names, "{} opens it", "open-host")
        return [*jobs, *self.board.details(self.list.cursor, width, details, look, way)]

    def _scene(self) -> HostsScene:
        listed = self.list
        return HostsScene(
            rows=listed.rows, every=listed.every, cursor=listed.at, top=listed.top, sort=listed.sort,
            reverse=listed.reverse, filter="" if self.asking else listed.filter, jobs=self.board.jobs(),
            job_findings=self.shown.findings if self.shown else (), slow_hosts=self._slow_hosts,
            label=self.board.label, origin=self.board.origin, notice=self._failure() or self.board.notice(),
            waiting=self.board.waiting(),
        )  # fmt: skip

    def _failure(self) -> str:
        """Why nothing new will come, after an internal error."""
        label = self.session.status().label
        return label if label != self.session.source.label else ""

    def offered(self) -> Sequence[Command]:
        """What can be done now, what only this screen does first."""
        return sorted(super().offered(), key=lambda command: command.group != "HOSTS")

    def move(self, lines: int) -> None:
        """Move the cursor."""
        self.list.touch(time.monotonic())
        self.list.move(lines)
        self.redraw()

    def page(self, pages: int) -> None:
        """Move the cursor by pages."""
        self.move(pages * max(1, self.list.height - 1))

    def sort(self, column: str) -> None:
        """Sort by a column."""
        self.list.sort, self.list.reverse = column, False
        self.refresh_rows(rank=True)

    def sort_beside(self, step: int) -> None:
        """Sort by the column beside."""
        ids = [column.id for column in HostTable(self.list.every, self.app.size.width).columns]
        if self.list.sort not in ids:
            ids.append(self.list.sort)
        self.sort(ids[(ids.index(self.list.sort) + step) % len(ids)])
        self.session.say(f"sorted by {BY_ID[self.list.sort].title}")

    def reverse(self) -> None:
        """Sort the other way round."""
        self.list.reverse = not self.list.reverse
        self.refresh_rows(rank=True)

    def filter_hosts(self) -> None:
        """Show only hosts in whose line all typed words occur."""
        if self.asking:
            return

        def changed(text: str) -> None:
            self.list.filter = text
            self.refresh_rows(rank=True)
            self.prompt.tell(f"{self.list.count} of {len(self.list.every)}")

        def ended(taken: bool) -> None:
            if not taken:
                self.list.filter = ""
            self.asking = self.prompt.display = False
            self.refresh_rows(rank=True)

        self.asking = self.prompt.display = True
        self.prompt.ask("filter", self.list.filter, changed, ended)
        self.set_focus(self.prompt)
        changed(self.list.filter)

    def show_all(self) -> bool:
        """End the filter; whether there was one."""
        if not self.list.filter:
            return False
        self.list.filter = ""
        self.refresh_rows(rank=True)
        return True

    def open_selected(self) -> None:
        """Open the whole screen of the selected host."""
        if cursor := self.list.cursor:
            self._open(cursor.name)

    def reconnect(self) -> None:
        """Connect to hosts without data now."""
        self.session.say(self.board.reconnect())

    @on(events.Click, "#hosts")
    def click(self, event: events.Click) -> None:
        """A click selects a host; on the selected one it opens it."""
        place = event.y - self._above
        if not 0 <= place < min(self.list.height, self.list.count - self.list.top):
            return
        if self.list.top + place == self.list.at:
            self.open_selected()
        else:
            self.move(self.list.top + place - self.list.at)

    @on(events.MouseScrollDown, "#hosts")
    @on(events.MouseScrollUp, "#hosts")
    def wheel(self, event: events.MouseEvent) -> None:
        """The wheel scrolls."""
        self.list.scroll(WHEEL if isinstance(event, events.MouseScrollDown) else -WHEEL)
        self.redraw()

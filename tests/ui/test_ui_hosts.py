"""The overview of several hosts on the screen: lines, cursor, filter, sorting, the way into a host and back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gputop import docs
from gputop.config import Settings
from gputop.hosts import remote_action
from gputop.hosts.overview import HostRow
from gputop.hosts.spanning import SpanningJob, SpanningSource, spanning_jobs
from gputop.model import Frame
from gputop.monitor import Monitor, Update
from gputop.ui.hosts.app import HostsApp
from gputop.ui.hosts.board import SshBoard
from gputop.ui.hosts.screen import HostsScreen
from gputop.ui.latest_update import LatestUpdate
from gputop.ui.main.screen import MainScreen
from gputop.ui.theme import ASCII, PLAIN, Look
from tests.headless_screens import PATIENCE_S, Hand, screen_text
from tests.hosts.test_overview import ROWS, watched
from tests.hosts.test_spanning import part
from tests.servers import NOON

MONITOR, WORST = watched("starved-cpu-idle")
_, HOT = watched("thermal")
TALL = tuple(HostRow(name=f"node{n:02}", state="live", gpus=8, gpus_busy=8, badge="ok", finding="1 job healthy",
                     gpus_lost=0.0, age_s=0.5, jobs=1) for n in range(40))  # fmt: skip


class Watched:
    """Hosts whose lines are given."""

    def __init__(self, rows: Sequence[HostRow], updates: dict[str, Update]) -> None:
        self.given = list(rows)
        self.by_name = {one.name: self._watch(one, updates.get(one.name)) for one in rows}
        self.reconnected = self.closed = 0

    @staticmethod
    def _watch(one: HostRow, update: Update | None) -> Any:
        return SimpleNamespace(name=one.name, newest=update, monitor=MONITOR, listener=None, row=lambda: one)

    def rows(self) -> list[HostRow]:
        return list(self.given)

    def open(self, watch: Any) -> None:
        self.opened = watch

    def reconnect(self) -> None:
        self.reconnected += 1

    def close(self) -> None:
        self.closed += 1


class HostStage:
    """The running program."""

    def __init__(self, app: HostsApp, hand: Hand, hosts: Watched) -> None:
        self.app, self.hand, self.hosts = app, hand, hosts

    @property
    def text(self) -> str:
        return screen_text(self.app)

    @property
    def names(self) -> list[str]:
        """The hosts on the screen, from the top."""
        return [one.name for one in self.app.main.list.rows]

    async def press(self, *keys: str) -> None:
        await self.hand.press(*keys)

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait until it is true."""
        deadline = time.monotonic() + PATIENCE_S
        while not true():
            assert time.monotonic() < deadline, self.text
            await self.hand.pause(0.01)


def play(
    scene: Callable[[HostStage], Awaitable[None]],
    rows: Sequence[HostRow] = ROWS,
    *,
    size: tuple[int, int] = (120, 30),
    updates: dict[str, Update] | None = None,
    jobs: Sequence[SpanningJob] = (),
    look: Look | None = None,
    readonly: bool = False,
) -> None:
    """Run the overview on these lines and let a test act on it."""

    async def run() -> None:
        hosts = Watched(rows, updates or {})
        source = SpanningSource(dict, f"{len(rows)} hosts")
        source.jobs = list(jobs)
        latest = LatestUpdate()
        board = SshBoard(hosts, source.label, lambda: source.jobs)  # type: ignore[arg-type]
        app = HostsApp(board, Monitor(source), latest, Settings(readonly=readonly), look or Look())
        frame = Frame(wall_s=NOON, mono_s=1.0, hostname="hosts", host=WORST.frame.host)
        latest.put(Update(frame=frame))
        hand = Hand(app)
        async with app.run_test(size=size):
            await hand.pause()
            await scene(HostStage(app, hand, hosts))

    asyncio.run(run())


def drawn(golden: Any, name: str, **options: Any) -> None:
    """Compare the first picture with a golden file."""
    seen: list[str] = []

    async def scene(stage: HostStage) -> None:
        seen.append(stage.text)

    play(scene, **options)
    golden(name, seen[0])


def test_the_overview_at_three_sizes(golden) -> None:  # type: ignore[no-untyped-def]
    updates = {"n2": WORST, "n4": HOT}
    jobs = spanning_jobs({"n1": part(0, world=6)(0.0), "n2": part(2, world=6)(0.0)})
    drawn(golden, "hosts-screen-80x24.txt", size=(80, 24), updates=updates)
    drawn(golden, "hosts-screen-120x30.txt", size=(120, 30), updates=updates, jobs=jobs)
    drawn(golden, "hosts-screen-200x50.txt", size=(200, 50), rows=(*ROWS, *TALL), updates=updates, jobs=jobs)


def test_the_overview_without_colours_and_unicode(golden) -> None:  # type: ignore[no-untyped-def]
    drawn(golden, "hosts-screen-80x24-ascii.txt", size=(80, 24), look=Look(PLAIN, ASCII), updates={"n4": HOT})


def test_the_reason_of_a_lost_host_stands_below_in_full() -> None:
    async def scene(stage: HostStage) -> None:
        await stage.press("slash", *"refused", "enter")
        assert stage.names == ["n3"]
        assert " no data: connection refused: no SSH server on its port; next attempt in 7 s" in stage.text

    play(scene, size=(80, 24))


def test_the_cursor_moves_and_keeps_its_host_when_lines_change_places() -> None:
    async def scene(stage: HostStage) -> None:
        assert stage.names[0] == "n4"
        await stage.press("down")
        chosen = stage.app.main.list.cursor.name
        stage.hosts.given = [replace(one, badge="ok", gpus_lost=None) if one.name == "n4" else one for one in ROWS]
        stage.app.main.list._touched_s = stage.app.main.list._ranked_s = -1e9
        stage.app.main.refresh_rows()
        assert stage.names[0] == chosen == "n2"
        assert stage.app.main.list.cursor.name == chosen

    play(scene)


def test_lines_do_not_change_places_right_after_a_key() -> None:
    async def scene(stage: HostStage) -> None:
        before = stage.names
        await stage.press("down")
        stage.hosts.given = [replace(one, badge="crit", gpus_lost=9.0) if one.name == "n6" else one for one in ROWS]
        stage.app.main.refresh_rows()
        assert stage.names == before
        await stage.press("F")
        assert stage.names[0] == "n6"

    play(scene)


def test_the_filter_shows_hosts_that_match_and_escape_shows_all() -> None:
    async def scene(stage: HostStage) -> None:
        await stage.press("f4", *"thermal", "enter")
        assert stage.names == ["n4"]
        await stage.press("escape")
        assert len(stage.names) == len(ROWS)
        await stage.press("slash", *"nowhere", "escape")
        assert len(stage.names) == len(ROWS)

    play(scene)


def test_the_cursor_stays_on_the_worst_host_until_a_key_is_pressed() -> None:
    async def scene(stage: HostStage) -> None:
        assert stage.app.main.list.cursor.name == "n4"
        stage.hosts.given = [replace(one, badge="crit", gpus_lost=9.0) if one.name == "n6" else one for one in ROWS]
        stage.app.main.list._ranked_s = -1e9
        stage.app.main.refresh_rows()
        assert stage.app.main.list.cursor.name == "n6"

    play(scene)


def test_a_filter_that_hides_hosts_is_said_after_the_prompt_is_closed() -> None:
    async def scene(stage: HostStage) -> None:
        await stage.press("slash", *"thermal")
        assert "of 6 hosts" not in stage.text
        await stage.press("enter")
        assert stage.text.splitlines()[1] == " filter thermal: 1 of 6 hosts · Esc shows all"
        await stage.press("escape")
        assert stage.text.splitlines()[1].split()[0] == "HOST"

    play(scene)


def test_sorting_by_the_columns_beside_and_the_other_way_round() -> None:
    async def scene(stage: HostStage) -> None:
        await stage.press("full_stop")  # around the end: by name
        assert stage.names == ["n1", "n2", "n3", "n4", "n5", "n6"]
        await stage.press("I")
        assert stage.names == ["n6", "n5", "n4", "n3", "n2", "n1"]
        await stage.press("comma")
        assert stage.app.main.list.sort == "finding"

    play(scene)


def test_enter_opens_the_whole_screen_of_a_host_and_escape_leads_back() -> None:
    async def scene(stage: HostStage) -> None:
        await stage.press("enter")
        assert isinstance(stage.app.screen, MainScreen)
        assert WORST.frame.hostname in stage.text
        assert "Hosts" in stage.text.splitlines()[-1]
        await stage.press("escape")
        assert isinstance(stage.app.screen, HostsScreen)
        await stage.press("enter", "backspace")
        assert isinstance(stage.app.screen, HostsScreen)

    play(scene, updates={"n4": WORST}, size=(120, 40))


def test_a_signal_is_sent_on_the_host_that_the_dialog_names(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, list[str]]] = []

    def answer(host: str, words: Sequence[str], seconds: float) -> tuple[int, str]:
        asked.append((host, list(words)))
        return 0, "KILL sent to 41207 (python)\n"

    monkeypatch.setattr(remote_action, "answer", answer)

    async def scene(stage: HostStage) -> None:
        await stage.press("enter", "down", "k")
        assert "on n4" in stage.text
        await stage.press("down", "enter")
        assert "Send KILL on n4" in stage.text
        assert not asked
        await stage.press("down", "enter")
        await stage.until(lambda: "n4: KILL sent to 41207" in stage.text)
        (host, words), *others = asked
        assert (host, words[:3], others) == ("n4", ["gputop", "signal", "KILL"], [])
        pid, _, ticks = words[3].partition(":")
        assert any(str(one.pid) == pid and str(one.started_ticks) == ticks for one in WORST.frame.processes)

    play(scene, updates={"n4": WORST}, size=(120, 40))


def test_a_profiler_runs_on_the_host_after_a_question_that_names_it() -> None:
    async def scene(stage: HostStage) -> None:
        await stage.press("enter", "down", "s")
        assert "gputop stack" in stage.text
        assert "Runs on n4, on this terminal" in stage.text
        await stage.press("escape", "p")
        assert "gputop profile" in stage.text
        await stage.press("escape", "t")
        assert "gputop trace" in stage.text

    play(scene, updates={"n4": WORST}, size=(120, 40))


def test_with_readonly_nothing_is_asked() -> None:
    async def scene(stage: HostStage) -> None:
        await stage.press("enter", "down", "k")
        assert "--readonly" in stage.text.splitlines()[-1]

    play(scene, updates={"n4": WORST}, size=(120, 40), readonly=True)


def test_a_host_whose_frame_is_here_before_its_screen_has_places_is_drawn_with_them() -> None:
    """Focus may come before the size of the table: there is a frame then, which there is not at the start."""

    async def scene(stage: HostStage) -> None:
        await stage.press("enter")
        table = stage.app.screen.table
        places, table._places = table._places, ()
        stage.app.screen.refocused()
        table._places = places
        stage.app.screen.refocused()
        assert WORST.frame.hostname in stage.text

    play(scene, updates={"n4": WORST}, size=(120, 40))


def test_updates_of_an_open_host_are_shown_and_those_of_others_are_not() -> None:
    async def scene(stage: HostStage) -> None:
        await stage.press("enter")
        watch = stage.hosts.by_name["n4"]
        later = replace(WORST, frame=replace(WORST.frame, mono_s=WORST.frame.mono_s + 1, hostname="renamed"))
        watch.listener(later)
        await stage.hand.pause()
        assert "renamed" in stage.text
        await stage.press("backspace")
        assert watch.listener is None

    play(scene, updates={"n4": WORST}, size=(120, 40))


def test_a_host_without_values_says_why_it_does_not_open() -> None:
    async def scene(stage: HostStage) -> None:
        await stage.press("f4", *"refused", "enter", "enter")
        assert isinstance(stage.app.screen, HostsScreen)
        assert "n3: connection refused" in stage.text.splitlines()[-1]
        await stage.press("R")
        assert stage.hosts.reconnected == 1

    play(scene)


def test_help_lists_the_keys_of_the_overview_and_themes_change_it() -> None:
    async def scene(stage: HostStage) -> None:
        await stage.press("h")
        assert "open the host's whole screen" in stage.text
        await stage.press("escape")
        stage.app.session.set_theme(Look(PLAIN, ASCII))
        await stage.hand.pause()
        assert stage.text.isascii()

    play(scene)


def test_f1_explains_the_columns_that_these_hosts_have() -> None:
    """The last hour is known of recorded metrics only, as a fleet has them."""

    async def scene(stage: HostStage) -> None:
        await stage.press("f1")
        assert "GPU%" in stage.text
        assert "LAST HOUR" not in stage.text
        assert "LAST HOUR" not in docs.read("hosts")

    play(scene)


def test_leaving_ends_all_connections() -> None:
    async def scene(stage: HostStage) -> None:
        await stage.press("q")
        assert stage.hosts.closed == 1

    play(scene)


def test_any_size_is_drawn() -> None:
    async def scene(stage: HostStage) -> None:
        for width, height in ((1, 1), (2, 5), (10, 3), (20, 8), (40, 12), (300, 100)):
            await stage.hand.resize_terminal(width, height)
            await stage.hand.pause()

    play(scene, rows=(*ROWS, *TALL), updates={"n4": WORST})

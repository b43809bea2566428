"""The overview of a fleet on the screen: lines, the last hour of a host, a Prometheus that fails, the way by ssh."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gputop.fleet.poller import Fleet
from gputop.hosts.source import RemoteHost
from gputop.ui.hosts.app import HostsApp
from gputop.ui.hosts.fleet import details
from gputop.ui.hosts.screen import HostsScreen
from gputop.ui.main.screen import MainScreen
from gputop.ui.theme import ASCII, PLAIN, Look
from tests.fleet.simulated import DEAD, HOT, SLOW, name
from tests.headless_screens import Hand, screen_text
from tests.host_scenes import fleet_screen
from tests.hosts.test_overview import watched
from tests.servers import NOON

MONITOR, WORST = watched("starved-cpu-idle")


class Reached:
    """A host that ssh reaches, or not, when a test says so. In place of a HostWatch."""

    def __init__(self, source: RemoteHost, *_: object) -> None:
        self.name, self.monitor, self.listener = source.label, MONITOR, None
        self.newest: Any = None
        self.error = None
        self.state, self.why, self.closed = "connecting", "", False
        REACHED.append(self)

    def start(self) -> None:
        """Nothing happens by itself."""

    def row(self) -> Any:
        return SimpleNamespace(state=self.state, why=self.why)

    def close(self) -> None:
        self.closed = True


REACHED: list[Reached] = []


class FleetStage:
    """The running program."""

    def __init__(self, app: HostsApp, hand: Hand, fleet: Fleet) -> None:
        self.app, self.hand, self.fleet = app, hand, fleet

    @property
    def text(self) -> str:
        return screen_text(self.app)

    async def press(self, *keys: str) -> None:
        await self.hand.press(*keys)

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait until it is so."""
        deadline = time.monotonic() + 60
        while not true():
            assert time.monotonic() < deadline, self.text
            await asyncio.sleep(0.02)
            await self.hand.pause()


def play(
    scene: Callable[[FleetStage], Awaitable[None]],
    *,
    size: tuple[int, int] = (120, 30),
    look: Look | None = None,
    hosts: int = 40,
) -> None:
    """Run the overview on an answer of a fixed time, and let a test act on it."""

    async def run() -> None:
        with fleet_screen(NOON, look or Look(), hosts) as (app, fleet):
            hand = Hand(app)
            async with app.run_test(size=size):
                await hand.pause()
                await scene(FleetStage(app, hand, fleet))

    asyncio.run(run())


def drawn(golden: Any, file: str, *keys: str, **options: Any) -> None:
    """Compare the picture after some keys with a golden file."""
    seen: list[str] = []

    async def scene(stage: FleetStage) -> None:
        await stage.press(*keys)
        seen.append(stage.text)

    play(scene, **options)
    golden(file, seen[0])


def test_the_fleet_at_three_sizes(golden) -> None:  # type: ignore[no-untyped-def]
    drawn(golden, "fleet-80x24.txt", "down", size=(80, 24))
    drawn(golden, "fleet-120x30.txt", "down", size=(120, 30))
    drawn(golden, "fleet-200x50.txt", size=(200, 50))


def test_the_fleet_without_colours_and_unicode(golden) -> None:  # type: ignore[no-untyped-def]
    drawn(golden, "fleet-80x24-ascii.txt", "down", size=(80, 24), look=Look(PLAIN, ASCII))


def test_the_selected_host_says_why_it_has_no_values() -> None:
    async def scene(stage: FleetStage) -> None:
        await stage.press("slash", *"exporter", "enter")
        assert name(DEAD) in stage.text
        assert "no data: exporter down or unreachable (up is 0); last values 21 min 40 s ago" in stage.text

    play(scene)


def test_h05_while_prometheus_fails_a_line_says_so_and_the_keys_work() -> None:
    async def scene(stage: FleetStage) -> None:
        before = stage.text.splitlines()
        stage.fleet.problem, stage.fleet.retry_s = "connection refused", time.monotonic() + 30
        await stage.press("F")
        lines = stage.text.splitlines()
        assert lines[1].startswith(" ! Prometheus: connection refused; values are ")
        assert "next attempt in" in lines[1]
        assert lines[2] == before[1]
        assert "0 live, 39 with old values, 1 no data" in lines[0]
        assert "8/8" in lines[3]
        stage.fleet.hurry.clear()
        await stage.press("R")
        assert stage.fleet.hurry.is_set()
        assert "asking Prometheus" in stage.text
        stage.fleet.problem = ""
        await stage.press("F")
        assert stage.text.splitlines()[1] == before[1]

    play(scene)


def test_the_first_answer_draws_the_lines_at_once() -> None:
    async def scene(stage: FleetStage) -> None:
        view, stage.fleet.view = stage.fleet.view, None
        stage.app.main.list.every = stage.app.main.list.rows = []
        stage.app.main.refresh_rows()
        assert stage.text.splitlines()[2] == " asking Prometheus at prometheus:9090"
        stage.fleet.view = view
        stage.app.session.show_newest()
        await stage.hand.pause()
        assert stage.text.splitlines()[2].split()[0] == name(HOT)

    play(scene)


def test_enter_opens_a_host_by_ssh_once_it_has_values_and_leaving_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gputop.ui.hosts.fleet.HostWatch", Reached)
    REACHED.clear()

    async def scene(stage: FleetStage) -> None:
        await stage.press("down", "enter")
        assert f"{name(SLOW)}: connecting by ssh" in stage.text
        assert isinstance(stage.app.screen, HostsScreen)
        (watch,) = REACHED
        watch.newest = WORST
        await stage.until(lambda: isinstance(stage.app.screen, MainScreen) and WORST.frame.hostname in stage.text)
        assert stage.app.screen.session.remote.host == name(SLOW)  # actions go the same way
        await stage.press("backspace")
        assert isinstance(stage.app.screen, HostsScreen)
        assert watch.closed

    play(scene, size=(120, 40))


def test_where_ssh_fails_the_line_says_why_and_the_overview_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputop.ui.hosts.fleet.HostWatch", Reached)
    REACHED.clear()

    async def scene(stage: FleetStage) -> None:
        await stage.press("enter")
        REACHED[0].state, REACHED[0].why = "lost", "permission denied: no key was accepted"
        await stage.until(lambda: "ssh: permission denied" in stage.text.splitlines()[-1])
        assert isinstance(stage.app.screen, HostsScreen)
        assert REACHED[0].closed
        await stage.press("escape")
        assert "ssh: permission denied" in stage.text  # among what is known of the host
        await stage.press("down")
        assert "ssh: permission denied" not in stage.text

    play(scene)


def test_a_cursor_that_moves_on_gives_the_connection_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputop.ui.hosts.fleet.HostWatch", Reached)
    REACHED.clear()

    async def scene(stage: FleetStage) -> None:
        await stage.press("enter", "down")
        await stage.until(lambda: REACHED[0].closed)
        REACHED[0].newest = WORST
        await stage.press("enter", "enter")
        await stage.until(lambda: len(REACHED) == 3 and REACHED[1].closed)
        assert isinstance(stage.app.screen, HostsScreen)

    play(scene)


def test_h05_a_name_that_ssh_would_take_for_an_option_is_refused() -> None:
    async def scene(stage: FleetStage) -> None:
        view = stage.fleet.view
        assert view is not None
        first = view.hosts[HOT]
        evil = replace(first, ssh_name="-oProxyCommand=touch /tmp/owned")
        stage.fleet.view = replace(view, by_name={**view.by_name, first.row.name: evil})
        await stage.press("enter")
        assert "is not a host name" in stage.text.splitlines()[-1]
        assert isinstance(stage.app.screen, HostsScreen)

    play(scene)


def test_what_the_fleet_has_to_say_is_said_once() -> None:
    async def scene(stage: FleetStage) -> None:
        stage.fleet.remarks.append("recording rules are missing")
        for _ in range(2):
            stage.app.on_arrived()
        assert stage.text.splitlines()[-1] == " recording rules are missing"
        await stage.press("escape")
        stage.app.on_arrived()
        assert "recording rules" not in stage.text

    play(scene)


def test_an_internal_error_is_on_the_screen() -> None:
    async def scene(stage: FleetStage) -> None:
        stage.app.session._failure = "internal error: KeyError"
        await stage.press("F")
        assert stage.text.splitlines()[1] == " ! internal error: KeyError"

    play(scene)


def test_many_findings_in_a_low_pane_are_counted() -> None:
    async def scene(stage: FleetStage) -> None:
        assert stage.fleet.view is not None
        host = stage.fleet.view.hosts[HOT]
        many = replace(host, findings=host.findings[:1] * 9)
        for height, lines in ((9, 9), (4, 4), (3, 3), (2, 2)):
            texts = [strip.text.rstrip() for strip in details(many, None, "", 80, height, Look(), "Enter opens it")]
            assert len(texts) == lines
            assert "hardware thermal slowdown" in texts[1]
            shown = sum("thermal slowdown" in text for text in texts)
            assert height < 4 or any(text == f"   {9 - shown} more" for text in texts) or shown == 1

    play(scene, hosts=9)


def test_any_size_is_drawn_and_no_line_is_wider() -> None:
    async def scene(stage: FleetStage) -> None:
        for width, height in ((1, 1), (2, 5), (10, 3), (20, 8), (40, 12), (60, 24), (300, 100)):
            await stage.hand.resize_terminal(width, height)
            await stage.hand.pause()
            view = stage.fleet.view
            assert view is not None
            for host in view.hosts:
                for strip in details(host, None, "", width, height, Look(), "Enter opens it"):
                    assert strip.cell_length == width

    play(scene, hosts=10)


def test_sorting_goes_through_the_columns_that_are_shown() -> None:
    async def scene(stage: FleetStage) -> None:
        listed = stage.app.main.list
        found = []
        for _ in range(20):
            await stage.press("full_stop")
            found.append(listed.sort)
        assert "hour" not in found
        assert "power" not in found
        await stage.hand.resize_terminal(160, 30)
        await stage.press("F")
        for _ in range(20):
            await stage.press("full_stop")
            found.append(listed.sort)
        assert {"hour", "power"} <= set(found)

    play(scene, size=(80, 24))


def test_f1_explains_the_last_hour() -> None:
    async def scene(stage: FleetStage) -> None:
        await stage.press("f1")
        assert "LAST HOUR" in stage.text

    play(scene)

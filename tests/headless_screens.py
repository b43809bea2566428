"""A screen without a terminal: a source that a test feeds, keys pressed, and what is on the screen then."""

from __future__ import annotations

import asyncio
import queue
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from threading import Event
from typing import Any

from textual._context import message_hook
from textual.app import App
from textual.events import Callback as Called
from textual.events import Key
from textual.geometry import Region
from textual.keys import REPLACED_KEYS, _character_to_key, key_to_character
from textual.message import Message
from textual.pilot import Pilot
from textual.strip import Strip

from gputop.config import Settings
from gputop.model import Detail, Frame, Identity, Missing
from gputop.monitor import Monitor
from gputop.source import EVERYTHING, DetailWish, Interest
from gputop.ui.app import Gputop
from gputop.ui.latest_update import LatestUpdate
from gputop.ui.theme import Look

PATIENCE_S = 60.0


def screen_text(app: App[Any]) -> str:
    """The lines on the screen, without trailing blanks."""
    return "".join(f"{strip.text.rstrip()}\n" for strip in strips(app))


def strips(app: App[Any]) -> list[Strip]:
    """The lines on the screen, with their styles. Nothing else touches Textual's private compositor."""
    return app.screen._compositor.render_strips()


def box(stage: Stage) -> str:
    """What a dialog shows, without the lines above and below it."""
    region = Region.from_union([part.region for part in stage.app.screen.children])
    return "".join(f"{line[region.x : region.right].rstrip()}\n" for line in stage.lines[region.y : region.bottom])


class Feed:
    """A source that has the frames a test gives it, when it gives them."""

    def __init__(self, past: Iterable[Frame] = ()) -> None:
        self.label = "live"
        self.elsewhere: str | None = None
        self.interval_s = 1.0
        self.interest = Interest()
        self.details: dict[Identity, Detail | Missing | Callable[[DetailWish], Detail | Missing]] = {}
        self._past = tuple(past)
        self._next: queue.SimpleQueue[Frame | Exception | None] = queue.SimpleQueue()

    def past(self) -> Iterable[Frame]:
        return self._past

    def frames(self, stop: Event) -> Iterator[Frame]:
        while (item := self._next.get()) is not None and not stop.is_set():
            if isinstance(item, Exception):
                raise item
            yield item

    def inspect(self, identity: Identity, wish: DetailWish = EVERYTHING) -> Detail | Missing:
        """What the test put there, or what that says to the wish."""
        found = self.details.get(identity, Missing(metric="details", reason="lost"))
        return found(wish) if callable(found) else found

    def give(self, item: Frame | Exception | None) -> None:
        """A frame; an exception that collection fails with; None for the end."""
        self._next.put(item)


class Hand(Pilot[None]):
    """Presses keys and clicks, each when all that followed from the last one is done and drawn.

    Textual's own pilot waits until the process uses little CPU, 20 ms at a time: longer, and no promise.
    """

    def __init__(self, app: App[Any]) -> None:
        super().__init__(app)
        self._handled = 0
        message_hook.set(self._count)

    async def pause(self, delay: float | None = None) -> None:
        """Wait until nobody has anything left to do, after `delay` seconds."""
        if delay:
            await asyncio.sleep(delay)
        before = -1
        while before != self._handled:
            before = self._handled
            await self._wait_for_screen()
            while self.app._resize_timer is not None:  # noqa: ASYNC110  Textual waits a little for the next one
                await asyncio.sleep(0.002)
            self.app.screen._on_timer_update()
            await self._wait_for_screen()

    async def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        for name in keys:
            key = _character_to_key(name) if len(name) == 1 and not name.isalnum() else name
            pressed = Key(key, key_to_character(REPLACED_KEYS.get(key, key)))
            pressed.set_sender(self.app)
            self.app.post_message(pressed)
            await self.pause()

    def _count(self, message: Message) -> None:
        self._handled += not isinstance(message, Called)  # which is how the pilot sees that the others are done


class Stage:
    """The running program in a test's hands."""

    def __init__(self, app: Gputop, pilot: Hand, feed: Feed) -> None:
        self.app = app
        self.pilot = pilot
        self.feed = feed

    @property
    def newest(self) -> Frame | None:
        """The newest frame, on the screen or not."""
        update = self.app.session.latest.newest
        return update.frame if update else None

    @property
    def text(self) -> str:
        """What is on the screen."""
        return screen_text(self.app)

    @property
    def lines(self) -> list[str]:
        """What is on the screen, by line."""
        return self.text.splitlines()

    @property
    def pids(self) -> list[str]:
        """What stands under PID, line by line, without rails."""
        lines = self.lines
        head = next(place for place, line in enumerate(lines) if line.startswith(" PID"))
        end = self.app.main.table.region.bottom
        names = (line[1:16].strip(" │├└─▾▸") for line in lines[head + 1 : end])
        return [name for name in names if name]

    @property
    def selected(self) -> str:
        """The label of the line under the cursor."""
        row = self.app.main.table.listing.cursor
        return row.label if row else ""

    async def until(self, true: Callable[[], bool], what: str = "it") -> None:
        """Wait until it is true."""
        deadline = time.monotonic() + PATIENCE_S
        while not true():
            assert time.monotonic() < deadline, f"{what} does not happen:\n{self.text}"
            await self.pilot.pause(0.01)
        await self.pilot.pause()

    async def show(self, frame: Frame) -> None:
        """Give a frame and wait until it is drawn."""
        self.feed.give(frame)
        await self.until(lambda: self.app.main.shown is not None and self.app.main.shown.frame is frame, "the frame")

    async def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        await self.pilot.press(*keys)


def play(
    scene: Callable[[Stage], Awaitable[None]],
    frame: Frame | None = None,
    *,
    size: tuple[int, int] = (120, 40),
    past: Iterable[Frame] = (),
    look: Look | None = None,
    feed: Any = None,
    **settings: Any,
) -> None:
    """Run the program on a frame and let a test act on it."""

    async def run() -> None:
        source = feed or Feed(past)
        monitor, latest = Monitor(source), LatestUpdate()
        monitor.start(latest.put, latest.close)
        app = Gputop(monitor, latest, Settings(**settings), look or Look())
        try:
            hand = Hand(app)
            async with app.run_test(size=size):
                stage = Stage(app, hand, source)
                if frame is not None:
                    await stage.show(frame)
                await scene(stage)
        finally:
            monitor.stop()
            source.give(None)

    asyncio.run(run())

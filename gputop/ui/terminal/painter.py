"""Between Textual and the terminal: what Textual draws goes on the canvas, and from there what differs is written."""

from __future__ import annotations

from typing import Any

from rich.color import ColorSystem
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.app import App
from textual.timer import Timer

from gputop.ui.terminal.canvas import Canvas
from gputop.ui.terminal.driver import behind

LOOK_AGAIN_S = 0.05  # at a terminal that is behind
_SYNC = ("\x1b[?2026h", "\x1b[?2026l")  # shown at once, where the terminal can


class Painter:
    """Writes while the terminal takes it. While it is behind nothing is queued, so that what it gets next is newest."""

    def __init__(self, app: App[Any]) -> None:
        self._app = app
        self._canvas: Canvas | None = None
        self._waiting: Timer | None = None

    def draw(self, update: ChopsUpdate | LayoutUpdate) -> None:
        """Show an update of Textual's compositor."""
        size = self._app.size
        if self._canvas is None or self._canvas.size != size:
            system = self._app.console.color_system
            self._canvas = Canvas(*size, ColorSystem[_SYSTEMS[system]] if system else None)
        put = self._canvas.put
        if isinstance(update, LayoutUpdate):
            left, right = update.region.x, update.region.right
            for y, line in enumerate(update.strips, update.region.y):
                x = left
                for strip in line:
                    put(x, y, strip, left, right)
                    x += strip.cell_length
        else:
            for y, left, right in update.spans:
                for x, chop in update.chops[y].items():
                    if chop is not None and x < right:
                        put(x, y, chop, left, right)
        self.flush()

    def flush(self) -> None:
        """Write what differs, now or as soon as the terminal has taken what it was given."""
        if self._waiting:
            self._waiting.stop()
            self._waiting = None
        driver = self._app._driver
        if self._canvas is None or driver is None:
            return
        if behind(self._app):
            self._waiting = self._app.set_timer(LOOK_AGAIN_S, self.flush)
            return
        text = self._canvas.take()
        if text:
            start, end = _SYNC if self._app._sync_available else ("", "")
            driver.write(f"{start}{text}{end}")
            driver.flush()

    def forget(self) -> None:
        """Nobody knows what the terminal shows: the next update is written whole."""
        self._canvas = None


_SYSTEMS = {"standard": "STANDARD", "256": "EIGHT_BIT", "truecolor": "TRUECOLOR", "windows": "WINDOWS"}

"""Where the monitor's thread leaves its newest update for the screen."""

from __future__ import annotations

from collections.abc import Callable

from gputop.monitor import Update


class Mailbox:
    """Holds the newest update and why there will be no other. The newest wins: a slow screen misses some."""

    def __init__(self) -> None:
        self.newest: Update | None = None
        self.error: Exception | None = None
        self.closed = False
        self._ring: Callable[[], object] = lambda: None

    def open(self, ring: Callable[[], object]) -> None:
        """Call `ring`, from the other thread, whenever there is something new."""
        self._ring = ring
        if self.newest or self.closed:
            ring()

    def put(self, update: Update) -> None:
        """A newer update."""
        self.newest = update
        self._ring()

    def close(self, error: Exception | None) -> None:
        """No more updates, and the error that ended them if one did."""
        self.error, self.closed = error, True
        self._ring()

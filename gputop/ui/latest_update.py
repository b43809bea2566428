"""The newest update for the screen, left by the monitor's thread, and how well the terminal keeps up with it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from gputop.monitor import Update


class LatestUpdate:
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


_DRAWN = 4  # the last updates by which the state of the line is judged
_MANY = 0.5  # skipped for each that is drawn: from here on the line is called slow


class SlowLink:
    """Counts what is drawn and what is skipped. A pause, or a picture that is held, is no fault of the line."""

    def __init__(self) -> None:
        self._drawn: deque[tuple[float, int]] = deque(maxlen=_DRAWN)  # when, and how many were skipped before it
        self._skipped = 0
        self._newest: object = None

    def skip(self, update: object) -> None:
        """This one is not drawn."""
        self._skipped += update is not self._newest
        self._newest = update

    def draw(self, now_s: float) -> None:
        """One is drawn."""
        self._drawn.append((now_s, self._skipped))
        self._skipped = 0

    def clear(self) -> None:
        """What was has nothing to say of what comes: another pace, a pause."""
        self._drawn.clear()
        self._skipped = 0

    @property
    def slow_s(self) -> float | None:
        """Seconds between two that are drawn, where the line is slow."""
        gaps = len(self._drawn) - 1
        if gaps < 1 or sum(skipped for _, skipped in list(self._drawn)[1:]) < _MANY * gaps:
            return None
        return (self._drawn[-1][0] - self._drawn[0][0]) / gaps

"""How well the terminal keeps up: updates that it could not be shown, for it had not taken the last one yet."""

from __future__ import annotations

from collections import deque

_DRAWN = 4  # the last so many say how it is now
_MANY = 0.5  # skipped for each that is drawn: from here on the line is called slow


class Link:
    """Counts what is drawn and what is skipped. That nothing arrives, or nobody looks, is no fault of the line."""

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

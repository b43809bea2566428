"""What plays a recording: how fast, from where, and whether it stands still or has come to its end."""

from __future__ import annotations

import math
import time
from bisect import bisect_left, bisect_right

from gputop.source import RecordedEvent, Seekable

_LONG_S = 0.4
SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)


class Player:
    """The keys and the bar of a recording. Positions are seconds after its first frame."""

    def __init__(self, source: Seekable) -> None:
        self._source = source
        self.speed = source.speed or 1.0  # at which it plays when it is not held
        self._sought_s = 0.0

    @property
    def held(self) -> bool:
        """Whether it stands still."""
        return self._source.speed == 0

    @property
    def ended(self) -> bool:
        """Whether nothing comes after what is shown."""
        source = self._source
        return source.complete and not source.going and source.position_s >= source.length_s

    @property
    def seeking(self) -> bool:
        """Whether it takes long to get to the moment that was asked for."""
        return self._source.going and time.monotonic() - self._sought_s > _LONG_S

    @property
    def position_s(self) -> float:
        """Where it is, or where it is going."""
        return min(self._source.position_s, self._source.length_s)

    @property
    def length_s(self) -> float:
        """Position of the last frame as far as is known."""
        return self._source.length_s

    @property
    def span(self) -> tuple[float, float]:
        """Wall-clock time of the first and of the last frame, as far as is known."""
        return self._source.span

    @property
    def marks(self) -> tuple[RecordedEvent, ...]:
        """What happened, the oldest first."""
        return self._source.marks

    def hold(self) -> None:
        """Stand still, or go on."""
        self._source.speed = self.speed if self.held else 0.0

    def hurry(self, steps: int) -> None:
        """Some steps faster, or slower; what is held stays held."""
        place = bisect_right(SPEEDS, self.speed) if steps > 0 else bisect_left(SPEEDS, self.speed)
        self.speed = SPEEDS[min(max(0, place + steps - (steps > 0)), len(SPEEDS) - 1)]
        if not self.held:
            self._source.speed = self.speed

    def step(self, seconds: float, interval_s: float) -> None:
        """So much on, or back; at least to the next frame."""
        self.seek(self.position_s + math.copysign(max(abs(seconds), interval_s), seconds))

    def seek(self, position_s: float) -> None:
        """Go there."""
        self._sought_s = time.monotonic()
        self._source.seek(position_s)

    def end(self) -> None:
        """Go to the last frame."""
        self.seek(math.inf)


def stands(player: Player) -> str:
    """Why nothing moves, in a word or two; empty while it plays."""
    return "the end" if player.ended else "paused" if player.held else ""

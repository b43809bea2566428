"""A key that is held down, or typed faster than it can be shown: what waits of it counts as one move by so many."""

from __future__ import annotations

import time
from collections.abc import Callable

from textual.events import Key
from textual.message import Message

STALE_S = 0.1  # a key that has waited so long is shown together with the next of its kind
# keys that move; what acts is done once for each press, in order
MOVING = frozenset({"up", "down", "pageup", "pagedown", "home", "end", "j", "k", "tab", "shift+tab"})


class HeldKey(Key):
    """A key as the terminal sends it; `times` it was pressed without anything in between."""

    __slots__ = ["_clock", "at_s", "times"]

    def __init__(self, key: str, character: str | None, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(key, character)
        self.times = 1
        self.at_s = clock()
        self._clock = clock

    def can_replace(self, message: Message) -> bool:
        """Whether the message that waits behind this one stands for both: it then counts this one too."""
        if not isinstance(message, HeldKey) or message.key != self.key or self.key not in MOVING:
            return False
        if self._clock() - self.at_s < STALE_S:
            return False
        message.times += self.times
        message.at_s = self.at_s
        return True

"""What becomes of processes after a signal: when each has ended, or has been frozen or thawed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Literal

from gputop import words
from gputop.actions.target import Target
from gputop.safe import pidfd

Goal = Literal["end", "freeze", "thaw"]

_EVERY_S = 0.1
_REACHED: dict[Goal, tuple[str, str]] = {
    "end": ("ended", "ended"),
    "freeze": ("is frozen", "are frozen"),
    "thaw": ("runs again", "run again"),
}
_NOT_YET: dict[Goal, tuple[str, str]] = {
    "end": ("is still there", "are still there"),
    "freeze": ("is not frozen", "are not frozen"),
    "thaw": ("is still frozen", "are still frozen"),
}


class Watch:
    """Looks at these processes from now on. `left` are those not yet where they should be."""

    def __init__(self, targets: Sequence[Target], goal: Goal) -> None:
        self.left = list(targets)
        self._all, self._goal = list(targets), goal
        self._began_s = time.monotonic()
        self._last_s = 0.0  # when the last of them got there

    def passed_s(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began_s

    def look(self) -> None:
        """Wait a moment, or until one of them ends, and see who is where it should be."""
        pidfd.ended([target.fd for target in self.left if target.fd is not None], _EVERY_S)
        still = [target for target in self.left if not self._there(target)]
        if len(still) < len(self.left):
            self._last_s = self.passed_s()
        self.left = still

    def progress(self, sent: str) -> str:
        """`TERM sent · 3 of 41 left · 2 s`."""
        number = f"{len(self.left)} of {len(self._all)} left" if len(self._all) > 1 else f"{self.left[0].pid}"
        return f"{sent} · {number} · {self.passed_s():.0f} s"

    def text(self) -> str:
        """`41207 ended after 3.2 s`, `41207 is still there after 10 s`, `3 of 41 processes are still there ...`."""
        words_for = _NOT_YET if self.left else _REACHED
        some = self.left or self._all
        who, many = self._who(some), len(some) > 1
        seconds = f" after {self.passed_s():.0f} s" if self.left else f" after {self._last_s:.1f} s"
        return f"{who} {words_for[self._goal][many]}{'' if self._goal != 'end' and not self.left else seconds}"

    def told(self, sent: str) -> str:
        """The same where they were expected to go on: `USR1 sent to 41207`."""
        gone = [target for target in self._all if target not in self.left]
        if gone:
            return f"{sent}: {self._who(gone)} ended within {max(self._last_s, 0.1):.1f} s"
        return f"{sent} to {self._who(self._all)}"

    def _who(self, some: Sequence[Target]) -> str:
        if len(some) == 1 == len(self._all):
            return str(some[0].pid)
        everybody = words.amount(len(self._all), "process")
        return everybody if len(some) == len(self._all) else f"{len(some)} of {everybody}"

    def _there(self, target: Target) -> bool:
        if target.ended():
            return True
        if self._goal == "end":
            return False
        return (target.state() == "T") is (self._goal == "freeze")

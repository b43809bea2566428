"""Recorded time: seconds after the first frame, growing whatever the clocks of the machine did meanwhile."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

MOST_GAP_S = 400 * 86400.0  # a longer one is no gap but nonsense
_LAST_WALL_S = 253_402_300_799.0 - 86400  # within the year 9999, whatever the time zone


@dataclass(slots=True)
class Timeline:
    """Follows the clocks from frame to frame. After `step` it stands at that frame.

    The monotonic clock counts, as it does not jump. After a header, which a reboot may have preceded, the wall clock
    does; where that goes back too, a frame is one interval after the one before it.
    """

    at_s: float = -1.0  # seconds after the first frame; negative before it
    wall_s: float = 0.0
    mono_s: float = 0.0  # with what `shift` adds, it only grows
    _shift_s: float = 0.0
    _anew: bool = True
    _apart_s: deque[float] = field(default_factory=lambda: deque(maxlen=5))

    def header(self) -> None:
        """What follows was recorded later, after a reboot perhaps."""
        self._anew = True

    def step(self, wall_s: float, mono_s: float) -> None:
        """The next frame, by its own clocks."""
        known = 0 < wall_s < _LAST_WALL_S
        if self.at_s < 0:
            self.at_s, self.wall_s, self.mono_s = 0.0, wall_s if known else 0.0, mono_s
        else:
            apart_s = mono_s + self._shift_s - self.mono_s
            if self._anew or not 0 < apart_s < MOST_GAP_S:
                by_wall_s = wall_s - self.wall_s if known and self._anew else 0.0
                apart_s = by_wall_s if 0 < by_wall_s < MOST_GAP_S else self.interval_s
                self._shift_s = self.mono_s + apart_s - mono_s
            else:
                self._apart_s.append(apart_s)
            self.at_s += apart_s
            self.mono_s = mono_s + self._shift_s
            self.wall_s = wall_s if known else self.wall_s + apart_s
        self._anew = False

    @property
    def interval_s(self) -> float:
        """The usual time between two frames."""
        return sorted(self._apart_s)[len(self._apart_s) // 2] if self._apart_s else 1.0

    def copy(self) -> Timeline:
        """As it stands now."""
        return replace(self, _apart_s=deque(self._apart_s, maxlen=5))

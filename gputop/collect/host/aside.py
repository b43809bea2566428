"""A look at files that may not answer, whose result another reader tells: that one goes on without it."""

from __future__ import annotations

from gputop.model import Host

LATE_S = 5.0


class Aside:
    """A reader beside another one. What it keeps for that one is swapped whole, as they are read by two threads."""

    fills: tuple[str, ...] = ()
    every_s = 0.0

    def __init__(self) -> None:
        self._since_s: float | None = None  # since when a look has been under way

    def late(self, now_s: float) -> bool:
        """Whether a look has been under way for so long that the last one tells nothing any more."""
        since_s = self._since_s
        return since_s is not None and now_s - since_s >= LATE_S

    def read(self, now_s: float) -> Host:
        """Look; nothing of it stands in this Host."""
        self._since_s = now_s
        try:
            self.look(now_s)
        finally:
            self._since_s = None
        return Host()

    def look(self, now_s: float) -> None:
        """Read what there is."""
        raise NotImplementedError

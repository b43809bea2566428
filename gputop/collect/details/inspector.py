"""The processes that somebody has open: asking for one opens it, not asking any more closes it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from gputop.collect.details.inspection import Inspection
from gputop.model import Detail, Identity, Missing, Process
from gputop.safe import attach
from gputop.source import EVERYTHING, Wish

CLOSED_AFTER_S = 30.0
MOST_OPEN = 8
UNLOCK_FOREIGN = "run gputop on the host, or start the container with --pid=host"


class Inspector:
    """Gives the newest details of what it is asked for, and never waits."""

    def __init__(
        self,
        processes: Callable[[], Iterable[Process]],
        root: str = "/proc",
        clock: Callable[[], float] = time.monotonic,
        uid: int | None = None,
    ) -> None:
        self._processes, self._root, self._clock, self._uid = processes, root, clock, uid
        self._open: dict[Identity, Inspection] = {}  # who was asked for last stands last
        self._asked_s: dict[Identity, float] = {}

    def inspect(self, identity: Identity, wish: Wish = EVERYTHING) -> Detail | Missing:
        """The newest details of a process, and have them read again."""
        if (unseen := self._unseen(identity)) is not None:
            return unseen
        inspection = self._open.pop(identity, None) or Inspection(
            identity, self._processes, self._root, self._clock, self._uid
        )
        self._open[identity], self._asked_s[identity] = inspection, self._clock()
        self._close_others()
        if inspection.ended:
            return Missing(metric="details", reason="lost")
        inspection.ask(wish)
        return inspection.detail(wish)

    def settled(self, until_s: float) -> bool:
        """Wait until all that was asked is read, no longer than until this time of the monotonic clock."""
        return all(inspection.settled(until_s) for inspection in self._open.values())

    def _unseen(self, identity: Identity) -> Missing | None:
        """Why there are no details of a process that only the driver knows."""
        if identity.started_ticks:
            return None
        known = next((process for process in self._processes() if process.identity == identity), None)
        if known is None or known.unseen is None:
            return None
        if known.unseen == "exited":
            return Missing(metric="details", reason="lost")
        unlock = UNLOCK_FOREIGN if known.unseen == "foreign" else attach.unlock(uid=self._uid)
        return Missing(metric="details", reason="denied", unlock=unlock)

    def _close_others(self) -> None:
        """Close who was not asked for lately. One whose thread hangs stays: opened again it would hang again."""
        now_s = self._clock()
        for number, (identity, inspection) in enumerate(reversed(list(self._open.items()))):
            old = number >= MOST_OPEN or now_s - self._asked_s[identity] >= CLOSED_AFTER_S
            if old and not inspection.stuck:
                self._close(identity, inspection)

    def _close(self, identity: Identity, inspection: Inspection) -> None:
        inspection.stop()
        self._open.pop(identity, None)
        self._asked_s.pop(identity, None)

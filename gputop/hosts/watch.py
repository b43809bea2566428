"""The hosts that are watched: a monitor each, and the newest line of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Thread

from gputop import thresholds
from gputop.hosts.overview import HostRow, row
from gputop.hosts.source import RemoteHost
from gputop.monitor import Monitor, Update

STALE_S = 5.0  # and three intervals: from then on values are marked as old
_FRAMES_PER_S = 12.0  # frames of all hosts that are made a second: each takes about 15 ms with its verdict
_MOST_APART_S = 5.0  # the rules know steps of this length
_STAGGER_S = 0.02  # between two connections at the start: many at once are a burst for us and for a jump host


class HostWatch:
    """One host: its source, its monitor, and its newest update."""

    def __init__(self, source: RemoteHost, limits: thresholds.Thresholds | None = None) -> None:
        self.name = source.label
        self.source = source
        self.monitor = Monitor(source, limits, unjudged=1)
        self.newest: Update | None = None
        self.listener: Callable[[Update], None] | None = None  # gets each update, in the monitor's thread
        self.error: Exception | None = None
        self._row = HostRow(name=self.name)
        self._updates = 0

    def start(self) -> None:
        """Begin, in a separate thread."""
        self.monitor.start(self._take, self._end)

    def _take(self, update: Update) -> None:
        self._row, self.newest = row(self.name, update), update
        self._updates += 1
        if listener := self.listener:
            listener(update)

    def _end(self, error: Exception | None) -> None:
        self.error = error

    def row(self, now_s: float | None = None) -> HostRow:
        """Its line now; `now_s` is the monotonic time."""
        now_s = time.monotonic() if now_s is None else now_s
        link = self.source.link
        age_s = None if link.frame_s is None else now_s - link.frame_s
        why = f"internal error: {type(self.error).__name__}" if self.error else link.why
        state: str = link.state
        if state == "live" and age_s is not None and age_s > max(STALE_S, 3 * self.source.interval_s):
            state, why = "stale", "no new values"
        if state == "connecting" and link.frame_s is not None:
            state = "stale"  # its old values are still shown
        retry_s = None if link.retry_s is None else max(0.0, link.retry_s - now_s)
        return replace(self._row, state=state, why=why, age_s=age_s, retry_in_s=retry_s)  # type: ignore[arg-type]

    @property
    def settled(self) -> bool:
        """Whether it has rates and a first verdict, or has failed once: nothing more is to be had soon."""
        return self._updates > 1 or bool(self.source.link.why) or self.error is not None

    def close(self) -> None:
        """End it; returns at once."""
        self.monitor.stop()
        self.source.close()


class Hosts:
    """All hosts that are watched."""

    def __init__(self, watches: Sequence[HostWatch]) -> None:
        self.watches = tuple(watches)
        self.by_name = {watch.name: watch for watch in self.watches}
        self._closed = False
        self.open(None)

    def open(self, watch: HostWatch | None) -> None:
        """All frames of one host are wanted; of the others, or of all if None, as many as there is time for."""
        apart_s = min(_MOST_APART_S, len(self.watches) / _FRAMES_PER_S)
        for each in self.watches:
            each.source.apart_s = 0.0 if each is watch else apart_s

    def start(self) -> None:
        """Begin with all of them, one after another, in a thread."""

        def begin() -> None:
            for watch in self.watches:
                if self._closed:
                    return
                watch.start()
                time.sleep(_STAGGER_S)

        Thread(target=begin, name="hosts", daemon=True).start()

    def reconnect(self) -> None:
        """Let hosts that wait for their next attempt begin it now."""
        for watch in self.watches:
            watch.source.hurry.set()

    def rows(self) -> list[HostRow]:
        """The line of each, in the order given."""
        now_s = time.monotonic()
        return [watch.row(now_s) for watch in self.watches]

    def close(self) -> None:
        """End all connections; returns at once."""
        self._closed = True
        for watch in self.watches:
            watch.close()

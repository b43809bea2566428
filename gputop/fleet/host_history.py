"""The last hour of one host, read when it is selected: the newest wish counts, and an answer is kept for a minute."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Condition, Thread

from gputop.fleet import queries
from gputop.fleet.matchers import of_labels
from gputop.fleet.poller import Fleet, percents
from gputop.fleet.promql import Unanswered
from gputop.fleet.view import FleetHost, HostKey
from gputop.frozen_dataclass import frozen_dataclass

POINTS, STEP_S = 60, 60.0
_FRESH_S = 60.0  # an answer is used for so long
_AGAIN_S = 30.0  # after a failure
_REST_S = 0.25  # a host must be selected for so long: a cursor that passes asks nothing
_MOST = 64  # hosts that are kept


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class HostHour:
    """Sixty values a minute apart, in percent, the newest last; or why there are none."""

    busy: tuple[float | None, ...] = ()
    lost: tuple[float | None, ...] = ()
    why: str = ""
    mono_s: float  # when it was read


class HostHistory:
    """Reads hours in a thread that starts with the first wish."""

    def __init__(self, fleet: Fleet, ring: Callable[[], object] = lambda: None, *, rest_s: float = _REST_S) -> None:
        """`ring` is called from the thread whenever there is a new one."""
        self._fleet, self.ring, self._rest_s = fleet, ring, rest_s
        self._kept: dict[HostKey, HostHour] = {}
        self._changed = Condition()
        self._wish: FleetHost | None = None
        self._reading: HostKey | None = None
        self._thread: Thread | None = None
        self._closed = False

    def hour(self, host: FleetHost) -> HostHour | None:
        """What is known of a host; asks for it where that is nothing or old. Never waits."""
        kept, now_s = self._kept.get(host.key), time.monotonic()
        due = kept is None or now_s - kept.mono_s >= (_AGAIN_S if kept.why else _FRESH_S)
        with self._changed:
            wish = host if due and host.key != self._reading and not self._fleet.problem else None
            if wish is not None and self._thread is None and not self._closed:
                self._thread = Thread(target=self._run, name="fleet-history", daemon=True)
                self._thread.start()
            if (wish and wish.key) != (self._wish and self._wish.key):
                self._wish = wish
                self._changed.notify_all()
        return kept

    def close(self) -> None:
        """End the thread; returns at once."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _run(self) -> None:
        while host := self._next():
            found = self._read(host)
            self._kept.pop(host.key, None)
            self._kept[host.key] = found
            while len(self._kept) > _MOST:
                del self._kept[next(iter(self._kept))]
            self._reading = None
            self.ring()

    def _next(self) -> FleetHost | None:
        """The host that is wanted, once no other one has been for a moment; None at the end."""
        with self._changed:
            while not self._closed:
                wish = self._wish
                if wish is None:
                    self._changed.wait()
                elif not self._changed.wait_for(lambda wish=wish: self._closed or self._wish is not wish, self._rest_s):  # type: ignore[misc]
                    self._wish, self._reading = None, wish.key
                    return wish
        return None

    def _read(self, host: FleetHost) -> HostHour:
        end_s = self._fleet.wall_s()
        start_s = end_s - (POINTS - 1) * STEP_S
        asked = self._fleet.queries.of(of_labels(dict(host.key)))
        try:
            series = self._fleet.client.over(asked.history(), start_s, end_s, STEP_S)
        except Unanswered as error:
            return HostHour(why=str(error), mono_s=time.monotonic())
        found = {
            one.labels.get(queries.TAG, ""): percents(one.evenly(start_s, STEP_S, POINTS)) for one in series
        }  # fmt: skip
        return HostHour(
            busy=found.get(queries.BUSY, ()), lost=found.get(queries.LOST, ()), mono_s=time.monotonic()
        )  # fmt: skip

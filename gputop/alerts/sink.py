"""The sink of a monitor that follows all alerts and hands their messages to the deliveries."""

from __future__ import annotations

import math
import os
import time
import zlib
from collections import deque
from collections.abc import Iterator, Mapping

from gputop.alerts.delivery import Delivery
from gputop.alerts.message import AlertMessage
from gputop.alerts.plan import AlertPlan
from gputop.alerts.receiver import Receiver
from gputop.alerts.terminal import TerminalReceiver
from gputop.alerts.tracker import AlertTracker
from gputop.monitor import Update
from gputop.safe.files import Refused, runtime_folder, runtime_place
from gputop.safe.text import clean
from gputop.source import Source

_MOST_LINES, _MOST_SENT = 50, 2000  # about deliveries, and messages, until somebody reads them
_ASK_S = 5.0  # how often to ask for the turn


class Turn:
    """Which of several gputop of a user sends the alerts of one settings file: the one that holds a lock."""

    def __init__(self, settings_path: str | None, readonly: bool = False) -> None:
        """Without a path there is nothing to share. `readonly`: no lock is created, but an existing one counts."""
        self._name = f"alerts-{zlib.crc32(os.fsencode(settings_path)):08x}.lock" if settings_path else ""
        self._readonly = readonly
        self._ours = not self._name
        self._lock: int | None = None  # held until this process ends
        self._asked_s = -math.inf

    def ours(self, now_s: float) -> bool:
        """Whether it is ours; asked again every few seconds while it is not."""
        if not self._ours and not 0 <= now_s - self._asked_s < _ASK_S:
            self._asked_s = now_s
            self._ours = self._take()
        return self._ours

    def _take(self) -> bool:
        """Whether the lock could be taken, or there can be none: alerts twice are better than none."""
        try:
            if self._readonly and not os.path.isdir(os.path.join(*runtime_place())):  # noqa: PTH112, PTH118
                return True
            folder = runtime_folder()
        except (Refused, OSError):
            return True
        try:
            self._lock = folder.lock(self._name, create=not self._readonly)
        except (Refused, OSError):
            return True
        finally:
            folder.close()
        return self._lock is not None

    def release(self) -> None:
        """Let another gputop have it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


class AlertSink:
    """Follows the alerts of a plan. `take` never blocks and never raises."""

    def __init__(self, plan: AlertPlan, source: Source, *, withheld: str = "", turn: Turn | None = None) -> None:
        """`source`: of the frames. `withheld`: why no program may be started."""
        self.waits = False  # another gputop sends the alerts
        self.sent: deque[AlertMessage] = deque(maxlen=_MOST_SENT)  # messages, for a reader of this sink
        self._turn, self._source = turn or Turn(None), source
        self._trackers = [AlertTracker(rule, source.elsewhere or "") for rule in plan.rules]
        self._lines: deque[str] = deque(maxlen=_MOST_LINES)
        wanted = {name for rule in plan.rules for name in rule.send}
        self.refused = {
            name: withheld for name, one in plan.receivers.items() if name in wanted and one.acts and withheld
        }
        self._deliveries: Mapping[str, Delivery] = {
            name: Delivery(one, self._lines.append)
            for name, one in plan.receivers.items()
            if name in wanted and name not in self.refused
        }
        if self.refused:
            self._lines.append(f"no alerts to {', '.join(self.refused)}: {withheld}")

    @property
    def receivers(self) -> tuple[Receiver, ...]:
        """Those that get messages."""
        return tuple(one.receiver for one in self._deliveries.values())

    @property
    def terminals(self) -> tuple[TerminalReceiver, ...]:
        """Those that need a terminal of this gputop."""
        return tuple(one for one in self.receivers if isinstance(one, TerminalReceiver))

    def take(self, update: Update) -> None:
        """Take in an update, in the thread of the monitor."""
        try:
            self.waits = not self._turn.ours(update.frame.mono_s)
            for message in self._messages(update):
                self.sent.append(message)
        except Exception as error:  # alerts must never end the monitor
            self._trackers = []
            self._lines.append(clean(f"alerts ended: {type(error).__name__}: {error}; please report it", 200))

    def _messages(self, update: Update) -> Iterator[AlertMessage]:
        for tracker in self._trackers:
            for message in tracker.advance(update, self._source.interval_s):
                if self.waits:
                    continue
                for name in tracker.rule.send:
                    if name in self._deliveries:
                        self._deliveries[name].put(message)
                yield message

    def lines(self) -> list[str]:
        """What happened to deliveries since the last call, for the user."""
        found = []
        while self._lines:
            found.append(self._lines.popleft())
        return found

    def sequences(self) -> list[str]:
        """What is to be written to this terminal for messages since the last call."""
        return [sequence for one in self.terminals for sequence in one.sequences()]

    def close(self, patience_s: float) -> int:
        """Send what waits; the number of messages that were not delivered."""
        until_s, deliveries = time.monotonic() + patience_s, self._deliveries.values()
        for delivery in deliveries:
            delivery.close(0)
        pending = [one for one in deliveries if not one.close(max(0.0, until_s - time.monotonic()))]
        self._turn.release()
        return sum(one.missed for one in deliveries) + len(pending)

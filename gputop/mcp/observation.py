"""What the tools are asked about: the machine, a recording or a demo, followed in the background."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Condition
from typing import TYPE_CHECKING

from gputop.collectives import watch
from gputop.export.diagnosis import Diagnosis
from gputop.export.format import redacted
from gputop.frozen_dataclass import frozen_dataclass
from gputop.mcp.tool import ToolFailure
from gputop.model import Frame
from gputop.monitor import Monitor, Update
from gputop.safe.text import clean
from gputop.source import Recorded, Source

if TYPE_CHECKING:
    from gputop import thresholds

FIRST_S = 10.0  # how long an answer waits for the first sample: a driver may take seconds to open
READ_S = 40.0  # how long an answer waits for the end of a recording; clients give a call a minute
REST_S = 900.0  # without a question for this long the machine is no longer sampled, until the next one


@frozen_dataclass(frozen=True, slots=True)
class Sample:
    """The newest update, and how long the rules have watched."""

    update: Update
    seconds: float
    label: str
    complete: bool  # false while a recording is still being read
    damage: str = ""

    @property
    def frame(self) -> Frame:
        """The frame, with apparent secrets masked in its command lines."""
        return redacted(self.update.frame)

    @property
    def diagnosis(self) -> Diagnosis:
        """What `gputop diagnose` would report now."""
        update = Update(
            frame=self.frame,
            findings=self.update.findings,
            abstained=self.update.abstained,
            classes=self.update.classes,
            jobs=self.update.jobs,
            host=self.update.host,
        )
        return Diagnosis(update=update, seconds=self.seconds, label=self.label)


class Observation:
    """Follows a source in a daemon thread, and rests while nobody asks. Thread-safe."""

    def __init__(
        self,
        open_source: Callable[[], Source],
        *,
        live: bool,
        limits: thresholds.Thresholds | None = None,
        rest_s: float = REST_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`open_source` is called at the start and after each rest; a source that is not `live` is read to its end."""
        self._open_source, self._live, self._limits = open_source, live, limits
        self._rest_s, self._clock = rest_s, clock
        self._changed = Condition()
        self._monitor: Monitor | None = None  # None: at rest, or at its end
        self._source: Source | None = None
        self._last: Update | None = None
        self._first_s = 0.0
        self._problem: str | None = None
        self._asked_s = clock()

    def start(self) -> None:
        """Begin to follow the source, unless that is so already."""
        with self._changed:
            self._asked_s = self._clock()
            if self._monitor is not None or (self._last is not None and self._source is not None):
                return
            self._problem = None
            self._source = source = self._open_source()
            self._monitor = monitor = Monitor(source, self._limits)
            watch.follow(monitor)
        monitor.start(lambda update: self._take(monitor, update), lambda error: self._end(monitor, error))

    @property
    def resting(self) -> bool:
        """Whether nothing is sampled because nobody asked for some time."""
        with self._changed:
            return self._source is None

    def sample(self, wait_s: float = 0.0) -> Sample:
        """The newest sample, after at most `wait_s` until every visible job is judged; ToolFailure without one."""
        self.start()
        with self._changed:
            if self._live:
                self._changed.wait_for(lambda: self._last is not None or self._monitor is None, FIRST_S)
                self._changed.wait_for(lambda: not self._judging() or self._monitor is None, wait_s)
            else:
                self._changed.wait_for(lambda: self._monitor is None, READ_S)
            return self._newest()

    def _newest(self) -> Sample:
        last, source = self._last, self._source
        if last is None or source is None:
            why = self._problem or f"nothing was sampled within {FIRST_S if self._live else READ_S:.0f} s"
            raise ToolFailure(f"{why}: run `gputop doctor` for the reason, then ask again")
        seconds = last.frame.mono_s - self._first_s + source.interval_s
        damage = source.damage if isinstance(source, Recorded) else ""
        return Sample(last, seconds, source.label, self._live or self._monitor is None, damage)

    def _judging(self) -> bool:
        return self._last is None or any(one.due and one.state == "judging" for one in self._last.jobs)

    def _take(self, monitor: Monitor, update: Update) -> None:
        """Keep an update; end at the first one after nobody asked for some time."""
        with self._changed:
            if monitor is not self._monitor:
                return
            self._first_s = update.frame.mono_s if monitor.judged_s is None else monitor.judged_s
            self._last = update
            if self._live and self._clock() - self._asked_s > self._rest_s:
                self._monitor = self._source = self._last = None  # an old sample must not pass for a new one
                monitor.stop()
            self._changed.notify_all()

    def _end(self, monitor: Monitor, error: Exception | None) -> None:
        with self._changed:
            if monitor is not self._monitor:
                return
            self._monitor = None
            if error is not None:
                self._problem = f"collection failed: {type(error).__name__}: {clean(str(error), 200)}"
                self._last = self._source = None  # the next question opens it again
            self._changed.notify_all()

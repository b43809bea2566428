"""The central loop: frames of a source go into the history, through the rules, and out as updates."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from threading import Event, Thread
from typing import TYPE_CHECKING

from gputop.diagnose import Abstained, Class, Finding
from gputop.diagnose.testimony import Testimony
from gputop.frozen_dataclass import frozen_dataclass
from gputop.history import History
from gputop.last_job import JobEndings, LastJob
from gputop.model import Frame, Identity
from gputop.model.plausible import plausible
from gputop.source import Remembering, Seekable, Source, Staged

if TYPE_CHECKING:
    from gputop import thresholds
    from gputop.diagnose.contention import Contention
    from gputop.diagnose.engine import Engine
    from gputop.diagnose.state import JobState
    from gputop.diagnose.testimony import Said
    from gputop.model import Witness


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """A frame with its diagnosis: the input of every sink."""

    frame: Frame
    findings: tuple[Finding, ...] = ()
    abstained: tuple[Abstained, ...] = ()
    classes: tuple[Class, ...] = ()
    jobs: tuple[JobState, ...] = ()
    host: JobState | None = None
    contention: Contention | None = None
    last_job: LastJob | None = None


_PAST_S = 5.0  # earlier history of a source is judged at longer steps, to be ready before the first screen


class Monitor:
    """Reads a source to its end, in the caller's thread or its own."""

    def __init__(
        self,
        source: Source,
        limits: thresholds.Thresholds | None = None,
        *,
        unjudged: float = 0,
        through: Callable[[Frame], Frame] | None = None,
        raw: bool = False,
    ) -> None:
        """`limits`: numbers of the rules, by default as shipped.

        `through` filters every frame first: what it removes is hidden from everything, including the rules.

        `unjudged`: number of frames published before the first evaluation: 1 to show the first one soon, infinity if
        findings are not used: then nothing is remembered, either.

        Impossible values are unknown in updates. With `raw`, for recording, `updates` yields frames as they were read
        and without findings, as the reader decides; sinks get the others.
        """
        self.source = source
        self.history = History()
        self.sinks: tuple[Callable[[Update], None], ...] = ()  # receive every update; replaced atomically
        self._limits, self._unjudged, self._through, self._raw = limits, unjudged, through, raw
        self._departures = JobEndings()
        self._told = Testimony()
        self._engine: Engine | None = None
        self._newest_s = -math.inf
        self.judged_s: float | None = None  # mono time of the first frame known to the rules, including the past
        self._stop = Event()

    @cached_property
    def limits(self) -> thresholds.Thresholds:
        """The numbers of the rules, read on first access."""
        from gputop import thresholds  # imported late, as the rules are

        return self._limits or thresholds.shipped()

    def leaving(self, rule: str) -> tuple[float, Mapping[str, tuple[float, float]]]:
        """Seconds a finding must not hold before it clears, and by name its limits for appearing and for clearing."""
        return self._engine.clearing(rule) if self._engine else (0.0, {})

    def updates(self) -> Iterator[Update]:
        """Updates until the source ends or `stop` is called; the source's own past first fills the history."""
        if self._unjudged < math.inf:
            from gputop.diagnose.engine import Engine  # imported late: not needed for a table of numbers

            self._engine = Engine(lambda: self.limits)
        while True:
            if self._engine and isinstance(self.source, Remembering):
                for frame in self.source.long_past():
                    self.history.add(self._through(frame) if self._through else frame, self.source.interval_s)
            for seen in self.source.past():
                frame = self._remember(self._through(seen) if self._through else seen)
                if self._engine:
                    self._engine.judge(frame, self.history, _PAST_S)
            for read in self.source.frames(self._stop):
                seen = self._through(read) if self._through else read
                update = self._update(self._remember(seen))
                for take in self.sinks:
                    take(update)
                yield Update(frame=seen) if self._raw else update
            if self._stop.is_set() or not self._continues():
                return

    def _update(self, frame: Frame) -> Update:
        if not self._engine:
            return Update(frame=frame, last_job=self._departures.last)
        self._unjudged -= 1
        said = self._engine.verdict if self._unjudged >= 0 else self._engine.judge(frame, self.history)
        return Update(
            frame=frame,
            findings=said.findings,
            abstained=said.abstained,
            classes=said.classes,
            jobs=said.jobs,
            host=said.host,
            contention=said.contention,
            last_job=self._departures.last,
        )

    def _continues(self) -> bool:
        """Whether the source continues after its end: at another position, or with another server."""
        if isinstance(self.source, Staged) and self.source.staging:
            self.history.rewind(0.0)
            self._newest_s = math.inf  # the next frames are of another time
            return True
        return isinstance(self.source, Seekable) and self.source.seeking

    def tell(self, process: Identity, said: Said, *, recorded: bool = False, witness: Witness = "notes") -> None:
        """Pass what was seen inside a process to the rules, from the next frame on, for a quarter of an hour.

        Thread-safe. A profile, a trace (the view with its verdicts), or facts as notes of a program. Earlier facts of
        the same kind are replaced. `recorded`: not measured now; `witness`: the source of facts.
        """
        self._told.record(process, said, recorded=recorded, witness=witness)

    def _remember(self, seen: Frame) -> Frame:
        if self._unjudged == math.inf:
            return seen if self._raw and not self.sinks else plausible(seen)
        frame = plausible(self._told.attach(seen))  # also for a recording: rules, history and screen must agree
        if frame.mono_s < self._newest_s:  # only a recording goes back in time
            self.history.rewind(frame.mono_s)
            self._departures = JobEndings()
            self.judged_s = None
            if self._engine:
                self._engine.forget()
        if self.judged_s is None:
            self.judged_s = frame.mono_s
        self._newest_s = frame.mono_s
        self.history.add(frame, self.source.interval_s, self.source.interest.pids)
        self._departures.add(frame)
        if self._engine:
            self._engine.remember(frame, self.history)
        return frame

    def start(self, publish: Callable[[Update], None], ended: Callable[[Exception | None], None]) -> None:
        """Run in a daemon thread: it may wait for a driver that does not respond, so nothing waits for it."""

        def run() -> None:
            try:
                for update in self.updates():
                    publish(update)
            except Exception as error:  # the screen stays and shows it
                ended(error)
            else:
                ended(None)

        Thread(target=run, name="monitor", daemon=True).start()

    def stop(self) -> None:
        """Ask the source to end; returns at once."""
        self._stop.set()

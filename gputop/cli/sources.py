"""Open the source of a --source option, and follow it with a sink."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Protocol

from gputop.cli.options import OK, USAGE, Failure
from gputop.safe.terminal import on_ending
from gputop.safe.text import clean

if TYPE_CHECKING:
    from gputop.alerts.sink import AlertSink
    from gputop.config import Settings
    from gputop.model import Frame
    from gputop.monitor import Monitor, Update
    from gputop.source import Source


def open_source(spec: str, settings: Settings, *, pace: bool = True, patience_s: float | None = None) -> Source:
    """The source of a --source option. Without pace a source that is not live runs as fast as possible.

    `patience_s`: how long the first frame waits for a driver that is slow to open.
    """
    if spec == "live":
        from gputop.collect.live import DRIVER_PATIENCE_S, Live

        return Live(
            interval_s=settings.interval_s,
            nvml=settings.nvml,
            gpm=settings.gpm,
            driver_patience_s=DRIVER_PATIENCE_S if patience_s is None else patience_s,
        )
    kind, _, name = spec.partition(":")
    if is_recorded(spec):
        return open_recording(spec, pace=pace)
    if kind == "demo" and name:
        from gputop.demo import open_demo

        try:
            return open_demo(name, pace=pace, interval_s=settings.interval_s)
        except ValueError as error:
            raise Failure(str(error), USAGE) from None
    raise Failure(
        f"unknown source {clean(spec)!r}: use live, demo:NAME, an existing recording, or - for standard input",
        USAGE,
    )


def is_recorded(spec: str) -> bool:
    """Whether a --source option names a recording: a file, or - for standard input."""
    return spec == "-" or "/" in spec or os.path.exists(spec)  # noqa: PTH110 Path raises for an inaccessible folder


def open_recording(spec: str, *, pace: bool) -> Source:
    """A recorded file, or - for a stream on standard input; with pace the keyboard is read from the terminal."""
    from gputop.safe.files import Refused

    try:
        if spec != "-":
            from gputop.record.recording import Recording

            return Recording(spec, pace=pace)
        from gputop.record.stream import Stream

        if os.isatty(0):
            raise Failure(
                "standard input is a terminal; pipe a recording into it: gputop record - | gputop replay -", USAGE
            )
        stream = os.dup(0)
        if pace:
            _keyboard()
        return Stream(stream, pace=pace)
    except Refused as refused:
        raise Failure(str(refused)) from None


def end_error(error: Exception) -> Exception:
    """The exception for the end of a source: a Failure if machine or file caused it, else the error itself."""
    from gputop.record.parse import Newer
    from gputop.safe.files import Refused

    known = isinstance(error, (OSError, Refused, Newer))
    return Failure(f"collection failed: {type(error).__name__}: {clean(str(error))}") if known else error


def report_damage(source: Source) -> None:
    """Report on standard error which parts of a recording were unreadable: results may be incomplete."""
    from gputop.source import Recorded

    if isinstance(source, Recorded) and source.damage:
        sys.stderr.write(f"gputop: {source.damage}\n")


def _keyboard() -> None:
    """Reconnect standard input, so far a pipe, to the terminal if there is one."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return  # the screen reports that there is none
    os.dup2(terminal, 0)
    os.close(terminal)


_NOTICE_S = 0.5  # delay until a full disk is reported
ALERTS_S = 5.0  # for messages that are on their way at the end


class Sink(Protocol):
    """A consumer of updates."""

    @property
    def problem(self) -> str | None:
        """Why nothing can be written now."""

    @property
    def missed(self) -> int:
        """Number of updates missing from the file."""

    def take(self, update: Update) -> None:
        """Write an update, now or soon."""


def follow(
    monitor: Monitor,
    sink: Sink,
    seconds: float | None,
    apart_s: float = 0.0,
    longer: Callable[[float], bool] = lambda _: False,
    alerts: AlertSink | None = None,
) -> int:
    """Feed a sink for some seconds, or until the source ends or a signal arrives; returns the exit code.

    `longer` is asked after that time, with the seconds since then: whether to continue for another frame. `alerts` of
    the monitor ring on the terminal, and trouble with their receivers is reported.
    """
    over: SimpleQueue[int | Exception | None] = SimpleQueue()
    on_ending(lambda number, _: over.put(128 + number))
    first_s: float | None = None
    due_s = -math.inf

    def take(update: Update) -> None:
        nonlocal first_s, due_s
        frame, slack_s = update.frame, 0.1 * monitor.source.interval_s
        if first_s is None:
            first_s = frame.mono_s
            _report_driver(frame)
        if frame.mono_s >= due_s - slack_s:
            due_s = frame.mono_s + apart_s
            sink.take(update)
        # a frame stands for the time until the next one
        over_s = 0.0 if seconds is None else frame.mono_s - first_s - seconds + monitor.source.interval_s
        if seconds is not None and over_s >= -slack_s and not longer(over_s):
            over.put(None)
            monitor.stop()

    monitor.start(take, over.put)
    ended = _wait_for_end(over, lambda: sink.problem, alerts)
    monitor.stop()
    report_damage(monitor.source)
    if isinstance(ended, Exception):
        raise end_error(ended)
    return OK if ended is None else ended


def _report_driver(frame: Frame) -> None:
    for note in frame.notes:
        if note.subject == "driver":
            sys.stderr.write(f"gputop: {note.text}\n")


def close_alerts(alerts: AlertSink | None, patience_s: float = ALERTS_S) -> int:
    """Give waiting messages some time; returns how many were not delivered."""
    missed = alerts.close(patience_s) if alerts else 0
    _report_alerts(alerts)
    return missed


def _report_alerts(alerts: AlertSink | None) -> None:
    if alerts is None:
        return
    for sequence in alerts.sequences():
        if sys.stderr.isatty():
            sys.stderr.write(sequence)
    for line in alerts.lines():
        sys.stderr.write(f"gputop: {line}\n")


def _report_no_terminal(alerts: AlertSink | None) -> None:
    if alerts and alerts.terminals and not sys.stderr.isatty():
        from gputop.alerts.terminal import NO_TERMINAL

        sys.stderr.write(f"gputop: no alerts to {', '.join(one.name for one in alerts.terminals)}: {NO_TERMINAL}\n")


def _wait_for_end(
    over: SimpleQueue[int | Exception | None], problem: Callable[[], str | None], alerts: AlertSink | None
) -> int | Exception | None:
    """Wait for the end; a problem in between is reported once, and when it is over."""
    said: str | None = None
    _report_no_terminal(alerts)
    while True:
        try:
            return over.get(timeout=_NOTICE_S)
        except Empty:
            _report_alerts(alerts)
            now = problem()
            if now != said and (now is None or said is None):
                sys.stderr.write(f"gputop: {now or 'resumed'}\n")
                said = now

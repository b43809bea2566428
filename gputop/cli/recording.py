"""The commands that write what is seen to a file, and the one that shows it again."""

from __future__ import annotations

import argparse
import math
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Protocol

from gputop import units
from gputop.cli.line import OK, USAGE, Command, Failure, duration, file
from gputop.cli.opening import is_recorded, open_recording, open_source
from gputop.cli.screens import show
from gputop.safe.files import Refused
from gputop.safe.text import clean

if TYPE_CHECKING:
    from gputop.config import Settings
    from gputop.monitor import Monitor, Update

LOG_INTERVAL_S = 5.0
_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_NOTICE_S = 0.5  # how soon it is said that the disk is full


class Sink(Protocol):
    """What writes updates down."""

    @property
    def problem(self) -> str | None:
        """Why nothing is written now."""

    @property
    def missed(self) -> int:
        """How many updates are not in the file."""

    def take(self, update: Update) -> None:
        """Write an update down, now or soon."""


def record(args: argparse.Namespace, settings: Settings) -> int:
    """Record to a file or to standard output, until the time is over or somebody ends it."""
    from gputop.record.recorder import Recorder

    streamed = args.file == "-"
    if settings.readonly and not streamed:
        raise Failure("--readonly writes no file: record to - or leave it out", USAGE)
    if (
        not streamed
        and Path(args.file).exists()
        and Path(_spec(args)).exists()
        and Path(args.file).samefile(_spec(args))
    ):
        raise Failure(f"{clean(args.file)} is what would be read: record to another file", USAGE)
    monitor = _opened(args, settings)
    try:
        recorder = Recorder(args.file, wait=is_recorded(_spec(args)))
    except Refused as refused:
        raise Failure(str(refused)) from None
    code = _follow(monitor, recorder, args.seconds)
    if not recorder.close():
        raise Failure("the disk does not answer: the end of the recording is not written")
    if recorder.problem:
        raise Failure(f"{recorder.problem}; {recorder.frames} frames are in {recorder.path}")
    if not streamed:
        what = f"{recorder.frames} frames, {units.size(recorder.size_bytes)}B"
        print(f"{recorder.path}: {what}; gputop replay shows it")
    return code


def log(args: argparse.Namespace, settings: Settings) -> int:
    """Log to a CSV file, until the time is over or somebody ends it."""
    from gputop.export.log import Log

    if settings.readonly:
        raise Failure("--readonly writes no file: `gputop snapshot --format csv` prints rows", USAGE)
    if not hasattr(args, "interval"):
        settings = replace(settings, interval_s=LOG_INTERVAL_S)
    monitor = _opened(args, settings)
    try:
        written = Log(args.file)
    except Refused as refused:
        raise Failure(str(refused)) from None
    # a recording has frames of its own; what is live was asked for them this often
    code = _follow(monitor, written, args.seconds, settings.interval_s if is_recorded(_spec(args)) else 0.0)
    if written.problem:
        raise Failure(f"{written.problem}; {written.missed} looks are missing in {clean(args.file)}")
    return code


def replay(args: argparse.Namespace, settings: Settings) -> int:
    """The full-screen monitor on a recording."""
    return show(open_recording(args.file, pace=True), settings)


def _spec(args: argparse.Namespace) -> str:
    return getattr(args, "source", "live")


def _opened(args: argparse.Namespace, settings: Settings) -> Monitor:
    from gputop.monitor import Monitor
    from gputop.source import Interest

    source = open_source(_spec(args), settings, pace=not is_recorded(_spec(args)))
    source.interest = Interest(activity=True)
    return Monitor(source, settings.thresholds)


def _follow(monitor: Monitor, sink: Sink, seconds: float | None, apart_s: float = 0.0) -> int:
    """Feed a sink for so many seconds of its source, or until it ends or a signal comes; the exit code."""
    over: SimpleQueue[int | Exception | None] = SimpleQueue()
    for number in _ENDINGS:
        signal.signal(number, lambda number, _: over.put(128 + number))
    first_s: float | None = None
    due_s = -math.inf

    def take(update: Update) -> None:
        nonlocal first_s, due_s
        frame, slack_s = update.frame, 0.1 * monitor.source.interval_s
        if first_s is None:
            first_s = frame.mono_s
            for note in frame.notes:
                if note.subject == "driver":
                    sys.stderr.write(f"gputop: {note.text}\n")
        if frame.mono_s >= due_s - slack_s:
            due_s = frame.mono_s + apart_s
            sink.take(update)
        # a frame stands for the time until the next one
        if seconds is not None and frame.mono_s - first_s >= seconds - monitor.source.interval_s - slack_s:
            over.put(None)
            monitor.stop()

    monitor.start(take, over.put)
    ended = _watched(over, lambda: sink.problem)
    monitor.stop()
    if isinstance(ended, Exception):
        raise Failure(f"collection failed: {type(ended).__name__}: {clean(str(ended))}")
    return OK if ended is None else ended


def _watched(over: SimpleQueue[int | Exception | None], problem: Callable[[], str | None]) -> int | Exception | None:
    """Wait for the end; what goes wrong meanwhile is said once, and that it goes on."""
    said: str | None = None
    while True:
        try:
            return over.get(timeout=_NOTICE_S)
        except Empty:
            now = problem()
            if now != said and (now is None or said is None):
                sys.stderr.write(f"gputop: {now or 'it goes on'}\n")
                said = now


def _record_arguments(parser: argparse.ArgumentParser) -> None:
    file(parser, "file", metavar="FILE", help="a file, packed if it ends in .gz; - to print")
    _for(parser)


def _log_arguments(parser: argparse.ArgumentParser) -> None:
    file(parser, "file", metavar="FILE.csv", help="a new file, or an older log, which is gone on with")
    _for(parser)


def _for(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--for", dest="seconds", type=duration, metavar="T", help="how long: 90s, 15m, 8h (until Ctrl+C)"
    )


def _replay_arguments(parser: argparse.ArgumentParser) -> None:
    file(parser, "file", metavar="FILE", help="a recording; - for standard input")


COMMANDS = (
    Command(name="record", help="record what is seen, for replay", run=record, arguments=_record_arguments),
    Command(name="replay", help="the monitor on a recording", run=replay, arguments=_replay_arguments, screen=True),
    Command(name="log", help="log every GPU to a CSV file", run=log, arguments=_log_arguments),
)

"""Commands that record to a file, and the one that replays it."""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gputop import units
from gputop.alerts import attach, due
from gputop.cli.options import USAGE, CliCommand, Failure, file, no_commands, only_names, positive_duration
from gputop.cli.screen import show
from gputop.cli.sources import close_alerts, follow, is_recorded, open_recording, open_source
from gputop.labels import amount
from gputop.safe.files import Refused
from gputop.safe.text import clean

if TYPE_CHECKING:
    from gputop.config import Settings
    from gputop.monitor import Monitor

LOG_INTERVAL_S = 5.0


def record(args: argparse.Namespace, settings: Settings) -> int:
    """Record to a file or standard output until the time is over or a signal arrives."""
    from gputop.record.recorder import Recorder

    streamed = args.file == "-"
    if settings.readonly and not streamed:
        raise Failure("--readonly writes no file: record to - (standard output), or omit --readonly", USAGE)
    if not streamed and _same_file(args.file, _spec(args)):
        raise Failure(f"{clean(args.file)} is the source itself: record to another file", USAGE)
    monitor = _open_monitor(args, settings, raw=True)
    alerts = attach(monitor, _alerts(args, settings), settings_path=settings.origin.path, readonly=settings.readonly)
    try:
        recorder = Recorder(args.file, wait=is_recorded(_spec(args)))
    except Refused as refused:
        raise Failure(str(refused)) from None
    code = follow(monitor, recorder, args.seconds, alerts=alerts)
    close_alerts(alerts)
    if not recorder.close():
        raise Failure("the disk does not respond: the end of the recording was not written")
    if recorder.problem:
        raise Failure(f"{recorder.problem}; {recorder.path} contains {amount(recorder.frames, 'frame')}")
    if not streamed:
        what = f"{amount(recorder.frames, 'frame')}, {units.size(recorder.size_bytes)}B"
        print(f"{recorder.path}: {what}; play it with `gputop replay`")
    return code


def log(args: argparse.Namespace, settings: Settings) -> int:
    """Log to a CSV file or standard output until the time is over or a signal arrives."""
    from gputop.export.log import Log

    if settings.readonly and args.file != "-":
        raise Failure("--readonly writes no file: log to - (standard output), or omit --readonly", USAGE)
    if "interval" not in settings.origin.given:
        settings = replace(settings, interval_s=LOG_INTERVAL_S)
    monitor = _open_monitor(args, settings)
    try:
        written = Log(args.file)
    except Refused as refused:
        raise Failure(str(refused)) from None
    # a recording has its own frames; a live source is sampled at this interval
    code = follow(monitor, written, args.seconds, settings.interval_s if is_recorded(_spec(args)) else 0.0)
    if written.problem:
        raise Failure(f"{written.problem}; {written.name} lacks {amount(written.missed, 'sample')}")
    return code


def replay(args: argparse.Namespace, settings: Settings) -> int:
    """The full-screen monitor on a recording."""
    return show(open_recording(args.file, pace=True), settings)


def _same_file(one: str, other: str) -> bool:
    """Whether two names refer to one file; opening it reports one that is missing or inaccessible."""
    try:
        return Path(one).samefile(other)
    except OSError:
        return False


def _spec(args: argparse.Namespace) -> str:
    return getattr(args, "source", "live")


def _alerts(args: argparse.Namespace, settings: Settings) -> object:
    """The alerts to send; none where another gputop of the site sends them."""
    return None if getattr(args, "no_alerts", False) else settings.alerts


def _open_monitor(args: argparse.Namespace, settings: Settings, *, raw: bool = False) -> Monitor:
    from gputop.monitor import Monitor
    from gputop.source import Interest

    source = open_source(_spec(args), settings, pace=not is_recorded(_spec(args)))
    source.interest = Interest(extended=True)
    # a recording is judged when it is opened, with the rules of today, but alerts may need findings now
    plan = due(_alerts(args, settings), source) if raw else None
    unjudged = 0 if plan and plan.judges else math.inf
    return Monitor(source, settings.thresholds, unjudged=unjudged, through=only_names(args), raw=raw)


def _record_arguments(parser: argparse.ArgumentParser) -> None:
    file(parser, "file", metavar="FILE", help="file to write, compressed if it ends in .gz; - for standard output")
    _duration_argument(parser)
    parser.add_argument(
        "--no-alerts", action="store_true", help="send no alerts of the settings: another gputop of this host does"
    )
    no_commands(parser)


def _log_arguments(parser: argparse.ArgumentParser) -> None:
    file(parser, "file", metavar="FILE.csv", help="file to create or append to; - for standard output")
    _duration_argument(parser)


def _duration_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--for", dest="seconds", type=positive_duration, metavar="T", help="duration: 90s, 15m, 8h (until Ctrl+C)"
    )


def _replay_arguments(parser: argparse.ArgumentParser) -> None:
    file(parser, "file", metavar="FILE", help="recording to open; - for standard input")


COMMANDS = (
    CliCommand(
        name="record",
        help="record the monitor's samples to a file",
        examples=(
            "gputop record --for 8h night.jsonl.gz",
            "gputop record --source demo:thermal --for 1m thermal.jsonl.gz",
        ),
        run=record,
        arguments=_record_arguments,
    ),
    CliCommand(
        name="replay",
        help="open a recording in the monitor",
        examples=("gputop replay night.jsonl.gz", "gputop record - | gputop replay -"),
        run=replay,
        arguments=_replay_arguments,
        screen=True,
    ),
    CliCommand(
        name="log",
        help="log every GPU to a CSV file",
        examples=("gputop log --for 8h gpus.csv", "gputop log --source demo:thermal --for 1m -"),
        run=log,
        arguments=_log_arguments,
        interval=f"{LOG_INTERVAL_S:g}",
    ),
)

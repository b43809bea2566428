"""The commands that print what the screen shows, and exit."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from queue import Queue
from typing import TYPE_CHECKING

from gputop.cli.line import OK, USAGE, Command, Failure, no_commands, only_names, plain
from gputop.cli.opening import is_recorded, open_source, say_damage, uncollected

if TYPE_CHECKING:
    from gputop.config import Settings
    from gputop.monitor import Update

PATIENCE_S = 5.0  # a table without the GPUs of a driver that takes seconds to open would say that there are none


def snapshot(args: argparse.Namespace, settings: Settings) -> int:
    """Print what the screen would show, `count` times; what is wrong with the driver goes to standard error."""
    if args.count < 1:
        raise Failure(f"--count {args.count} prints nothing: use 1 or more", USAGE)
    from gputop.monitor import Monitor

    arrived: Queue[Update | Exception | None] = Queue(
        maxsize=8
    )  # a reader that stalls stops the source, not the machine
    spec = getattr(args, "source", "live")
    source = open_source(spec, settings, pace=not is_recorded(spec), patience_s=PATIENCE_S)
    unjudged = 0 if args.format == "json" else math.inf  # nothing else has what the rules say
    monitor = Monitor(source, settings.thresholds, unjudged=unjudged, through=only_names(args))
    monitor.start(arrived.put, arrived.put)
    # late: the source has its first look meanwhile
    from gputop.export.formats import FORMATS

    write = FORMATS[args.format](sys.stdout, ascii=plain(settings))
    updates: Iterator[Update | Exception] = iter(arrived.get, None)
    for number, update in enumerate(updates, 1):
        if isinstance(update, Exception):
            raise uncollected(update)
        if number == 1:
            for note in update.frame.notes:
                if note.subject == "driver":
                    sys.stderr.write(f"gputop: {note.text}\n")
        write(update)
        sys.stdout.flush()
        if number == args.count:
            if damaged := update.frame.note("recording-damaged"):  # what comes later was not asked for
                sys.stderr.write(f"gputop: {damaged.text}\n")
            return OK
    say_damage(source)
    return OK


def _snapshot_arguments(snapshot: argparse.ArgumentParser) -> None:
    snapshot.add_argument("--format", choices=("text", "json", "jsonl", "csv"), default="text")
    snapshot.add_argument("--count", type=int, default=1, metavar="N", help="how many (1)")
    no_commands(snapshot)


COMMANDS = (
    Command(name="snapshot", help="print what the screen shows, and exit", run=snapshot, arguments=_snapshot_arguments),
)

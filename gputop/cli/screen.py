"""The commands that open the full-screen monitor, or print what it shows and exit."""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
from collections.abc import Iterable, Iterator, MutableMapping
from queue import Queue
from typing import TYPE_CHECKING

from gputop.cli.options import OK, USAGE, Command, Failure, Suggestions, no_commands, only_names, plain
from gputop.cli.sources import is_recorded, open_source, say_damage, uncollected

if TYPE_CHECKING:
    from gputop.config import Settings
    from gputop.monitor import Update
    from gputop.source import Source


def monitor(args: argparse.Namespace, settings: Settings) -> int:
    """The full-screen monitor."""
    return show(open_source(getattr(args, "source", "live"), settings), settings)


def show(source: Source, settings: Settings) -> int:
    """The monitor on a source; Failure where there is no terminal."""
    from gputop.safe import terminal

    if problem := terminal.problem():
        raise Failure(f"{problem}; `gputop --once` prints one table instead", USAGE)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # a pipe to a child that ends is no end of the screen
    _calm(os.environ)
    from gputop.ui.start import run

    return run(source, settings)


def _calm(environ: MutableMapping[str, str]) -> None:
    """Textual reads its settings when it is imported. Root does not take them from whoever called sudo."""
    if os.geteuid() == 0:
        for name in [name for name in environ if name.startswith("TEXTUAL")]:
            del environ[name]
    environ.setdefault("TEXTUAL_ANIMATIONS", "none")
    environ.setdefault("TEXTUAL_SMOOTH_SCROLL", "0")


def demo(args: argparse.Namespace, settings: Settings) -> int:
    """The monitor on a simulated server, or the list of them."""
    if args.list:
        from gputop.demo import SCENARIOS

        width = max(map(len, SCENARIOS))
        for name, scenario in SCENARIOS.items():
            print(f"{name:{width}}  {scenario.title}")
        return OK
    args.source = f"demo:{args.name}"
    return monitor(args, settings)


def _demo_arguments(demo: argparse.ArgumentParser) -> None:
    demo.add_argument(
        "name",
        nargs="?",
        default="showcase",
        metavar="NAME",
        choices=Suggestions(_scenarios),
        help="which one (showcase)",
    )
    demo.add_argument("--list", action="store_true", help="name them all")


def _scenarios() -> Iterable[str]:
    from gputop.demo import SCENARIOS

    return SCENARIOS


_WHOLE = ("json", "jsonl")  # the formats that hold every metric
PATIENCE_S = 5.0  # a table without the GPUs of a driver that takes seconds to open would say that there are none


def snapshot(args: argparse.Namespace, settings: Settings) -> int:
    """Print what the screen would show, `count` times; what is wrong with the driver goes to standard error."""
    if args.count < 1:
        raise Failure(f"--count {args.count} prints nothing: use 1 or more", USAGE)
    from gputop.monitor import Monitor
    from gputop.source import Interest

    arrived: Queue[Update | Exception | None] = Queue(
        maxsize=8
    )  # a reader that stalls stops the source, not the machine
    spec = getattr(args, "source", "live")
    source = open_source(spec, settings, pace=not is_recorded(spec), patience_s=PATIENCE_S)
    source.interest = Interest(extended=args.format in _WHOLE)
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
    Command(name="demo", help="the monitor on a simulated server", run=demo, arguments=_demo_arguments, screen=True),
    Command(name="snapshot", help="print what the screen shows, and exit", run=snapshot, arguments=_snapshot_arguments),
)

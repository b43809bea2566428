"""Commands that open the full-screen monitor, or print its contents and exit."""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
from collections.abc import Iterable, Iterator, MutableMapping
from queue import Queue
from typing import TYPE_CHECKING

from gputop.cli import hosts
from gputop.cli.options import OK, USAGE, CliCommand, Failure, Suggestions, ascii_only, no_commands, only_names
from gputop.cli.sources import end_error, is_recorded, open_source, report_damage

if TYPE_CHECKING:
    from gputop.config import Settings
    from gputop.monitor import Update
    from gputop.source import Source


def monitor(args: argparse.Namespace, settings: Settings) -> int:
    """The full-screen monitor, of this machine or of several hosts."""
    if hosts.asked(args):
        return hosts.show(args, settings, prepare_screen)
    return show(open_source(getattr(args, "source", "live"), settings), settings)


def show(source: Source, settings: Settings) -> int:
    """The monitor on a source; Failure without a terminal."""
    prepare_screen()
    from gputop.ui.start import run

    return run(source, settings)


def prepare_screen() -> None:
    """What precedes the import of the screen; Failure without a terminal."""
    from gputop.safe import terminal

    if problem := terminal.problem():
        raise Failure(f"{problem}; use `gputop --once` to print one table", USAGE)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # a broken pipe to a child must not end the screen
    _clear_textual_settings(os.environ)


def _clear_textual_settings(environ: MutableMapping[str, str]) -> None:
    """Remove Textual's variables before it is imported: root ignores those of the user of sudo."""
    if os.geteuid() == 0:
        for name in [name for name in environ if name.startswith("TEXTUAL")]:
            del environ[name]
    environ.setdefault("TEXTUAL_ANIMATIONS", "none")
    environ.setdefault("TEXTUAL_SMOOTH_SCROLL", "0")


def demo(args: argparse.Namespace, settings: Settings) -> int:
    """The monitor on a simulated server, or the list of scenarios."""
    if args.list:
        from gputop.demo import SCENARIOS

        width = max(map(len, SCENARIOS))
        for name, scenario in SCENARIOS.items():
            print(f"{name:{width}}  {scenario.title}")
        return OK
    return show(open_source(f"demo:{args.name}", settings), settings)


def _demo_arguments(demo: argparse.ArgumentParser) -> None:
    demo.add_argument(
        "name",
        nargs="?",
        default="showcase",
        metavar="NAME",
        choices=Suggestions(_scenarios),
        help="scenario to simulate (showcase)",
    )
    demo.add_argument("--list", action="store_true", help="list all scenarios")


def _scenarios() -> Iterable[str]:
    from gputop.demo import SCENARIOS

    return SCENARIOS


_WHOLE = ("json", "jsonl")  # formats with every metric
PATIENCE_S = 5.0  # a table without GPUs, while the driver is still opening, would be wrong


def snapshot(args: argparse.Namespace, settings: Settings) -> int:
    """Print the screen's contents `count` times; driver problems go to standard error."""
    if args.count < 1:
        raise Failure(f"--count must be 1 or more, not {args.count}", USAGE)
    if hosts.asked(args):
        return hosts.print_once(args, settings)
    from gputop.monitor import Monitor
    from gputop.source import Interest

    arrived: Queue[Update | Exception | None] = Queue(maxsize=8)  # a slow reader pauses the source, not the machine
    spec = getattr(args, "source", "live")
    source = open_source(spec, settings, pace=not is_recorded(spec), patience_s=PATIENCE_S)
    source.interest = Interest(extended=args.format in _WHOLE)
    unjudged = 0 if args.format == "json" else math.inf  # other formats do not contain the findings
    monitor = Monitor(source, settings.thresholds, unjudged=unjudged, through=only_names(args))
    monitor.start(arrived.put, arrived.put)
    # imported late: the source takes its first sample in the meantime
    from gputop.export.formats import FORMATS

    write = FORMATS[args.format](sys.stdout, ascii=ascii_only(settings))
    updates: Iterator[Update | Exception] = iter(arrived.get, None)
    for number, update in enumerate(updates, 1):
        if isinstance(update, Exception):
            raise end_error(update)
        if number == 1:
            for note in update.frame.notes:
                if note.subject == "driver":
                    sys.stderr.write(f"gputop: {note.text}\n")
        write(update)
        sys.stdout.flush()
        if number == args.count:
            if damaged := update.frame.note("recording-damaged"):  # later frames were not requested
                sys.stderr.write(f"gputop: {damaged.text}\n")
            return OK
    report_damage(source)
    return OK


def _snapshot_arguments(snapshot: argparse.ArgumentParser) -> None:
    snapshot.add_argument(
        "--format", choices=("text", "json", "jsonl", "csv"), default="text", help="output format (text)"
    )
    snapshot.add_argument("--count", type=int, default=1, metavar="N", help="number of samples (1)")
    no_commands(snapshot)


COMMANDS = (
    CliCommand(
        name="demo",
        help="monitor a simulated server; needs no GPU",
        examples=(
            "gputop demo            # a server with several problems",
            "gputop demo thermal    # a GPU in hardware thermal slowdown",
        ),
        run=demo,
        arguments=_demo_arguments,
        screen=True,
    ),
    CliCommand(
        name="snapshot",
        help="print the monitor's tables once and exit",
        examples=(
            "gputop snapshot",
            "gputop snapshot --format csv --count 60 > gpus.csv    # one minute",
        ),
        run=snapshot,
        arguments=_snapshot_arguments,
    ),
)

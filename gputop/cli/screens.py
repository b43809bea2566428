"""The commands that open the full-screen monitor."""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Iterable, MutableMapping
from typing import TYPE_CHECKING

from gputop.cli.line import OK, USAGE, Command, Failure, Names
from gputop.cli.opening import open_source

if TYPE_CHECKING:
    from gputop.config import Settings
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
        "name", nargs="?", default="showcase", metavar="NAME", choices=Names(_scenarios), help="which one (showcase)"
    )
    demo.add_argument("--list", action="store_true", help="name them all")


def _scenarios() -> Iterable[str]:
    from gputop.demo import SCENARIOS

    return SCENARIOS


COMMANDS = (
    Command(name="demo", help="the monitor on a simulated server", run=demo, arguments=_demo_arguments, screen=True),
)

"""The command line: reads the settings, opens a source, picks a sink, and imports both late."""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING, NoReturn

from gputop import __version__, config, units
from gputop.safe import files, identity
from gputop.safe.text import clean

if TYPE_CHECKING:
    from gputop.config import Settings
    from gputop.monitor import Update
    from gputop.source import Source

OK, FAILED, USAGE = 0, 1, 64
PATIENCE_S = 5.0  # a table without the GPUs of a driver that takes seconds to open would say that there are none
SHELLS = ("bash", "zsh", "tcsh")


class Failure(Exception):
    """A clear failure: one line that says what, why and what to do, and the exit code."""

    def __init__(self, text: str, code: int = FAILED) -> None:
        super().__init__(text)
        self.code = code


class Parser(argparse.ArgumentParser):
    """argparse with one line for wrong usage, and our exit code for it."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where help is; exit 64."""
        # a glob puts the names of other people's files on the command line
        sys.stderr.write(f"gputop: {clean(message)}; see {self.prog} --help\n")
        raise SystemExit(USAGE)


def _duration(text: str) -> float:
    try:
        return units.duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _common() -> Parser:
    """The flags that every command takes, before or after its name."""
    common = Parser(add_help=False, argument_default=argparse.SUPPRESS)
    group = common.add_argument_group("everywhere")
    group.add_argument("--source", metavar="live|demo:NAME", help="where the numbers come from")
    group.add_argument("--interval", type=_duration, metavar="S", help="seconds between samples (1)")
    group.add_argument("--readonly", action="store_true", help="nothing that changes a process or a file")
    group.add_argument("--ascii", action="store_const", const="on", help="draw with ASCII characters only")
    group.add_argument("--no-mouse", dest="mouse", action="store_false", help="leave the mouse to the terminal")
    group.add_argument("--no-nvml", dest="nvml", action="store_false", help="never call the NVIDIA driver")
    group.add_argument(
        "--gpm", choices=("on", "off", "auto"), help="read SM, tensor and DRAM activity (Hopper and newer)"
    )
    group.add_argument("--config", metavar="FILE", help="settings file (~/.config/gputop/config.toml)")
    return common


def parser() -> argparse.ArgumentParser:
    """The whole command line, as --help and the shell completions show it."""
    common = _common()
    top = Parser(
        "gputop", description="Why is training slow? GPUs, jobs and processes on one screen.", parents=[common]
    )
    top.add_argument("--version", action="version", version=f"gputop {__version__}")
    top.add_argument("--once", action="store_true", help="print one table and exit (snapshot)")
    top.add_argument("--json", action="store_true", help="print one JSON object and exit (snapshot --format json)")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)

    def command(name: str, help: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=help, description=help, parents=[common])

    demo = command("demo", "the monitor on a simulated server")
    demo.add_argument("name", nargs="?", default="showcase", metavar="NAME", help="which one (showcase)")
    demo.add_argument("--list", action="store_true", help="name them all")
    snapshot = command("snapshot", "print what the screen shows, and exit")
    snapshot.add_argument("--format", choices=("text", "json", "jsonl", "csv"), default="text")
    snapshot.add_argument("--count", type=int, default=1, metavar="N", help="how many (1)")
    for name, help in (
        ("metrics", "every metric, its unit and its meaning"),
        ("columns", "every column of the process table"),
        ("keys", "every key"),
    ):
        command(name, help)
    docs = command("docs", "read the manual")
    docs.add_argument("topic", nargs="?", metavar="TOPIC", help="one page; without it, the list of pages")
    completions = command("completions", "print the completion script of a shell")
    completions.add_argument("shell", choices=SHELLS)
    command("reset-terminal", "heal a terminal that a crash left in a strange mode")
    return top


def open_source(spec: str, settings: Settings, *, pace: bool = True, patience_s: float | None = None) -> Source:
    """The source a --source spelling names. Without pace a demo runs to its end as fast as it can.

    `patience_s` is how long a first frame waits for a driver that is slow to open; else not for long.
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
    if kind == "demo" and name:
        from gputop.demo import open_demo

        try:
            return open_demo(name, pace=pace, interval_s=settings.interval_s)
        except ValueError as error:
            raise Failure(str(error), USAGE) from None
    raise Failure(f"{spec!r} is not a source: use live or demo:NAME; `gputop demo --list` names the demos", USAGE)


def monitor(args: argparse.Namespace, settings: Settings) -> int:
    """The full-screen monitor."""
    from gputop.safe import terminal

    source = open_source(getattr(args, "source", "live"), settings)
    if problem := terminal.problem():
        raise Failure(f"{problem}; `gputop --once` prints one table instead", USAGE)
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


def snapshot(args: argparse.Namespace, settings: Settings) -> int:
    """Print what the screen would show, `count` times; what is wrong with the driver goes to standard error."""
    if args.count < 1:
        raise Failure(f"--count {args.count} prints nothing: use 1 or more", USAGE)
    from gputop.monitor import Monitor

    arrived: Queue[Update | Exception | None] = Queue(
        maxsize=8
    )  # a reader that stalls stops the source, not the machine
    source = open_source(getattr(args, "source", "live"), settings, patience_s=PATIENCE_S)
    Monitor(source).start(arrived.put, arrived.put)
    # late: the source has its first look meanwhile
    from gputop.export import FORMATS

    write = FORMATS[args.format](sys.stdout, ascii=config.plain(settings.ascii, sys.stdout.encoding))
    updates: Iterator[Update | Exception] = iter(arrived.get, None)
    for number, update in enumerate(updates, 1):
        if isinstance(update, Exception):
            raise Failure(f"collection failed: {type(update).__name__}: {clean(str(update))}")
        if number == 1:
            for note in update.frame.notes:
                if note.subject == "driver":
                    sys.stderr.write(f"gputop: {note.text}\n")
        write(update)
        sys.stdout.flush()
        if number == args.count:
            break
    return OK


def page(args: argparse.Namespace, settings: Settings) -> int:  # noqa: ARG001
    """A page of the manual: a topic, or one of the lists that are made from the declarations."""
    from gputop import docs

    topic = args.topic if args.command == "docs" else args.command
    if topic is None:
        for name, title in docs.topics():
            print(f"{name:15} {title}")
        return OK
    try:
        print(docs.read(topic), end="")
    except KeyError:
        names = ", ".join(name for name, _ in docs.topics())
        raise Failure(f"there is no page {topic!r}: use one of {names}", USAGE) from None
    return OK


def completions(args: argparse.Namespace, settings: Settings) -> int:  # noqa: ARG001
    """The completion script of one shell, as shipped."""
    print((Path(__file__).parent / "completions" / f"gputop.{args.shell}").read_text(), end="")
    return OK


def reset_terminal(args: argparse.Namespace, settings: Settings) -> int:  # noqa: ARG001
    """Heal the terminal."""
    from gputop.safe import terminal

    if problem := terminal.reset_terminal():
        raise Failure(f"{problem}; run it in the terminal that is to be healed")
    return OK


COMMANDS: dict[str, Callable[[argparse.Namespace, Settings], int]] = {
    "monitor": monitor,
    "demo": demo,
    "snapshot": snapshot,
    "metrics": page,
    "columns": page,
    "keys": page,
    "docs": page,
    "completions": completions,
    "reset-terminal": reset_terminal,
}
SCREENS = {"monitor", "demo"}


def _chosen(args: argparse.Namespace) -> str:
    """The command, where --once and --json stand for one."""
    if args.once or args.json:
        if args.command:
            raise Failure(f"--once and --json are commands of their own: leave out {args.command!r}", USAGE)
        args.format, args.count = ("json" if args.json else "text"), 1
        return "snapshot"
    return args.command or "monitor"


def _settings(args: argparse.Namespace) -> Settings:
    """The settings of this run; what could not be used is said in one line."""
    flags = {key: value for key, value in vars(args).items() if key in config.FLAGS}
    try:
        settings, warnings = config.load(getattr(args, "config", None), os.environ, flags, files.read_settings)
    except ValueError as error:
        raise Failure(str(error), USAGE) from None
    for warning in warnings:
        sys.stderr.write(f"gputop: {warning}\n")
    return settings


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit code."""
    args = parser().parse_args(argv)
    try:
        if refusal := identity.borrowed_rights():
            raise Failure(refusal, USAGE)
        name = _chosen(args)
        if name not in SCREENS:
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `gputop --once | head` ends as any Unix tool does
            if sys.stdout is None:
                raise Failure("standard output is closed")
            if isinstance(sys.stdout, io.TextIOWrapper):
                sys.stdout.reconfigure(errors="replace")  # what the locale's encoding does not have is `?`
        code = COMMANDS[name](args, _settings(args))
        sys.stdout.flush()
        return code
    except Failure as failure:
        sys.stderr.write(f"gputop: {failure}\n")
        return failure.code
    except OSError as error:  # a full disk; nothing of what is left is tried again at exit
        sys.stderr.write(f"gputop: not everything could be written: {error.strerror}\n")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return FAILED
    except KeyboardInterrupt:
        return 128 + signal.SIGINT

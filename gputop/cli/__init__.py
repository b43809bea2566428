"""The command line: read the settings, open a source, choose a sink, and import both late.

A command is declared in one of the modules here and listed in its COMMANDS.
"""

from __future__ import annotations

import argparse
import gc
import io
import os
import shlex
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gputop import __version__, config
from gputop.cli import (
    alerts,
    attach,
    diagnose,
    doctor,
    explain,
    export,
    fleet,
    hosts,
    lab,
    manual,
    mcp,
    memory,
    proven,
    record,
    run,
    scaffold,
    screen,
    signals,
)
from gputop.cli.options import (
    BROKEN,
    FAILED,
    INTERVAL,
    USAGE,
    CliCommand,
    Failure,
    OneLineParser,
    common_flags,
    no_commands,
    write_failure,
)
from gputop.safe import files, identity, terminal
from gputop.safe.text import clean

if TYPE_CHECKING:
    from gputop.config import Settings

MONITOR = CliCommand(name="monitor", help="the full-screen monitor", run=screen.monitor, screen=True)  # without a name
TASKS = {  # the commands by what one wants to do
    "Monitor a server": ("demo", "snapshot", "record", "replay", "log", "alerts", "signal"),
    "Find out why training is slow": ("diagnose", "stack", "profile", "trace", "memory", "explain"),
    "Tune a training job and prove the gain": ("loader", "lab", "maxbatch", "scaffold", "recipe", "proven"),
    "Monitor a fleet": ("fleet", "export"),
    "Set up a machine": ("doctor", "run", "env", "mcp", "completions", "reset-terminal"),
    "Read the manual": ("docs", "rules", "metrics", "columns", "keys"),
}
COMMANDS: dict[str, CliCommand] = {
    command.name: command
    for module in (
        screen,
        diagnose,
        proven,
        record,
        alerts,
        export,
        fleet,
        attach,
        signals,
        doctor,
        run,
        lab,
        memory,
        explain,
        scaffold,
        mcp,
        manual,
    )
    for command in module.COMMANDS
}
_WITHOUT_COMMANDS = ("record", "snapshot", "diagnose")  # their output may leave the machine


def parser() -> argparse.ArgumentParser:
    """The whole command line, for --help and the shell completions."""
    everywhere = {
        interval: common_flags(interval) for interval in {INTERVAL, *(one.interval for one in COMMANDS.values())}
    }
    top = OneLineParser(
        "gputop",
        usage="gputop [OPTIONS] [COMMAND] ...",
        description="Shows GPUs, jobs and processes on one screen, and why training is slow.\n"
        "Without a command: the full-screen monitor of this machine.",
        epilog="gputop COMMAND --help shows the options of a command, and examples.",
        parents=[everywhere[INTERVAL]],
    )
    top.task_groups = TASKS
    top.add_argument("--version", action="version", version=f"gputop {__version__}")
    top.add_argument("--once", action="store_true", help="print one table and exit, as snapshot does")
    top.add_argument("--json", action="store_true", help="print one JSON object and exit")
    no_commands(top)
    hosts.add_arguments(top)
    commands = top.add_subparsers(prog="gputop", dest="command", metavar="COMMAND", parser_class=OneLineParser)
    for command in COMMANDS.values():
        flags = everywhere[command.interval]
        text = f"{command.help[0].upper()}{command.help[1:]}."
        examples = "\n  ".join(("examples:", *command.examples))
        command.arguments(
            commands.add_parser(command.name, help=command.help, description=text, epilog=examples, parents=[flags])
        )
    return top


def _chosen(args: argparse.Namespace) -> CliCommand:
    """The command, with --once and --json mapped to one."""
    if args.command and hosts.asked(args):
        raise Failure(
            f"--host and --hosts-from open the monitor, or print with --once or --json: omit {args.command}", USAGE
        )
    if args.once or args.json:
        if args.command:
            remedy = "write them after fleet" if args.command == "fleet" else f"omit {args.command}"
            raise Failure(f"--once and --json take no command: {remedy}", USAGE)
        args.format, args.count = ("json" if args.json else "text"), 1
        return COMMANDS["snapshot"]
    chosen = COMMANDS[args.command] if args.command else MONITOR
    if "no_commands" in args and chosen.name not in _WITHOUT_COMMANDS:
        raise Failure(f"--no-commands applies to {', '.join(_WITHOUT_COMMANDS)}, --once and --json", USAGE)
    return chosen


def _settings(args: argparse.Namespace) -> Settings:
    """The settings of this run; prints what could not be used, and the screen, which covers that, shows it again."""
    try:
        settings, warnings = _loaded(args)
    except ValueError as error:
        raise Failure(str(error), USAGE) from None
    for warning in warnings:
        sys.stderr.write(f"gputop: {warning}\n")
    return settings


def _loaded(args: argparse.Namespace) -> tuple[Settings, tuple[str, ...]]:
    flags = {key: value for key, value in vars(args).items() if key in config.FLAGS}
    return config.load(getattr(args, "config", None), os.environ, flags, files.read_settings, _remap, _adopt, _arrange)


def _remap(table: object) -> tuple[Mapping[str, tuple[str, ...]], list[str], list[str]]:
    from gputop.ui.commands.remap import remap

    return remap(table)


def _adopt(path: object) -> tuple[config.Thresholds | None, list[str]]:
    from gputop import thresholds

    return thresholds.site(path, files.read_settings)


def _arrange(alerts: object, receivers: object) -> tuple[object, list[str]]:
    from gputop.alerts.plan import parse

    return parse(alerts, receivers)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit code. An internal error is one line, too, with how to report it."""
    # imports and frames create no cycles: collecting at every 700 new objects takes a tenth of the startup
    gc.set_threshold(10_000)
    if sys.stderr is None:  # closed: output there goes nowhere, and no file may get its number
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123 open for the whole run
    given = list(sys.argv[1:] if argv is None else argv)
    if argv is None:  # we own the whole process; the screen replaces these
        threading.excepthook = lambda args: _report_error(args.exc_value, given)
        sys.unraisablehook = lambda args: _report_error(args.exc_value, given)
    try:
        return _run(given, whole=argv is None)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except Exception as error:
        _report_error(error, given)
        return BROKEN


def _report_error(error: BaseException | None, argv: Sequence[str]) -> None:
    """Report an unexpected error in one line, with the file that has its details, if one may be written."""
    if error is not None and not isinstance(error, SystemExit):
        from gputop.safe.crash import last_resort

        sys.stderr.write(f"{last_resort(error, shlex.join(['gputop', *argv]), keep=_may_write(argv))}\n")


def _may_write(argv: Sequence[str]) -> bool:
    try:
        return not _loaded(parser().parse_args(argv))[0].readonly
    except (Exception, SystemExit):  # these may be what is broken
        return False


def _run(argv: Sequence[str], *, whole: bool) -> int:
    """Run a command line; a command's failure is one line. `whole`: we own the whole process."""
    args = parser().parse_args(argv)
    try:
        if refusal := identity.borrowed_rights():
            raise Failure(refusal, USAGE)
        command = _chosen(args)
        if whole:  # `gputop --once | head` ends as any Unix tool does
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        if not command.opens_screen(args):
            if whole:
                terminal.end_when_deaf()
            if sys.stdout is None:
                raise Failure("standard output is closed")
            if isinstance(sys.stdout, io.TextIOWrapper):
                sys.stdout.reconfigure(errors="replace")  # characters outside the locale's encoding become `?`
        code = command.run(args, _settings(args))
        sys.stdout.flush()
        return code
    except Failure as failure:
        sys.stderr.write(f"gputop: {clean(str(failure))}\n")
        return failure.code
    except OSError as error:
        if error.filename is not None:  # not from output: a command read a file without checking it
            raise
        sys.stderr.write(f"gputop: {write_failure(error)}\n")
        return FAILED
